//! Calls that name an operation: status, results, close. Cancel is in [`cancel`](super::cancel).

use std::sync::Arc;

use hs2::scan::Request;
use hs2::tcli::{
    TFetchOrientation, TFetchResultsResp, TGetOperationStatusResp, TGetResultSetMetadataResp, TOperationState,
};
use hs2::{Connection, Handle, Message, Method, protocol, rowset, schema, status};
use model::error::{ErrorKind, UserError};

use super::operation::{LocalResult, OperationState};
use super::reply::{self, Disconnect, answer, not_supported, refuse};
use super::table::Entry;
use super::waiting;
use crate::gateway::Gateway;
use crate::relay::forward::{forward_to_agent, forward_to_engine};
use crate::settings::MAX_FETCH_ROWS;

pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    named: Handle,
    message: Message,
    request: &Request,
) -> Result<(), Disconnect> {
    let (Some(method), seqid) = (message.method(), message.seqid()) else { return Ok(()) };
    let mut session = entry.state.lock().await;
    let Some(mut operation) = session.operations.remove(&named) else {
        let error = UserError::new(ErrorKind::WrongState, "operation does not exist");
        return refuse(connection, method, seqid, &error).await;
    };
    if method == Method::FetchResults && request.fetch_type == protocol::FETCH_LOG {
        let (start, lines) = operation.read_log(max_rows(request), from_start(request));
        let has_backend = matches!(operation.state, OperationState::AtEngine { .. } | OperationState::Control(_));
        if !lines.is_empty() || !has_backend {
            session.operations.insert(named, operation);
            let results = Some(rowset::lines(start as i64, lines));
            let response = TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results };
            return answer(connection, method, seqid, &response).await;
        }
    }
    if let OperationState::Waiting(_) = operation.state
        && method == Method::GetOperationStatus
    {
        waiting::step(gateway, connection, entry, (&mut session, named), &mut operation).await;
    }
    let served = match &mut operation.state {
        OperationState::Local(local) => answer_local(connection, method, seqid, local, request).await,
        OperationState::Waiting(_) => answer_waiting(connection, method, seqid).await,
        OperationState::Failed(error) => reply::operation_failed(connection, method, seqid, error).await,
        OperationState::AtEngine { .. } => {
            forward_to_engine(gateway, connection, &mut session, &mut operation, message, request).await
        }
        OperationState::Control(control) => {
            forward_to_agent(gateway, connection, &mut session, control, message, request).await
        }
    };
    if method == Method::CloseOperation {
        gateway.sessions.remove_operation(&named);
        entry.forget_at_engine(&named);
        match operation.state {
            OperationState::AtEngine { binding, .. } => session.release_engine(binding),
            OperationState::Control(_) => session.release_control(),
            _ => {}
        }
    } else {
        session.operations.insert(named, operation);
    }
    served
}

/// The most rows that a fetch may return.
fn max_rows(request: &Request) -> usize {
    usize::try_from(request.max_rows).unwrap_or(0).clamp(1, MAX_FETCH_ROWS)
}

fn from_start(request: &Request) -> bool {
    request.orientation == TFetchOrientation::FETCH_FIRST.0
}

async fn answer_local(
    connection: &mut Connection,
    method: Method,
    seqid: i32,
    local: &mut LocalResult,
    request: &Request,
) -> Result<(), Disconnect> {
    match method {
        Method::GetOperationStatus => {
            let response = TGetOperationStatusResp {
                has_result_set: Some(local.has_result()),
                ..status::operation(TOperationState::FINISHED_STATE)
            };
            answer(connection, method, seqid, &response).await
        }
        Method::GetResultSetMetadata => {
            let schema = Some(schema::table_schema(local.columns()));
            answer(connection, method, seqid, &TGetResultSetMetadataResp { status: status::success(), schema }).await
        }
        Method::FetchResults => {
            let columns = local.columns().to_vec();
            let (start, next) = local.next_rows(max_rows(request), from_start(request));
            let mut rows = rowset::RowSetBuilder::new(&columns, start as i64);
            for row in next {
                if let Err(error) = rows.push_row(row.clone()) {
                    let error = UserError::internal(format!("a row could not be encoded: {error}"));
                    return refuse(connection, method, seqid, &error).await;
                }
            }
            let results = Some(rows.finish());
            let response = TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results };
            answer(connection, method, seqid, &response).await
        }
        Method::CloseOperation => reply::operation_closed(connection, seqid).await,
        _ => not_supported(connection, method, seqid).await,
    }
}

async fn answer_waiting(connection: &mut Connection, method: Method, seqid: i32) -> Result<(), Disconnect> {
    match method {
        Method::GetOperationStatus => reply::still_running(connection, seqid).await,
        Method::CloseOperation => reply::operation_closed(connection, seqid).await,
        _ => {
            let error = UserError::new(ErrorKind::WrongState, "the statement is waiting for an engine")
                .hint("Poll its status until it has finished.");
            refuse(connection, method, seqid, &error).await
        }
    }
}
