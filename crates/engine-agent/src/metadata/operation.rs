//! The operation of one statement: its outcome, its log, and how far a client has read its result.

use std::sync::Arc;
use std::time::Duration;

use hs2::tcli::{TGetOperationStatusResp, TOperationState, TRowSet};
use hs2::{rowset, status};
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::settings::{LONG_POLL, MAX_LOG_LINES};

/// The log of a statement, for its client.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Appends a line, unless it repeats the last one.
    pub(super) fn line(&self, line: impl Into<String>) {
        let (mut lines, line) = (self.0.lock(), line.into());
        if lines.last() != Some(&line) && lines.len() < MAX_LOG_LINES {
            lines.push(line);
        }
    }
}

type Outcome = Result<Answer, UserError>;

pub(super) struct Operation {
    pub(super) user: String,
    pub(super) log: Log,
    pub(super) cancelled: CancellationToken,
    outcome: watch::Sender<Option<Arc<Outcome>>>,
    read: Mutex<Read>,
}

#[derive(Default)]
struct Read {
    rows: usize,
    log_lines: usize,
}

impl Operation {
    pub(super) fn new(user: String) -> Arc<Self> {
        Arc::new(Self {
            user,
            log: Log::default(),
            cancelled: CancellationToken::new(),
            outcome: watch::Sender::new(None),
            read: Mutex::default(),
        })
    }

    pub(super) fn end(&self, outcome: Outcome) {
        self.outcome.send_replace(Some(Arc::new(outcome)));
    }

    /// The outcome; `None` if there is none within `patience`.
    pub(super) async fn outcome(&self, patience: Duration) -> Option<Arc<Outcome>> {
        let mut outcome = self.outcome.subscribe();
        match tokio::time::timeout(patience, outcome.wait_for(Option::is_some)).await {
            Ok(Ok(ended)) => ended.clone(),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// The status, after a wait of at most [`LONG_POLL`] for the end.
    pub(super) async fn status(&self) -> TGetOperationStatusResp {
        let outcome = self.outcome(LONG_POLL).await;
        let state = match outcome.as_deref() {
            None => TOperationState::RUNNING_STATE,
            Some(Ok(_)) => TOperationState::FINISHED_STATE,
            Some(Err(error)) if error.kind == ErrorKind::Canceled => TOperationState::CANCELED_STATE,
            Some(Err(_)) => TOperationState::ERROR_STATE,
        };
        let mut response = TGetOperationStatusResp { has_result_set: Some(true), ..status::operation(state) };
        if let Some(Err(error)) = outcome.as_deref()
            && error.kind != ErrorKind::Canceled
        {
            status::operation_error(error, &mut response);
        }
        response
    }

    /// The next rows; none at the end.
    pub(super) async fn rows(&self, max_rows: usize, from_start: bool) -> Result<TRowSet, UserError> {
        let outcome = self.ended().await?;
        let answer = (*outcome).as_ref().map_err(Clone::clone)?;
        let mut read = self.read.lock();
        if from_start {
            read.rows = 0;
        }
        let start = read.rows;
        let end = start.saturating_add(max_rows.max(1)).min(answer.rows.len());
        let mut rows = rowset::RowSetBuilder::new(&answer.columns, start as i64);
        for row in &answer.rows[start..end] {
            rows.push_row(row.clone())
                .map_err(|error| UserError::internal(format!("a row could not be encoded: {error}")))?;
        }
        read.rows = end;
        Ok(rows.finish())
    }

    /// The outcome of an ended statement; an error while it runs.
    pub(super) async fn ended(&self) -> Result<Arc<Outcome>, UserError> {
        self.outcome(LONG_POLL).await.ok_or_else(|| {
            UserError::new(ErrorKind::WrongState, "the statement is still running")
                .hint("Poll its status until it has finished.")
        })
    }

    /// The next lines of the log, at most `max`, or the first ones if `from_start`.
    pub(super) fn log_lines(&self, max: usize, from_start: bool) -> TRowSet {
        let lines = self.log.0.lock();
        let mut read = self.read.lock();
        let start = if from_start { 0 } else { read.log_lines };
        read.log_lines = start.saturating_add(max).min(lines.len());
        rowset::lines(start as i64, lines[start..read.log_lines].iter().cloned())
    }
}
