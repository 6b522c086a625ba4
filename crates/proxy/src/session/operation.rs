//! Everything that names an operation: status, results, close. Cancel has a file of its own, and so has what is
//! relayed.

use std::sync::Arc;

use hs2::scan::Request;
use hs2::tcli::{
    TCloseOperationResp, TFetchOrientation, TFetchResultsResp, TGetOperationStatusResp, TGetResultSetMetadataResp,
    TOperationState,
};
use hs2::{Column, Connection, Handle, Message, Method, Value, rowset, schema, status};
use model::error::{ErrorKind, UserError};

use super::control::ControlOperation;
use super::forward::{relay_control, relay_engine};
use super::waiting::{self, Waiting};
use super::{Entry, Gone, answer, close, refuse};
use crate::Gateway;
use crate::budget::Held;
use crate::settings::{MAX_FETCH_ROWS, MAX_LOG_LINES};

/// `fetchType` of a fetch that asks for the operation's log.
pub(super) const FETCH_LOG: i16 = 1;

/// An operation of a client session.
pub(crate) struct Operation {
    pub(crate) place: Place,
    /// Lines of the log that the proxy wrote, and how many were fetched.
    log: Vec<String>,
    log_read: usize,
}

/// Where an operation is.
pub(crate) enum Place {
    /// Answered by the proxy.
    Local(Local),
    /// Waits for an engine.
    Waiting(Box<Waiting>),
    /// At an engine.
    Engine {
        /// Which binding of the session.
        binding: u64,
        /// The engine's handle.
        handle: Handle,
    },
    /// At a metadata agent.
    Control(Box<ControlOperation>),
    /// Ended with an error.
    Failed(UserError),
}

/// A small result of the proxy's own. It stays until its operation is closed, so that it can be read again.
pub(crate) struct Local {
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
    /// Rows that have been fetched.
    read: usize,
    /// Its bytes, of the byte budget.
    held: Option<Held>,
}

impl Operation {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, log: Vec::new(), log_read: 0 }
    }

    /// Adds a line to the log, unless it says what the last one said.
    pub(crate) fn log(&mut self, line: String) {
        if self.log.last() != Some(&line) && self.log.len() < MAX_LOG_LINES {
            self.log.push(line);
        }
    }

    /// The next lines of the log, at most `max`; from the first one on if `from_start`. With them their number in the
    /// log.
    fn read_log(&mut self, max: usize, from_start: bool) -> (usize, Vec<String>) {
        let start = if from_start { 0 } else { self.log_read };
        let end = start.saturating_add(max).min(self.log.len());
        self.log_read = end;
        (start, self.log[start..end].to_vec())
    }

    /// The bytes that it makes the proxy keep.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.place {
            Place::Local(local) => local.held.as_ref().map_or(0, Held::bytes),
            Place::Waiting(waiting) => waiting.call.held.bytes(),
            Place::Control(control) => control.held.bytes(),
            Place::Engine { .. } | Place::Failed(_) => 0,
        }
    }
}

impl Local {
    /// A statement without a result.
    pub(crate) fn nothing() -> Self {
        Self::table(Vec::new(), Vec::new())
    }

    /// A statement with a result.
    pub(crate) fn table(columns: Vec<Column>, rows: Vec<Vec<Value>>) -> Self {
        Self { columns, rows, read: 0, held: None }
    }

    /// The same, its bytes reserved until it is dropped.
    pub(crate) fn holding(self, held: Held) -> Self {
        Self { held: Some(held), ..self }
    }

    /// The next rows, at most `max`; from the first one on if `from_start`. With them the number of the first.
    fn next_rows(&mut self, max: usize, from_start: bool) -> (usize, &[Vec<Value>]) {
        let start = if from_start { 0 } else { self.read };
        self.read = start.saturating_add(max).min(self.rows.len());
        (start, &self.rows[start..self.read])
    }

    /// Whether there is a result.
    pub(crate) fn has_result(&self) -> bool {
        !self.columns.is_empty()
    }
}

/// Serves a call about an operation.
pub(super) async fn serve(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    named: Handle,
    message: Message,
    request: &Request,
) -> Result<(), Gone> {
    let (Some(method), seqid) = (message.method(), message.seqid()) else { return Ok(()) };
    let mut session = entry.state.lock().await;
    let Some(mut operation) = session.operations.remove(&named) else {
        let error = UserError::new(ErrorKind::WrongState, "the operation does not exist");
        return refuse(connection, method, seqid, &error).await;
    };
    if method == Method::FetchResults && request.fetch_type == FETCH_LOG {
        let (start, lines) = operation.read_log(wanted_rows(request), from_start(request));
        let elsewhere = matches!(operation.place, Place::Engine { .. } | Place::Control(_));
        if !lines.is_empty() || !elsewhere {
            session.operations.insert(named, operation);
            let results = Some(rowset::lines(start as i64, lines));
            let response = TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results };
            return answer(connection, method, seqid, &response).await;
        }
    }
    if let Place::Waiting(_) = operation.place
        && method == Method::GetOperationStatus
    {
        waiting::step(gateway, connection, entry, (&mut session, named), &mut operation).await;
    }
    let served = match &mut operation.place {
        Place::Local(local) => answer_local(connection, method, seqid, local, request).await,
        Place::Waiting(_) => answer_waiting(connection, method, seqid).await,
        Place::Failed(error) => answer_failed(connection, method, seqid, error).await,
        Place::Engine { binding, handle } => {
            let (binding, handle) = (*binding, *handle);
            relay_engine(gateway, connection, &mut session, binding, &handle, message, request, &mut operation).await
        }
        Place::Control(control) => relay_control(gateway, connection, &mut session, control, message, request).await,
    };
    if method == Method::CloseOperation {
        gateway.sessions.forget_operation(&named);
        entry.forget_at_engine(&named);
        match operation.place {
            Place::Engine { binding, .. } => session.close_if_unused(binding),
            Place::Control(_) => close::release_control(&mut session),
            _ => {}
        }
    } else {
        session.operations.insert(named, operation);
    }
    served
}

/// The most rows that a fetch wants.
fn wanted_rows(request: &Request) -> usize {
    usize::try_from(request.max_rows).unwrap_or(0).clamp(1, MAX_FETCH_ROWS)
}

/// Whether a fetch starts at the first row again.
fn from_start(request: &Request) -> bool {
    request.orientation == TFetchOrientation::FETCH_FIRST.0
}

async fn answer_local(
    connection: &mut Connection,
    method: Method,
    seqid: i32,
    local: &mut Local,
    request: &Request,
) -> Result<(), Gone> {
    match method {
        Method::GetOperationStatus => {
            let has_result_set = Some(local.has_result());
            let response = TGetOperationStatusResp { has_result_set, ..state(TOperationState::FINISHED_STATE) };
            answer(connection, method, seqid, &response).await
        }
        Method::GetResultSetMetadata => {
            let schema = Some(schema::table_schema(&local.columns));
            answer(connection, method, seqid, &TGetResultSetMetadataResp { status: status::success(), schema }).await
        }
        Method::FetchResults => {
            let columns = local.columns.clone();
            let (start, next) = local.next_rows(wanted_rows(request), from_start(request));
            let mut rows = rowset::RowSetBuilder::new(&columns, start as i64);
            for row in next {
                if let Err(error) = rows.push_row(row.clone()) {
                    let error = UserError::internal(format!("a row can't be sent: {error}"));
                    return refuse(connection, method, seqid, &error).await;
                }
            }
            let results = Some(rows.finish());
            let response = TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results };
            answer(connection, method, seqid, &response).await
        }
        Method::CloseOperation => closed(connection, seqid).await,
        _ => not_supported(connection, method, seqid).await,
    }
}

async fn answer_waiting(connection: &mut Connection, method: Method, seqid: i32) -> Result<(), Gone> {
    match method {
        Method::GetOperationStatus => {
            let response =
                TGetOperationStatusResp { has_result_set: Some(true), ..state(TOperationState::RUNNING_STATE) };
            answer(connection, method, seqid, &response).await
        }
        Method::CloseOperation => closed(connection, seqid).await,
        _ => {
            let error = UserError::new(ErrorKind::WrongState, "the statement still waits for an engine")
                .hint("ask for its status until it has finished");
            refuse(connection, method, seqid, &error).await
        }
    }
}

pub(super) async fn answer_failed(
    connection: &mut Connection,
    method: Method,
    seqid: i32,
    error: &UserError,
) -> Result<(), Gone> {
    match method {
        Method::GetOperationStatus => {
            let mut response = state(TOperationState::ERROR_STATE);
            status::operation_error(error, &mut response);
            answer(connection, method, seqid, &response).await
        }
        Method::CloseOperation => closed(connection, seqid).await,
        _ => refuse(connection, method, seqid, error).await,
    }
}

pub(super) fn state(operation_state: TOperationState) -> TGetOperationStatusResp {
    TGetOperationStatusResp {
        status: status::success(),
        operation_state: Some(operation_state),
        sql_state: None,
        error_code: None,
        error_message: None,
        task_status: None,
        operation_started: None,
        operation_completed: None,
        has_result_set: None,
        progress_update_response: None,
        num_modified_rows: None,
    }
}

pub(super) async fn closed(connection: &mut Connection, seqid: i32) -> Result<(), Gone> {
    answer(connection, Method::CloseOperation, seqid, &TCloseOperationResp { status: status::success() }).await
}

async fn not_supported(connection: &mut Connection, method: Method, seqid: i32) -> Result<(), Gone> {
    let error = UserError::new(ErrorKind::NotSupported, format!("{} is not supported", method.name()));
    refuse(connection, method, seqid, &error).await
}
