//! The failpoints of this crate: one after each step that ZooKeeper has recorded.

/// The candidate's node is in the queue for the lock.
pub const CANDIDATE_QUEUED: &str = "coordination.election.queued";
/// The lock is won; the caller does not know yet.
pub const LOCK_WON: &str = "coordination.election.won";
/// The alter node is about to be written.
pub const ALTER_BEFORE_MAKE: &str = "coordination.alter.before_make";
/// The alter node is written; its creator has no answer yet.
pub const ALTER_MADE: &str = "coordination.alter.made";
/// The alter node is about to be deleted.
pub const ALTER_BEFORE_DELETE: &str = "coordination.alter.before_delete";
/// The alter node is deleted.
pub const ALTER_DELETED: &str = "coordination.alter.deleted";
/// A permit is written.
pub const PERMIT_CREATED: &str = "coordination.permit.created";
/// The uid is written into the permit.
pub const PERMIT_UID_SET: &str = "coordination.permit.uid_set";
/// A permit is deleted without a drain.
pub const PERMIT_DELETED: &str = "coordination.permit.deleted";
/// An engine is about to register.
pub const ENGINE_BEFORE_REGISTER: &str = "coordination.registry.before_register";
/// An engine is registered.
pub const ENGINE_REGISTERED: &str = "coordination.registry.registered";
/// A drain order is about to be written.
pub const DRAIN_BEFORE: &str = "coordination.drain.before";
/// A drain order is written; permit and registration are deleted.
pub const DRAIN_WRITTEN: &str = "coordination.drain.written";
/// A drain order is removed.
pub const DRAIN_REMOVED: &str = "coordination.drain.removed";
/// A metadata agent is registered.
pub const AGENT_REGISTERED: &str = "coordination.agent.registered";
/// A session expired and a new one is about to be created.
pub const SESSION_EXPIRED: &str = "coordination.session.expired";

/// Every failpoint of this crate.
pub const ALL: &[&str] = &[
    CANDIDATE_QUEUED,
    LOCK_WON,
    ALTER_BEFORE_MAKE,
    ALTER_MADE,
    ALTER_BEFORE_DELETE,
    ALTER_DELETED,
    PERMIT_CREATED,
    PERMIT_UID_SET,
    PERMIT_DELETED,
    ENGINE_BEFORE_REGISTER,
    ENGINE_REGISTERED,
    DRAIN_BEFORE,
    DRAIN_WRITTEN,
    DRAIN_REMOVED,
    AGENT_REGISTERED,
    SESSION_EXPIRED,
];
