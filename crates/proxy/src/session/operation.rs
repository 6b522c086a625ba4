//! Everything that names an operation: status, results, close. Cancel has a file of its own, and so has what is
//! relayed.

use std::sync::Arc;
use std::time::Duration;

use hs2::scan::Request;
use hs2::tcli::{
    TCloseOperationResp, TFetchResultsResp, TGetOperationStatusResp, TGetResultSetMetadataResp, TOperationState,
};
use hs2::{Column, Connection, Handle, Message, Method, Value, rowset, schema, status};
use model::error::{ErrorKind, UserError};

use super::absence;
use super::binding::{self, NotBound, Sent};
use super::control::ControlOperation;
use super::relayed::{relay_control, relay_engine};
use super::statement::EngineCall;
use super::{Entry, Gone, Session, answer, close, refuse};
use crate::Gateway;
use crate::settings::{MAX_LOG_LINES, POLL_STEP};

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

/// A small result of the proxy's own.
pub(crate) struct Local {
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
}

/// A statement that waits for an engine: each poll of the client looks again.
pub(crate) struct Waiting {
    pub(super) call: EngineCall,
    /// Since when, by the clock that counts suspension.
    pub(super) since: Duration,
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

    fn unread_log(&mut self) -> Vec<String> {
        let lines = self.log[self.log_read..].to_vec();
        self.log_read = self.log.len();
        lines
    }
}

impl Local {
    /// A statement without a result.
    pub(crate) fn nothing() -> Self {
        Self { columns: Vec::new(), rows: Vec::new() }
    }

    /// A statement with a result.
    pub(crate) fn table(columns: Vec<Column>, rows: Vec<Vec<Value>>) -> Self {
        Self { columns, rows }
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
        let lines = operation.unread_log();
        let elsewhere = matches!(operation.place, Place::Engine { .. } | Place::Control(_));
        if !lines.is_empty() || !elsewhere {
            session.operations.insert(named, operation);
            let results = Some(rowset::lines(0, lines));
            let response = TFetchResultsResp { status: status::success(), has_more_rows: Some(false), results };
            return answer(connection, method, seqid, &response).await;
        }
    }
    if let Place::Waiting(_) = operation.place
        && method == Method::GetOperationStatus
    {
        step(gateway, connection, entry, (&mut session, named), &mut operation).await;
    }
    let served = match &mut operation.place {
        Place::Local(local) => answer_local(connection, method, seqid, local).await,
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

/// One look whether the engine that a statement waits for is there.
async fn step(
    gateway: &Arc<Gateway>,
    connection: &Connection,
    entry: &Entry,
    (session, named): (&mut Session, Handle),
    operation: &mut Operation,
) {
    let Place::Waiting(waiting) = &mut operation.place else { return };
    let mut changes = gateway.routes.changes();
    changes.mark_unchanged();
    let failed = match binding::bind(gateway, session).await {
        Ok(()) => match binding::send(gateway, session, &waiting.call).await {
            Sent::Accepted { binding, handle, .. } => {
                operation.place = Place::Engine { binding, handle };
                entry.note_at_engine(named, session.route_of(binding), handle);
                return;
            }
            Sent::Answered(reply) => refused_by_engine(&reply),
            // The next poll chooses another.
            Sent::Draining(_) => return,
            Sent::Lost(error) => error,
        },
        Err(NotBound::Refused(error)) => error,
        Err(NotBound::Wait(reason)) => {
            let waited = gateway.clock.boottime().saturating_sub(waiting.since);
            if waited < gateway.settings.bind_deadline {
                operation.log(reason);
                tokio::select! {
                    _ = tokio::time::timeout(POLL_STEP, changes.changed()) => {}
                    () = connection.closed() => {}
                }
                return;
            }
            absence::waited_too_long(waited, &reason)
        }
    };
    operation.place = Place::Failed(failed);
}

fn refused_by_engine(reply: &[u8]) -> UserError {
    let decoded: Result<hs2::tcli::TExecuteStatementResp, _> = hs2::message::decode_reply(reply);
    match decoded {
        Ok(answer) => status::check(&answer.status)
            .err()
            .unwrap_or_else(|| UserError::internal("the engine answered without an operation")),
        Err(error) => error.user_error("the engine"),
    }
}

async fn answer_local(connection: &mut Connection, method: Method, seqid: i32, local: &mut Local) -> Result<(), Gone> {
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
            let mut rows = rowset::RowSetBuilder::new(&local.columns, 0);
            for row in std::mem::take(&mut local.rows) {
                if let Err(error) = rows.push_row(row) {
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
