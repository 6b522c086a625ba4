//! One session of a proxy: its connection to the engine, and the work of it that a drain must wait for.

use hs2::tcli::TOperationHandle;
use hs2::{Client, Handle, HandleMap};
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;

use super::operation::Operation;
use super::settings::MAX_OPERATIONS;

/// One session.
pub(super) struct Entry {
    pub(super) handle: Handle,
    pub(super) user: String,
    /// The connection that opened it, and that it ends with.
    pub(super) connection: u64,
    pub(super) state: tokio::sync::Mutex<EngineSession>,
    work: Mutex<SessionWork>,
}

/// The engine's session of one session here.
pub(super) struct EngineSession {
    pub(super) client: Client,
    pub(super) handle: Handle,
}

/// What a drain must wait for.
#[derive(Default)]
struct SessionWork {
    /// The engine holds state of the session that cannot be replayed elsewhere.
    pinned: bool,
    /// Statements that run within their call; they have no handle yet.
    executing: usize,
    operations: HandleMap<Operation>,
}

/// A statement that runs within its call; counted until this is dropped.
pub(super) struct Executing<'a>(&'a Entry);

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        self.0.work.lock().executing -= 1;
    }
}

impl Entry {
    pub(super) fn new(handle: Handle, user: String, connection: u64, session: EngineSession) -> Self {
        Self { handle, user, connection, state: tokio::sync::Mutex::new(session), work: Mutex::default() }
    }

    /// Whether the engine holds state of the session that cannot be replayed elsewhere.
    pub(super) fn is_pinned(&self) -> bool {
        self.work.lock().pinned
    }

    pub(super) fn pin_to_engine(&self) {
        self.work.lock().pinned = true;
    }

    pub(super) fn operation(&self, handle: &Handle) -> Option<Operation> {
        self.work.lock().operations.get(handle).copied()
    }

    /// Refuses an operation beyond [`MAX_OPERATIONS`].
    pub(super) fn check_operation_limit(&self) -> Result<(), UserError> {
        let open = self.work.lock().operations.len();
        if open < MAX_OPERATIONS {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many open operations")
            .detail(format!("{open} operations are open."))
            .hint("Close statements that are not used."))
    }

    /// Keeps an operation under a new handle of the agent's own.
    pub(super) fn keep(&self, operation: Operation) -> Handle {
        let ours = Handle::random();
        self.work.lock().operations.insert(ours, operation);
        ours
    }

    pub(super) fn update(&self, handle: &Handle, change: impl FnOnce(&mut Operation)) {
        if let Some(operation) = self.work.lock().operations.get_mut(handle) {
            change(operation);
        }
    }

    /// Counts a statement that runs within its call.
    pub(super) fn executing(&self) -> Executing<'_> {
        self.work.lock().executing += 1;
        Executing(self)
    }

    /// The number of running statements, with and without a handle.
    pub(super) fn running_count(&self) -> usize {
        let work = self.work.lock();
        work.executing + work.operations.values().filter(|operation| operation.running).count()
    }

    pub(super) fn running(&self) -> Vec<TOperationHandle> {
        self.work.lock().operations.values().filter(|operation| operation.running).map(Operation::at_engine).collect()
    }

    /// Running operations, and with `results` those with an unread result: our handles and the engine's.
    pub(super) fn unfinished(&self, results: bool) -> Vec<(Handle, TOperationHandle)> {
        let work = self.work.lock();
        let left =
            work.operations.iter().filter(|(_, operation)| operation.running || (results && operation.result_waits));
        left.map(|(ours, operation)| (*ours, operation.at_engine())).collect()
    }

    pub(super) fn nothing_left(&self) -> bool {
        let work = self.work.lock();
        !work.pinned
            && work.executing == 0
            && work.operations.values().all(|operation| !operation.running && !operation.result_waits)
    }

    pub(super) fn remove(&self, operation: &Handle) {
        let operations = &mut self.work.lock().operations;
        operations.remove(operation);
        if operations.is_empty() {
            // An idle session owns no table.
            operations.shrink_to_fit();
        }
    }
}
