//! Calls about an operation that is at an engine or at a metadata agent: relayed, and what it means when the other end
//! is lost.
//!
//! An engine that is lost takes its operations along. A metadata agent that is lost is replaced: the statement is begun
//! again, under its id, at another.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hs2::relay::{self, Decision, Outcome, RelayError};
use hs2::scan::{Reply, Request};
use hs2::tcli::{TGetOperationStatusResp, TOperationState};
use hs2::{Client, Connection, Handle, Message, Method};
use model::error::{ErrorKind, UserError};
use tracing::{debug, warn};

use super::binding::{self, Bound};
use super::control::{self, ControlOperation};
use super::liveness;
use super::operation::{FETCH_LOG, Operation, Place, answer_failed, closed, state};
use super::statement::note_ended;
use super::{Gone, Session, answer, refuse, send};
use crate::Gateway;
use crate::settings::{CALL_DEADLINE, CONTROL_CALL_DEADLINE, SYNCHRONOUS_DEADLINE};

/// How long the backend has before its answer begins: a fetch may wait for rows.
fn deadline_of(method: Method) -> Duration {
    if method == Method::FetchResults { SYNCHRONOUS_DEADLINE } else { CALL_DEADLINE }
}

/// What a relay that failed means for whoever called it.
enum Failed {
    Backend(String),
    /// Nothing was sent: the connection had been closed, or a call before was given up half way because its client hung
    /// up, which says nothing of the engine.
    Broken(String),
    Client(Gone),
}

/// How an engine's answer says that the operation has ended: whether it succeeded.
fn ended(method: Method, reply: &Reply) -> Option<bool> {
    match method {
        Method::GetOperationStatus => match reply.operation_state.map(TOperationState)? {
            TOperationState::FINISHED_STATE => Some(true),
            TOperationState::ERROR_STATE
            | TOperationState::CANCELED_STATE
            | TOperationState::CLOSED_STATE
            | TOperationState::TIMEDOUT_STATE => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Relays a call; whether the operation that it is about has ended by that, and how. `lost` resolves when the backend is
/// taken for lost: until its reply begins, that ends the call.
async fn forward(
    connection: &mut Connection,
    message: &Message,
    to: &mut Client,
    deadline: Duration,
    lost: impl Future<Output = String> + Send,
) -> Result<Option<bool>, Failed> {
    let (method, mut succeeded) = (message.method(), None);
    let begun = AtomicBool::new(false);
    let decide = |reply: &Reply, _: &[u8]| {
        begun.store(true, Ordering::Relaxed);
        succeeded = method.and_then(|method| ended(method, reply));
        let timed_out = reply.operation_state == Some(TOperationState::TIMEDOUT_STATE.0);
        if timed_out && method == Some(Method::GetOperationStatus) { Decision::Hold } else { Decision::Forward }
    };
    let lost_before_reply = async {
        let reason = lost.await;
        // The client has seen part of it: what becomes of the rest is for the relay's own limits.
        if begun.load(Ordering::Relaxed) { pending().await } else { reason }
    };
    let relayed = tokio::select! {
        biased;
        relayed = relay::exchange(connection, message, to, deadline, decide) => relayed,
        reason = lost_before_reply => return Err(Failed::Backend(reason)),
    };
    match relayed {
        Ok(Outcome::Forwarded { .. }) => Ok(succeeded),
        Ok(Outcome::Held(reply)) => {
            let reply = with_sqlstate(message, reply);
            send(connection, &reply).await.map(|()| succeeded).map_err(Failed::Client)
        }
        Err(error @ RelayError::Broken) => Err(Failed::Broken(error.to_string())),
        Err(error) if error.client_is_usable() => Err(Failed::Backend(error.to_string())),
        Err(error @ (RelayError::Client(_) | RelayError::ClientGone | RelayError::Backend { .. })) => {
            Err(Failed::Client(Gone::Client(error.to_string())))
        }
        Err(error) => Err(Failed::Backend(error.to_string())),
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

fn patched(mut message: Message, request: &Request, handle: &Handle) -> Result<Message, UserError> {
    let unreadable = |error| UserError::internal(format!("the call can't be relayed: {error}"));
    if let Some(at) = &request.handle {
        at.patch(message.bytes_mut(), handle).map_err(unreadable)?;
    }
    Ok(message)
}

#[expect(clippy::too_many_arguments, reason = "all of it is one call's context")]
pub(super) async fn relay_engine(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    session: &mut Session,
    binding: u64,
    handle: &Handle,
    message: Message,
    request: &Request,
    operation: &mut Operation,
) -> Result<(), Gone> {
    let (Some(method), seqid) = (message.method(), message.seqid()) else { return Ok(()) };
    let message = match patched(message, request, handle) {
        Ok(message) => message,
        Err(error) => return refuse(connection, method, seqid, &error).await,
    };
    let relayed = match session.engines.get_mut(&binding) {
        Some(Bound { client, route, .. }) => {
            let lost = liveness::lost(gateway, route);
            forward(connection, &message, client, deadline_of(method), lost).await
        }
        None => Err(Failed::Broken("its connection was closed".to_owned())),
    };
    let (reason, of_engine) = match relayed {
        Ok(told) => {
            if let Some(succeeded) = told {
                note_ended(session, handle, succeeded);
            }
            return Ok(());
        }
        Err(Failed::Client(gone)) => return Err(gone),
        Err(Failed::Broken(reason)) => (reason, false),
        Err(Failed::Backend(reason)) => {
            if let Some(bound) = session.engines.get(&binding) {
                gateway.routes.mark_unreachable(&bound.route);
            }
            (reason, true)
        }
    };
    let reason = binding::because(gateway, session, binding, &reason);
    let error = session.lost_engine(binding, &reason);
    if of_engine && method != Method::CloseOperation {
        warn!(error = error.message, reason, "an engine was lost while a statement was open there");
    }
    let answered = answer_failed(connection, method, seqid, &error).await;
    operation.place = Place::Failed(error);
    answered
}

pub(super) async fn relay_control(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    session: &mut Session,
    operation: &mut ControlOperation,
    message: Message,
    request: &Request,
) -> Result<(), Gone> {
    let (Some(method), seqid) = (message.method(), message.seqid()) else { return Ok(()) };
    let message = match patched(message, request, &operation.handle) {
        Ok(message) => message,
        Err(error) => return refuse(connection, method, seqid, &error).await,
    };
    let relayed = match &mut session.control {
        Some(backend) if backend.number == operation.backend => {
            forward(connection, &message, &mut backend.client, CONTROL_CALL_DEADLINE, pending()).await
        }
        _ => Err(Failed::Broken("the metadata agent is gone".to_owned())),
    };
    match relayed {
        Ok(_) => {
            operation.fetched |= method == Method::FetchResults && request.fetch_type != FETCH_LOG;
            return Ok(());
        }
        Err(Failed::Client(gone)) => return Err(gone),
        Err(Failed::Backend(reason) | Failed::Broken(reason)) => debug!(reason, "a metadata agent was lost"),
    }
    if method == Method::CloseOperation {
        return closed(connection, seqid).await;
    }
    if let Err(error) = control::again(gateway, session, operation).await {
        return answer_failed(connection, method, seqid, &error).await;
    }
    if method == Method::GetOperationStatus {
        let response = TGetOperationStatusResp { has_result_set: Some(true), ..state(TOperationState::RUNNING_STATE) };
        return answer(connection, method, seqid, &response).await;
    }
    if let Err(error) = control::await_end(gateway, session, operation).await {
        return answer_failed(connection, method, seqid, &error).await;
    }
    let message = match patched(message, request, &operation.handle) {
        Ok(message) => message,
        Err(error) => return refuse(connection, method, seqid, &error).await,
    };
    let Some(backend) = &mut session.control else {
        return answer_failed(connection, method, seqid, &gateway.agents.none_reachable()).await;
    };
    match forward(connection, &message, &mut backend.client, CONTROL_CALL_DEADLINE, pending()).await {
        Ok(_) => {
            operation.fetched |= method == Method::FetchResults && request.fetch_type != FETCH_LOG;
            Ok(())
        }
        Err(Failed::Client(gone)) => Err(gone),
        Err(Failed::Backend(reason) | Failed::Broken(reason)) => {
            let error = UserError::new(ErrorKind::Unavailable, "the metadata agents are lost one after another")
                .detail(reason)
                .hint("SHOW ALTERATIONS tells what became of the statement");
            answer_failed(connection, method, seqid, &error).await
        }
    }
}
