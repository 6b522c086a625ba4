//! The execution of one statement: the task on the executor, and its supervisor.
//!
//! [`pump`] plans and executes on the executor and queues batches as fast as the client fetches them. [`supervise`] runs
//! on the protocol threads: it turns the end of the task (success, error, panic, cancellation, timeout) into the
//! operation's phase.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::record_batch::RecordBatch;
use futures::StreamExt;
use model::clock::Clock;
use model::error::{ErrorKind, UserError};
use model::failpoint;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use crate::context::EngineContext;
use crate::error::EngineError;
use crate::failpoints;
use crate::operation::{Operation, Phase};
use crate::session::Session;
use crate::statement::{self, Outcome};

/// How long the first rows of a statement are held before its state becomes finished.
const READY_DELAY: Duration = Duration::from_millis(200);
/// The length of a statement in logs, in characters.
const STATEMENT_SHOWN: usize = 200;

/// The time limits of a statement.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// The client's limit, until the first rows can be fetched; from then on the client sets the pace.
    pub until_ready: Duration,
    /// The engine's limit, until the last row is queued.
    pub until_end: Duration,
}

/// Waits for a statement's task and sets the final phase of the operation. Returns when the task has ended, which after
/// a cancellation or timeout is later than the operation's end.
pub async fn supervise(
    operation: &Operation,
    mut task: JoinHandle<Result<(), EngineError>>,
    timeouts: Timeouts,
    clock: &dyn Clock,
) {
    let started = Instant::now();
    let mut limit = timeouts.until_ready.min(timeouts.until_end);
    let mut ended = tokio::time::timeout(limit, &mut task).await;
    if ended.is_err() && matches!(operation.phase(), Phase::Ready) {
        limit = timeouts.until_end;
        ended = tokio::time::timeout(limit.saturating_sub(started.elapsed()), &mut task).await;
    }
    let Ok(ended) = ended else {
        let error = UserError::new(ErrorKind::Timeout, "canceling statement due to statement timeout")
            .detail(format!("The statement ran longer than {} s.", limit.as_secs()));
        end(operation, Phase::Failed(Arc::new(error)), clock);
        operation.abort();
        let _ = task.await;
        return;
    };
    end(operation, phase_of(operation, ended), clock);
}

fn end(operation: &Operation, phase: Phase, clock: &dyn Clock) {
    if let Phase::Failed(error) = &phase {
        operation.log_line(format!("failed: {error}"));
    }
    operation.move_to(phase, clock.wall_ms());
}

fn phase_of(operation: &Operation, ended: Result<Result<(), EngineError>, JoinError>) -> Phase {
    match ended {
        Ok(Ok(())) => Phase::Complete,
        Ok(Err(error)) => Phase::Failed(Arc::new(error.into_user())),
        Err(join) if join.is_panic() => {
            let what = panic_text(join.into_panic().as_ref());
            let shown: String = operation.statement.chars().take(STATEMENT_SHOWN).collect();
            tracing::error!(statement = shown, what, "statement panicked");
            Phase::Failed(Arc::new(EngineError::Panicked(what).into_user()))
        }
        Err(_) => Phase::Canceled,
    }
}

/// The message of a panic.
pub fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").to_owned()
}

/// Executes one statement and queues its rows, as fast as the client fetches them.
pub async fn pump(
    engine: Arc<EngineContext>,
    session: Arc<Session>,
    operation: Arc<Operation>,
    sender: mpsc::Sender<RecordBatch>,
) -> Result<(), EngineError> {
    failpoint!(failpoints::STATEMENT_STARTED);
    let mut stream = match statement::run(&engine, &session, &operation).await? {
        Outcome::Done => return Ok(()),
        Outcome::Answer(rows) => {
            operation.answer(rows);
            return Ok(());
        }
        Outcome::Rows(stream) => stream,
    };
    failpoint!(failpoints::STATEMENT_PLANNED);
    operation.declare(stream.schema());
    operation.log_line("executing");
    let ready = || operation.move_to(Phase::Ready, engine.clock().wall_ms());
    let mut is_ready = false;
    let mut ready_at: Option<Instant> = None;
    let mut rows = 0_u64;
    loop {
        // An error right after the first rows is better reported by the status than by a later fetch: hold them briefly.
        let batch = match ready_at {
            Some(at) if !is_ready => {
                let Ok(batch) = tokio::time::timeout_at(at, stream.next()).await else {
                    ready();
                    is_ready = true;
                    continue;
                };
                batch
            }
            _ => stream.next().await,
        };
        let Some(batch) = batch else { break };
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        rows += batch.num_rows() as u64;
        ready_at.get_or_insert_with(|| Instant::now() + READY_DELAY);
        match sender.try_send(batch) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(batch)) => {
                ready();
                is_ready = true;
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
            Err(mpsc::error::TrySendError::Closed(_)) => break,
        }
    }
    operation.log_line(format!("executed, {rows} rows"));
    Ok(())
}
