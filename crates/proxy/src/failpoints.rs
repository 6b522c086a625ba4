//! The failpoints of a proxy.

/// A session was opened, its answer is not sent.
pub const SESSION_OPENED: &str = "proxy.session.opened";
/// An engine was chosen, nothing was sent to it.
pub const ENGINE_CHOSEN: &str = "proxy.bind.engine_chosen";
/// The engine's session is open, nothing is replayed.
pub const ENGINE_SESSION_OPENED: &str = "proxy.bind.session_opened";
/// A control statement has its id, nothing is sent.
pub const CONTROL_ID_MADE: &str = "proxy.control.id_made";
/// A control statement was sent, its answer is not read.
pub const CONTROL_SENT: &str = "proxy.control.sent";
/// An engine refused because it drains, the next is not chosen.
pub const HANDOVER: &str = "proxy.bind.handover";

/// All of them.
pub const ALL: &[&str] =
    &[SESSION_OPENED, ENGINE_CHOSEN, ENGINE_SESSION_OPENED, CONTROL_ID_MADE, CONTROL_SENT, HANDOVER];
