//! The engine: its shared context, its sessions and operations, and its executor threads.
//!
//! Statements run on the executor ([`Config::cpu_threads`] threads); the protocol threads only wait and convert. So the
//! status of a statement that uses all its CPU can still be read, and it can be cancelled. Invariants: no statement ends
//! the engine, not even by a panic; the numbers of sessions and operations and their idle time are limited; the handle of
//! a closed session or operation is not found.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use datafusion::arrow::record_batch::RecordBatch;
use hs2::Handle;
use model::clock::SharedClock;
use model::error::{ErrorKind, UserError};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

use crate::catalog::Catalog;
use crate::config::Config;
use crate::context::EngineContext;
use crate::error::EngineError;
use crate::execution::{Timeouts, panic_text, pump, supervise};
use crate::operation::{Operation, Phase};
use crate::session::Session;
use crate::statement::head;
use crate::storage::resources::Resources;

/// The stack of an executor thread, in bytes: plans of [`depth::DEPTH_MAX`] levels are traversed recursively. The stack
/// is only reserved; a thread uses as much as it needs.
///
/// [`depth::DEPTH_MAX`]: crate::statement::depth::DEPTH_MAX
const STACK_BYTES: usize = 64 << 20;

/// The load of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Open sessions.
    pub sessions: u32,
    /// Statements that compute or wait for their client to fetch.
    pub running_statements: u32,
}

/// One engine.
pub struct Engine {
    context: Arc<EngineContext>,
    executor: Executor,
    sessions: Mutex<HashMap<Handle, Arc<Session>>>,
    operations: Mutex<HashMap<Handle, Arc<Operation>>>,
    session_count: AtomicU32,
    running: Arc<AtomicU32>,
}

/// The executor threads. Dropping it does not wait for running statements.
struct Executor(Option<Runtime>);

impl Drop for Executor {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Counts a statement as running until it is dropped.
struct RunningGuard(Arc<AtomicU32>);

impl RunningGuard {
    fn new(count: &Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Aborts a task when its caller is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Engine {
    /// Checks the configuration, opens the catalog and starts the executor.
    pub fn start(config: Config, clock: SharedClock) -> Result<Arc<Self>, EngineError> {
        let context = Arc::new(EngineContext::open(config, clock)?);
        let runtime = Builder::new_multi_thread()
            .worker_threads(context.config().cpu_threads)
            .thread_name("execute")
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()
            .map_err(EngineError::io("start the executor threads"))?;
        Ok(Arc::new(Self {
            context,
            executor: Executor(Some(runtime)),
            sessions: Mutex::default(),
            operations: Mutex::default(),
            session_count: AtomicU32::new(0),
            running: Arc::default(),
        }))
    }

    /// The current load: two counters, cheap enough for every request.
    pub fn load(&self) -> Load {
        Load {
            sessions: self.session_count.load(Ordering::Relaxed),
            running_statements: self.running.load(Ordering::Relaxed),
        }
    }

    /// The configuration that the engine was started with.
    pub fn config(&self) -> &Config {
        self.context.config()
    }

    /// The tenant's catalog.
    pub fn catalog(&self) -> &Arc<Catalog> {
        self.context.catalog()
    }

    /// Memory, disk and files.
    pub fn resources(&self) -> &Resources {
        self.context.resources()
    }

    pub fn clock(&self) -> &SharedClock {
        self.context.clock()
    }

    /// Opens a session, which ends with its connection.
    pub fn open_session(&self, user: &str, connection: u64) -> Result<Arc<Session>, UserError> {
        let session = Arc::new(Session::new(
            self.context.initial_settings().clone(),
            &self.config().properties,
            self.resources(),
            self.catalog(),
            user,
            connection,
        ));
        session.touch(self.clock().boottime());
        let mut sessions = self.sessions();
        if sessions.len() >= self.config().limits.sessions {
            return Err(UserError::new(ErrorKind::ProgramLimit, "too many sessions on the engine")
                .detail(format!("The limit is {}.", self.config().limits.sessions))
                .with_sqlstate("53300"));
        }
        sessions.insert(session.handle, Arc::clone(&session));
        self.session_count.store(sessions.len() as u32, Ordering::Relaxed);
        drop(sessions);
        tracing::debug!(user, "session opened");
        Ok(session)
    }

    /// The open session with this handle.
    pub fn session(&self, handle: &Handle) -> Result<Arc<Session>, UserError> {
        let session = self.sessions().get(handle).cloned();
        let session = session
            .ok_or_else(|| UserError::new(ErrorKind::UndefinedObject, "session is not open").with_sqlstate("08003"))?;
        session.touch(self.clock().boottime());
        Ok(session)
    }

    /// Closes a session and its operations; `false` if it was not open.
    pub fn close_session(&self, handle: &Handle) -> bool {
        let mut sessions = self.sessions();
        let session = sessions.remove(handle);
        self.session_count.store(sessions.len() as u32, Ordering::Relaxed);
        drop(sessions);
        let Some(session) = session else { return false };
        for operation in session.operations() {
            self.close_operation(&operation);
        }
        // Its prepared plans may be deep; they are freed on an executor thread, which has the stack for it.
        if let Some(executor) = &self.executor.0 {
            executor.spawn(async move { drop(session) });
        }
        true
    }

    /// Closes the sessions of a closed connection.
    pub fn close_connection(&self, connection: u64) {
        let ended: Vec<_> = self
            .sessions()
            .values()
            .filter(|session| session.connection == connection)
            .map(|session| session.handle)
            .collect();
        for handle in ended {
            self.close_session(&handle);
        }
    }

    /// Closes all sessions.
    pub fn close_all(&self) {
        let handles: Vec<_> = self.sessions().keys().copied().collect();
        for handle in handles {
            self.close_session(&handle);
        }
    }

    /// The open operation with this handle. A call on the connection of its own session resets its idle time; a call on
    /// another connection, such as the engine agent's during a drain, does not keep an abandoned operation open.
    pub fn operation(&self, handle: &Handle, connection: u64) -> Result<Arc<Operation>, UserError> {
        let operation = self.operations().get(handle).cloned();
        let operation = operation.ok_or_else(|| {
            UserError::new(ErrorKind::UndefinedObject, "operation is not open").with_sqlstate("HY010")
        })?;
        if let Some(session) =
            self.sessions().get(&operation.session).filter(|session| session.connection == connection)
        {
            let now = self.clock().boottime();
            operation.touch(now);
            session.touch(now);
        }
        Ok(operation)
    }

    /// Closes an operation and cancels its statement; `false` if it was not open.
    pub fn close_operation(&self, handle: &Handle) -> bool {
        let Some(operation) = self.operations().remove(handle) else { return false };
        operation.cancel(self.clock().wall_ms());
        if let Some(session) = self.sessions().get(&operation.session) {
            session.remove_operation(handle);
        }
        true
    }

    fn register(&self, session: &Session, operation: &Arc<Operation>) -> Result<(), UserError> {
        operation.touch(self.clock().boottime());
        let limit = self.config().limits.operations_per_session;
        if !session.add_operation(operation.handle, limit) {
            return Err(UserError::new(ErrorKind::ProgramLimit, "too many open operations in the session")
                .detail(format!("The limit is {limit}."))
                .hint("Close operations whose results have been read."));
        }
        self.operations().insert(operation.handle, Arc::clone(operation));
        // The session may have been closed in between: close its operation too.
        if !self.sessions().contains_key(&session.handle) {
            self.close_operation(&operation.handle);
        }
        Ok(())
    }

    /// Registers a completed operation with all its rows.
    pub fn answer(&self, session: &Session, name: &str, rows: RecordBatch) -> Result<Arc<Operation>, UserError> {
        let (operation, _) =
            Operation::new(session.handle, name.to_owned(), BTreeMap::new(), true, self.clock().wall_ms());
        operation.answer(rows);
        operation.move_to(Phase::Complete, self.clock().wall_ms());
        self.register(session, &operation)?;
        Ok(operation)
    }

    /// Starts a statement on the executor. Must be called on a Tokio runtime, which supervises it.
    pub fn execute(
        self: &Arc<Self>,
        session: &Arc<Session>,
        statement: String,
        overlay: BTreeMap<String, String>,
        timeout: Option<Duration>,
    ) -> Result<Arc<Operation>, UserError> {
        let limit = self.config().limits.statement_bytes;
        if statement.len() > limit {
            return Err(UserError::new(ErrorKind::ProgramLimit, "statement is too long")
                .detail(format!("It has {} bytes; the limit is {limit}.", statement.len())));
        }
        let rows = head::has_result_set(&statement);
        let (operation, sender) = Operation::new(session.handle, statement, overlay, rows, self.clock().wall_ms());
        self.register(session, &operation)?;
        let Some(executor) = &self.executor.0 else {
            return Err(UserError::internal("the engine has no executor"));
        };
        let running = RunningGuard::new(&self.running);
        let work = pump(Arc::clone(&self.context), Arc::clone(session), Arc::clone(&operation), sender);
        let task = executor.spawn(work);
        operation.set_task(task.abort_handle());
        let timeouts = Timeouts {
            until_ready: timeout.unwrap_or(Duration::MAX),
            until_end: self.config().limits.statement_timeout,
        };
        let (supervised, clock) = (Arc::clone(&operation), Arc::clone(self.clock()));
        tokio::spawn(async move {
            supervise(&supervised, task, timeouts, clock.as_ref()).await;
            drop(running);
        });
        Ok(operation)
    }

    /// Runs work that may take long on the executor; a panic becomes an error of the call. At the statement timeout, or
    /// when the caller is dropped, the work stops at its next await point.
    pub async fn on_executor<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let Some(executor) = &self.executor.0 else {
            return Err(UserError::internal("the engine has no executor").into());
        };
        let mut task = executor.spawn(work);
        let _abort = AbortOnDrop(task.abort_handle());
        match tokio::time::timeout(self.config().limits.statement_timeout, &mut task).await {
            Ok(Ok(done)) => done,
            Ok(Err(join)) if join.is_panic() => Err(EngineError::Panicked(panic_text(join.into_panic().as_ref()))),
            Ok(Err(_)) => Err(UserError::new(ErrorKind::Canceled, "the engine is shutting down").into()),
            Err(_) => Err(UserError::new(ErrorKind::Timeout, "canceling call due to statement timeout").into()),
        }
    }

    /// Closes operations and sessions that have been idle for too long. The server calls it every few seconds.
    pub fn sweep(&self) {
        let now = self.clock().boottime();
        let limits = &self.config().limits;
        let stale: Vec<_> = self
            .operations()
            .values()
            .filter(|operation| {
                !matches!(operation.phase(), Phase::Running) && operation.idle(now) > limits.operation_idle
            })
            .map(|operation| operation.handle)
            .collect();
        for handle in &stale {
            self.close_operation(handle);
        }
        if !stale.is_empty() {
            tracing::info!(operations = stale.len(), "closed idle operations");
        }
        let idle: Vec<_> =
            self.sessions().values().filter(|session| session.idle(now) > limits.session_idle).cloned().collect();
        let mut closed = 0;
        for session in idle {
            let runs = |handle| self.operations().get(handle).is_some_and(|operation| !operation.phase().is_final());
            if !session.operations().iter().any(runs) {
                tracing::debug!(user = session.user, "closing an idle session");
                closed += usize::from(self.close_session(&session.handle));
            }
        }
        if closed > 0 {
            tracing::info!(sessions = closed, "closed idle sessions");
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Handle, Arc<Session>>> {
        self.sessions.lock()
    }

    fn operations(&self) -> MutexGuard<'_, HashMap<Handle, Arc<Operation>>> {
        self.operations.lock()
    }
}
