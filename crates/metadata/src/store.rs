//! The store: a pool of connections to one database, and how a transaction of it begins.
//!
//! An `SQLite` file belongs to one process, and to one store in it: a lock on a file beside it says so, because a
//! process that was stopped inside a transaction can't be made to give up the database.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::change::Rules;
use model::clock::SharedClock;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::{Any, AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Pool, Row as _};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::backend::{Backend, Mode, StoreSettings};
use crate::error::Error;
use crate::sql;
use crate::transaction::{Held, STANDBY, Transaction, failed, timed};

/// How often a process looks whether another one has left the `SQLite` file.
const LOCK_POLL: Duration = Duration::from_millis(50);
/// How long a start waits before it tries again to connect.
const CONNECT_POLL: Duration = Duration::from_millis(200);
/// How long is asked why the database can't be used.
const REASON_DEADLINE: Duration = Duration::from_secs(3);
/// How long a transaction waits for a connection before it asks whether the database can be reached at all: a restart is
/// shorter and is waited for, and a master's call to a metadata agent waits longer, so that it hears the reason.
const PATIENCE: Duration = Duration::from_secs(2);
/// `SQLite`'s codes for a file that somebody else has locked, without what specifies them.
const SQLITE_LOCKED: [i32; 2] = [5, 6];
/// What `PostgreSQL` answers while it starts or ends.
const CANNOT_CONNECT_NOW: &str = "57P03";
/// The mode of files that only their owner may read.
const OWNER_ONLY: u32 = 0o600;

/// The metadata database. Cheap to clone; all clones are one store.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
    /// Whose transactions these are: those of statements leave connections to those of masters.
    lane: Lane,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Statements,
    Masters,
}

/// Of so many connections one is kept for masters, and [`MAX_RESERVED`] at most. With fewer there is none to keep.
const CONNECTIONS_FOR_ONE_RESERVED: u32 = 4;
/// Connections that are kept for masters at most.
const MAX_RESERVED: u32 = 2;

#[derive(Debug)]
struct Inner {
    pool: Pool<Any>,
    backend: Backend,
    settings: StoreSettings,
    rules: Rules,
    clock: SharedClock,
    writer: Option<Arc<Mutex<()>>>,
    /// Places for transactions that are no master's: fewer than there are connections.
    statements: Arc<Semaphore>,
    /// Whether the database can be reached, asked once for all transactions that wait for a connection.
    inquiry: Mutex<Option<Inquiry>>,
    /// How many connections were made to ask that.
    inquiries: AtomicU64,
    _file_lock: Option<File>,
}

/// What was found when it was last asked whether the database can be reached.
#[derive(Debug)]
struct Inquiry {
    began: Instant,
    refused: Option<Refusal>,
}

/// Why the database can't be reached, or is of no use.
#[derive(Debug, Clone)]
enum Refusal {
    Broken(String),
    Unavailable(String),
}

impl Store {
    pub(crate) async fn connect(settings: &StoreSettings, rules: Rules, clock: SharedClock) -> Result<Self, Error> {
        sqlx::any::install_default_drivers();
        let backend = settings.backend()?;
        let file_lock = match backend {
            Backend::Sqlite => Some(lock_file(settings).await?),
            Backend::Postgres | Backend::Mariadb => None,
        };
        let url = match backend {
            // The file was made with its lock. One that went since is missed: another, empty one would hide that.
            Backend::Sqlite => format!("{}?mode=rw", settings.url.split('?').next().unwrap_or_default()),
            Backend::Postgres | Backend::Mariadb => settings.url.clone(),
        };
        let options: AnyConnectOptions =
            url.parse().map_err(|_| Error::Settings("the database's URL can't be read".to_owned()))?;
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
                    // Whether it is a standby each transaction asks: the pool would try again and again, and log each time.
                    Ok(())
                })
            })
            .connect_lazy_with(options.disable_statement_logging());
        let writer = (backend == Backend::Sqlite).then(Arc::default);
        let settings = settings.clone();
        let reserved = (settings.connections / CONNECTIONS_FOR_ONE_RESERVED).min(MAX_RESERVED);
        let statements = Arc::new(Semaphore::new((settings.connections - reserved) as usize));
        let inner = Inner {
            pool,
            backend,
            settings,
            rules,
            clock,
            writer,
            statements,
            inquiry: Mutex::default(),
            inquiries: AtomicU64::new(0),
            _file_lock: file_lock,
        };
        Ok(Self { inner: Arc::new(inner), lane: Lane::Statements })
    }

    /// The same store for the calls of masters: some connections serve no other, so that however many statements wait, a
    /// master's call waits for masters' calls only.
    #[must_use]
    pub fn for_masters(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), lane: Lane::Masters }
    }

    /// Waits up to the connect deadline until the database takes a connection. The pool would try as long and then say
    /// only that its time is over: here an operator is told why at once, and again when the reason changes.
    pub(crate) async fn await_database(&self) -> Result<(), Error> {
        let Inner { backend, settings, .. } = &*self.inner;
        if *backend == Backend::Sqlite {
            return Ok(());
        }
        let deadline = Instant::now() + settings.connect_deadline;
        let mut told = None;
        loop {
            let reason = match timeout_at(deadline, self.connect_once()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => told.take().unwrap_or_else(|| "it does not answer".to_owned()),
            };
            if Instant::now() + CONNECT_POLL >= deadline {
                return Err(Error::Unavailable(reason));
            }
            if told.as_ref() != Some(&reason) {
                let waits_s = settings.connect_deadline.as_secs();
                tracing::warn!(reason, waits_s, "the metadata database takes no connection yet");
                told = Some(reason);
            }
            sleep(CONNECT_POLL).await;
        }
    }

    /// A connection beside the pool, made and closed.
    pub(crate) async fn connect_once(&self) -> Result<(), sqlx::Error> {
        let mut connection = sqlx::AnyConnection::connect_with(&self.inner.pool.connect_options()).await?;
        refuse_standby(&mut connection, self.inner.backend).await?;
        if self.inner.backend == Backend::Sqlite {
            // Opening a file that was opened before reads nothing of it.
            connection.execute(sql::VERSION_TABLE_SQLITE).await?;
        }
        connection.close().await
    }

    /// Closes all connections; what is under way ends first. Other clones can't be used any more.
    pub async fn close(&self) {
        let deadline = Instant::now() + self.inner.settings.call_deadline;
        if timeout_at(deadline, self.inner.pool.close()).await.is_err() {
            tracing::warn!("connections to the metadata database did not close in time");
        }
    }

    /// Which database it is.
    pub fn backend(&self) -> Backend {
        self.inner.backend
    }

    /// The rules that statements are checked by.
    pub fn rules(&self) -> &Rules {
        &self.inner.rules
    }

    /// Whether the moment, on the clock that counts suspension, has passed.
    pub(crate) fn is_past(&self, deadline: Duration) -> bool {
        self.inner.clock.boottime() >= deadline
    }

    /// Begins a transaction, which must end by [`StoreSettings::call_deadline`].
    pub(crate) async fn begin(&self, mode: Mode) -> Result<Transaction, Error> {
        let inner = &self.inner;
        let deadline = Instant::now() + inner.settings.call_deadline;
        let writer = match (&inner.writer, mode) {
            (Some(writer), Mode::Write) => {
                let first = deadline.min(Instant::now() + inner.settings.lock_timeout);
                Some(timed(first, Arc::clone(writer).lock_owned()).await?)
            }
            _ => None,
        };
        let place = match self.lane {
            Lane::Masters => None,
            Lane::Statements => Some(self.statement_place(deadline).await?),
        };
        let connection = self.acquire(deadline).await?;
        let begin = inner.backend.begin_sql(mode);
        Transaction::begin(connection, begin, inner.backend, deadline, Held { _writer: writer, _place: place }).await
    }

    /// A place among the transactions of statements.
    async fn statement_place(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, Error> {
        let acquired = Arc::clone(&self.inner.statements).acquire_owned();
        tokio::select! {
            biased;
            acquired = timed(deadline, acquired) => acquired?.map_err(|error| Error::Broken(error.to_string())),
            error = self.is_refused() => Err(error),
        }
    }

    /// A connection of the pool. While the database refuses, the pool tries again and again and at last says only that
    /// its time is over; the caller is told why, and soon.
    async fn acquire(&self, deadline: Instant) -> Result<PoolConnection<Any>, Error> {
        tokio::select! {
            biased;
            acquired = timed(deadline, self.inner.pool.acquire()) => acquired?.map_err(failed),
            error = self.is_refused() => Err(error),
        }
    }

    /// Ends only with the reason why the database can't be reached, or is of no use: a damaged file.
    async fn is_refused(&self) -> Error {
        loop {
            sleep(PATIENCE).await;
            match self.inquire().await {
                Some(Refusal::Broken(reason)) => return Error::Broken(reason),
                Some(Refusal::Unavailable(reason)) => return Error::Unavailable(reason),
                None => {}
            }
        }
    }

    /// Asks whether the database can be reached, unless another transaction has asked within [`PATIENCE`]: a thousand
    /// that wait make no connections of their own, just when the database has too much to do.
    async fn inquire(&self) -> Option<Refusal> {
        let mut last = self.inner.inquiry.lock().await;
        if let Some(Inquiry { began, refused }) = &*last
            && began.elapsed() < PATIENCE
        {
            return refused.clone();
        }
        let began = Instant::now();
        self.inner.inquiries.fetch_add(1, Ordering::Relaxed);
        let refused = match timeout(REASON_DEADLINE, self.connect_once()).await {
            Ok(Err(error)) if is_away(&error, self.inner.backend) => {
                let reason = error.to_string();
                Some(match failed(error) {
                    Error::Broken(reason) => Refusal::Broken(reason),
                    _ => Refusal::Unavailable(reason),
                })
            }
            Ok(_) | Err(_) => None,
        };
        *last = Some(Inquiry { began, refused: refused.clone() });
        refused
    }
}

/// Whether the database can't be reached now, in contrast to one that takes no more connections: a transaction can wait
/// for one of those that are there.
fn is_away(error: &sqlx::Error, backend: Backend) -> bool {
    match error {
        // The second is a standby's.
        sqlx::Error::Io(_) | sqlx::Error::Configuration(_) => true,
        // A file that can't be opened or read, such as on a full disk; one that is locked can be waited for.
        sqlx::Error::Database(error) if backend == Backend::Sqlite => {
            let code = error.code().and_then(|code| code.parse::<i32>().ok());
            code.is_none_or(|code| !SQLITE_LOCKED.contains(&(code & 0xff)))
        }
        sqlx::Error::Database(error) => error.code().as_deref() == Some(CANNOT_CONNECT_NOW),
        _ => false,
    }
}

/// Takes the lock beside the `SQLite` file, waiting for another process to leave it until the connect deadline.
async fn lock_file(settings: &StoreSettings) -> Result<File, Error> {
    let database = settings.sqlite_path()?;
    let mut path = database.clone().into_os_string();
    path.push(".lock");
    let deadline = Instant::now() + settings.connect_deadline;
    let failed = |error: std::io::Error| Error::Settings(format!("{}: {error}", path.display()));
    // Properties of units may be secret: nobody else reads the files. SQLite gives its other files the same mode.
    let ours = |path: &Path| OpenOptions::new().create(true).append(true).mode(OWNER_ONLY).open(path);
    let file = ours(path.as_ref()).map_err(failed)?;
    loop {
        match file.try_lock() {
            Ok(()) => {
                ours(database.as_path()).map_err(failed)?;
                return Ok(file);
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
            Err(std::fs::TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(Error::Settings(format!("{}: another process has the database open", path.display())));
            }
            Err(std::fs::TryLockError::WouldBlock) => sleep(LOCK_POLL).await,
        }
    }
}

async fn refuse_standby(connection: &mut sqlx::AnyConnection, backend: Backend) -> Result<(), sqlx::Error> {
    let question = match backend {
        Backend::Sqlite => return Ok(()),
        Backend::Postgres => sql::STANDBY_POSTGRES,
        Backend::Mariadb => sql::STANDBY_MARIADB,
    };
    let rows = connection.fetch_all(question).await?;
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
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn a_database_that_refuses_is_named_long_before_the_pool_gives_up() {
        // Bound and not listening: nobody else gets the port, and who connects is refused.
        let port = tokio::net::TcpSocket::new_v4().unwrap();
        port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        for scheme in ["postgres", "mysql"] {
            let url = format!("{scheme}://nobody@{}/nothing", port.local_addr().unwrap());
            let clock = model::clock::SystemClock::shared();
            let store = Store::connect(&StoreSettings::new(url), Rules::default(), clock).await.unwrap();
            let began = Instant::now();
            let Err(Error::Unavailable(reason)) = store.begin(Mode::Write).await else { panic!("{scheme} answers") };
            assert!(reason.contains("refused"), "{scheme}: {reason}");
            assert!(began.elapsed() < store.inner.settings.connect_deadline / 2, "{scheme}: {:?}", began.elapsed());
        }
    }

    #[tokio::test]
    async fn a_hundred_transactions_that_wait_ask_once_whether_the_database_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let settings = StoreSettings { connections: 1, ..StoreSettings::sqlite(&folder.path().join("a.db")) };
        Store::migrate(&settings).await.unwrap();
        let clock = model::clock::SystemClock::shared();
        let store = Store::open(&settings, Rules::default(), clock).await.unwrap();
        let held = store.begin(Mode::Snapshot).await.unwrap();
        let waiting: Vec<_> = (0..100)
            .map(|at| {
                let store = if at % 2 == 0 { store.clone() } else { store.for_masters() };
                tokio::spawn(async move { store.catalog().await })
            })
            .collect();
        sleep(PATIENCE + PATIENCE / 2).await;
        assert_eq!(store.inner.inquiries.load(Ordering::Relaxed), 1);
        held.leave(Ok(())).await.unwrap();
        for waiting in waiting {
            waiting.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn statements_leave_connections_to_masters() {
        let folder = tempfile::tempdir().unwrap();
        let settings = StoreSettings::sqlite(&folder.path().join("a.db"));
        Store::migrate(&settings).await.unwrap();
        let clock = model::clock::SystemClock::shared();
        let store = Store::open(&settings, Rules::default(), clock).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..settings.connections - MAX_RESERVED {
            held.push(store.begin(Mode::Snapshot).await.unwrap());
        }
        let short = Duration::from_millis(100);
        assert!(timeout(short, store.begin(Mode::Snapshot)).await.is_err(), "a statement waits");
        let master = timeout(settings.connect_deadline, store.for_masters().begin(Mode::Snapshot)).await;
        drop(master.unwrap().unwrap());
    }
}
