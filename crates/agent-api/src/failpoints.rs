//! The failpoints of a call.

/// A call is about to be sent; nothing has left this process.
pub const CLIENT_SEND: &str = "agent_api.client.send";
/// Its response has arrived; the caller does not have it yet.
pub const CLIENT_ANSWERED: &str = "agent_api.client.answered";
/// The agent has read a call; nothing is done.
pub const SERVER_READ: &str = "agent_api.server.read";
/// The agent has executed the call; the response is not sent.
pub const SERVER_DONE: &str = "agent_api.server.done";

pub const ALL: &[&str] = &[CLIENT_SEND, CLIENT_ANSWERED, SERVER_READ, SERVER_DONE];
