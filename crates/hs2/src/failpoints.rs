//! The failpoints of the relay.

/// The request was sent to the backend; its reply has not begun.
pub const RELAY_REQUEST_SENT: &str = "hs2.relay.request_sent";

/// The beginning of the reply was read; nothing of it was sent to the client.
pub const RELAY_REPLY_BEGUN: &str = "hs2.relay.reply_begun";

pub const ALL: &[&str] = &[RELAY_REQUEST_SENT, RELAY_REPLY_BEGUN];
