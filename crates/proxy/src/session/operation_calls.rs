//! Calls that name an operation: status, results, close. Cancel is in [`cancel`](super::cancel).

use std::sync::Arc;

use hs2::tcli::{TFetchResultsResp, TGetOperationStatusResp, TGetResultSetMetadataResp, TOperationState};
use hs2::{Connection, Handle, Method, rowset, schema, status};
use model::error::{ErrorKind, UserError};
use tracing::Instrument as _;

use super::operation::{LocalResult, OperationCall, OperationState};
use super::reply::{self, CallError, Reply, not_supported};
use super::table::Entry;
use super::waiting;
use crate::gateway::Gateway;
use crate::origin;
use crate::relay::forward::{forward_to_agent, forward_to_engine};

pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    named: Handle,
    mut call: OperationCall<'_>,
) -> Result<Reply, CallError> {
    let mut session = entry.state.lock().await;
    if let Some(caller) = connection.principal() {
        session.used_by(caller);
    }
    let Some(mut operation) = session.operations.remove(&named) else {
        return Err(UserError::new(ErrorKind::WrongState, "operation does not exist").into());
    };
    let method = call.method;
    if call.is_about_log() {
        let (start, lines) = operation.read_log(call.max_rows(), call.starts_over());
        let has_backend = matches!(operation.state, OperationState::AtEngine { .. } | OperationState::Control(_));
        if !lines.is_empty() || !has_backend {
            session.operations.insert(named, operation);
            let results = Some(rowset::lines(start as i64, lines));
            return Ok(TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results }.into());
        }
    }
    if let OperationState::Waiting(_) = operation.state
        && method == Method::GetOperationStatus
    {
        let span = origin::span(connection);
        let step = waiting::step(gateway, connection, entry, (&mut session, named), &mut operation);
        Box::pin(step).instrument(span).await;
    }
    let served = match &mut operation.state {
        OperationState::Local(local) => answer_local(&call, local),
        OperationState::Waiting(_) => answer_waiting(method),
        OperationState::Failed(error) => Err(CallError::OperationFailed(error.clone())),
        OperationState::AtEngine { .. } => {
            let served = forward_to_engine(gateway, connection, &mut session, &mut operation, &mut call).await;
            session.engine_used(gateway.clock.boottime());
            served
        }
        OperationState::Control(control) => {
            let span = origin::span(connection);
            Box::pin(forward_to_agent(gateway, connection, &mut session, control, call)).instrument(span).await
        }
    };
    if method == Method::CloseOperation {
        if session.operations.is_empty() {
            // An idle session owns no table.
            session.operations.shrink_to_fit();
        }
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

fn answer_local(call: &OperationCall<'_>, local: &mut LocalResult) -> Result<Reply, CallError> {
    Ok(match call.method {
        Method::GetOperationStatus => {
            let has_result_set = Some(local.has_result());
            TGetOperationStatusResp { has_result_set, ..status::operation(TOperationState::FINISHED_STATE) }.into()
        }
        Method::GetResultSetMetadata => {
            let schema = Some(schema::table_schema(local.columns()));
            TGetResultSetMetadataResp { status: status::success(), schema }.into()
        }
        Method::FetchResults => {
            let columns = local.columns().to_vec();
            let (start, next) = local.next_rows(call.max_rows(), call.starts_over());
            let mut rows = rowset::RowSetBuilder::new(&columns, start as i64);
            for row in next {
                rows.push_row(row.clone())
                    .map_err(|error| UserError::internal(format!("a row could not be encoded: {error}")))?;
            }
            let results = Some(rows.finish());
            TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results }.into()
        }
        Method::CloseOperation => reply::closed().into(),
        _ => return Err(not_supported(call.method)),
    })
}

fn answer_waiting(method: Method) -> Result<Reply, CallError> {
    match method {
        Method::GetOperationStatus => Ok(reply::running().into()),
        Method::CloseOperation => Ok(reply::closed().into()),
        _ => Err(UserError::new(ErrorKind::WrongState, "the statement is waiting for an engine")
            .hint("Poll its status until it has finished.")
            .into()),
    }
}
