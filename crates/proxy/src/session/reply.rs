//! Replies that the proxy itself sends to a client.

use hs2::message::{encode_refusal, encode_reply};
use hs2::tcli::{TCloseOperationResp, TExecuteStatementResp, TGetOperationStatusResp, TOperationState, TOperationType};
use hs2::{Connection, Handle, Method, WireError, status};
use model::error::{ErrorKind, UserError};
use thrift::protocol::TSerializable;

/// Why a client connection is closed without a reply.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Disconnect(String);

impl Disconnect {
    /// The client closed its connection while something happened.
    pub(crate) fn client_left(while_: &str) -> Self {
        Self(format!("the client closed its connection while {while_}"))
    }

    pub(crate) fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl From<WireError> for Disconnect {
    fn from(error: WireError) -> Self {
        Self(format!("the reply could not be sent: {error}"))
    }
}

pub(crate) async fn send(connection: &mut Connection, reply: &[u8]) -> Result<(), Disconnect> {
    Ok(connection.send(reply).await?)
}

/// Replies with the method's own response struct.
pub(crate) async fn answer<T: TSerializable>(
    connection: &mut Connection,
    method: Method,
    seqid: i32,
    answer: &T,
) -> Result<(), Disconnect> {
    send(connection, &encode_reply(method.name(), seqid, answer)).await
}

/// Replies with an error in the method's own response struct.
pub(crate) async fn refuse(
    connection: &mut Connection,
    method: Method,
    seqid: i32,
    error: &UserError,
) -> Result<(), Disconnect> {
    send(connection, &encode_refusal(method, seqid, error)).await
}

pub(crate) async fn not_supported(connection: &mut Connection, method: Method, seqid: i32) -> Result<(), Disconnect> {
    let error = UserError::new(ErrorKind::NotSupported, format!("{} is not supported", method.name()));
    refuse(connection, method, seqid, &error).await
}

/// Replies to an `ExecuteStatement` with a handle of the proxy's own.
pub(crate) async fn accepted(
    connection: &mut Connection,
    seqid: i32,
    handle: Handle,
    has_result: bool,
) -> Result<(), Disconnect> {
    let operation_handle = Some(handle.operation(TOperationType::EXECUTE_STATEMENT, has_result));
    let response = TExecuteStatementResp { status: status::success(), operation_handle };
    answer(connection, Method::ExecuteStatement, seqid, &response).await
}

/// Replies to a `CloseOperation`.
pub(crate) async fn operation_closed(connection: &mut Connection, seqid: i32) -> Result<(), Disconnect> {
    answer(connection, Method::CloseOperation, seqid, &TCloseOperationResp { status: status::success() }).await
}

/// Replies to a `GetOperationStatus` that the statement runs.
pub(crate) async fn still_running(connection: &mut Connection, seqid: i32) -> Result<(), Disconnect> {
    let response =
        TGetOperationStatusResp { has_result_set: Some(true), ..status::operation(TOperationState::RUNNING_STATE) };
    answer(connection, Method::GetOperationStatus, seqid, &response).await
}

/// Replies to a call about an operation that failed.
pub(crate) async fn operation_failed(
    connection: &mut Connection,
    method: Method,
    seqid: i32,
    error: &UserError,
) -> Result<(), Disconnect> {
    match method {
        Method::GetOperationStatus => {
            let mut response = status::operation(TOperationState::ERROR_STATE);
            status::operation_error(error, &mut response);
            answer(connection, method, seqid, &response).await
        }
        Method::CloseOperation => operation_closed(connection, seqid).await,
        _ => refuse(connection, method, seqid, error).await,
    }
}
