//! The failpoints of a metadata agent's write path, in the order of its steps.

/// The statement was parsed and authorized; nothing was written.
pub const ALTER_CHECKED: &str = "agent.alter.checked";
/// The alter node was created; the transaction has not begun.
pub const ALTER_NODE_MADE: &str = "agent.alter.node_made";
/// The transaction was committed; the reply is not sent.
pub const ALTER_COMMITTED: &str = "agent.alter.committed";
/// The transaction failed; its id is not aborted yet.
pub const ALTER_BEFORE_ABORT: &str = "agent.alter.before_abort";
/// The id was aborted; the reply is not sent.
pub const ALTER_ABORTED: &str = "agent.alter.aborted";
/// START, STOP or RESTART was parsed; its transaction has not begun.
pub const REQUEST_CHECKED: &str = "agent.request.checked";
/// Its transaction was committed; the bell was not rung.
pub const REQUEST_COMMITTED: &str = "agent.request.committed";
/// The bell was rung; the reply is not sent.
pub const REQUEST_RUNG: &str = "agent.request.rung";

pub const ALL: &[&str] = &[
    ALTER_CHECKED,
    ALTER_NODE_MADE,
    ALTER_COMMITTED,
    ALTER_BEFORE_ABORT,
    ALTER_ABORTED,
    REQUEST_CHECKED,
    REQUEST_COMMITTED,
    REQUEST_RUNG,
];
