//! The failpoints of an engine agent.

/// The warm-up succeeded and the permit exists; the engine is not registered.
pub const BEFORE_REGISTER: &str = "engine_agent.register.before";
/// The engine is registered; the agent has not recorded it.
pub const REGISTERED: &str = "engine_agent.register.done";
/// The drain order was read.
pub const DRAIN_BEGUN: &str = "engine_agent.drain.begun";
/// A session was opened at the engine; the reply is not sent.
pub const SESSION_OPENED: &str = "engine_agent.session.opened";
/// The engine accepted a statement; the reply is not sent.
pub const STATEMENT_ACCEPTED: &str = "engine_agent.statement.accepted";

pub const ALL: &[&str] = &[BEFORE_REGISTER, REGISTERED, DRAIN_BEGUN, SESSION_OPENED, STATEMENT_ACCEPTED];
