//! The named points at which a test can stop or kill a master: one at every step boundary of a tick.

use planner::Action;

use crate::ctx::Effect;

/// The lock is won; the epoch is not raised yet.
pub const LOCK_WON: &str = "master.lock.won";
/// The epoch is raised; no effect has used it.
pub const EPOCH_RAISED: &str = "master.epoch.raised";
/// Orchestrator, registry, drain orders and alter node were read.
pub const OBSERVED: &str = "master.tick.observed";
/// An alteration in doubt is about to be aborted.
pub const ABORT_BEFORE: &str = "master.settle.abort";
/// The alteration is settled, as far as it can be now.
pub const SETTLED: &str = "master.tick.settled";
/// The snapshot is read.
pub const SNAPSHOT_READ: &str = "master.tick.snapshot_read";
/// The plan is made; nothing of it is executed.
pub const PLANNED: &str = "master.tick.planned";
/// The plan is executed; the node of its finished alteration still exists.
pub const EXECUTED: &str = "master.tick.executed";
/// The alter node is about to be deleted.
pub const NODE_BEFORE: &str = "master.node.before";
/// The alter node is deleted.
pub const NODE_DELETED: &str = "master.node.deleted";
/// The rows for SHOW are published.
pub const REPORTED: &str = "master.tick.reported";
/// The lease was checked; the call that creates an instance is not sent yet.
pub const ENGINE_CREATE_CHECKED: &str = "master.before.create_engine";
/// The lease was checked; the call that deletes an instance is not sent yet.
pub const ENGINE_DELETE_CHECKED: &str = "master.before.delete_engine";
/// The lease was checked; a decision that writes to the database is not sent yet.
pub const WRITE_CHECKED: &str = "master.before.write";
/// The writes of one or more decisions are about to be sent to the database; from here on the call is not given up before it is
/// sent.
pub const WRITE_SENDING: &str = "master.write.sending";
/// A permit was created.
pub const PERMIT_CREATED: &str = "master.after.create_permit";
/// An instance was created.
pub const ENGINE_CREATED: &str = "master.after.create_engine";
/// A uid was recorded in the database.
pub const UID_RECORDED: &str = "master.after.record_uid";
/// A uid was written into its permit.
pub const PERMIT_UID_WRITTEN: &str = "master.after.write_permit_uid";
/// A slot got a new incarnation.
pub const INCARNATION_DRAWN: &str = "master.after.draw_incarnation";
/// An end was recorded.
pub const END_RECORDED: &str = "master.after.record_end";
/// A drain order was written.
pub const DRAINED: &str = "master.after.drain";
/// An instance was deleted.
pub const ENGINE_DELETED: &str = "master.after.delete_engine";
/// A permit was deleted.
pub const PERMIT_DELETED: &str = "master.after.delete_permit";
/// A drain order was removed.
pub const DRAIN_ORDER_REMOVED: &str = "master.after.remove_fact";
/// Reservations of the ledger were changed.
pub const LEDGER_CHANGED: &str = "master.after.ledger";
/// A capacity, the end of an admission round, the expiry or the audit was recorded in the ledger.
pub const LEDGER_RECORDED: &str = "master.after.ledger_record";
/// The agent of an engine has agreed to retire, and its slot has a new incarnation.
pub const ENGINE_RETIRED: &str = "master.after.retire";
/// The number of sessions was written into a permit.
pub const PERMIT_SESSIONS_WRITTEN: &str = "master.after.write_permit_sessions";
/// Slots were added and removed to follow demand.
pub const SCALED: &str = "master.after.scale";
/// An alteration's progress was written.
pub const FINISHED: &str = "master.after.finish";

/// All of them.
pub const ALL: &[&str] = &[
    LOCK_WON,
    EPOCH_RAISED,
    OBSERVED,
    ABORT_BEFORE,
    SETTLED,
    SNAPSHOT_READ,
    PLANNED,
    EXECUTED,
    NODE_BEFORE,
    NODE_DELETED,
    REPORTED,
    ENGINE_CREATE_CHECKED,
    ENGINE_DELETE_CHECKED,
    WRITE_CHECKED,
    WRITE_SENDING,
    PERMIT_CREATED,
    ENGINE_CREATED,
    UID_RECORDED,
    PERMIT_UID_WRITTEN,
    INCARNATION_DRAWN,
    END_RECORDED,
    DRAINED,
    ENGINE_DELETED,
    PERMIT_DELETED,
    DRAIN_ORDER_REMOVED,
    LEDGER_CHANGED,
    LEDGER_RECORDED,
    ENGINE_RETIRED,
    PERMIT_SESSIONS_WRITTEN,
    SCALED,
    FINISHED,
];

/// The point between the last check of the lease and the call, for effects that a deposed master could still send: one that
/// stops there makes this one call without noticing.
pub(crate) fn before(effect: &Effect<'_>) -> Option<&'static str> {
    match effect {
        Effect::DeleteAlterNode(_) => Some(NODE_BEFORE),
        Effect::Ledger { .. } => Some(WRITE_CHECKED),
        Effect::Decision(guarded) => match guarded.decision.action {
            Action::CreateEngine(_) => Some(ENGINE_CREATE_CHECKED),
            Action::DeleteEngine { .. } => Some(ENGINE_DELETE_CHECKED),
            Action::RecordUid { .. }
            | Action::DrawIncarnation { .. }
            | Action::RecordEnd { .. }
            | Action::Ledger(_)
            | Action::Retire { .. }
            | Action::Scale(_)
            | Action::Finish { .. } => Some(WRITE_CHECKED),
            // ZooKeeper checks the lock.
            Action::CreatePermit { .. }
            | Action::WritePermitUid { .. }
            | Action::WritePermitSessions { .. }
            | Action::Drain { .. }
            | Action::DeletePermit
            | Action::RemoveDrainOrder => None,
        },
    }
}

/// The point that is passed after an effect.
pub(crate) fn after(effect: &Effect<'_>) -> &'static str {
    match effect {
        Effect::DeleteAlterNode(_) => NODE_DELETED,
        Effect::Ledger { .. } => LEDGER_CHANGED,
        Effect::Decision(guarded) => match guarded.decision.action {
            Action::CreatePermit { .. } => PERMIT_CREATED,
            Action::CreateEngine(_) => ENGINE_CREATED,
            Action::RecordUid { .. } => UID_RECORDED,
            Action::WritePermitUid { .. } => PERMIT_UID_WRITTEN,
            Action::WritePermitSessions { .. } => PERMIT_SESSIONS_WRITTEN,
            Action::DrawIncarnation { .. } => INCARNATION_DRAWN,
            Action::RecordEnd { .. } => END_RECORDED,
            Action::Drain { .. } => DRAINED,
            Action::DeleteEngine { .. } => ENGINE_DELETED,
            Action::DeletePermit => PERMIT_DELETED,
            Action::RemoveDrainOrder => DRAIN_ORDER_REMOVED,
            Action::Ledger(_) => LEDGER_CHANGED,
            Action::Retire { .. } => ENGINE_RETIRED,
            Action::Scale(_) => SCALED,
            Action::Finish { .. } => FINISHED,
        },
    }
}
