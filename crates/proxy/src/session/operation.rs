//! The operations of a session: one per statement or metadata call, under a handle of the proxy's own.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hs2::scan::{Request, ScanError};
use hs2::tcli::TFetchOrientation;
use hs2::{Column, Handle, Message, Method, Value, protocol};
use model::error::UserError;
use tokio::task::AbortHandle;

use super::timeout::Timeout;
use crate::budget::BudgetGuard;
use crate::control::channel::Running;
use crate::demand::WaitingSession;
use crate::settings::{CALL_DEADLINE, MAX_FETCH_ROWS, MAX_LOG_LINES, SYNCHRONOUS_DEADLINE};
use crate::usage::RunningStatement;

pub(crate) struct Operation {
    pub(crate) state: OperationState,
    /// Log lines that the proxy wrote, and how many of them were fetched.
    log: Vec<String>,
    log_read: usize,
}

/// The component that has the operation, or its end.
pub(crate) enum OperationState {
    /// Answered by the proxy.
    Local(LocalResult),
    /// Waits for an engine.
    Waiting(Box<WaitingStatement>),
    /// At an engine, under the engine's handle.
    AtEngine {
        binding: u64,
        handle: Handle,
        /// Until its end is known, if its client polls for that.
        running: Option<Arc<RunningStatement>>,
    },
    /// At a metadata agent.
    Control(Box<ControlOperation>),
    Failed(UserError),
}

impl Operation {
    pub(crate) fn new(state: OperationState) -> Self {
        Self { state, log: Vec::new(), log_read: 0 }
    }

    /// Appends a line to the log, unless it repeats the last one.
    pub(crate) fn log(&mut self, line: String) {
        if self.log.last() != Some(&line) && self.log.len() < MAX_LOG_LINES {
            self.log.push(line);
        }
    }

    /// The next lines of the log, at most `max`, or the first ones if `from_start`; with the number of the first line.
    pub(crate) fn read_log(&mut self, max: usize, from_start: bool) -> (usize, Vec<String>) {
        let start = if from_start { 0 } else { self.log_read };
        let end = start.saturating_add(max).min(self.log.len());
        self.log_read = end;
        (start, self.log[start..end].to_vec())
    }

    /// The bytes of the byte budget that it holds.
    pub(crate) fn budget_bytes(&self) -> usize {
        match &self.state {
            OperationState::Local(local) => local.budget_guard.as_ref().map_or(0, BudgetGuard::bytes),
            OperationState::Waiting(waiting) => waiting.call.budget_guard.bytes(),
            OperationState::Control(control) => control.budget_guard.bytes(),
            OperationState::AtEngine { .. } | OperationState::Failed(_) => 0,
        }
    }

    /// The end of the statement is known: it is counted as running no longer.
    pub(crate) fn ended(&mut self) {
        if let OperationState::AtEngine { running, .. } = &mut self.state {
            *running = None;
        }
    }

    pub(crate) fn is_at_engine(&self, of_binding: u64) -> bool {
        matches!(self.state, OperationState::AtEngine { binding, .. } if binding == of_binding)
    }
}

/// A small result of the proxy's own. It is kept until its operation is closed, so that it can be read again.
pub(crate) struct LocalResult {
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
    /// Rows that have been fetched.
    read: usize,
    budget_guard: Option<BudgetGuard>,
}

impl LocalResult {
    /// Of a statement that returns no result set.
    pub(crate) fn none() -> Self {
        Self::table(Vec::new(), Vec::new())
    }

    pub(crate) fn table(columns: Vec<Column>, rows: Vec<Vec<Value>>) -> Self {
        Self { columns, rows, read: 0, budget_guard: None }
    }

    /// The same, counted in the byte budget until it is dropped.
    pub(crate) fn with_budget_guard(self, budget_guard: BudgetGuard) -> Self {
        Self { budget_guard: Some(budget_guard), ..self }
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn has_result(&self) -> bool {
        !self.columns.is_empty()
    }

    /// The next rows, at most `max`, or the first ones if `from_start`; with the number of the first row.
    pub(crate) fn next_rows(&mut self, max: usize, from_start: bool) -> (usize, &[Vec<Value>]) {
        let start = if from_start { 0 } else { self.read };
        self.read = start.saturating_add(max).min(self.rows.len());
        (start, &self.rows[start..self.read])
    }
}

/// A call that an engine executes.
pub(crate) struct EngineCall {
    pub(crate) message: Message,
    /// The position of the statement in the message, if the call has one and it is UTF-8.
    pub(crate) statement: Option<Range<usize>>,
    /// The client polls for the end.
    pub(crate) run_async: bool,
    /// The timeout of the client and its session.
    pub(crate) timeout: Option<Timeout>,
    /// The message's bytes, of the byte budget.
    pub(crate) budget_guard: BudgetGuard,
    /// Counts it as running; `None` for a metadata call.
    pub(crate) running: Option<Arc<RunningStatement>>,
}

impl EngineCall {
    pub(crate) fn method(&self) -> Method {
        self.message.method().unwrap_or(Method::ExecuteStatement)
    }

    /// Whether it is a statement, and not a metadata call.
    pub(crate) fn is_statement(&self) -> bool {
        self.method() == Method::ExecuteStatement
    }

    /// Counts the statement as running after the reply to the call, if its client polls for its end.
    pub(crate) fn running_after_reply(&self) -> Option<Arc<RunningStatement>> {
        self.running.clone().filter(|_| self.run_async)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        let bytes = self.message.bytes().get(self.statement.clone()?)?;
        std::str::from_utf8(bytes).ok()
    }

    /// How long the engine may take to reply to the call itself.
    pub(crate) fn deadline(&self) -> Duration {
        if self.run_async { CALL_DEADLINE } else { SYNCHRONOUS_DEADLINE }
    }
}

/// A call about an operation: status, results, close.
pub(crate) struct OperationCall<'a> {
    pub(crate) method: Method,
    pub(crate) message: Message,
    /// The scanned message.
    pub(crate) request: &'a Request,
}

impl OperationCall<'_> {
    /// Puts the backend's handle in place of the current one.
    pub(crate) fn address_to(&mut self, handle: &Handle) -> Result<(), ScanError> {
        match &self.request.handle {
            Some(at) => at.patch(self.message.bytes_mut(), handle),
            None => Ok(()),
        }
    }

    /// Whether it fetches lines of the log, and not rows.
    pub(crate) fn is_about_log(&self) -> bool {
        self.method == Method::FetchResults && self.request.fetch_type == protocol::FETCH_LOG
    }

    /// The most rows that a fetch may return.
    pub(crate) fn max_rows(&self) -> usize {
        usize::try_from(self.request.max_rows).unwrap_or(0).clamp(1, MAX_FETCH_ROWS)
    }

    /// Whether a fetch begins with the first row again.
    pub(crate) fn starts_over(&self) -> bool {
        self.request.orientation == TFetchOrientation::FETCH_FIRST.0
    }
}

/// A statement that waits for an engine.
pub(crate) struct WaitingStatement {
    pub(crate) call: EngineCall,
    /// The start of the wait, by the clock that counts suspension.
    pub(crate) since: Duration,
    /// Why there was no engine at the last attempt.
    pub(crate) reason: String,
    /// The session as demand.
    pub(crate) demand: Option<Arc<WaitingSession>>,
    /// Ends the wait at its deadline.
    pub(crate) timer: Timer,
}

/// A task that is aborted with its owner.
#[derive(Default)]
pub(crate) struct Timer(Option<AbortHandle>);

impl Timer {
    pub(crate) fn new(task: AbortHandle) -> Self {
        Self(Some(task))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// A control statement at a metadata agent.
pub(crate) struct ControlOperation {
    pub(crate) running: Running,
    /// Rows of its result have been fetched: it cannot be restarted at another agent.
    pub(crate) fetched: bool,
    /// The bytes of its text, of the byte budget.
    pub(crate) budget_guard: BudgetGuard,
}
