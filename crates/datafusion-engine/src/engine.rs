//! One engine: what all its sessions share, which sessions and operations there are, and the threads that execute.
//!
//! Statements run on threads of their own ([`Config::cpu_threads`] of them); the threads that speak the protocol only
//! wait and convert. So a statement that uses every cycle it is given still can be asked about and cancelled. Invariants:
//! nothing that a statement does, panics included, ends the engine; sessions, operations and their idle time are limited;
//! a handle of something closed finds nothing.

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

/// The stack of an executing thread, in bytes: plans of [`depth::DEPTH_MAX`] levels are walked recursively. It is only
/// reserved; a thread uses what it needs.
///
/// [`depth::DEPTH_MAX`]: crate::statement::depth::DEPTH_MAX
const STACK_BYTES: usize = 64 << 20;

/// How much an engine has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Open sessions.
    pub sessions: u32,
    /// Statements that compute, or wait for their client to fetch.
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

/// The threads that execute. They are given up without waiting for what they do.
struct Executor(Option<Runtime>);

impl Drop for Executor {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Counts a statement as running for as long as it lives.
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

/// Ends a task when whoever waits for it does so no longer.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Engine {
    /// Checks the configuration, opens the catalog and starts the threads.
    pub fn start(config: Config, clock: SharedClock) -> Result<Arc<Self>, EngineError> {
        let context = Arc::new(EngineContext::open(config, clock)?);
        let runtime = Builder::new_multi_thread()
            .worker_threads(context.config().cpu_threads)
            .thread_name("execute")
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()
            .map_err(EngineError::io("start the executing threads"))?;
        Ok(Arc::new(Self {
            context,
            executor: Executor(Some(runtime)),
            sessions: Mutex::default(),
            operations: Mutex::default(),
            session_count: AtomicU32::new(0),
            running: Arc::default(),
        }))
    }

    /// How much it has to do: two counters, cheap enough for every request.
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

    /// Opens a session. The connection is the one with which it ends.
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
            return Err(UserError::new(ErrorKind::ProgramLimit, "the engine has too many sessions")
                .detail(format!("it takes {}", self.config().limits.sessions))
                .with_sqlstate("53300"));
        }
        sessions.insert(session.handle, Arc::clone(&session));
        self.session_count.store(sessions.len() as u32, Ordering::Relaxed);
        drop(sessions);
        tracing::debug!(user, "session opened");
        Ok(session)
    }

    /// The open session of that handle.
    pub fn session(&self, handle: &Handle) -> Result<Arc<Session>, UserError> {
        let session = self.sessions().get(handle).cloned();
        let session = session.ok_or_else(|| {
            UserError::new(ErrorKind::UndefinedObject, "the session is not open").with_sqlstate("08003")
        })?;
        session.touch(self.clock().boottime());
        Ok(session)
    }

    /// Closes a session with everything that it runs; false if it was not open.
    pub fn close_session(&self, handle: &Handle) -> bool {
        let mut sessions = self.sessions();
        let session = sessions.remove(handle);
        self.session_count.store(sessions.len() as u32, Ordering::Relaxed);
        drop(sessions);
        let Some(session) = session else { return false };
        for operation in session.operations() {
            self.close_operation(&operation);
        }
        // What it prepared may be deep, and is freed where the stack is.
        if let Some(executor) = &self.executor.0 {
            executor.spawn(async move { drop(session) });
        }
        true
    }

    /// Closes the sessions of a connection that ended.
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

    /// Closes everything.
    pub fn close_all(&self) {
        let handles: Vec<_> = self.sessions().keys().copied().collect();
        for handle in handles {
            self.close_session(&handle);
        }
    }

    /// The open operation of that handle. Its idle time begins anew if its own session's connection asks: whoever looks at
    /// it from elsewhere, as the engine agent does during a drain, must not keep what its client has forgotten.
    pub fn operation(&self, handle: &Handle, connection: u64) -> Result<Arc<Operation>, UserError> {
        let operation = self.operations().get(handle).cloned();
        let operation = operation.ok_or_else(|| {
            UserError::new(ErrorKind::UndefinedObject, "the operation is not open").with_sqlstate("HY010")
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

    /// Closes an operation and what it runs; false if it was not open.
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
            return Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many open operations")
                .detail(format!("it may have {limit}"))
                .hint("Close what has been read."));
        }
        self.operations().insert(operation.handle, Arc::clone(operation));
        // The session may have ended in between: nothing may stay behind.
        if !self.sessions().contains_key(&session.handle) {
            self.close_operation(&operation.handle);
        }
        Ok(())
    }

    /// An operation whose whole answer is there at once.
    pub fn answer(&self, session: &Session, name: &str, rows: RecordBatch) -> Result<Arc<Operation>, UserError> {
        let (operation, _) =
            Operation::new(session.handle, name.to_owned(), BTreeMap::new(), true, self.clock().wall_ms());
        operation.answer(rows);
        operation.move_to(Phase::Complete, self.clock().wall_ms());
        self.register(session, &operation)?;
        Ok(operation)
    }

    /// Starts a statement on the executing threads. Must be called on a runtime, which watches over it.
    pub fn execute(
        self: &Arc<Self>,
        session: &Arc<Session>,
        statement: String,
        overlay: BTreeMap<String, String>,
        timeout: Option<Duration>,
    ) -> Result<Arc<Operation>, UserError> {
        let limit = self.config().limits.statement_bytes;
        if statement.len() > limit {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the statement is too long")
                .detail(format!("it has {} bytes of {limit}", statement.len())));
        }
        let rows = head::has_result_set(&statement);
        let (operation, sender) = Operation::new(session.handle, statement, overlay, rows, self.clock().wall_ms());
        self.register(session, &operation)?;
        let Some(executor) = &self.executor.0 else {
            return Err(UserError::internal("the engine has no threads"));
        };
        let running = RunningGuard::new(&self.running);
        let work = pump(Arc::clone(&self.context), Arc::clone(session), Arc::clone(&operation), sender);
        let task = executor.spawn(work);
        operation.set_task(task.abort_handle());
        let timeouts = Timeouts {
            until_ready: timeout.unwrap_or(Duration::MAX),
            until_end: self.config().limits.statement_timeout(),
        };
        let (supervised, clock) = (Arc::clone(&operation), Arc::clone(self.clock()));
        tokio::spawn(async move {
            supervise(&supervised, task, timeouts, clock.as_ref()).await;
            drop(running);
        });
        Ok(operation)
    }

    /// Does work that may take long on the executing threads; its panic is an error of the call. It stops where it next
    /// gives way when its time is over, or when nobody waits for it any longer.
    pub async fn on_executor<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let Some(executor) = &self.executor.0 else {
            return Err(UserError::internal("the engine has no threads").into());
        };
        let mut task = executor.spawn(work);
        let _abort = AbortOnDrop(task.abort_handle());
        match tokio::time::timeout(self.config().limits.statement_timeout(), &mut task).await {
            Ok(Ok(done)) => done,
            Ok(Err(join)) if join.is_panic() => Err(EngineError::Panicked(panic_text(join.into_panic().as_ref()))),
            Ok(Err(_)) => Err(UserError::new(ErrorKind::Canceled, "the engine stops").into()),
            Err(_) => Err(UserError::new(ErrorKind::Timeout, "the call took too long").into()),
        }
    }

    /// Closes what nobody has asked about for too long. The server calls it every few seconds.
    pub fn sweep(&self) {
        let now = self.clock().boottime();
        let limits = &self.config().limits;
        let (operation_idle, session_idle) =
            (Duration::from_millis(limits.operation_idle_ms), Duration::from_millis(limits.session_idle_ms));
        let stale: Vec<_> = self
            .operations()
            .values()
            .filter(|operation| !matches!(operation.phase(), Phase::Running) && operation.idle(now) > operation_idle)
            .map(|operation| operation.handle)
            .collect();
        for handle in &stale {
            self.close_operation(handle);
        }
        if !stale.is_empty() {
            tracing::info!(operations = stale.len(), "closed what nobody asked about");
        }
        let idle: Vec<_> =
            self.sessions().values().filter(|session| session.idle(now) > session_idle).cloned().collect();
        let mut closed = 0;
        for session in idle {
            let runs = |handle| self.operations().get(handle).is_some_and(|operation| !operation.phase().is_final());
            if !session.operations().iter().any(runs) {
                tracing::debug!(user = session.user, "closing a session that nobody uses");
                closed += usize::from(self.close_session(&session.handle));
            }
        }
        if closed > 0 {
            tracing::info!(sessions = closed, "closed sessions that nobody used");
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Handle, Arc<Session>>> {
        self.sessions.lock()
    }

    fn operations(&self) -> MutexGuard<'_, HashMap<Handle, Arc<Operation>>> {
        self.operations.lock()
    }
}
