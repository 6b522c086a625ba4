//! The failpoints of this crate, in the order in which they are passed.

/// `ensure` has begun on a thread that is not cancelled; its epoch is not checked yet. (Processes only.)
pub const ENSURE_BEGUN: &str = "orchestrator.ensure.begun";
/// The epoch of `ensure` was accepted (processes: the directory lock is held); nothing is created yet.
pub const ENSURE_ADMITTED: &str = "orchestrator.ensure.admitted";
/// The name is taken: locked without a process, or by a pod without its other objects.
pub const ENSURE_PLACED: &str = "orchestrator.ensure.placed";
/// The process runs; its pid is not recorded. (Processes only.)
pub const ENSURE_SPAWNED: &str = "orchestrator.ensure.spawned";
/// The engine is complete: the process runs and its pid is recorded, or the pod has all its objects; the call has not returned.
pub const ENSURE_RECORDED: &str = "orchestrator.ensure.recorded";
/// The namespace of a tenant's engines is created, without its service account and permissions. (Pods only.)
pub const NAMESPACE_MADE: &str = "orchestrator.namespace.made";
/// `delete` has begun on a thread that is not cancelled; its epoch is not checked yet. (Processes only.)
pub const DELETE_BEGUN: &str = "orchestrator.delete.begun";
/// The epoch of `delete` was accepted (processes: the directory lock is held); it has no effect yet.
pub const DELETE_ADMITTED: &str = "orchestrator.delete.admitted";
/// The deletion is recorded; the engine is not signalled. (Processes only.)
pub const DELETE_MARKED: &str = "orchestrator.delete.marked";
/// The engine is signalled, or the delete of its pod was sent; the result is not evaluated yet.
pub const DELETE_SIGNALLED: &str = "orchestrator.delete.signalled";
/// The engine is dead and no longer listed; its files are not removed. (Processes only.)
pub const REMOVE_RENAMED: &str = "orchestrator.remove.renamed";

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
