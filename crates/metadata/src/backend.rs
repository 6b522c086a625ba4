//! The differences between the three databases: placeholders, the clock, BEGIN, timeouts, and what a commit waits for.
//!
//! Everything else is portable SQL. On `MariaDB`, names have a binary collation without padding, TEXT columns hold more than
//! 64 KiB, and the isolation level is set explicitly instead of being inherited from the server.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;
use crate::password::PasswordSource;
use crate::percent;
use crate::trust::ServerTls;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// One file that one process uses.
    Sqlite,
    Postgres,
    Mariadb,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Reads and writes; each locking statement sees the latest committed rows.
    Write,
    /// Reads one consistent snapshot.
    Snapshot,
}

/// The connection settings of the database, and its timeouts. Every call ends within `call_deadline`.
#[derive(Clone)]
pub struct StoreSettings {
    /// `sqlite:///path?mode=rwc`, `postgres://user:password@host/database` or `mysql://…`.
    pub url: String,
    /// Whether connections to a server are encrypted.
    pub tls: ServerTls,
    /// The certificates of CAs that the server's is verified by, in PEM, added to the public ones.
    pub ca_file: Option<PathBuf>,
    /// The password of the URL's user, if the URL has none.
    pub password: Option<PasswordSource>,
    /// The maximum number of connections.
    pub connections: u32,
    /// The maximum wait for a row lock. It bounds `abort` behind an open commit.
    pub lock_timeout: Duration,
    /// The maximum duration of a statement.
    pub statement_timeout: Duration,
    /// The maximum idle time within a transaction, after which the database ends it and releases the locks of a stopped process.
    pub idle_timeout: Duration,
    /// The maximum duration of establishing a connection, or of waiting until another process releases an `SQLite` file.
    pub connect_deadline: Duration,
    /// The maximum duration of a call with all its statements.
    pub call_deadline: Duration,
}

/// [`StoreSettings::connections`] unless configured.
pub const CONNECTIONS: u32 = 8;
/// [`StoreSettings::lock_timeout`] unless configured.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// [`StoreSettings::statement_timeout`] unless configured.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// [`StoreSettings::idle_timeout`] unless configured.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// [`StoreSettings::connect_deadline`] unless configured.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// [`StoreSettings::call_deadline`] unless configured.
pub const CALL_DEADLINE: Duration = Duration::from_secs(20);

impl std::fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        f.debug_struct("StoreSettings").field("connections", &self.connections).finish_non_exhaustive()
    }
}

impl StoreSettings {
    /// Settings with the default timeouts.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tls: ServerTls::default(),
            ca_file: None,
            password: None,
            connections: CONNECTIONS,
            lock_timeout: LOCK_TIMEOUT,
            statement_timeout: STATEMENT_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            connect_deadline: CONNECT_DEADLINE,
            call_deadline: CALL_DEADLINE,
        }
    }

    /// An `SQLite` file, created if missing.
    pub fn sqlite(path: &std::path::Path) -> Self {
        Self::new(format!("sqlite://{}?mode=rwc", percent::encode(path.as_os_str().as_encoded_bytes())))
    }

    pub fn backend(&self) -> Result<Backend, Error> {
        match self.url.split(':').next() {
            Some("sqlite") => Ok(Backend::Sqlite),
            Some("postgres" | "postgresql") => Ok(Backend::Postgres),
            Some("mysql" | "mariadb") => Ok(Backend::Mariadb),
            _ => Err(Error::Settings("database URL must begin with sqlite:, postgres:, mysql: or mariadb:".into())),
        }
    }

    /// The path of an `SQLite` file.
    pub fn sqlite_path(&self) -> Result<PathBuf, Error> {
        let rest = self.url.strip_prefix("sqlite:").unwrap_or_default();
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let path = rest.split('?').next().unwrap_or_default();
        if path.is_empty() || path == ":memory:" || rest.contains("mode=memory") {
            return Err(Error::Settings("a database in memory is not supported".into()));
        }
        percent::decode(path)
            .map(PathBuf::from)
            .ok_or_else(|| Error::Settings("path in the database URL is not valid UTF-8".into()))
    }
}

impl Backend {
    /// The name in logs and tests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
        }
    }

    /// The database's clock, in milliseconds since 1970.
    pub(crate) const fn now_sql(self) -> &'static str {
        match self {
            Self::Sqlite => "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now_ms",
            Self::Postgres => "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now_ms",
            Self::Mariadb => "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) AS now_ms",
        }
    }

    /// The statements that begin a transaction. On `MariaDB`, the first SELECT from a table creates the snapshot of a writer; it
    /// always follows the first lock. `PostgreSQL` and `MariaDB` also report whether the server is a standby: a former primary
    /// of `MariaDB` keeps its connections, and administrators may still write.
    pub(crate) const fn begin_sql(self, mode: Mode) -> &'static str {
        match (self, mode) {
            (Self::Sqlite, Mode::Write) => "BEGIN IMMEDIATE",
            (Self::Sqlite, Mode::Snapshot) => "BEGIN DEFERRED",
            (Self::Postgres, Mode::Write) => {
                "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
                 SELECT CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END AS standby"
            }
            (Self::Postgres, Mode::Snapshot) => {
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                 SELECT CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END AS standby"
            }
            (Self::Mariadb, Mode::Write) => {
                "SELECT CAST(@@global.read_only AS SIGNED) AS standby; START TRANSACTION READ WRITE"
            }
            (Self::Mariadb, Mode::Snapshot) => {
                "SELECT CAST(@@global.read_only AS SIGNED) AS standby; \
                 START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
            }
        }
    }

    /// The statements that configure a new connection.
    pub(crate) fn connection_sql(self, settings: &StoreSettings) -> Vec<String> {
        let lock_ms = settings.lock_timeout.as_millis();
        let statement_ms = settings.statement_timeout.as_millis();
        let idle_ms = settings.idle_timeout.as_millis();
        let whole_seconds = |ms: u128| ms.div_ceil(1000).max(1);
        match self {
            Self::Sqlite => vec![
                format!("PRAGMA busy_timeout = {lock_ms}"),
                "PRAGMA journal_mode = WAL".to_owned(),
                "PRAGMA synchronous = FULL".to_owned(),
            ],
            Self::Postgres => vec![
                format!("SET lock_timeout = {lock_ms}"),
                format!("SET statement_timeout = {statement_ms}"),
                format!("SET idle_in_transaction_session_timeout = {idle_ms}"),
                // A server or role may be configured not to wait for the disk. Here it must: the counter never goes back.
                "SELECT set_config('synchronous_commit', 'on', false) \
                 WHERE current_setting('synchronous_commit') = 'off'"
                    .to_owned(),
            ],
            Self::Mariadb => vec![
                "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ".to_owned(),
                format!("SET SESSION innodb_lock_wait_timeout = {}", whole_seconds(lock_ms)),
                format!("SET SESSION lock_wait_timeout = {}", whole_seconds(lock_ms)),
                format!("SET SESSION max_statement_time = {}", whole_seconds(statement_ms)),
                format!("SET SESSION idle_transaction_timeout = {}", whole_seconds(idle_ms)),
            ],
        }
    }

    /// Rewrites a portable statement: `?` becomes `$1`, `$2`, … for `PostgreSQL`.
    pub(crate) fn rewrite(self, sql: &str) -> Cow<'_, str> {
        if self != Self::Postgres || !sql.contains('?') {
            return Cow::Borrowed(sql);
        }
        let mut text = String::with_capacity(sql.len() + 16);
        for (count, piece) in sql.split('?').enumerate() {
            if count > 0 {
                let _ = write!(text, "${count}");
            }
            text.push_str(piece);
        }
        Cow::Owned(text)
    }

    /// Rewrites a statement of a migration.
    pub(crate) fn rewrite_ddl(self, sql: &'static str) -> Cow<'static, str> {
        match self {
            // SQLite has no such clause and needs none: a migration is one transaction.
            Self::Sqlite => Cow::Owned(sql.replace("ADD COLUMN IF NOT EXISTS", "ADD COLUMN")),
            Self::Mariadb if sql.starts_with("CREATE TABLE") => Cow::Owned(
                sql.replace(" TEXT", " MEDIUMTEXT")
                    + " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
            ),
            Self::Mariadb if sql.starts_with("ALTER TABLE") => Cow::Owned(sql.replace(" TEXT", " MEDIUMTEXT")),
            Self::Mariadb | Self::Postgres => Cow::Borrowed(sql),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn placeholders_are_numbered_for_postgres_only() {
        let sql = "UPDATE a SET b = ? WHERE c = ? AND d IN (?)";
        assert_eq!(Backend::Postgres.rewrite(sql), "UPDATE a SET b = $1 WHERE c = $2 AND d IN ($3)");
        assert_eq!(Backend::Sqlite.rewrite(sql), sql);
        assert_eq!(Backend::Mariadb.rewrite(sql), sql);
    }

    #[test]
    fn a_path_survives_the_round_trip_through_its_url() {
        for path in ["/tmp/a b/100%/x?y#z.db", "relative/ü.db"] {
            let settings = StoreSettings::sqlite(std::path::Path::new(path));
            assert_eq!(settings.sqlite_path().unwrap(), PathBuf::from(path));
            assert_eq!(settings.backend().unwrap(), Backend::Sqlite);
        }
    }

    #[test]
    fn databases_in_memory_or_of_an_unknown_kind_are_refused() {
        for url in ["sqlite::memory:", "sqlite://x?mode=memory", "sqlite:"] {
            assert!(matches!(StoreSettings::new(url).sqlite_path(), Err(Error::Settings(_))), "{url}");
        }
        assert!(matches!(StoreSettings::new("oracle://x").backend(), Err(Error::Settings(_))));
    }
}
