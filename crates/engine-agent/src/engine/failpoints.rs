//! The failpoints of an engine agent.

/// The engine has answered its warm-up and has a permit; it is not registered.
pub const BEFORE_REGISTER: &str = "engine_agent.register.before";
/// It is registered; nobody was told.
pub const REGISTERED: &str = "engine_agent.register.done";
/// The order to drain was seen.
pub const DRAIN_BEGUN: &str = "engine_agent.drain.begun";
/// A session was opened at the engine, its answer is not sent.
pub const SESSION_OPENED: &str = "engine_agent.session.opened";
/// A statement was accepted by the engine, its answer is not sent.
pub const STATEMENT_ACCEPTED: &str = "engine_agent.statement.accepted";

/// All of them.
pub const ALL: &[&str] = &[BEFORE_REGISTER, REGISTERED, DRAIN_BEGUN, SESSION_OPENED, STATEMENT_ACCEPTED];
