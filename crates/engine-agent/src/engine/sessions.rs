//! The sessions that proxies have here, and what of them an engine that drains still has to finish.
//!
//! Each session has a connection of its own to the engine. What a drain and the status call need to know stands
//! beside it under a plain lock, so that neither waits for a statement.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use hs2::tcli::{
    TCancelOperationReq, TCloseSessionReq, TGetOperationStatusReq, TOperationHandle, TOperationState, TOperationType,
};
use hs2::{Auth, Client, ClientError, ClientOptions, Handle};
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::debug;

use super::runtime::Backend;
use super::settings::{
    ASK_DEADLINE, ASKED_AT_ONCE, CALL_DEADLINE, CLEAN_UP_DEADLINE, CONNECT_DEADLINE, MAX_OPERATIONS, MAX_SESSIONS,
    Settings,
};

/// All sessions of the engine.
pub(super) struct Sessions {
    settings: Arc<Settings>,
    backend: Backend,
    table: Mutex<Table>,
    changed: watch::Sender<()>,
    /// Calls that are being served: one of them may be about to open a session or to start a statement.
    calls: AtomicUsize,
}

#[derive(Default)]
struct Table {
    sessions: HashMap<Handle, Arc<Entry>>,
    operations: HashMap<Handle, Handle>,
}

/// One session.
pub(super) struct Entry {
    pub(super) handle: Handle,
    pub(super) user: String,
    /// The connection that opened it, and that it ends with.
    pub(super) connection: u64,
    /// The engine's session.
    pub(super) state: tokio::sync::Mutex<EngineSession>,
    facts: Mutex<Facts>,
}

/// The engine's session of one session here.
pub(super) struct EngineSession {
    pub(super) client: Client,
    pub(super) handle: Handle,
}

#[derive(Default)]
struct Facts {
    pinned: bool,
    /// Statements that are executed within the call that brought them; they have no handle yet.
    executing: usize,
    operations: HashMap<Handle, Operation>,
}

/// What is known of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    /// The engine's handle.
    pub(super) backend: Handle,
    /// The type in the engine's handle: Spark finds an operation only under handle and type.
    pub(super) kind: TOperationType,
    /// The engine still works on it.
    pub(super) running: bool,
    /// Its result has not been fetched to its end.
    pub(super) result_waits: bool,
}

impl Operation {
    /// The engine's handle as the engine itself wrote it.
    pub(super) fn at_engine(&self) -> TOperationHandle {
        self.backend.operation(self.kind, true)
    }

    /// Notes what the engine said of it.
    pub(super) fn told(&mut self, state: TOperationState, has_result_set: Option<bool>) {
        match state {
            TOperationState::FINISHED_STATE => {
                self.running = false;
                self.result_waits &= has_result_set != Some(false);
            }
            TOperationState::ERROR_STATE
            | TOperationState::CANCELED_STATE
            | TOperationState::CLOSED_STATE
            | TOperationState::TIMEDOUT_STATE => self.end(),
            _ => {}
        }
    }

    /// Nothing of it is left to finish.
    pub(super) fn end(&mut self) {
        self.running = false;
        self.result_waits = false;
    }
}

/// Counts a statement that is executed within its call, for as long as it lives.
pub(super) struct Executing<'a>(&'a Entry);

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        self.0.facts.lock().executing -= 1;
    }
}

/// Counts a call for as long as it lives.
pub(super) struct Serving<'a>(&'a Sessions);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.send_replace(());
    }
}

/// Carries out what is asked, [`ASKED_AT_ONCE`] at a time: the next one begins when one is done.
async fn few_at_once(asking: impl Iterator<Item = impl Future<Output = ()>>) {
    futures::stream::iter(asking).for_each_concurrent(ASKED_AT_ONCE, |asked| asked).await;
}

impl Entry {
    /// The session holds state that can't be made elsewhere.
    pub(super) fn is_pinned(&self) -> bool {
        self.facts.lock().pinned
    }

    pub(super) fn pin(&self) {
        self.facts.lock().pinned = true;
    }

    pub(super) fn operation(&self, handle: &Handle) -> Option<Operation> {
        self.facts.lock().operations.get(handle).copied()
    }

    /// Refuses one more operation than a session may have.
    pub(super) fn room_for_operation(&self) -> Result<(), UserError> {
        let open = self.facts.lock().operations.len();
        if open < MAX_OPERATIONS {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many open operations")
            .detail(format!("{open} are open"))
            .hint("close statements that are not used"))
    }

    /// Keeps an operation of the engine under a handle of the agent's own.
    pub(super) fn keep(&self, operation: Operation) -> Handle {
        let ours = Handle::random();
        self.facts.lock().operations.insert(ours, operation);
        ours
    }

    pub(super) fn update(&self, handle: &Handle, change: impl FnOnce(&mut Operation)) {
        if let Some(operation) = self.facts.lock().operations.get_mut(handle) {
            change(operation);
        }
    }

    /// A statement that is executed within its call.
    pub(super) fn executing(&self) -> Executing<'_> {
        self.facts.lock().executing += 1;
        Executing(self)
    }

    /// Statements that run, whether they have a handle or not.
    fn running_count(&self) -> usize {
        let facts = self.facts.lock();
        facts.executing + facts.operations.values().filter(|it| it.running).count()
    }

    fn running(&self) -> Vec<TOperationHandle> {
        self.facts.lock().operations.values().filter(|it| it.running).map(Operation::at_engine).collect()
    }

    /// What runs, and the results that wait if those are asked about too: our handles and the engine's.
    fn unfinished(&self, results: bool) -> Vec<(Handle, TOperationHandle)> {
        let facts = self.facts.lock();
        let left = facts.operations.iter().filter(|(_, it)| it.running || (results && it.result_waits));
        left.map(|(ours, it)| (*ours, it.at_engine())).collect()
    }

    fn nothing_left(&self) -> bool {
        let facts = self.facts.lock();
        !facts.pinned && facts.executing == 0 && facts.operations.values().all(|it| !it.running && !it.result_waits)
    }
}

impl Sessions {
    pub(super) fn new(settings: Arc<Settings>, backend: Backend) -> Self {
        let changed = watch::Sender::new(());
        Self { settings, backend, table: Mutex::default(), changed, calls: AtomicUsize::new(0) }
    }

    /// Wakes up when something ended.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Counts a call; to be taken before the drain is looked at, so that a drain never ends under it.
    pub(super) fn serving(&self) -> Serving<'_> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Serving(self)
    }

    /// No statement runs, no result waits, no session has state of its own, no call is being served.
    pub(super) fn nothing_left(&self) -> bool {
        self.calls.load(Ordering::SeqCst) == 0 && self.table.lock().sessions.values().all(|it| it.nothing_left())
    }

    /// Open sessions.
    pub(super) fn count(&self) -> u32 {
        self.table.lock().sessions.len() as u32
    }

    /// Statements that run.
    pub(super) fn running(&self) -> u32 {
        self.table.lock().sessions.values().map(|it| it.running_count() as u32).sum()
    }

    /// Asks the engine about every statement that runs as far as the agent knows: a client that never asks for the
    /// end of its statement must not keep an engine that drains. With `results` also about those whose result waits: the
    /// engine closes what nobody fetches, and says so to nobody. On connections of their own, because a session's may be
    /// in the middle of a call, and because questions on that one would keep a result that is forgotten;
    /// [`ASKED_AT_ONCE`] of them at most.
    pub(super) async fn ask_what_is_left(&self, results: bool) {
        let entries: Vec<Arc<Entry>> = self.table.lock().sessions.values().cloned().collect();
        let left = entries.iter().map(|entry| (entry, entry.unfinished(results))).filter(|(_, left)| !left.is_empty());
        few_at_once(left.map(|(entry, left)| self.ask_about(entry, left))).await;
    }

    async fn ask_about(&self, entry: &Entry, left: Vec<(Handle, TOperationHandle)>) {
        let Ok(mut aside) = self.connect(&entry.user).await else { return };
        aside.set_call_deadline(ASK_DEADLINE);
        for (ours, operation_handle) in left {
            let request = TGetOperationStatusReq { operation_handle, get_progress_update: None };
            match aside.get_operation_status(&request).await {
                Ok(answer) => {
                    if let Some(state) = answer.operation_state {
                        entry.update(&ours, |it| it.told(state, answer.has_result_set));
                    }
                }
                // The engine has forgotten it.
                Err(ClientError::Refused(_)) => entry.update(&ours, Operation::end),
                Err(error) => {
                    debug!(%error, "the engine does not say what runs");
                    break;
                }
            }
        }
        self.changed.send_replace(());
    }

    /// Connects to the engine for a user.
    pub(super) async fn connect(&self, user: &str) -> Result<Client, ClientError> {
        let mut options =
            ClientOptions::new(self.backend.address.clone(), Auth::user(user, self.backend.key.0.clone()));
        options.connect_deadline = CONNECT_DEADLINE;
        options.call_deadline = CALL_DEADLINE;
        options.limits = self.settings.limits.clone();
        Client::connect(&options).await
    }

    /// Refuses one more session than the engine may have, before anything is done for it.
    pub(super) fn room(&self) -> Result<(), UserError> {
        self.room_beside(self.table.lock().sessions.len())
    }

    fn room_beside(&self, open: usize) -> Result<(), UserError> {
        if open < MAX_SESSIONS {
            return Ok(());
        }
        Err(UserError::new(
            ErrorKind::ProgramLimit,
            format!("engine \"{}\" has too many sessions", self.settings.engine),
        )
        .detail(format!("{open} are open")))
    }

    /// Takes an engine's session in, unless others were quicker to take the last place: then it ends with its
    /// connection, here.
    pub(super) fn insert(&self, user: String, connection: u64, session: EngineSession) -> Result<Handle, UserError> {
        let handle = Handle::random();
        let state = tokio::sync::Mutex::new(session);
        let entry = Entry { handle, user, connection, state, facts: Mutex::default() };
        let mut table = self.table.lock();
        self.room_beside(table.sessions.len())?;
        table.sessions.insert(handle, Arc::new(entry));
        Ok(handle)
    }

    pub(super) fn session(&self, handle: &Handle) -> Option<Arc<Entry>> {
        self.table.lock().sessions.get(handle).cloned()
    }

    /// The session that an operation belongs to.
    pub(super) fn of_operation(&self, operation: &Handle) -> Option<Arc<Entry>> {
        let table = self.table.lock();
        table.sessions.get(table.operations.get(operation)?).cloned()
    }

    pub(super) fn name_operation(&self, operation: Handle, session: Handle) {
        self.table.lock().operations.insert(operation, session);
    }

    pub(super) fn forget_operation(&self, entry: &Entry, operation: &Handle) {
        entry.facts.lock().operations.remove(operation);
        self.table.lock().operations.remove(operation);
        self.changed.send_replace(());
    }

    /// Takes a session away; its engine's session is ended in the background.
    pub(super) fn end(self: &Arc<Self>, handle: &Handle) {
        let entry = {
            let mut table = self.table.lock();
            let Some(entry) = table.sessions.remove(handle) else { return };
            table.operations.retain(|_, session| session != handle);
            entry
        };
        let sessions = Arc::clone(self);
        tokio::spawn(async move {
            let ending = sessions.end_at_engine(&entry);
            if tokio::time::timeout(CLEAN_UP_DEADLINE, ending).await.is_err() {
                debug!("an engine's session did not close in time and is cut");
            }
            sessions.changed.send_replace(());
        });
        self.changed.send_replace(());
    }

    /// Ends the sessions that a connection leaves behind.
    pub(super) fn end_connection(self: &Arc<Self>, connection: u64) {
        let left: Vec<Handle> =
            self.table.lock().sessions.values().filter(|it| it.connection == connection).map(|it| it.handle).collect();
        for handle in left {
            self.end(&handle);
        }
    }

    /// Cancels what runs and closes the engine's session. A connection that is in the middle of a call is of no use
    /// for that: another one cancels, and cutting the first ends its session.
    async fn end_at_engine(&self, entry: &Entry) {
        let running = entry.running();
        if !running.is_empty() {
            match self.connect(&entry.user).await {
                Ok(mut aside) => {
                    for operation_handle in running {
                        if let Err(error) = aside.cancel_operation(&TCancelOperationReq { operation_handle }).await {
                            debug!(%error, "a statement of a lost connection could not be cancelled");
                        }
                    }
                }
                Err(error) => debug!(%error, "the engine can't be reached to cancel what a lost connection left"),
            }
        }
        let mut state = entry.state.lock().await;
        if !state.client.is_broken() {
            let session_handle = state.handle.session();
            if let Err(error) = state.client.close_session(&TCloseSessionReq { session_handle }).await {
                debug!(%error, "an engine's session could not be closed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn few_are_asked_at_once_and_all_are_asked() {
        let (open, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let ask = |_| async {
            most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            open.fetch_sub(1, Ordering::SeqCst);
            done.fetch_add(1, Ordering::SeqCst);
        };
        few_at_once((0..MAX_SESSIONS).map(ask)).await;
        assert_eq!((most.into_inner(), done.into_inner()), (ASKED_AT_ONCE, MAX_SESSIONS));
    }
}
