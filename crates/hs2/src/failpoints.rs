//! The points at which a test can stop a relay.

/// The request was sent to the backend, its reply has not begun.
pub const RELAY_REQUEST_SENT: &str = "hs2.relay.request_sent";

/// The reply's beginning is known, the client has seen nothing of it.
pub const RELAY_REPLY_BEGUN: &str = "hs2.relay.reply_begun";

/// All of them.
pub const ALL: &[&str] = &[RELAY_REQUEST_SENT, RELAY_REPLY_BEGUN];
