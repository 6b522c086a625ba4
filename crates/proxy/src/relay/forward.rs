//! Forwards calls about an operation to its backend.
//!
//! A lost engine takes its operations with it. A lost metadata agent is replaced: the statement is started again, under
//! its id, at another.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hs2::relay::{self, Decision, Outcome, RelayError};
use hs2::tcli::{TGetOperationStatusResp, TOperationState};
use hs2::{Client, Connection, Handle, Method, scan, status};
use model::error::{ErrorKind, UserError};
use tracing::{debug, warn};

use super::exchange::{Failure, exchange};
use super::liveness;
use crate::gateway::Gateway;
use crate::origin;
use crate::session::control;
use crate::session::operation::{ControlOperation, Operation, OperationCall, OperationState};
use crate::session::reply::{self, CallError, Reply};
use crate::session::state::{BoundEngine, Session};
use crate::settings::{CALL_DEADLINE, CONTROL_CALL_DEADLINE, SYNCHRONOUS_DEADLINE};

/// How long the engine may take until its reply begins: a fetch may wait for rows.
fn deadline_of(method: Method) -> Duration {
    if method == Method::FetchResults { SYNCHRONOUS_DEADLINE } else { CALL_DEADLINE }
}

/// Whether the operation succeeded, if the reply reports its end.
fn outcome_in(method: Method, reply: &scan::Reply) -> Option<bool> {
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

/// Forwards one call under the backend's handle. Also returns whether the operation succeeded, if its end was reported.
async fn forward(
    connection: &mut Connection,
    call: &mut OperationCall<'_>,
    handle: &Handle,
    to: &mut Client,
    given_up: Pin<&mut (impl Future<Output = RelayError> + Send)>,
) -> Result<(Reply, Option<bool>), Failure> {
    call.address_to(handle).map_err(|error| Failure::Broken(format!("the call could not be addressed: {error}")))?;
    let (method, mut succeeded) = (call.method, None);
    let decide = |reply: &scan::Reply, _: &[u8]| {
        succeeded = outcome_in(method, reply);
        let timed_out = reply.operation_state == Some(TOperationState::TIMEDOUT_STATE.0);
        if timed_out && method == Method::GetOperationStatus { Decision::Buffer } else { Decision::Forward }
    };
    match exchange(connection, &call.message, to, given_up, decide).await? {
        Outcome::Forwarded { .. } => Ok((Reply::Relayed, succeeded)),
        Outcome::Buffered(reply) => Ok((timed_out_status(&reply).into(), succeeded)),
    }
}

/// The status of a statement that its engine ended at its timeout, with the SQLSTATE that Spark leaves out.
fn timed_out_status(reply: &[u8]) -> TGetOperationStatusResp {
    let decoded: Result<TGetOperationStatusResp, _> = hs2::message::decode_reply(reply);
    let mut response = decoded.unwrap_or_else(|_| status::operation(TOperationState::TIMEDOUT_STATE));
    if response.sql_state.is_none() {
        let error = UserError::new(ErrorKind::Timeout, "canceling statement due to statement timeout");
        response.sql_state = Some(error.sqlstate().to_owned());
        response.error_message.get_or_insert(error.message);
    }
    response
}

/// Forwards a call about an operation that is at an engine.
pub(crate) async fn forward_to_engine(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    session: &mut Session,
    operation: &mut Operation,
    call: &mut OperationCall<'_>,
) -> Result<Reply, CallError> {
    let OperationState::AtEngine { binding, handle, .. } = operation.state else {
        return Err(UserError::internal("the operation is at no engine").into());
    };
    let forwarded = match session.engines.get_mut(binding) {
        Some(BoundEngine { client, route, .. }) => {
            let given_up = pin!(liveness::given_up(gateway, route, deadline_of(call.method)));
            forward(connection, call, &handle, client, given_up).await
        }
        None => Err(Failure::Broken("its connection was closed".to_owned())),
    };
    let (reason, failed) = match forwarded {
        Ok((reply, outcome)) => {
            if let Some(succeeded) = outcome {
                operation.ended();
                session.statement_ended(&handle, succeeded);
            }
            return Ok(reply);
        }
        Err(Failure::Client(disconnect)) => return Err(disconnect.into()),
        Err(Failure::Broken(reason)) => (reason, false),
        Err(Failure::Backend(reason)) => (reason, true),
    };
    let reason = match session.engines.get(binding) {
        Some(engine) => {
            if failed {
                gateway.routes.mark_unreachable(&engine.route);
            }
            gateway.catalog.with_engine_reason(&engine.route.engine, &reason)
        }
        None => reason,
    };
    let error = origin::span(connection).in_scope(|| {
        let error = session.lose_engine(binding, &reason);
        if failed && call.method != Method::CloseOperation {
            warn!(error = error.message, reason, "engine lost while a statement was open");
        }
        error
    });
    operation.state = OperationState::Failed(error.clone());
    Err(CallError::OperationFailed(error))
}

/// Forwards a call about a control statement to its metadata agent.
pub(crate) async fn forward_to_agent(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    session: &mut Session,
    operation: &mut ControlOperation,
    mut call: OperationCall<'_>,
) -> Result<Reply, CallError> {
    match forward_once(connection, session, operation, &mut call).await {
        Ok(reply) => return Ok(reply),
        Err(Failure::Client(disconnect)) => return Err(disconnect.into()),
        Err(Failure::Backend(reason) | Failure::Broken(reason)) => debug!(reason, "metadata agent lost"),
    }
    if call.method == Method::CloseOperation {
        return Ok(reply::closed().into());
    }
    control::restart(gateway, session, operation).await.map_err(CallError::OperationFailed)?;
    if call.method == Method::GetOperationStatus {
        return Ok(reply::running().into());
    }
    control::await_end(gateway, session, operation).await.map_err(CallError::OperationFailed)?;
    match forward_once(connection, session, operation, &mut call).await {
        Ok(reply) => Ok(reply),
        Err(Failure::Client(disconnect)) => Err(disconnect.into()),
        Err(Failure::Backend(reason) | Failure::Broken(reason)) => {
            let error = UserError::new(ErrorKind::Unavailable, "connection to every metadata agent failed")
                .detail(format!("Last failure: {reason}."))
                .hint("See SHOW ALTERATIONS for the outcome of the statement.");
            Err(CallError::OperationFailed(error))
        }
    }
}

async fn forward_once(
    connection: &mut Connection,
    session: &mut Session,
    operation: &mut ControlOperation,
    call: &mut OperationCall<'_>,
) -> Result<Reply, Failure> {
    let (channel, _) = session.control();
    match channel.agent_of(&operation.running) {
        Some((client, handle)) => {
            let given_up = pin!(relay::deadline_passed(CONTROL_CALL_DEADLINE));
            let (reply, _) = forward(connection, call, &handle, client, given_up).await?;
            operation.fetched |= call.method == Method::FetchResults && !call.is_about_log();
            Ok(reply)
        }
        None => Err(Failure::Broken("the connection to the metadata agent was closed".to_owned())),
    }
}
