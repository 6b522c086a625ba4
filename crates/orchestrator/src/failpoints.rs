//! The points at which a test can stop or kill this crate, in the order in which they are passed.

/// `ensure` has begun on a thread that nothing cuts off; its epoch was not compared yet. (Processes only.)
pub const ENSURE_BEGUN: &str = "orchestrator.ensure.begun";
/// The epoch of `ensure` was accepted (processes: the directory lock is held); nothing is made yet.
pub const ENSURE_ADMITTED: &str = "orchestrator.ensure.admitted";
/// The name is taken: locked, and no process was started; or its pod is made, and not what belongs to it.
pub const ENSURE_PLACED: &str = "orchestrator.ensure.placed";
/// The process runs; its id is not written down. (Processes only.)
pub const ENSURE_SPAWNED: &str = "orchestrator.ensure.spawned";
/// All is made: the process runs and its id is written down, or the pod lacks nothing; the answer is not given.
pub const ENSURE_RECORDED: &str = "orchestrator.ensure.recorded";
/// The namespace of a tenant's engines is made, without the account and the rights that belong into it. (Pods only.)
pub const NAMESPACE_MADE: &str = "orchestrator.namespace.made";
/// `delete` has begun on a thread that nothing cuts off; its epoch was not compared yet. (Processes only.)
pub const DELETE_BEGUN: &str = "orchestrator.delete.begun";
/// The epoch of `delete` was accepted (processes: the directory lock is held); nothing is done yet.
pub const DELETE_ADMITTED: &str = "orchestrator.delete.admitted";
/// It is written down that the engine must end; it was not told. (Processes only.)
pub const DELETE_MARKED: &str = "orchestrator.delete.marked";
/// The engine was told to end, or its pod's delete was asked for; what came of it is not looked at yet.
pub const DELETE_SIGNALLED: &str = "orchestrator.delete.signalled";
/// The engine is dead and out of the list; its files are not removed. (Processes only.)
pub const REMOVE_RENAMED: &str = "orchestrator.remove.renamed";

/// All of them.
pub const ALL: &[&str] = &[
    ENSURE_BEGUN,
    ENSURE_ADMITTED,
    ENSURE_PLACED,
    ENSURE_SPAWNED,
    ENSURE_RECORDED,
    NAMESPACE_MADE,
    DELETE_BEGUN,
    DELETE_ADMITTED,
    DELETE_MARKED,
    DELETE_SIGNALLED,
    REMOVE_RENAMED,
];
