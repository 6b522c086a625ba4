//! What the client of a call receives.
//!
//! The functions that serve a call return a [`Reply`] or a [`CallError`]. Only the connection handler, which knows the
//! method and the sequence number, encodes and sends them; a backend's reply has been relayed before.

use std::fmt;

use hs2::answer::{Answer, encode_refusal};
use hs2::message::encode_reply;
use hs2::relay::RelayError;
use hs2::tcli::{TCloseOperationResp, TExecuteStatementResp, TGetOperationStatusResp, TOperationState, TOperationType};
use hs2::{Handle, Method, WireError, status};
use model::error::{ErrorKind, UserError};

/// The reply to a call that was not refused.
pub(crate) enum Reply {
    /// A backend's reply, which the client has received already.
    Relayed,
    /// A response of the proxy's own, which is sent next.
    Own(Box<dyn Response>),
}

/// The response struct of any method.
pub(crate) trait Response: Send {
    fn encode(&self, method: Method, seqid: i32) -> Vec<u8>;
}

impl<T: Answer + Send> Response for T {
    fn encode(&self, method: Method, seqid: i32) -> Vec<u8> {
        encode_reply(method.name(), seqid, self)
    }
}

impl<T: Answer + Send + 'static> From<T> for Reply {
    fn from(response: T) -> Self {
        Self::Own(Box::new(response))
    }
}

/// Why a call has no such reply.
pub(crate) enum CallError {
    /// The client receives the error in the method's own response struct.
    Refused(UserError),
    /// The operation that the call names has failed: its status reports the error, it can be closed, and other calls are
    /// refused.
    OperationFailed(UserError),
    Disconnect(Disconnect),
}

impl From<UserError> for CallError {
    fn from(error: UserError) -> Self {
        Self::Refused(error)
    }
}

impl From<Disconnect> for CallError {
    fn from(reason: Disconnect) -> Self {
        Self::Disconnect(reason)
    }
}

/// Why a client connection is closed without a reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Disconnect {
    /// The client closed its connection during this, which is a clause such as *its statement ran*.
    #[error("the client closed its connection while {during}")]
    ClientLeft { during: &'static str },
    #[error("another connection closed the session")]
    SessionClosed,
    #[error("the reply could not be sent")]
    Send(#[from] WireError),
    #[error("the reply of the backend could not be relayed")]
    Relay(#[source] RelayError),
}

/// The message to send after a call; `None` if the client has the reply already.
pub(crate) fn encode(
    method: Method,
    seqid: i32,
    served: Result<Reply, CallError>,
) -> Result<Option<Vec<u8>>, Disconnect> {
    let response = match served {
        Ok(Reply::Relayed) => return Ok(None),
        Ok(Reply::Own(response)) => response,
        Err(CallError::OperationFailed(error)) if method == Method::GetOperationStatus => {
            let mut response = status::operation(TOperationState::ERROR_STATE);
            status::operation_error(&error, &mut response);
            Box::new(response)
        }
        Err(CallError::OperationFailed(_)) if method == Method::CloseOperation => Box::new(closed()),
        Err(CallError::Refused(error) | CallError::OperationFailed(error)) => {
            return Ok(Some(encode_refusal(method, seqid, &error)));
        }
        Err(CallError::Disconnect(reason)) => return Err(reason),
    };
    Ok(Some(response.encode(method, seqid)))
}

pub(crate) fn not_supported(method: Method) -> CallError {
    UserError::new(ErrorKind::NotSupported, format!("{} is not supported", method.name())).into()
}

/// The error of a call whose arguments are not what the protocol defines.
pub(crate) fn malformed(method: Method, error: &dyn fmt::Display) -> UserError {
    let error = error.to_string();
    let reason = error.strip_prefix("malformed message: ").unwrap_or(&error);
    UserError::new(ErrorKind::Syntax, format!("malformed {} request", method.name())).detail(format!("{reason}."))
}

/// The response to an `ExecuteStatement`: a handle of the proxy's own.
pub(crate) fn accepted(handle: &Handle, has_result: bool) -> TExecuteStatementResp {
    let operation_handle = Some(handle.operation(TOperationType::EXECUTE_STATEMENT, has_result));
    TExecuteStatementResp { status: status::success(), operation_handle }
}

/// The response to a `CloseOperation`.
pub(crate) fn closed() -> TCloseOperationResp {
    TCloseOperationResp { status: status::success() }
}

/// The response to a `GetOperationStatus`: the statement runs.
pub(crate) fn running() -> TGetOperationStatusResp {
    TGetOperationStatusResp { has_result_set: Some(true), ..status::operation(TOperationState::RUNNING_STATE) }
}
