//! The points at which a test can stop or kill this crate, in the order in which they are passed.

/// `ensure` holds the directory lock and its epoch was accepted; nothing is made yet.
pub const ENSURE_ADMITTED: &str = "orchestrator.ensure.admitted";
/// The name is taken and locked; no process was started.
pub const ENSURE_PLACED: &str = "orchestrator.ensure.placed";
/// The process runs; its id is not written down.
pub const ENSURE_SPAWNED: &str = "orchestrator.ensure.spawned";
/// The process runs and its id is written down; the answer is not given.
pub const ENSURE_RECORDED: &str = "orchestrator.ensure.recorded";
/// `delete` holds the directory lock and its epoch was accepted; nothing is done yet.
pub const DELETE_ADMITTED: &str = "orchestrator.delete.admitted";
/// It is written down that the engine must end; it was not told.
pub const DELETE_MARKED: &str = "orchestrator.delete.marked";
/// The engine was told to end.
pub const DELETE_SIGNALLED: &str = "orchestrator.delete.signalled";
/// The engine is dead and out of the list; its files are not removed.
pub const REMOVE_RENAMED: &str = "orchestrator.remove.renamed";

/// All of them.
pub const ALL: &[&str] = &[
    ENSURE_ADMITTED,
    ENSURE_PLACED,
    ENSURE_SPAWNED,
    ENSURE_RECORDED,
    DELETE_ADMITTED,
    DELETE_MARKED,
    DELETE_SIGNALLED,
    REMOVE_RENAMED,
];
