//! Sessions and statements of a client: for the SQL client, warm-ups, replay and tests.
//!
//! Statements run asynchronously and are polled. A session has one connection, so one call runs at a time, and a
//! statement borrows its session. A session that is dropped ends with its connection on the server.

use std::collections::BTreeMap;
use std::time::Duration;

use model::error::{ErrorKind, UserError};
use tokio::time::{Instant, sleep, timeout_at};

use crate::client::{Client, ClientError};
use crate::error::WireError;
use crate::protocol;
use crate::rowset;
use crate::schema::{self, Column};
use crate::status;
use crate::tcli::{
    TCancelOperationReq, TCloseOperationReq, TCloseSessionReq, TExecuteStatementReq, TFetchOrientation,
    TFetchResultsReq, TGetOperationStatusReq, TGetResultSetMetadataReq, TOpenSessionReq, TOperationHandle,
    TOperationState, TSessionHandle,
};
use crate::value::Value;

/// The default number of rows of one fetch.
pub const FETCH_ROWS: i64 = 1_000;

/// The most rows that [`Session::run`] collects.
pub const MAX_TABLE_ROWS: usize = 1_000_000;

/// The bytes of a request in addition to its statement.
const AROUND_STATEMENT_BYTES: usize = 1_024;

/// The pause between two polls: doubled from the first to the last, so that short statements return quickly.
const FIRST_POLL: Duration = Duration::from_millis(5);
const LAST_POLL: Duration = Duration::from_millis(250);

/// The most batches of log lines that are read at once.
const MAX_LOG_BATCHES: usize = 100;

/// A complete result.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// None for a statement without a result.
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// The value in row `row` and in the column of that name, ignoring case.
    pub fn get(&self, row: usize, column: &str) -> Option<&Value> {
        let at = self.columns.iter().position(|known| known.name.eq_ignore_ascii_case(column))?;
        self.rows.get(row)?.get(at)
    }
}

/// An open session with a connection of its own.
pub struct Session {
    client: Client,
    handle: TSessionHandle,
    configuration: BTreeMap<String, String>,
}

impl Session {
    /// Opens a session with these configuration keys: `use:database`, `set:hiveconf:k`, `enginehouse.tenant`, …
    pub async fn open(client: Client, configuration: &[(String, String)]) -> Result<Self, ClientError> {
        Self::open_as(client, None, configuration).await
    }

    /// The same with a user and a password in `OpenSession`, which only plain Thrift uses.
    pub async fn open_as(
        mut client: Client,
        user: Option<(&str, &str)>,
        configuration: &[(String, String)],
    ) -> Result<Self, ClientError> {
        let answer = client
            .open_session(&TOpenSessionReq {
                client_protocol: protocol::NEWEST,
                username: user.map(|(name, _)| name.to_owned()),
                password: user.map(|(_, password)| password.to_owned()),
                configuration: Some(configuration.iter().cloned().collect()),
            })
            .await?;
        if answer.server_protocol_version < protocol::OLDEST {
            return Err(WireError::from(rowset::RowSetError::InRows).into());
        }
        let handle = answer.session_handle.ok_or_else(|| missing("session handle"))?;
        Ok(Self { client, handle, configuration: answer.configuration.unwrap_or_default() })
    }

    pub fn handle(&self) -> &TSessionHandle {
        &self.handle
    }

    /// The configuration in the server's response.
    pub fn configuration(&self) -> &BTreeMap<String, String> {
        &self.configuration
    }

    /// The connection, for other calls.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Starts a statement. It is accepted when this returns; [`Statement::wait`] returns whether it succeeds.
    pub async fn execute(&mut self, sql: &str) -> Result<Statement<'_>, ClientError> {
        let limit = self.client.limits().frame_bytes.saturating_sub(AROUND_STATEMENT_BYTES);
        if sql.len() > limit {
            // A server would reject it too, but only after all of it was sent.
            let error = UserError::new(ErrorKind::ProgramLimit, "statement too long")
                .detail(format!("It has {} bytes; the limit is {limit}.", sql.len()));
            return Err(ClientError::Refused(error));
        }
        let handle = self.start(sql, true).await?;
        Ok(self.statement(handle))
    }

    /// Runs a statement in one call, which returns when it has ended: at most the call deadline of the client later. Its rows are not
    /// read.
    pub async fn run_in_one_call(&mut self, sql: &str) -> Result<(), ClientError> {
        let handle = self.start(sql, false).await?;
        self.statement(handle).close().await
    }

    async fn start(&mut self, sql: &str, run_async: bool) -> Result<TOperationHandle, ClientError> {
        let request = TExecuteStatementReq {
            session_handle: self.handle.clone(),
            statement: sql.to_owned(),
            conf_overlay: None,
            run_async: Some(run_async),
            query_timeout: None,
        };
        let answer = self.client.execute_statement(&request).await?;
        answer.operation_handle.ok_or_else(|| missing("operation handle"))
    }

    /// A statement for an operation that another call started, such as `GetTables`.
    pub fn statement(&mut self, handle: TOperationHandle) -> Statement<'_> {
        let has_result_set = handle.has_result_set;
        Statement { session: self, handle, has_result_set, log_begun: false }
    }

    /// Runs a statement to its end and reads all its rows. It is closed also after an error.
    pub async fn run(&mut self, sql: &str, deadline: Duration) -> Result<Table, ClientError> {
        let mut statement = self.execute(sql).await?;
        let outcome = statement.collect(deadline).await;
        if outcome.as_ref().err().is_none_or(ClientError::is_answer) {
            statement.close().await?;
        }
        outcome
    }

    /// Closes the session and its connection.
    pub async fn close(mut self) -> Result<(), ClientError> {
        self.client.close_session(&TCloseSessionReq { session_handle: self.handle }).await?;
        Ok(())
    }
}

fn missing(what: &str) -> ClientError {
    WireError::Decode(format!("the response has no {what}")).into()
}

/// The progress of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementProgress {
    /// It waits or runs.
    Running,
    /// It has finished; its result can be fetched.
    Finished,
}

/// A statement that was started.
pub struct Statement<'a> {
    session: &'a mut Session,
    handle: TOperationHandle,
    has_result_set: bool,
    log_begun: bool,
}

impl Statement<'_> {
    pub fn handle(&self) -> &TOperationHandle {
        &self.handle
    }

    /// Whether there are rows to fetch, according to the server so far.
    pub fn has_result_set(&self) -> bool {
        self.has_result_set
    }

    /// Polls once. A statement that failed, was cancelled or closed is an error.
    pub async fn poll(&mut self) -> Result<StatementProgress, ClientError> {
        let request =
            TGetOperationStatusReq { operation_handle: self.handle.clone(), get_progress_update: Some(false) };
        let answer = self.session.client.get_operation_status(&request).await?;
        if let Some(has_result_set) = answer.has_result_set {
            self.has_result_set = has_result_set;
        }
        let state = answer.operation_state.ok_or_else(|| missing("operation state"))?;
        let failed = |kind: ErrorKind, text: &str| {
            let mut error = match &answer.error_message {
                Some(message) => status::error_of(answer.sql_state.as_deref(), answer.error_code, Some(message)),
                None => UserError::new(kind, text),
            };
            if answer.sql_state.is_none() {
                error.kind = kind;
            }
            Err(ClientError::Refused(error))
        };
        match state {
            TOperationState::INITIALIZED_STATE | TOperationState::PENDING_STATE | TOperationState::RUNNING_STATE => {
                Ok(StatementProgress::Running)
            }
            TOperationState::FINISHED_STATE => Ok(StatementProgress::Finished),
            TOperationState::CANCELED_STATE => failed(ErrorKind::Canceled, "the statement was cancelled"),
            TOperationState::TIMEDOUT_STATE => failed(ErrorKind::Timeout, "the statement ran out of time"),
            TOperationState::CLOSED_STATE => failed(ErrorKind::WrongState, "the statement was closed"),
            _ => failed(ErrorKind::Internal, "the statement failed and the server gave no reason"),
        }
    }

    /// Waits until it has finished. When the deadline passes, the statement still runs: cancel it or wait again.
    pub async fn wait(&mut self, deadline: Duration) -> Result<(), ClientError> {
        let end = Instant::now() + deadline;
        let late = || ClientError::Timeout { call: "the statement".to_owned(), deadline };
        let mut pause = FIRST_POLL;
        loop {
            if self.poll().await? == StatementProgress::Finished {
                return Ok(());
            }
            timeout_at(end, sleep(pause)).await.map_err(|_| late())?;
            pause = (pause * 2).min(LAST_POLL);
        }
    }

    pub async fn columns(&mut self) -> Result<Vec<Column>, ClientError> {
        if !self.has_result_set {
            return Ok(Vec::new());
        }
        let request = TGetResultSetMetadataReq { operation_handle: self.handle.clone() };
        let answer = self.session.client.get_result_set_metadata(&request).await?;
        Ok(answer.schema.as_ref().map(schema::columns).unwrap_or_default())
    }

    /// The next rows, at most `max_rows`; none when there are no more.
    pub async fn fetch(&mut self, max_rows: i64) -> Result<Vec<Vec<Value>>, ClientError> {
        if !self.has_result_set {
            return Ok(Vec::new());
        }
        self.fetch_from(TFetchOrientation::FETCH_NEXT, max_rows, 0).await
    }

    async fn fetch_from(
        &mut self,
        orientation: TFetchOrientation,
        max_rows: i64,
        fetch_type: i16,
    ) -> Result<Vec<Vec<Value>>, ClientError> {
        let request = TFetchResultsReq {
            operation_handle: self.handle.clone(),
            orientation,
            max_rows,
            fetch_type: Some(fetch_type),
        };
        let answer = self.session.client.fetch_results(&request).await?;
        let set = answer.results.ok_or_else(|| missing("result set"))?;
        Ok(rowset::rows(&set).map_err(WireError::from)?)
    }

    /// The new log lines since the last call.
    pub async fn logs(&mut self) -> Result<Vec<String>, ClientError> {
        let mut lines = Vec::new();
        for _ in 0..MAX_LOG_BATCHES {
            let orientation =
                if self.log_begun { TFetchOrientation::FETCH_NEXT } else { TFetchOrientation::FETCH_FIRST };
            let rows = self.fetch_from(orientation, FETCH_ROWS, 1).await?;
            self.log_begun = true;
            if rows.is_empty() {
                break;
            }
            lines.extend(rows.into_iter().filter_map(|row| match row.into_iter().next() {
                Some(Value::Text(line)) => Some(line),
                _ => None,
            }));
        }
        Ok(lines)
    }

    /// Waits, and reads all rows.
    pub async fn collect(&mut self, deadline: Duration) -> Result<Table, ClientError> {
        self.wait(deadline).await?;
        let columns = self.columns().await?;
        let mut rows = Vec::new();
        loop {
            let batch = self.fetch(FETCH_ROWS).await?;
            if batch.is_empty() {
                return Ok(Table { columns, rows });
            }
            if rows.len() + batch.len() > MAX_TABLE_ROWS {
                return Err(ClientError::Refused(UserError::new(
                    ErrorKind::ProgramLimit,
                    format!("the result has more than {MAX_TABLE_ROWS} rows"),
                )));
            }
            rows.extend(batch);
        }
    }

    pub async fn cancel(&mut self) -> Result<(), ClientError> {
        let request = TCancelOperationReq { operation_handle: self.handle.clone() };
        self.session.client.cancel_operation(&request).await?;
        Ok(())
    }

    /// Closes it: the server drops the operation and its result.
    pub async fn close(self) -> Result<(), ClientError> {
        let request = TCloseOperationReq { operation_handle: self.handle.clone() };
        self.session.client.close_operation(&request).await?;
        Ok(())
    }
}
