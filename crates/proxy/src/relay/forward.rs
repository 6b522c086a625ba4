//! Forwards calls about an operation to its backend.
//!
//! A lost engine takes its operations with it. A lost metadata agent is replaced: the statement is started again, under
//! its id, at another.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use hs2::relay::{Decision, Outcome};
use hs2::scan::{Reply, Request};
use hs2::tcli::{TGetOperationStatusResp, TOperationState};
use hs2::{Client, Connection, Handle, Message, Method, protocol};
use model::error::{ErrorKind, UserError};
use tracing::{debug, warn};

use super::{Failure, exchange, liveness};
use crate::gateway::Gateway;
use crate::session::control;
use crate::session::operation::{ControlOperation, Operation, OperationState};
use crate::session::reply::{self, Disconnect, refuse};
use crate::session::state::{BoundEngine, Session};
use crate::settings::{CALL_DEADLINE, CONTROL_CALL_DEADLINE, SYNCHRONOUS_DEADLINE};

/// How long the engine may take until its reply begins: a fetch may wait for rows.
fn deadline_of(method: Method) -> Duration {
    if method == Method::FetchResults { SYNCHRONOUS_DEADLINE } else { CALL_DEADLINE }
}

/// Whether the operation succeeded, if the reply reports its end.
fn outcome_in(method: Method, reply: &Reply) -> Option<bool> {
    if method != Method::GetOperationStatus {
        return None;
    }
    match reply.operation_state.map(TOperationState)? {
        TOperationState::FINISHED_STATE => Some(true),
        TOperationState::ERROR_STATE
        | TOperationState::CANCELED_STATE
        | TOperationState::CLOSED_STATE
        | TOperationState::TIMEDOUT_STATE => Some(false),
        _ => None,
    }
}

/// Forwards one call; returns whether the operation succeeded if its end was reported.
async fn forward(
    connection: &mut Connection,
    message: &Message,
    to: &mut Client,
    deadline: Duration,
    lost: impl Future<Output = String> + Send,
) -> Result<Option<bool>, Failure> {
    let (method, mut succeeded) = (message.method(), None);
    let decide = |reply: &Reply, _: &[u8]| {
        succeeded = method.and_then(|method| outcome_in(method, reply));
        let timed_out = reply.operation_state == Some(TOperationState::TIMEDOUT_STATE.0);
        if timed_out && method == Some(Method::GetOperationStatus) { Decision::Hold } else { Decision::Forward }
    };
    match exchange(connection, message, to, deadline, lost, decide).await? {
        Outcome::Forwarded { .. } => Ok(succeeded),
        Outcome::Held(held) => {
            let reply = with_sqlstate(message, held);
            reply::send(connection, &reply).await.map(|()| succeeded).map_err(Failure::Client)
        }
    }
}

/// The status of a statement that its engine ended at its timeout, with the SQLSTATE that Spark leaves out.
fn with_sqlstate(call: &Message, reply: Vec<u8>) -> Vec<u8> {
    let decoded: Result<TGetOperationStatusResp, _> = hs2::message::decode_reply(&reply);
    match decoded {
        Ok(mut response) if response.sql_state.is_none() => {
            let error = UserError::new(ErrorKind::Timeout, "canceling statement due to statement timeout");
            response.sql_state = Some(error.sqlstate().to_owned());
            response.error_message.get_or_insert(error.message);
            hs2::message::encode_reply(Method::GetOperationStatus.name(), call.seqid(), &response)
        }
        Ok(_) | Err(_) => reply,
    }
}

/// The message with the backend's handle in place of the proxy's own.
fn patched(mut message: Message, request: &Request, handle: &Handle) -> Result<Message, UserError> {
    if let Some(at) = &request.handle {
        at.patch(message.bytes_mut(), handle)
            .map_err(|error| UserError::internal(format!("the call could not be relayed: {error}")))?;
    }
    Ok(message)
}

/// Forwards a call about an operation that is at an engine.
pub(crate) async fn forward_to_engine(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    session: &mut Session,
    operation: &mut Operation,
    message: Message,
    request: &Request,
) -> Result<(), Disconnect> {
    let OperationState::AtEngine { binding, handle } = operation.state else { return Ok(()) };
    let (Some(method), seqid) = (message.method(), message.seqid()) else { return Ok(()) };
    let message = match patched(message, request, &handle) {
        Ok(message) => message,
        Err(error) => return refuse(connection, method, seqid, &error).await,
    };
    let forwarded = match session.engines.get_mut(&binding) {
        Some(BoundEngine { client, route, .. }) => {
            let lost = liveness::lost(gateway, route);
            forward(connection, &message, client, deadline_of(method), lost).await
        }
        None => Err(Failure::Broken("its connection was closed".to_owned())),
    };
    let (reason, failed) = match forwarded {
        Ok(outcome) => {
            if let Some(succeeded) = outcome {
                session.statement_ended(&handle, succeeded);
            }
            return Ok(());
        }
        Err(Failure::Client(disconnect)) => return Err(disconnect),
        Err(Failure::Broken(reason)) => (reason, false),
        Err(Failure::Backend(reason)) => (reason, true),
    };
    let reason = match session.engines.get(&binding) {
        Some(engine) => {
            if failed {
                gateway.routes.mark_unreachable(&engine.route);
            }
            gateway.catalog.with_engine_reason(&engine.route.engine, &reason)
        }
        None => reason,
    };
    let error = session.lose_engine(binding, &reason);
    if failed && method != Method::CloseOperation {
        warn!(error = error.message, reason, "engine lost while a statement was open");
    }
    let replied = reply::operation_failed(connection, method, seqid, &error).await;
    operation.state = OperationState::Failed(error);
    replied
}

/// Forwards a call about a control statement to its metadata agent.
pub(crate) async fn forward_to_agent(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    session: &mut Session,
    operation: &mut ControlOperation,
    message: Message,
    request: &Request,
) -> Result<(), Disconnect> {
    let (Some(method), seqid) = (message.method(), message.seqid()) else { return Ok(()) };
    let message = match patched(message, request, &operation.handle) {
        Ok(message) => message,
        Err(error) => return refuse(connection, method, seqid, &error).await,
    };
    match forward_once(connection, session, operation, &message, request).await {
        Ok(()) => return Ok(()),
        Err(Failure::Client(disconnect)) => return Err(disconnect),
        Err(Failure::Backend(reason) | Failure::Broken(reason)) => debug!(reason, "metadata agent lost"),
    }
    if method == Method::CloseOperation {
        return reply::operation_closed(connection, seqid).await;
    }
    if let Err(error) = control::restart(gateway, session, operation).await {
        return reply::operation_failed(connection, method, seqid, &error).await;
    }
    if method == Method::GetOperationStatus {
        return reply::still_running(connection, seqid).await;
    }
    if let Err(error) = control::await_end(gateway, session, operation).await {
        return reply::operation_failed(connection, method, seqid, &error).await;
    }
    let message = match patched(message, request, &operation.handle) {
        Ok(message) => message,
        Err(error) => return refuse(connection, method, seqid, &error).await,
    };
    match forward_once(connection, session, operation, &message, request).await {
        Ok(()) => Ok(()),
        Err(Failure::Client(disconnect)) => Err(disconnect),
        Err(Failure::Backend(reason) | Failure::Broken(reason)) => {
            let error = UserError::new(ErrorKind::Unavailable, "connection to every metadata agent failed")
                .detail(format!("Last failure: {reason}."))
                .hint("See SHOW ALTERATIONS for the outcome of the statement.");
            reply::operation_failed(connection, method, seqid, &error).await
        }
    }
}

async fn forward_once(
    connection: &mut Connection,
    session: &mut Session,
    operation: &mut ControlOperation,
    message: &Message,
    request: &Request,
) -> Result<(), Failure> {
    match &mut session.control {
        Some(backend) if backend.number == operation.backend => {
            forward(connection, message, &mut backend.client, CONTROL_CALL_DEADLINE, pending()).await?;
            operation.fetched |=
                message.method() == Some(Method::FetchResults) && request.fetch_type != protocol::FETCH_LOG;
            Ok(())
        }
        _ => Err(Failure::Broken("the connection to the metadata agent was closed".to_owned())),
    }
}
