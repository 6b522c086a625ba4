//! The relay: sends a call to a backend and its reply to the client, over [`hs2::relay`].
//!
//! [`relay()`] takes the calls that an engine executes, [`forward`] those about an operation that is at a backend. An engine
//! that drains refuses before it executes anything: this error, and no other, permits sending the call to another engine.
//! Any call that an engine may have accepted is never sent again.

mod exchange;
pub(crate) mod forward;
mod liveness;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hs2::relay::{Decision, Outcome};
use hs2::scan::{self, Reply};
use hs2::tcli::TExecuteStatementResp;
use hs2::{Connection, Handle, Message, status};
use model::error::{ErrorKind, UserError};
use model::statement_timeout::shorter;
use tracing::{info, warn};

use crate::failpoints;
use crate::gateway::Gateway;
use crate::session::operation::{EngineCall, Operation, OperationState};
use crate::session::reply::Disconnect;
use crate::session::state::{BoundEngine, Session};
use crate::session::table::Entry;
use crate::session::timeout;
use crate::settings::TIMEOUT_GRACE;
use exchange::{Failure, exchange};

/// The destination of an engine's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deliver {
    /// The client, with a new handle of the proxy's own in place of the engine's.
    ToClient,
    /// Nowhere: the client has been given this handle already.
    Nowhere(Handle),
}

/// What became of a call that was relayed to the current engine.
pub(crate) enum Relayed {
    /// The client has its reply.
    Delivered,
    /// Not delivered: the statement runs at the engine under this handle.
    Running { binding: u64, handle: Handle },
    /// Not delivered: the engine rejected the statement.
    Refused(UserError),
    /// The engine drains or closed its session: nothing was executed, and the session is unbound.
    Draining(UserError),
    /// The connection broke: the outcome of the call is unknown.
    Lost(UserError),
    /// The timeout of the statement passed, before it was sent or while the engine ran it.
    TimedOut(UserError),
}

/// The content of an engine's reply, as far as the proxy reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The call succeeded; with the engine's handle if it created an operation.
    Accepted(Option<Handle>),
    Refused,
    Draining,
    SessionClosed,
}

impl Verdict {
    fn new(reply: &Reply, bytes: &[u8]) -> Self {
        if reply.is_error(ErrorKind::EngineDraining, bytes) {
            Self::Draining
        } else if reply.is_error(ErrorKind::EngineSessionLost, bytes) {
            Self::SessionClosed
        } else if reply.succeeded() {
            Self::Accepted(reply.handle.and_then(|at| at.read(bytes).ok()))
        } else {
            Self::Refused
        }
    }
}

/// Relays a call to the current engine.
pub(crate) async fn relay(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Entry,
    session: &mut Session,
    call: &EngineCall,
    deliver: Deliver,
) -> Result<Relayed, Disconnect> {
    let relayed = relay_to_engine(gateway, connection, entry, session, call, deliver).await;
    session.engine_used(gateway.clock.boottime());
    relayed
}

async fn relay_to_engine(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Entry,
    session: &mut Session,
    call: &EngineCall,
    deliver: Deliver,
) -> Result<Relayed, Disconnect> {
    let Some((binding, engine)) =
        session.current.and_then(|binding| Some((binding, session.engines.get_mut(binding)?)))
    else {
        return Ok(Relayed::Lost(UserError::internal("no engine is bound")));
    };
    let now = gateway.clock.boottime();
    let left = match (call.timeout, unit_timeout(gateway, engine).filter(|_| call.is_statement())) {
        (Some(timeout), _) if timeout.left(now).is_zero() => return Ok(Relayed::TimedOut(timeout.error())),
        (Some(timeout), of_unit) => shorter(Some(timeout.left(now)), of_unit),
        (None, of_unit) => of_unit,
    };
    let route = Arc::clone(&engine.route);
    let ours = match deliver {
        Deliver::ToClient => Handle::random(),
        Deliver::Nowhere(handle) => handle,
    };
    let mut verdict = None;
    let decide = |reply: &Reply, bytes: &[u8]| {
        let decided = *verdict.insert(Verdict::new(reply, bytes));
        match (deliver, decided) {
            (Deliver::Nowhere(_), _) | (_, Verdict::Draining | Verdict::SessionClosed) => Decision::Buffer,
            (Deliver::ToClient, Verdict::Accepted(Some(_))) => {
                // Before the client receives the handle: it may use it on another connection at once.
                gateway.sessions.add_operation(ours, &entry.handle);
                Decision::ForwardAs(ours)
            }
            (Deliver::ToClient, Verdict::Accepted(None) | Verdict::Refused) => Decision::Forward,
        }
    };
    let exchanged = match addressed(engine, call, left) {
        Ok(request) => {
            let deadline = left.map_or(call.deadline(), |left| (left + TIMEOUT_GRACE).min(call.deadline()));
            let given_up = pin!(liveness::given_up(gateway, &route, deadline));
            exchange(connection, &request, &mut engine.client, given_up, decide).await
        }
        Err(error) => Err(Failure::Broken(format!("the call could not be addressed: {error}"))),
    };
    let is_broken = engine.client.is_broken();
    if let Some(Verdict::Accepted(handle)) = verdict
        && matches!(exchanged, Ok(_) | Err(Failure::Client(_)))
    {
        accepted(session, call, handle);
        if let Some(handle) = handle {
            entry.record_at_engine(ours, route, handle);
            if deliver == Deliver::ToClient {
                let running = call.running_after_reply();
                let operation = Operation::new(OperationState::AtEngine { binding, handle, running });
                session.operations.insert(ours, operation);
            }
        }
    }
    let reply = match exchanged {
        Ok(Outcome::Forwarded { .. }) => return Ok(Relayed::Delivered),
        Ok(Outcome::Buffered(reply)) => reply,
        Err(Failure::Client(disconnect)) => {
            if is_broken {
                session.drop_current_engine("the client closed its connection while a statement ran");
            }
            return Err(disconnect);
        }
        Err(Failure::Backend(reason) | Failure::Broken(reason)) => {
            let taken = gateway.clock.boottime().saturating_sub(now);
            return Ok(match left.filter(|left| taken >= *left) {
                Some(left) => {
                    session.lose_engine(binding, "a statement did not end at its timeout");
                    Relayed::TimedOut(timeout::timed_out(left))
                }
                None => Relayed::Lost(lost(gateway, session, binding, &reason)),
            });
        }
    };
    Ok(match verdict {
        Some(Verdict::Draining) => draining(gateway, session, binding),
        Some(Verdict::SessionClosed) => session_closed(session, binding),
        Some(Verdict::Accepted(Some(handle))) => Relayed::Running { binding, handle },
        Some(Verdict::Accepted(None) | Verdict::Refused) | None => Relayed::Refused(refusal(&reply)),
    })
}

/// The call as it is sent to the engine: with its session's handle and the remaining time.
fn addressed(engine: &BoundEngine, call: &EngineCall, left: Option<Duration>) -> Result<Message, scan::ScanError> {
    let mut bytes = call.message.bytes().to_vec();
    let request = scan::request(&bytes)?;
    if let Some(at) = &request.handle {
        at.patch(&mut bytes, &engine.session)?;
    }
    if let Some(left) = left {
        request.set_query_timeout(&mut bytes, timeout::seconds(left));
    }
    Message::new(bytes)
}

/// The statement timeout of the unit that the engine was created from.
fn unit_timeout(gateway: &Gateway, engine: &BoundEngine) -> Option<Duration> {
    let reading = gateway.catalog.reading();
    model::statement_timeout::from_properties(&reading.snapshot.catalog.unit(&engine.route.unit)?.properties)
}

/// Applies the effect of a call that the engine accepted to the session.
fn accepted(session: &mut Session, call: &EngineCall, handle: Option<Handle>) {
    match call.text() {
        Some(text) => session.statement_accepted(text, handle.filter(|_| call.run_async)),
        // Text that is not UTF-8: only the engine can parse it.
        None if call.is_statement() => session.pin_to_engine(),
        None => {}
    }
}

/// The engine failed or did not reply.
fn lost(gateway: &Gateway, session: &mut Session, binding: u64, reason: &str) -> UserError {
    let Some(engine) = session.engines.get(binding) else {
        return session.lose_engine(binding, reason);
    };
    gateway.routes.mark_unreachable(&engine.route);
    let reason = gateway.catalog.with_engine_reason(&engine.route.engine, reason);
    let error = session.lose_engine(binding, &reason);
    warn!(error = error.message, reason, "engine lost while a statement was sent");
    error
}

/// The engine no longer has this one session, and executed nothing. Its other sessions are not affected, so its route is
/// not marked.
fn session_closed(session: &mut Session, binding: u64) -> Relayed {
    let error = session.lose_engine(binding, "the engine has closed the session");
    match &session.lost {
        Some(lost) => Relayed::Lost(lost.as_ref().clone()),
        None => Relayed::Draining(error),
    }
}

/// The engine refused because it drains. A pinned session cannot move.
fn draining(gateway: &Gateway, session: &mut Session, binding: u64) -> Relayed {
    model::failpoint!(failpoints::HANDOVER);
    let Some(bound) = session.engines.get(binding) else {
        return Relayed::Lost(UserError::internal("no engine is bound"));
    };
    let engine = bound.route.engine.clone();
    let error = UserError::new(ErrorKind::ConnectionLost, format!("engine \"{engine}\" is being replaced"));
    gateway.routes.mark_draining(&bound.route);
    if bound.pinned {
        return Relayed::Lost(
            error.detail("The engine holds state of the session that cannot be moved.").hint("Open a new session."),
        );
    }
    info!(%engine, "engine is draining; moving the session");
    session.unbind();
    Relayed::Draining(error.detail("Nothing of the statement was executed.").hint("Retry the statement."))
}

/// The error in the reply of an engine that did not accept a statement.
fn refusal(reply: &[u8]) -> UserError {
    let decoded: Result<TExecuteStatementResp, _> = hs2::message::decode_reply(reply);
    match decoded {
        Ok(response) => status::check(&response.status)
            .err()
            .unwrap_or_else(|| UserError::internal("the engine replied without an operation")),
        Err(error) => error.user_error("the engine"),
    }
}
