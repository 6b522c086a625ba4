//! Statements that wait for an engine: each poll of the client tries to bind one, and a timer ends the wait.
//!
//! The timer does not depend on the client: a statement that is never polled ends at its deadline too, and its message
//! is dropped.

use std::sync::Arc;
use std::time::Duration;

use hs2::{Connection, Handle, status};
use model::error::UserError;
use tokio::task::AbortHandle;
use tracing::debug;

use super::binding::{self, NotBound, Sent};
use super::no_engine;
use super::operation::{Operation, Place};
use super::statement::{EngineCall, keep};
use super::{Entry, Session};
use crate::Gateway;
use crate::settings::{MAX_ERROR_BYTES, POLL_STEP};

/// How long after its deadline a wait is ended by the timer: a client that polls learns it from its own poll.
const TIMER_SLACK: Duration = Duration::from_millis(20);

/// A statement that waits for an engine.
pub(crate) struct Waiting {
    pub(super) call: EngineCall,
    /// Since when, by the clock that counts suspension.
    since: Duration,
    /// Why there was no engine at the last attempt.
    reason: String,
    /// Ends the wait; stopped when the statement waits no longer.
    timer: Timer,
}

/// A task that is stopped with its owner.
struct Timer(Option<AbortHandle>);

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Waiting {
    /// Keeps the statement as an operation of the session and starts its timer.
    pub(super) fn begin(
        gateway: &Arc<Gateway>,
        entry: &Arc<Entry>,
        session: &mut Session,
        call: EngineCall,
        since: Duration,
        reason: String,
    ) -> Handle {
        let waiting = Self { call, since, reason: reason.clone(), timer: Timer(None) };
        let ends = waiting.ends(gateway);
        let mut operation = Operation::new(Place::Waiting(Box::new(waiting)));
        operation.log(reason);
        let handle = keep(gateway, entry, session, operation);
        let task = tokio::spawn(expire(Arc::clone(gateway), Arc::clone(entry), handle, ends));
        if let Some(Operation { place: Place::Waiting(waiting), .. }) = session.operations.get_mut(&handle) {
            waiting.timer = Timer(Some(task.abort_handle()));
        }
        handle
    }

    /// When the wait ends, by the clock that counts suspension.
    fn ends(&self, gateway: &Gateway) -> Duration {
        let bound = self.since + gateway.settings.bind_deadline;
        self.call.timeout.map_or(bound, |timeout| timeout.ends.min(bound))
    }

    /// The error of a wait that is over.
    fn over(&self, now: Duration) -> UserError {
        match &self.call.timeout {
            Some(timeout) if timeout.left(now).is_zero() => timeout.error_waiting_for(&self.reason),
            _ => no_engine::waited_too_long(now.saturating_sub(self.since), &self.reason),
        }
    }
}

/// Ends the wait of an operation at its deadline, if it still waits then.
async fn expire(gateway: Arc<Gateway>, entry: Arc<Entry>, operation: Handle, ends: Duration) {
    loop {
        let left = ends.saturating_sub(gateway.clock.boottime());
        tokio::time::sleep(left + TIMER_SLACK).await;
        let mut session = entry.state.lock().await;
        let Some(operation) = session.operations.get_mut(&operation) else { return };
        let Place::Waiting(waiting) = &operation.place else { return };
        let now = gateway.clock.boottime();
        if now >= ends {
            // Dropping the statement stops this task at its next await, and there is none.
            let error = waiting.over(now);
            operation.place = Place::Failed(error);
            return;
        }
    }
}

/// One attempt to bind the engine that a statement waits for, and a pause if there is none. The client's hang-up ends
/// it.
pub(super) async fn step(
    gateway: &Arc<Gateway>,
    connection: &Connection,
    entry: &Entry,
    (session, named): (&mut Session, Handle),
    operation: &mut Operation,
) {
    let Place::Waiting(waiting) = &mut operation.place else { return };
    let mut changes = gateway.routes.changes();
    changes.mark_unchanged();
    let bound = tokio::select! {
        bound = binding::bind(gateway, session) => bound,
        () = connection.closed() => return,
    };
    let failed = match bound {
        Ok(()) => {
            let sent = tokio::select! {
                sent = binding::send(gateway, session, &waiting.call) => sent,
                () = connection.closed() => {
                    session.drop_present("its client hung up while a statement was sent there");
                    return;
                }
            };
            match sent {
                Sent::Accepted { binding, handle, .. } => {
                    operation.place = Place::Engine { binding, handle };
                    entry.note_at_engine(named, session.route_of(binding), handle);
                    return;
                }
                Sent::Answered(reply) => refused_by_engine(&reply),
                // The next poll chooses another.
                Sent::Draining(_) => return,
                Sent::Lost(error) | Sent::TimedOut(error) => error,
            }
        }
        Err(NotBound::Refused(error)) => error,
        Err(NotBound::Wait(reason)) => {
            waiting.reason.clone_from(&reason);
            let (now, ends) = (gateway.clock.boottime(), waiting.ends(gateway));
            if now < ends {
                operation.log(reason);
                tokio::select! {
                    _ = tokio::time::timeout(POLL_STEP.min(ends.saturating_sub(now)), changes.changed()) => {}
                    () = connection.closed() => {}
                }
                return;
            }
            waiting.over(now)
        }
    };
    debug!(error = %failed, "a statement that waited has failed");
    operation.place = Place::Failed(failed.without_stack_trace().cut(MAX_ERROR_BYTES));
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
