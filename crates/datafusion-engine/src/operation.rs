//! An operation (a statement or metadata call): its phase, its queued rows, its log.
//!
//! ```text
//! Running -> Ready -> Complete        rows can be fetched from Ready on; Complete: the last one has been computed
//!    |         |
//!    +---------+----> Failed | Canceled
//! ```
//!
//! Invariants: a final phase never changes. At most [`QUEUE_BATCHES`] batches are queued for the client; the statement
//! is suspended until the client fetches. Each row is returned once, in order; only a small result that was computed at
//! once (SHOW, metadata calls) can be read again from its start.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use hs2::Handle;
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::rows::size::fitting_rows;

/// The most batches queued between a statement and its client.
pub const QUEUE_BATCHES: usize = 4;
/// The most rows of one fetch, whatever the client asks for.
pub const FETCH_ROWS_MAX: usize = 16_384;
/// The approximate limit on the bytes of one fetch; a single row may be larger.
pub const FETCH_BYTES_MAX: usize = 8 << 20;
/// The most log lines of one operation; the oldest are dropped first.
pub const LOG_LINES_MAX: usize = 1_000;
/// How long a fetch waits for the final phase after the last row, which comes slightly earlier.
const PHASE_WAIT: Duration = Duration::from_secs(30);

/// The phase of an operation.
#[derive(Debug, Clone)]
pub enum Phase {
    /// Planned or executed; no row yet.
    Running,
    /// Rows can be fetched; more are being computed.
    Ready,
    /// All rows are computed.
    Complete,
    /// It failed or timed out.
    Failed(Arc<UserError>),
    /// It was cancelled.
    Canceled,
}

impl Phase {
    /// Whether the phase never changes again.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Complete | Self::Failed(_) | Self::Canceled)
    }
}

/// One operation.
pub struct Operation {
    /// Its handle.
    pub handle: Handle,
    /// Its session.
    pub session: Handle,
    /// The statement's text, or the name of the metadata call.
    pub statement: String,
    /// Settings for this statement only.
    pub overlay: BTreeMap<String, String>,
    /// Whether it returns rows.
    pub has_result_set: bool,
    /// Start time, in milliseconds since 1970.
    pub started_ms: i64,
    phase: watch::Sender<Phase>,
    schema: OnceLock<SchemaRef>,
    answer: OnceLock<RecordBatch>,
    rows: tokio::sync::Mutex<Reader>,
    log: Mutex<Log>,
    task: Mutex<Option<AbortHandle>>,
    /// The time of the last call.
    touched: Mutex<Duration>,
    ended_ms: AtomicU64,
    written_rows: OnceLock<i64>,
}

struct Reader {
    queue: mpsc::Receiver<RecordBatch>,
    current: Option<(RecordBatch, usize)>,
    position: u64,
    begun: bool,
}

#[derive(Default)]
struct Log {
    lines: VecDeque<String>,
    // The index of the next line to fetch.
    read: usize,
}

/// The rows of one fetch, in order.
pub struct FetchedRows {
    /// The number of the first row.
    pub start: u64,
    /// The columns.
    pub schema: SchemaRef,
    /// Slices of batches; empty at the end.
    pub batches: Vec<RecordBatch>,
}

impl Operation {
    /// A running operation, and the sender of its rows.
    pub fn new(
        session: Handle,
        statement: String,
        overlay: BTreeMap<String, String>,
        has_result_set: bool,
        started_ms: i64,
    ) -> (Arc<Self>, mpsc::Sender<RecordBatch>) {
        let (sender, queue) = mpsc::channel(QUEUE_BATCHES);
        let operation = Self {
            handle: Handle::random(),
            session,
            statement,
            overlay,
            has_result_set,
            started_ms,
            phase: watch::Sender::new(Phase::Running),
            schema: OnceLock::new(),
            answer: OnceLock::new(),
            rows: tokio::sync::Mutex::new(Reader { queue, current: None, position: 0, begun: false }),
            log: Mutex::default(),
            task: Mutex::default(),
            touched: Mutex::new(Duration::ZERO),
            ended_ms: AtomicU64::new(0),
            written_rows: OnceLock::new(),
        };
        (Arc::new(operation), sender)
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// Waits until rows can be fetched or the operation has ended, at most `at_most`. Returns the phase.
    pub async fn wait(&self, at_most: Duration) -> Phase {
        let mut phase = self.phase.subscribe();
        let _ = tokio::time::timeout(at_most, phase.wait_for(|phase| !matches!(phase, Phase::Running))).await;
        self.phase()
    }

    /// Waits until the phase is final, at most `at_most`. Returns the phase.
    pub async fn wait_final(&self, at_most: Duration) -> Phase {
        let mut phase = self.phase.subscribe();
        let _ = tokio::time::timeout(at_most, phase.wait_for(Phase::is_final)).await;
        self.phase()
    }

    /// Changes the phase, unless it is final. Returns whether it changed.
    pub fn move_to(&self, next: Phase, now_ms: i64) -> bool {
        let moved = self.phase.send_if_modified(|phase| {
            let moves = !phase.is_final();
            if moves {
                *phase = next;
            }
            moves
        });
        if moved && self.phase.borrow().is_final() {
            self.ended_ms.store(now_ms.unsigned_abs(), Ordering::Relaxed);
        }
        moved
    }

    /// End time, in milliseconds since 1970.
    pub fn ended_ms(&self) -> Option<i64> {
        Some(self.ended_ms.load(Ordering::Relaxed)).filter(|ended| *ended > 0).map(|ended| ended as i64)
    }

    /// Sets the number of rows that an INSERT or COPY wrote, once.
    pub fn set_written_rows(&self, rows: i64) {
        let _ = self.written_rows.set(rows);
    }

    /// The number of rows that an INSERT or COPY wrote; `None` while it runs, and for every other statement.
    pub fn written_rows(&self) -> Option<i64> {
        self.written_rows.get().copied()
    }

    /// Sets the columns, once.
    pub fn declare(&self, schema: SchemaRef) {
        let _ = self.schema.set(schema);
    }

    /// The columns, once they are known.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.schema.get().cloned()
    }

    /// Sets the whole result of an operation that computes it at once.
    pub fn answer(&self, rows: RecordBatch) {
        self.declare(rows.schema());
        let _ = self.answer.set(rows);
    }

    /// Sets the task to abort on cancellation.
    pub fn set_task(&self, task: AbortHandle) {
        let mut slot = self.task.lock();
        // Cancelled before the task was set.
        if matches!(*self.phase.borrow(), Phase::Canceled) {
            task.abort();
        }
        *slot = Some(task);
    }

    /// Cancels the operation now; its task stops at its next await point.
    pub fn cancel(&self, now_ms: i64) {
        if self.move_to(Phase::Canceled, now_ms) {
            self.log_line("cancelled");
        }
        self.abort();
    }

    /// Stops the computation.
    pub fn abort(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }

    /// Takes the next rows, at most `max_rows`; waits for the first one. No batches mean the end. `again` restarts.
    pub async fn fetch(&self, max_rows: usize, again: bool) -> Result<FetchedRows, UserError> {
        let mut reader = self.rows.lock().await;
        if again && reader.position > 0 {
            if self.answer.get().is_none() {
                return Err(UserError::new(ErrorKind::NotSupported, "rows of a query cannot be fetched again")
                    .hint("Execute the statement again."));
            }
            reader.begun = false;
            reader.position = 0;
        }
        check(&self.wait(Duration::MAX).await)?;
        if !reader.begun {
            reader.begun = true;
            reader.current = self.answer.get().map(|rows| (rows.clone(), 0));
        }
        let mut batches = Vec::new();
        let (mut rows_left, mut bytes_left) = (max_rows.clamp(1, FETCH_ROWS_MAX), FETCH_BYTES_MAX);
        let start = reader.position;
        while rows_left > 0 {
            let (batch, offset) = match reader.current.take() {
                Some(current) => current,
                None if batches.is_empty() => match reader.queue.recv().await {
                    Some(batch) => (batch, 0),
                    None => break,
                },
                None => match reader.queue.try_recv() {
                    Ok(batch) => (batch, 0),
                    Err(_) => break,
                },
            };
            let wanted = rows_left.min(batch.num_rows() - offset);
            let (rows, bytes) = match fitting_rows(&batch, offset, wanted, bytes_left) {
                (0, _) if wanted > 0 && !batches.is_empty() => {
                    reader.current = Some((batch, offset));
                    break;
                }
                // The row exceeds the limit of a fetch, so it is returned alone.
                (0, _) if wanted > 0 => (1, bytes_left),
                fitting => fitting,
            };
            if rows > 0 {
                batches.push(batch.slice(offset, rows));
            }
            reader.position += rows as u64;
            rows_left -= rows;
            bytes_left = bytes_left.saturating_sub(bytes);
            if offset + rows < batch.num_rows() {
                reader.current = Some((batch, offset + rows));
            }
        }
        if batches.is_empty() && self.answer.get().is_none() {
            // The end of the rows does not tell success from failure: wait for the phase, which follows at once.
            match self.wait_final(PHASE_WAIT).await {
                Phase::Complete => {}
                other => {
                    check(&other)?;
                    return Err(UserError::internal("the rows ended before the operation"));
                }
            }
        }
        Ok(FetchedRows { start, schema: self.schema().unwrap_or_else(|| Arc::new(Schema::empty())), batches })
    }

    /// Adds a line to the log.
    pub fn log_line(&self, line: impl Into<String>) {
        let mut log = self.log.lock();
        log.lines.push_back(line.into());
        if log.lines.len() > LOG_LINES_MAX {
            log.lines.pop_front();
            log.read = log.read.saturating_sub(1);
        }
    }

    /// The lines that were not fetched yet, or all lines.
    pub fn log_lines(&self, again: bool, max_lines: usize) -> Vec<String> {
        let mut log = self.log.lock();
        let from = if again { 0 } else { log.read };
        let lines: Vec<_> = log.lines.iter().skip(from).take(max_lines).cloned().collect();
        log.read = from + lines.len();
        lines
    }

    /// Resets the idle time.
    pub fn touch(&self, now: Duration) {
        *self.touched.lock() = now;
    }

    /// The time since the last call about it.
    pub fn idle(&self, now: Duration) -> Duration {
        now.saturating_sub(*self.touched.lock())
    }
}

fn check(phase: &Phase) -> Result<(), UserError> {
    match phase {
        Phase::Failed(error) => Err(UserError::clone(error)),
        Phase::Canceled => Err(canceled()),
        Phase::Running | Phase::Ready | Phase::Complete => Ok(()),
    }
}

/// The error of a cancelled statement.
pub fn canceled() -> UserError {
    UserError::new(ErrorKind::Canceled, "canceling statement due to user request")
}
