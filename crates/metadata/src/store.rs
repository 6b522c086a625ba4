//! The store: a connection pool of one database, and how its transactions begin.
//!
//! An `SQLite` file belongs to one store of one process. A lock file next to it ensures that, because a process that was
//! stopped within a transaction cannot be made to release the database.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::cause::Cause;
use model::change::Rules;
use model::clock::SharedClock;
use sqlx::any::AnyPoolOptions;
use sqlx::pool::PoolConnection;
use sqlx::{Any, AssertSqlSafe, Connection as _, Executor as _, Pool, Row as _};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::backend::{Backend, Mode, StoreSettings};
use crate::connector::Connector;
use crate::error::Error;
use crate::holder_queue::HolderQueues;
use crate::sql;
use crate::transaction::{Held, STANDBY, Transaction, failed, timed};
use crate::trust::Distrust;
use crate::writer::{Lane, Writer};

/// The poll interval for the lock of an `SQLite` file.
const LOCK_POLL: Duration = Duration::from_millis(50);
/// The pause between attempts to connect at startup.
const CONNECT_POLL: Duration = Duration::from_millis(200);
/// The deadline for finding out why the database is not available.
const REASON_DEADLINE: Duration = Duration::from_secs(3);
/// How long a transaction waits for a connection before it probes whether the database is available. Longer than a restart of the
/// database, and shorter than a master's call to a metadata agent, so that the master receives the reason.
const PATIENCE: Duration = Duration::from_secs(2);
/// `SQLite`'s primary codes for a locked file.
const SQLITE_LOCKED: [i32; 2] = [5, 6];
/// `PostgreSQL`'s SQLSTATE while it starts or shuts down.
const CANNOT_CONNECT_NOW: &str = "57P03";
const OWNER_ONLY: u32 = 0o600;

/// The metadata database. Cheap to clone; all clones are one store.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
    /// Transactions of statements leave connections for those of masters.
    lane: Lane,
    /// When its transactions end at the latest, if that is before the deadline of a call.
    until: Option<Instant>,
}

/// One of that many connections is reserved for masters, [`MAX_RESERVED`] at most. With fewer connections, none is reserved.
const CONNECTIONS_FOR_ONE_RESERVED: u32 = 4;
/// The maximum number of connections that are reserved for masters.
const MAX_RESERVED: u32 = 2;
/// How many statements of this store are in transactions that take the catalog lock: one that holds it, and one that waits
/// for it. The others wait in this process, so a master's transaction waits for two statements of each metadata agent and not
/// for a queue of them: each of its ticks takes the lock several times.
const CATALOG_TURNS: usize = 2;

#[derive(Debug)]
struct Inner {
    pool: Pool<Any>,
    connector: Connector,
    backend: Backend,
    settings: StoreSettings,
    rules: Rules,
    clock: SharedClock,
    writer: Option<Writer>,
    holder_queues: HolderQueues,
    /// Permits for transactions of statements; fewer than there are connections.
    statements: Arc<Semaphore>,
    /// Turns of statements that take the catalog lock.
    catalog_turns: Arc<Semaphore>,
    /// The last probe, shared by all transactions that wait for a connection.
    probe: Mutex<Option<Probe>>,
    /// The number of probes.
    probes: AtomicU64,
    _file_lock: Option<File>,
}

/// A probe: whether the database is available.
#[derive(Debug)]
struct Probe {
    began: Instant,
    unusable: Option<Unusable>,
}

/// Why the database is unavailable or unusable.
#[derive(Debug, Clone)]
enum Unusable {
    Broken(Cause),
    Untrusted(Distrust),
    Unavailable(Cause),
}

impl Store {
    pub(crate) async fn connect(settings: &StoreSettings, rules: Rules, clock: SharedClock) -> Result<Self, Error> {
        sqlx::any::install_default_drivers();
        let backend = settings.backend()?;
        let file_lock = match backend {
            Backend::Sqlite => Some(lock_file(settings).await?),
            Backend::Postgres | Backend::Mariadb => None,
        };
        let connector = Connector::new(settings)?;
        let on_connect = backend.connection_sql(settings);
        let pool = AnyPoolOptions::new()
            .max_connections(settings.connections)
            .acquire_timeout(settings.connect_deadline)
            .after_connect(move |connection, _| {
                let on_connect = on_connect.clone();
                Box::pin(async move {
                    for text in on_connect {
                        connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
                    }
                    // Each transaction checks for a standby; here the pool would retry and log each time.
                    Ok(())
                })
            })
            .connect_lazy_with(connector.options());
        let writer = (backend == Backend::Sqlite).then(Writer::default);
        let settings = settings.clone();
        let reserved = (settings.connections / CONNECTIONS_FOR_ONE_RESERVED).min(MAX_RESERVED);
        let statements = Arc::new(Semaphore::new((settings.connections - reserved) as usize));
        let inner = Inner {
            pool,
            connector,
            backend,
            settings,
            rules,
            clock,
            writer,
            holder_queues: HolderQueues::default(),
            statements,
            catalog_turns: Arc::new(Semaphore::new(CATALOG_TURNS)),
            probe: Mutex::default(),
            probes: AtomicU64::new(0),
            _file_lock: file_lock,
        };
        Ok(Self { inner: Arc::new(inner), lane: Lane::Statements, until: None })
    }

    /// The same store for the calls of masters. They have reserved connections, and an `SQLite` file is theirs to write before the
    /// statements that queue for it, so that a queue of statements never delays a master.
    #[must_use]
    pub fn for_masters(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), lane: Lane::Masters, until: self.until }
    }

    /// Waits until the database accepts a connection, at most for the connect deadline. Unlike the pool, it logs the reason at once
    /// and again when the reason changes.
    pub(crate) async fn await_database(&self) -> Result<(), Error> {
        let Inner { backend, settings, .. } = &*self.inner;
        if *backend == Backend::Sqlite {
            return Ok(());
        }
        let deadline = Instant::now() + settings.connect_deadline;
        let mut logged = None;
        loop {
            let reason = match timeout_at(deadline, self.connect_once()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => match self.inner.connector.distrust(&error) {
                    // Waiting would not change it.
                    Some(distrust) => return Err(Error::Untrusted(distrust)),
                    None => error.to_string(),
                },
                Err(_) => logged.take().unwrap_or_else(|| "no answer".to_owned()),
            };
            if Instant::now() + CONNECT_POLL >= deadline {
                return Err(Error::Unavailable(reason.into()));
            }
            if logged.as_ref() != Some(&reason) {
                let waits_s = settings.connect_deadline.as_secs();
                tracing::warn!(reason, waits_s, "the metadata database accepts no connections yet");
                logged = Some(reason);
            }
            sleep(CONNECT_POLL).await;
        }
    }

    /// Rewrites an `SQLite` file, so that neither its free pages nor its journal have what was overwritten. A file that is in use
    /// otherwise is rewritten as far as possible.
    pub(crate) async fn rewrite_file(&self) -> Result<(), Error> {
        let deadline = self.transaction_deadline();
        let _writing = match &self.inner.writer {
            Some(writer) => Some(timed(deadline, writer.acquire(self.lane)).await?),
            None => None,
        };
        let mut connection = self.acquire(deadline).await?;
        for text in sql::SQLITE_REWRITE {
            timed(deadline, connection.execute(sqlx::raw_sql(text))).await?.map_err(failed)?;
        }
        Ok(())
    }

    /// Opens and closes a connection outside of the pool.
    pub(crate) async fn connect_once(&self) -> Result<(), sqlx::Error> {
        self.inner.connector.refresh(&self.inner.pool, &self.inner.clock);
        let mut connection = sqlx::AnyConnection::connect_with(&self.inner.pool.connect_options()).await?;
        refuse_standby(&mut connection, self.inner.backend).await?;
        if self.inner.backend == Backend::Sqlite {
            // Opening a file that was opened before reads nothing.
            connection.execute(sql::VERSION_TABLE_SQLITE).await?;
        }
        connection.close().await
    }

    /// The error of a connection that could not be opened.
    pub(crate) fn unavailable(&self, error: sqlx::Error) -> Error {
        match self.inner.connector.distrust(&error) {
            Some(distrust) => Error::Untrusted(distrust),
            None => Error::Unavailable(error.into()),
        }
    }

    /// Closes all connections after their transactions have ended. Clones cannot be used afterwards.
    pub async fn close(&self) {
        let deadline = Instant::now() + self.inner.settings.call_deadline;
        if timeout_at(deadline, self.inner.pool.close()).await.is_err() {
            tracing::warn!("connections to the metadata database did not close in time");
        }
    }

    pub fn backend(&self) -> Backend {
        self.inner.backend
    }

    pub fn rules(&self) -> &Rules {
        &self.inner.rules
    }

    pub(crate) fn holder_queues(&self) -> &HolderQueues {
        &self.inner.holder_queues
    }

    pub(crate) fn lock_timeout(&self) -> Duration {
        self.inner.settings.lock_timeout
    }

    /// The same store, whose transactions end by this moment: a statement that waits for a lock then is given up, and its
    /// connection closed, which rolls it back.
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Self {
        self.within(Some(deadline))
    }

    /// The same store with another deadline, or none.
    pub(crate) fn within(&self, until: Option<Instant>) -> Self {
        Self { inner: Arc::clone(&self.inner), lane: self.lane, until }
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Whether the deadline, on the boot clock, has passed.
    pub(crate) fn is_past(&self, deadline: Duration) -> bool {
        self.inner.clock.boottime() >= deadline
    }

    /// Begins a transaction, which must end by [`StoreSettings::call_deadline`].
    pub(crate) async fn begin(&self, mode: Mode) -> Result<Transaction, Error> {
        self.begin_by(self.transaction_deadline(), mode, None).await
    }

    /// Begins a writing transaction that takes the catalog lock first: one of a statement in its turn.
    pub(crate) async fn begin_for_catalog(&self) -> Result<Transaction, Error> {
        let deadline = self.transaction_deadline();
        let turn = match (self.lane, &self.inner.writer) {
            (Lane::Statements, None) => Some(self.permit(&self.inner.catalog_turns, deadline).await?),
            // The queue of a file's writer is one of all statements.
            _ => None,
        };
        self.begin_by(deadline, Mode::Write, turn).await
    }

    fn transaction_deadline(&self) -> Instant {
        let deadline = Instant::now() + self.inner.settings.call_deadline;
        self.until.map_or(deadline, |until| until.min(deadline))
    }

    async fn begin_by(
        &self,
        deadline: Instant,
        mode: Mode,
        turn: Option<OwnedSemaphorePermit>,
    ) -> Result<Transaction, Error> {
        let inner = &self.inner;
        let writer = match (&inner.writer, mode) {
            (Some(writer), Mode::Write) => {
                let first = deadline.min(Instant::now() + inner.settings.lock_timeout);
                Some(timed(first, writer.acquire(self.lane)).await?)
            }
            _ => None,
        };
        let permit = match self.lane {
            Lane::Masters => None,
            Lane::Statements => Some(self.permit(&inner.statements, deadline).await?),
        };
        let connection = self.acquire(deadline).await?;
        let begin = inner.backend.begin_sql(mode);
        let held = Held { _writer: writer, _permit: permit, _turn: turn };
        Transaction::begin(connection, begin, inner.backend, deadline, held).await
    }

    /// A permit of the semaphore for a transaction of a statement.
    async fn permit(&self, semaphore: &Arc<Semaphore>, deadline: Instant) -> Result<OwnedSemaphorePermit, Error> {
        let acquired = Arc::clone(semaphore).acquire_owned();
        tokio::select! {
            biased;
            acquired = timed(deadline, acquired) => acquired?.map_err(|error| Error::Broken(error.into())),
            error = self.is_unusable() => Err(error),
        }
    }

    /// A connection of the pool. While the database is not available, the pool retries and finally only times out; here the caller
    /// receives the reason, and earlier.
    async fn acquire(&self, deadline: Instant) -> Result<PoolConnection<Any>, Error> {
        // The pool may open a connection now.
        self.inner.connector.refresh(&self.inner.pool, &self.inner.clock);
        tokio::select! {
            biased;
            acquired = timed(deadline, self.inner.pool.acquire()) => acquired?.map_err(|error| self.inner.connector.failed(error)),
            error = self.is_unusable() => Err(error),
        }
    }

    /// Returns only when the database is unavailable or unusable, with the reason.
    async fn is_unusable(&self) -> Error {
        loop {
            sleep(PATIENCE).await;
            match self.probe().await {
                Some(Unusable::Broken(reason)) => return Error::Broken(reason),
                Some(Unusable::Untrusted(distrust)) => return Error::Untrusted(distrust),
                Some(Unusable::Unavailable(reason)) => return Error::Unavailable(reason),
                None => {}
            }
        }
    }

    /// Probes whether the database is available, unless another transaction has done so within [`PATIENCE`]: otherwise a thousand
    /// waiting transactions would open connections of their own to an overloaded database.
    async fn probe(&self) -> Option<Unusable> {
        let mut last = self.inner.probe.lock().await;
        if let Some(Probe { began, unusable }) = &*last
            && began.elapsed() < PATIENCE
        {
            return unusable.clone();
        }
        let began = Instant::now();
        self.inner.probes.fetch_add(1, Ordering::Relaxed);
        let unusable = match timeout(REASON_DEADLINE, self.connect_once()).await {
            Ok(Err(error)) if is_away(&error, self.inner.backend) => {
                let reason = error.to_string();
                Some(match self.inner.connector.failed(error) {
                    Error::Broken(cause) => Unusable::Broken(cause),
                    Error::Untrusted(distrust) => Unusable::Untrusted(distrust),
                    _ => Unusable::Unavailable(reason.into()),
                })
            }
            Ok(_) | Err(_) => None,
        };
        *last = Some(Probe { began, unusable: unusable.clone() });
        unusable
    }
}

/// Whether the database is not available, as opposed to one without a free connection, for which a transaction can wait.
fn is_away(error: &sqlx::Error, backend: Backend) -> bool {
    match error {
        // The last is the error for a standby.
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Configuration(_) => true,
        // A file that cannot be opened or read, for example on a full disk. A transaction can wait for a locked file.
        sqlx::Error::Database(error) if backend == Backend::Sqlite => {
            let code = error.code().and_then(|code| code.parse::<i32>().ok());
            code.is_none_or(|code| !SQLITE_LOCKED.contains(&(code & 0xff)))
        }
        sqlx::Error::Database(error) => error.code().as_deref() == Some(CANNOT_CONNECT_NOW),
        _ => false,
    }
}

/// Takes the lock file of the `SQLite` file; waits for another process at most for the connect deadline.
async fn lock_file(settings: &StoreSettings) -> Result<File, Error> {
    let database = settings.sqlite_path()?;
    let mut path = database.clone().into_os_string();
    path.push(".lock");
    let deadline = Instant::now() + settings.connect_deadline;
    let failed = |error: std::io::Error| Error::Settings(format!("{}: {error}", path.display()).into());
    // Properties of units may be secret, so only the owner may read the files. SQLite gives its other files the same mode.
    let open = |path: &Path| OpenOptions::new().create(true).append(true).mode(OWNER_ONLY).open(path);
    let file = open(path.as_ref()).map_err(failed)?;
    loop {
        match file.try_lock() {
            Ok(()) => {
                // An existing file is not opened here: `SQLite` locks it for the whole process, and to close any descriptor of
                // it would drop those locks, if this process still has a connection of an earlier store.
                if !database.exists() {
                    open(database.as_path()).map_err(failed)?;
                }
                return Ok(file);
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
            Err(std::fs::TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(Error::Settings(
                    format!("{}: another process has the database open", path.display()).into(),
                ));
            }
            Err(std::fs::TryLockError::WouldBlock) => sleep(LOCK_POLL).await,
        }
    }
}

async fn refuse_standby(connection: &mut sqlx::AnyConnection, backend: Backend) -> Result<(), sqlx::Error> {
    let query = match backend {
        Backend::Sqlite => return Ok(()),
        Backend::Postgres => sql::STANDBY_POSTGRES,
        Backend::Mariadb => sql::STANDBY_MARIADB,
    };
    let rows = connection.fetch_all(query).await?;
    let standby = match rows.first() {
        Some(row) => row.try_get::<i64, _>("standby")? != 0,
        None => false,
    };
    if standby {
        return Err(sqlx::Error::Configuration(STANDBY.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
