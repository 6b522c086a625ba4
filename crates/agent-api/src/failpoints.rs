//! The step boundaries of a call, by name.

/// A call is about to be sent; nothing has left this process.
pub const CLIENT_SEND: &str = "agent_api.client.send";
/// Its answer has come; the caller doesn't have it yet.
pub const CLIENT_ANSWERED: &str = "agent_api.client.answered";
/// The agent has read a call; nothing is done.
pub const SERVER_READ: &str = "agent_api.server.read";
/// The agent has done what was asked; the answer is not sent.
pub const SERVER_DONE: &str = "agent_api.server.done";

/// All of them.
pub const ALL: &[&str] = &[CLIENT_SEND, CLIENT_ANSWERED, SERVER_READ, SERVER_DONE];
