//! The failpoints of this crate: the step boundaries of its transactions.

/// The commit of an alteration holds the catalog lock; nothing is written.
pub const COMMIT_LOCKED: &str = "metadata.commit.locked";
/// It has validated everything; nothing is written.
pub const COMMIT_VALIDATED: &str = "metadata.commit.validated";
/// It has inserted its row.
pub const COMMIT_DECIDED: &str = "metadata.commit.decided";
/// It has changed the object.
pub const COMMIT_OBJECT: &str = "metadata.commit.object_written";
/// It has changed the slots.
pub const COMMIT_SLOTS: &str = "metadata.commit.slots_written";
/// It has changed the limits of scopes.
pub const COMMIT_LIMITS: &str = "metadata.commit.limits_written";
/// Just before COMMIT of an alteration.
pub const COMMIT_BEFORE: &str = "metadata.commit.before_commit";
/// Just after COMMIT of an alteration, before the caller has the answer.
pub const COMMIT_AFTER: &str = "metadata.commit.after_commit";
/// Before the insert that loses against a commit.
pub const ABORT_BEFORE: &str = "metadata.abort.before_insert";
/// After it, just before COMMIT.
pub const ABORT_INSERTED: &str = "metadata.abort.before_commit";
/// Just after COMMIT of an abort, before the caller has the answer.
pub const ABORT_AFTER: &str = "metadata.abort.after_insert";
/// START, STOP or RESTART holds the catalog lock; nothing is written.
pub const REQUEST_LOCKED: &str = "metadata.request.locked";
/// It has validated everything; nothing is written.
pub const REQUEST_VALIDATED: &str = "metadata.request.validated";
/// It has changed slot and engines.
pub const REQUEST_WRITTEN: &str = "metadata.request.slot_written";
/// Just before COMMIT of START, STOP or RESTART.
pub const REQUEST_BEFORE: &str = "metadata.request.before_commit";
/// Just after it, before the caller has the answer.
pub const REQUEST_AFTER: &str = "metadata.request.after_commit";
/// Just before COMMIT of the row of a refusal.
pub const REFUSAL_BEFORE: &str = "metadata.refusal.before_commit";
/// Just after it.
pub const REFUSAL_AFTER: &str = "metadata.refusal.after_commit";
/// A master's transaction holds the master's row; nothing is written.
pub const MASTER_LOCKED: &str = "metadata.master.locked";
/// It has written; just before COMMIT.
pub const MASTER_BEFORE: &str = "metadata.master.before_commit";
/// Just after COMMIT, before the master has the answer.
pub const MASTER_AFTER: &str = "metadata.master.after_commit";
/// Slots were added and removed to follow demand; their reservations are not written.
pub const SCALE_SLOTS: &str = "metadata.scale.slots_written";
/// A report of demand has raised the number of its proxy; its keys are not written.
pub const DEMAND_NUMBERED: &str = "metadata.demand.numbered";
/// A report of demand is written; just before COMMIT.
pub const DEMAND_BEFORE: &str = "metadata.demand.before_commit";
/// Just after COMMIT of a report of demand, before the proxy has the answer.
pub const DEMAND_AFTER: &str = "metadata.demand.after_commit";
/// A transaction of the ledger has locked its scopes; nothing is written.
pub const LEDGER_LOCKED: &str = "metadata.ledger.locked";
/// A master's changes of the ledger are written; just before COMMIT.
pub const LEDGER_BEFORE: &str = "metadata.ledger.before_commit";
/// Just after COMMIT, before the master has the answer.
pub const LEDGER_AFTER: &str = "metadata.ledger.after_commit";
/// A holder's change of the ledger is written; just before COMMIT.
pub const RESERVE_BEFORE: &str = "metadata.reserve.before_commit";
/// Just after COMMIT, before the holder has the answer.
pub const RESERVE_AFTER: &str = "metadata.reserve.after_commit";
/// The registration of a capacity, or its end, holds the catalog lock; nothing is written.
pub const REGISTER_LOCKED: &str = "metadata.register.locked";
/// It has changed the limits of its pool.
pub const REGISTER_LIMITS: &str = "metadata.register.limits_written";
/// It is written; just before COMMIT.
pub const REGISTER_BEFORE: &str = "metadata.register.before_commit";
/// Just after COMMIT, before the program has the answer.
pub const REGISTER_AFTER: &str = "metadata.register.after_commit";
/// The scopes of a new user or creator are inserted; just before COMMIT.
pub const SCOPES_BEFORE: &str = "metadata.scopes.before_commit";
/// Just after it.
pub const SCOPES_AFTER: &str = "metadata.scopes.after_commit";
/// A migration has run; just before COMMIT.
pub const MIGRATE_BEFORE: &str = "metadata.migrate.before_commit";
/// Just after it.
pub const MIGRATE_AFTER: &str = "metadata.migrate.after_commit";
/// Old rows are deleted; just before COMMIT.
pub const HOUSEKEEPING_BEFORE: &str = "metadata.housekeeping.before_commit";
/// Just after it.
pub const HOUSEKEEPING_AFTER: &str = "metadata.housekeeping.after_commit";

pub const ALL: &[&str] = &[
    COMMIT_LOCKED,
    COMMIT_VALIDATED,
    COMMIT_DECIDED,
    COMMIT_OBJECT,
    COMMIT_SLOTS,
    COMMIT_LIMITS,
    COMMIT_BEFORE,
    COMMIT_AFTER,
    ABORT_BEFORE,
    ABORT_INSERTED,
    ABORT_AFTER,
    REQUEST_LOCKED,
    REQUEST_VALIDATED,
    REQUEST_WRITTEN,
    REQUEST_BEFORE,
    REQUEST_AFTER,
    REFUSAL_BEFORE,
    REFUSAL_AFTER,
    MASTER_LOCKED,
    MASTER_BEFORE,
    MASTER_AFTER,
    SCALE_SLOTS,
    DEMAND_NUMBERED,
    DEMAND_BEFORE,
    DEMAND_AFTER,
    LEDGER_LOCKED,
    LEDGER_BEFORE,
    LEDGER_AFTER,
    RESERVE_BEFORE,
    RESERVE_AFTER,
    REGISTER_LOCKED,
    REGISTER_LIMITS,
    REGISTER_BEFORE,
    REGISTER_AFTER,
    SCOPES_BEFORE,
    SCOPES_AFTER,
    MIGRATE_BEFORE,
    MIGRATE_AFTER,
    HOUSEKEEPING_BEFORE,
    HOUSEKEEPING_AFTER,
];
