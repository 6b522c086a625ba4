//! The sessions of proxies at the engine, and the work that a draining engine still has to finish.
//!
//! Each session has a connection of its own to the engine. What a drain and the status call need is under a separate,
//! synchronous lock, so that neither waits for a statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use hs2::tcli::{TCancelOperationReq, TCloseSessionReq, TGetOperationStatusReq, TOperationHandle};
use hs2::{Auth, Client, ClientError, ClientOptions, Handle, HandleTable, Scope};
use model::clock::SharedClock;
use model::error::UserError;
use model::owner::Owner;
use model::sharing::Sharer;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{debug, info};

use super::entry::{EngineSession, Entry};
use super::idleness::Idleness;
use super::operation::Operation;
use super::ownership::Ownership;
use super::runtime::Backend;
use super::seats::{self, Seats};
use super::settings::{
    CALL_DEADLINE, CLEAN_UP_DEADLINE, CONNECT_DEADLINE, MAX_CONCURRENT_POLLS, MAX_SESSIONS, POLL_DEADLINE, Settings,
};

pub(super) struct Sessions {
    settings: Arc<Settings>,
    backend: Backend,
    clock: SharedClock,
    table: Mutex<Table>,
    changed: watch::Sender<()>,
    /// Calls in progress: one of them may be about to open a session or to start a statement.
    calls: AtomicUsize,
}

/// What a new session and a consent to retire depend on, under one lock.
struct Table {
    handles: HandleTable<Entry>,
    idleness: Idleness,
    seats: Seats,
    ownership: Ownership,
    /// The sessions that have been opened.
    served: u64,
}

/// The sessions of the engine as its status reports them.
pub(super) struct SessionCounts {
    /// Open, or being opened.
    pub(super) taken: u32,
    /// Those whose state cannot be replayed at another engine.
    pub(super) stateful: u32,
    pub(super) seats: u32,
    /// All that have been opened since the agent started.
    pub(super) served: u64,
}

/// The current times of an engine that may be idle.
pub(super) struct Idle {
    /// For how long no session has been open.
    pub(super) lasted: Duration,
    /// Whether it has agreed to retire.
    pub(super) is_retiring: bool,
}

/// A call in progress; counted until this is dropped.
pub(super) struct CallGuard<'a>(&'a Sessions);

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
        self.0.notify();
    }
}

/// A session that is being opened. It has its seat until this is dropped, or the session is inserted.
pub(super) struct Opening<'a> {
    sessions: &'a Sessions,
    is_inserted: bool,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.is_inserted {
            let now = self.sessions.clock.boottime();
            self.sessions.table.lock().idleness.end_open(now);
        }
    }
}

/// Runs all futures, at most [`MAX_CONCURRENT_POLLS`] at a time.
async fn run_bounded(polls: impl Iterator<Item = impl Future<Output = ()>>) {
    futures::stream::iter(polls).for_each_concurrent(MAX_CONCURRENT_POLLS, |poll| poll).await;
}

impl Sessions {
    pub(super) fn new(settings: Arc<Settings>, backend: Backend, clock: SharedClock) -> Self {
        let table = Table {
            handles: HandleTable::new(MAX_SESSIONS),
            idleness: Idleness::new(clock.boottime()),
            seats: Seats::new(None),
            ownership: Ownership::new(settings.run_as.clone()),
            served: 0,
        };
        let changed = watch::Sender::new(());
        Self { settings, backend, clock, table: Mutex::new(table), changed, calls: AtomicUsize::new(0) }
    }

    /// Notifies when a call, an operation or a session ended.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Notifies that a call, an operation or a session ended. Only a drain listens. One that begins to at this moment may miss it, and
    /// checks again soon.
    fn notify(&self) {
        if self.changed.receiver_count() > 0 {
            self.changed.send_replace(());
        }
    }

    /// Counts a call. Take it before checking for a drain, so that the drain waits for the call.
    pub(super) fn count_call(&self) -> CallGuard<'_> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        CallGuard(self)
    }

    /// Whether no statement runs, no result is unread, no session is pinned and no call is in progress.
    pub(super) fn nothing_left(&self) -> bool {
        self.calls.load(Ordering::SeqCst) == 0 && self.table.lock().handles.sessions().all(|entry| entry.nothing_left())
    }

    /// The number of open sessions.
    pub(super) fn count(&self) -> u32 {
        self.table.lock().handles.len() as u32
    }

    /// Sessions and seats.
    pub(super) fn counts(&self) -> SessionCounts {
        let table = self.table.lock();
        let stateful = table.handles.sessions().filter(|entry| entry.is_pinned()).count() as u32;
        let taken = (table.handles.len() + table.idleness.opening()) as u32;
        SessionCounts { taken, stateful, seats: table.seats.count(), served: table.served }
    }

    /// Applies a permit: the number of sessions that it allows, and their owner.
    pub(super) fn apply_permit(&self, permitted: Option<u32>, owner: Option<&Owner>) {
        let seats = Seats::new(permitted);
        let mut table = self.table.lock();
        table.ownership.read(owner);
        let before = std::mem::replace(&mut table.seats, seats);
        drop(table);
        if before != seats {
            info!(before = before.count(), now = seats.count(), "seats changed");
        }
    }

    /// The number of running statements.
    pub(super) fn running(&self) -> u32 {
        self.table.lock().handles.sessions().map(|entry| entry.running_count() as u32).sum()
    }

    /// Polls the engine for the state of every running statement: a client that never polls must not keep a draining engine
    /// alive. With `results` also of those with an unread result, which the engine closes after a while without a notice.
    /// Uses side connections, at most [`MAX_CONCURRENT_POLLS`]: a session's own may be in the middle of a call, and polls
    /// on it would keep an abandoned result open.
    pub(super) async fn poll_unfinished(&self, results: bool) {
        let entries: Vec<Arc<Entry>> = self.table.lock().handles.sessions().cloned().collect();
        let left = entries.iter().map(|entry| (entry, entry.unfinished(results))).filter(|(_, left)| !left.is_empty());
        run_bounded(left.map(|(entry, left)| self.poll_operations(entry, left))).await;
    }

    async fn poll_operations(&self, entry: &Entry, left: Vec<(Handle, TOperationHandle)>) {
        let Ok(mut side_connection) = self.connect(&entry.user).await else { return };
        side_connection.set_call_deadline(POLL_DEADLINE);
        for (ours, operation_handle) in left {
            let request = TGetOperationStatusReq { operation_handle, get_progress_update: None };
            match side_connection.get_operation_status(&request).await {
                Ok(answer) => {
                    if let Some(state) = answer.operation_state {
                        entry.update(&ours, |operation| operation.set_state(state, answer.has_result_set));
                    }
                }
                // The engine no longer has it.
                Err(ClientError::Refused(_)) => entry.update(&ours, Operation::end),
                Err(error) => {
                    debug!(%error, "could not poll the engine for running statements");
                    break;
                }
            }
        }
        self.notify();
    }

    pub(super) async fn connect(&self, user: &str) -> Result<Client, ClientError> {
        let mut options =
            ClientOptions::new(self.backend.address.clone(), Auth::user(user, self.backend.key.0.clone()));
        options.connect_deadline = CONNECT_DEADLINE;
        options.call_deadline = CALL_DEADLINE;
        options.limits = self.settings.limits.clone();
        Client::connect(&options).await
    }

    /// The owner that the permit names.
    pub(super) fn owner(&self) -> Option<Owner> {
        self.table.lock().ownership.owner().cloned()
    }

    /// Begins to open a session, which takes a seat. Refuses one of another owner, one without a free seat, and all while the
    /// engine retires, before anything is done for it.
    pub(super) fn begin_open(&self, sharer: Option<&Sharer>) -> Result<Opening<'_>, UserError> {
        let now = self.clock.boottime();
        let mut table = self.table.lock();
        table.ownership.check(&self.settings.engine, sharer)?;
        if table.idleness.is_retiring(now) {
            return Err(seats::retiring(&self.settings.engine));
        }
        let taken = table.handles.len() + table.idleness.opening();
        table.seats.check(&self.settings.engine, taken)?;
        table.idleness.begin_open();
        Ok(Opening { sessions: self, is_inserted: false })
    }

    /// For how long it has been idle, and whether it retires.
    pub(super) fn idle(&self) -> Idle {
        let now = self.clock.boottime();
        let table = self.table.lock();
        let lasted = table.idleness.lasted(table.handles.len(), now);
        Idle { lasted, is_retiring: table.idleness.is_retiring(now) }
    }

    /// Whether the engine agrees to retire: it has been idle for this long. It then opens no sessions for a while.
    pub(super) fn retire(&self, idle: Duration) -> bool {
        let now = self.clock.boottime();
        let mut table = self.table.lock();
        let sessions = table.handles.len();
        table.idleness.retire(sessions, idle, now)
    }

    /// Adds a session that is [`Opening`]; it keeps its seat, also if there are fewer of them meanwhile.
    pub(super) fn insert(
        &self,
        mut opening: Opening<'_>,
        user: String,
        connection: u64,
        session: EngineSession,
    ) -> Result<Handle, UserError> {
        let handle = Handle::random();
        let entry = Entry::new(handle, user, connection, session);
        let now = self.clock.boottime();
        let mut table = self.table.lock();
        let inserted = table.handles.insert(handle, Arc::new(entry));
        table.served += u64::from(inserted.is_ok());
        table.idleness.end_open(now);
        drop(table);
        opening.is_inserted = true;
        inserted.map(|()| handle)
    }

    /// The session that a call of this scope names.
    pub(super) fn find(&self, scope: Scope, named: &Handle) -> Option<Arc<Entry>> {
        self.table.lock().handles.find(scope, named).cloned()
    }

    pub(super) fn add_operation(&self, operation: Handle, session: &Handle) {
        self.table.lock().handles.add_operation(operation, session);
    }

    pub(super) fn remove_operation(&self, entry: &Entry, operation: &Handle) {
        entry.remove(operation);
        self.table.lock().handles.remove_operation(operation);
        self.notify();
    }

    /// Removes a session; the engine's session is closed in the background.
    pub(super) fn close(self: &Arc<Self>, handle: &Handle) {
        let now = self.clock.boottime();
        let entry = {
            let mut table = self.table.lock();
            let Some(entry) = table.handles.remove(handle) else { return };
            table.idleness.closed(now);
            entry
        };
        let sessions = Arc::clone(self);
        tokio::spawn(async move {
            let closing = sessions.close_at_engine(&entry);
            if tokio::time::timeout(CLEAN_UP_DEADLINE, closing).await.is_err() {
                debug!("closing an engine session timed out; connection cut");
            }
            sessions.notify();
        });
        self.notify();
    }

    /// Closes the sessions of a connection that ended.
    pub(super) fn close_connection(self: &Arc<Self>, connection: u64) {
        let of_connection: Vec<Handle> = {
            let handles = &self.table.lock().handles;
            let entries = handles.sessions().filter(|entry| entry.connection == connection);
            entries.map(|entry| entry.handle).collect()
        };
        for handle in of_connection {
            self.close(&handle);
        }
    }

    /// Cancels the running statements on a side connection and closes the engine's session. If the session's own connection
    /// is in the middle of a call, it is cut, which ends the session.
    async fn close_at_engine(&self, entry: &Entry) {
        let running = entry.running();
        if !running.is_empty() {
            match self.connect(&entry.user).await {
                Ok(mut side_connection) => {
                    for operation_handle in running {
                        if let Err(error) =
                            side_connection.cancel_operation(&TCancelOperationReq { operation_handle }).await
                        {
                            debug!(%error, "could not cancel a statement of a closed session");
                        }
                    }
                }
                Err(error) => debug!(%error, "could not connect to cancel the statements of a closed session"),
            }
        }
        let mut state = entry.state.lock().await;
        if !state.client.is_broken() {
            let session_handle = state.handle.session();
            if let Err(error) = state.client.close_session(&TCloseSessionReq { session_handle }).await {
                debug!(%error, "could not close an engine session");
            }
        }
    }
}

#[cfg(test)]
mod simulated;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn polls_are_bounded_and_all_are_run() {
        let (open, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let poll = |_| async {
            most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            open.fetch_sub(1, Ordering::SeqCst);
            done.fetch_add(1, Ordering::SeqCst);
        };
        run_bounded((0..MAX_SESSIONS).map(poll)).await;
        assert_eq!((most.into_inner(), done.into_inner()), (MAX_CONCURRENT_POLLS, MAX_SESSIONS));
    }
}
