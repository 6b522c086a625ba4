//! Statements that wait for an engine: each poll of the client tries to bind one, and a timer ends the wait.
//!
//! The timer does not depend on the client: a statement that is never polled also ends at its deadline, and its message
//! is dropped.

use std::sync::Arc;
use std::time::Duration;

use hs2::{Connection, Handle};
use model::error::UserError;
use tracing::debug;

use super::operation::{EngineCall, Operation, OperationState, Timer, WaitingStatement};
use super::state::Session;
use super::table::Entry;
use crate::bind::no_engine;
use crate::bind::{self, NotBound, Wait};
use crate::gateway::Gateway;
use crate::relay::{self, Deliver, Relayed};
use crate::settings::{MAX_ERROR_BYTES, POLL_STEP};

/// How long after the deadline the timer ends a wait: a client that polls gets the error from its own poll.
const TIMER_SLACK: Duration = Duration::from_millis(20);

/// Keeps the statement as an operation of the session and starts its timer.
pub(crate) fn begin(
    gateway: &Arc<Gateway>,
    entry: &Arc<Entry>,
    session: &mut Session,
    call: EngineCall,
    since: Duration,
    Wait { reason, demand }: Wait,
) -> Handle {
    let waiting = WaitingStatement { call, since, reason: reason.clone(), demand, timer: Timer::default() };
    let deadline = deadline(gateway, &waiting);
    let mut operation = Operation::new(OperationState::Waiting(Box::new(waiting)));
    operation.log(reason);
    let handle = gateway.sessions.keep_operation(entry, session, operation);
    let task = tokio::spawn(expire(Arc::clone(gateway), Arc::clone(entry), handle, deadline));
    if let Some(Operation { state: OperationState::Waiting(waiting), .. }) = session.operations.get_mut(&handle) {
        waiting.timer = Timer::new(task.abort_handle());
    }
    handle
}

/// The end of the wait, by the clock that counts suspension.
fn deadline(gateway: &Gateway, waiting: &WaitingStatement) -> Duration {
    let bind_deadline = waiting.since + gateway.settings.bind_deadline;
    waiting.call.timeout.map_or(bind_deadline, |timeout| timeout.ends.min(bind_deadline))
}

/// The error of a wait that reached its deadline.
fn timed_out(waiting: &WaitingStatement, now: Duration) -> UserError {
    match &waiting.call.timeout {
        Some(timeout) if timeout.left(now).is_zero() => timeout.error_waiting_for(&waiting.reason),
        _ => no_engine::waited_too_long(now.saturating_sub(waiting.since), &waiting.reason),
    }
}

/// Ends the wait of an operation at its deadline, if it still waits then.
async fn expire(gateway: Arc<Gateway>, entry: Arc<Entry>, operation: Handle, deadline: Duration) {
    loop {
        let left = deadline.saturating_sub(gateway.clock.boottime());
        tokio::time::sleep(left + TIMER_SLACK).await;
        let mut session = entry.state.lock().await;
        let Some(operation) = session.operations.get_mut(&operation) else { return };
        let OperationState::Waiting(waiting) = &operation.state else { return };
        let now = gateway.clock.boottime();
        if now >= deadline {
            // Dropping the statement aborts this task at its next await, and there is none.
            operation.state = OperationState::Failed(timed_out(waiting, now));
            return;
        }
    }
}

/// Tries once to bind an engine and to start the statement there; pauses if there is no engine. Ends early when the client
/// closes its connection.
pub(crate) async fn step(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Entry,
    (session, named): (&mut Session, Handle),
    operation: &mut Operation,
) {
    let OperationState::Waiting(waiting) = &mut operation.state else { return };
    let mut changes = gateway.routes.changes();
    changes.mark_unchanged();
    let bound = tokio::select! {
        bound = bind::bind(gateway, session) => bound,
        () = connection.closed() => return,
    };
    let error = match bound {
        Ok(()) => {
            if let Err(error) = bind::count_statement(gateway, session, &waiting.call) {
                operation.state = OperationState::Failed(error);
                return;
            }
            match relay::relay(gateway, connection, entry, session, &waiting.call, Deliver::Nowhere(named)).await {
                Ok(Relayed::Running { binding, handle }) => {
                    let running = waiting.call.running_after_reply();
                    operation.state = OperationState::AtEngine { binding, handle, running };
                    return;
                }
                Ok(Relayed::Refused(error) | Relayed::Lost(error) | Relayed::TimedOut(error)) => error,
                // The next poll chooses another engine.
                Ok(Relayed::Draining(_) | Relayed::Delivered) | Err(_) => return,
            }
        }
        Err(NotBound::Refused(error)) => error,
        Err(NotBound::Wait(Wait { reason, demand })) => {
            waiting.reason.clone_from(&reason);
            waiting.demand = demand;
            let (now, deadline) = (gateway.clock.boottime(), deadline(gateway, waiting));
            if now < deadline {
                operation.log(reason);
                tokio::select! {
                    _ = tokio::time::timeout(POLL_STEP.min(deadline.saturating_sub(now)), changes.changed()) => {}
                    () = connection.closed() => {}
                }
                return;
            }
            timed_out(waiting, now)
        }
    };
    debug!(%error, "a statement that waited for an engine has failed");
    operation.state = OperationState::Failed(error.without_stack_trace().cut(MAX_ERROR_BYTES));
}
