//! A transaction with a deadline.
//!
//! A failure before COMMIT is sent changes nothing; any failure of COMMIT is [`Error::OutcomeUnknown`]. A connection returns to
//! the pool only after the database has answered COMMIT or ROLLBACK. Otherwise (no answer in time, a cancelled call) it is
//! closed, which rolls back: the pool would test the connection and wait as long as TCP does, a quarter of an hour, while it
//! counts against the pool's limit.

use std::borrow::Cow;
use std::future::Future;

use model::cause::Cause;
use model::failpoint;
use model::number::{Epoch, Generation, Incarnation};
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, Arguments as _, AssertSqlSafe, Executor as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::audit_row::AuditRow;
use crate::backend::{Backend, Mode};
use crate::error::Error;
use crate::writer::Writing;

/// A value for a placeholder.
#[derive(Debug, Clone)]
pub(crate) enum Arg {
    Int(Option<i64>),
    Text(Option<String>),
}

impl Arg {
    /// The length of its text in bytes; 0 for a number.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Int(_) => 0,
            Self::Text(text) => text.as_ref().map_or(0, String::len),
        }
    }
}

macro_rules! arg_from {
    ($($from:ty => |$value:ident| $arg:expr;)*) => { $(
        impl From<$from> for Arg {
            fn from($value: $from) -> Self { $arg }
        }
    )* };
}
arg_from! {
    i64 => |value| Self::Int(Some(value));
    u32 => |value| Self::Int(Some(i64::from(value)));
    bool => |value| Self::Int(Some(i64::from(value)));
    Option<i64> => |value| Self::Int(value);
    Option<u32> => |value| Self::Int(value.map(i64::from));
    &str => |value| Self::Text(Some(value.to_owned()));
    String => |value| Self::Text(Some(value));
    Option<&str> => |value| Self::Text(value.map(str::to_owned));
    Generation => |value| value.get().into();
    Incarnation => |value| value.get().into();
    Epoch => |value| value.get().into();
}

/// Values for the placeholders of one statement, in order.
macro_rules! args {
    ($($value:expr),* $(,)?) => { vec![$($crate::transaction::Arg::from($value)),*] };
}
pub(crate) use args;

/// What a connection keeps of a statement that was composed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is prepared once: for texts of which there are few. `MariaDB` delays the statement after one that was closed.
    Prepared,
    /// It is closed, so that it evicts no other statement.
    Nothing,
}

/// How a transaction ends after its body succeeded.
#[derive(Debug)]
pub(crate) enum Done<T> {
    /// Commit.
    Write(T),
    /// Nothing was changed: roll back, which also releases the locks.
    Same(T),
}

/// The failpoints around COMMIT.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitPoints {
    pub(crate) before: &'static str,
    pub(crate) after: &'static str,
}

/// An open transaction.
pub(crate) struct Transaction {
    /// `None` once it was returned to the pool. Dropped before the guard, so that the next writer of an `SQLite` file begins after
    /// this rollback.
    connection: Option<PoolConnection<Any>>,
    backend: Backend,
    deadline: Instant,
    /// The rows of the audit that this transaction has inserted.
    audited: Vec<AuditRow>,
    _held: Held,
}

/// The guards that a transaction holds until it ends.
#[derive(Debug)]
pub(crate) struct Held {
    /// The writer lock of an `SQLite` file.
    pub(crate) _writer: Option<Writing>,
    /// The permit of a transaction of a statement.
    pub(crate) _permit: Option<OwnedSemaphorePermit>,
    /// The turn of a statement that takes the catalog lock.
    pub(crate) _turn: Option<OwnedSemaphorePermit>,
}

pub(crate) const STANDBY: &str = "the server is a standby; the primary is required";

impl Drop for Transaction {
    fn drop(&mut self) {
        // Detached from the pool, which may open another one, and closed by the drop.
        drop(self.connection.take().map(PoolConnection::detach));
    }
}

impl Transaction {
    /// Begins a transaction on the connection with the statement `begin`.
    pub(crate) async fn begin(
        connection: PoolConnection<Any>,
        begin: &'static str,
        backend: Backend,
        deadline: Instant,
        held: Held,
    ) -> Result<Self, Error> {
        // Created first, so that cancelling this call closes the connection.
        let mut tx = Self { connection: Some(connection), backend, deadline, audited: Vec::new(), _held: held };
        let answer = timed(deadline, tx.connection()?.fetch_all(sqlx::raw_sql(begin))).await?.map_err(not_begun)?;
        match answer.first() {
            Some(row) if crate::rows::int(row, "standby")? != 0 => Err(Error::Unavailable(STANDBY.into())),
            _ => Ok(tx),
        }
    }

    fn connection(&mut self) -> Result<&mut AnyConnection, Error> {
        self.connection.as_deref_mut().ok_or_else(|| Error::Broken("the transaction has ended".into()))
    }

    /// Runs a statement; returns the number of matched rows.
    pub(crate) async fn execute(&mut self, sql: &'static str, args: Vec<Arg>) -> Result<u64, Error> {
        let text = self.backend.rewrite(sql);
        self.run(text, args).await?.ok_or_else(|| Error::Broken("duplicate key".into()))
    }

    /// Inserts a row; returns false if its key exists. On `PostgreSQL` the transaction has then failed and must end.
    pub(crate) async fn insert(&mut self, sql: &'static str, args: Vec<Arg>) -> Result<bool, Error> {
        let text = self.backend.rewrite(sql);
        Ok(self.run(text, args).await?.is_some())
    }

    /// Runs a statement of a migration.
    pub(crate) async fn migrate(&mut self, sql: &'static str) -> Result<(), Error> {
        let text = self.backend.rewrite_ddl(sql);
        match self.run(text, Vec::new()).await? {
            Some(_) => Ok(()),
            // Another process creates the same table concurrently.
            None => Err(Error::Conflict("another process is migrating the database".to_owned())),
        }
    }

    /// Begins the transaction again on `MariaDB`, which has committed it with each statement of a migration.
    pub(crate) async fn begin_after_ddl(&mut self) -> Result<(), Error> {
        if self.backend == Backend::Mariadb {
            let begin = self.backend.begin_sql(Mode::Write);
            timed(self.deadline, self.connection()?.execute(sqlx::raw_sql(begin))).await?.map_err(failed)?;
        }
        Ok(())
    }

    pub(crate) async fn rows(&mut self, sql: &'static str, args: Vec<Arg>) -> Result<Vec<AnyRow>, Error> {
        let text = self.backend.rewrite(sql);
        let query = sqlx::query_with(AssertSqlSafe(text), arguments(args)?);
        timed(self.deadline, query.fetch_all(self.connection()?)).await?.map_err(failed)
    }

    /// Reads the first row.
    pub(crate) async fn row(&mut self, sql: &'static str, args: Vec<Arg>) -> Result<Option<AnyRow>, Error> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// Runs a statement that was composed; returns the number of matched rows.
    pub(crate) async fn execute_composed(&mut self, text: String, args: Vec<Arg>, keep: Keep) -> Result<u64, Error> {
        self.run_composed(text, args, keep).await?.map_err(failed)
    }

    /// Inserts rows with a statement that was composed; returns false if a key exists.
    pub(crate) async fn insert_composed(&mut self, text: String, args: Vec<Arg>, keep: Keep) -> Result<bool, Error> {
        match self.run_composed(text, args, keep).await? {
            Ok(_) => Ok(true),
            Err(error) => Error::of_statement(error).map_or(Ok(false), Err),
        }
    }

    async fn run_composed(
        &mut self,
        text: String,
        args: Vec<Arg>,
        keep: Keep,
    ) -> Result<Result<u64, sqlx::Error>, Error> {
        let text = self.backend.rewrite(&text).into_owned();
        let query = sqlx::query_with(AssertSqlSafe(text), arguments(args)?).persistent(keep == Keep::Prepared);
        Ok(timed(self.deadline, query.execute(self.connection()?)).await?.map(|result| result.rows_affected()))
    }

    /// Reads rows with a statement that was composed for one use.
    pub(crate) async fn rows_once(&mut self, text: String, args: Vec<Arg>) -> Result<Vec<AnyRow>, Error> {
        self.rows_composed(text, args, Keep::Nothing).await
    }

    /// Reads rows with a statement that was composed.
    pub(crate) async fn rows_composed(
        &mut self,
        text: String,
        args: Vec<Arg>,
        keep: Keep,
    ) -> Result<Vec<AnyRow>, Error> {
        let text = self.backend.rewrite(&text).into_owned();
        let query = sqlx::query_with(AssertSqlSafe(text), arguments(args)?).persistent(keep == Keep::Prepared);
        timed(self.deadline, query.fetch_all(self.connection()?)).await?.map_err(failed)
    }

    /// The database's query plan.
    pub(crate) async fn explain(&mut self, sql: &'static str) -> Result<Vec<String>, Error> {
        let (explain, column) = match self.backend {
            Backend::Sqlite => ("EXPLAIN QUERY PLAN", "detail"),
            Backend::Postgres => ("EXPLAIN", "QUERY PLAN"),
            Backend::Mariadb => ("EXPLAIN FORMAT=JSON", "EXPLAIN"),
        };
        let rows = self.rows_once(format!("{explain} {sql}"), Vec::new()).await?;
        rows.iter().map(|row| crate::rows::text(row, column)).collect()
    }

    pub(crate) const fn backend(&self) -> Backend {
        self.backend
    }

    async fn run(&mut self, text: Cow<'static, str>, args: Vec<Arg>) -> Result<Option<u64>, Error> {
        let query = sqlx::query_with(AssertSqlSafe(text), arguments(args)?);
        match timed(self.deadline, query.execute(self.connection()?)).await? {
            Ok(result) => Ok(Some(result.rows_affected())),
            Err(error) => Error::of_statement(error).map_or(Ok(None), Err),
        }
    }

    /// Logs the rows of the audit once COMMIT has succeeded.
    pub(crate) fn log_after_commit(&mut self, rows: Vec<AuditRow>) {
        self.audited.extend(rows);
    }

    /// The database's clock, in milliseconds since 1970.
    pub(crate) async fn now_ms(&mut self) -> Result<i64, Error> {
        let row = self.row(self.backend.now_sql(), Vec::new()).await?;
        let row = row.ok_or_else(|| Error::Broken("no row from the database's clock".into()))?;
        crate::rows::int(&row, "now_ms")
    }

    /// A row with the database's clock as `now_ms`, and with what `rest` appends to its query.
    pub(crate) async fn row_with_clock(&mut self, rest: &str) -> Result<Option<AnyRow>, Error> {
        let text = format!("{}{rest}", self.backend.now_sql());
        Ok(self.rows_composed(text, Vec::new(), Keep::Prepared).await?.into_iter().next())
    }

    /// Commits or rolls back, as the body decided.
    pub(crate) async fn end<T>(mut self, points: CommitPoints, result: Result<Done<T>, Error>) -> Result<T, Error> {
        match result {
            Ok(Done::Write(answer)) => {
                failpoint!(points.before);
                self.finish("COMMIT").await.map_err(Error::OutcomeUnknown)?;
                for row in std::mem::take(&mut self.audited) {
                    row.log();
                }
                failpoint!(points.after);
                Ok(answer)
            }
            Ok(Done::Same(answer)) => {
                self.roll_back().await;
                Ok(answer)
            }
            Err(error) => {
                self.roll_back().await;
                Err(error)
            }
        }
    }

    /// Ends a transaction that only read.
    pub(crate) async fn leave<T>(mut self, result: Result<T, Error>) -> Result<T, Error> {
        self.roll_back().await;
        result
    }

    /// Rolls back now, so that the next transaction need not wait. If this fails, closing the connection rolls back.
    async fn roll_back(&mut self) {
        if let Err(reason) = self.finish("ROLLBACK").await {
            tracing::debug!(%reason, "rollback failed; closing the connection");
        }
    }

    /// Runs COMMIT or ROLLBACK, and returns the connection to the pool if it was answered.
    async fn finish(&mut self, command: &'static str) -> Result<(), Cause> {
        let deadline = self.deadline;
        let connection = self.connection()?;
        match timeout_at(deadline, connection.execute(sqlx::raw_sql(command))).await {
            Ok(Ok(_)) => {
                drop(self.connection.take());
                Ok(())
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(format!("no answer to {command} before the deadline").into()),
        }
    }
}

/// Part of `PostgreSQL`'s error for a read-write transaction on a standby.
const DURING_RECOVERY: &str = "during recovery";

fn not_begun(error: sqlx::Error) -> Error {
    match &error {
        sqlx::Error::Database(database) if database.message().contains(DURING_RECOVERY) => {
            Error::Unavailable(STANDBY.into())
        }
        _ => failed(error),
    }
}

/// The error of a statement other than an insert whose key may exist.
pub(crate) fn failed(error: sqlx::Error) -> Error {
    Error::of_statement(error).unwrap_or_else(|violation| Error::Broken(violation.into()))
}

/// Binds the arguments of a statement. U+0000, which `PostgreSQL` cannot store, becomes U+FFFD here, in the only place where text
/// is bound: a text may come from an engine, and one that cannot be stored would block its transaction for ever.
fn arguments(args: Vec<Arg>) -> Result<AnyArguments, Error> {
    let mut arguments = AnyArguments::default();
    for arg in args {
        match arg {
            Arg::Int(value) => arguments.add(value),
            Arg::Text(Some(text)) if text.contains('\0') => arguments.add(Some(text.replace('\0', "\u{fffd}"))),
            Arg::Text(value) => arguments.add(value),
        }
        .map_err(|error| Error::Broken(error.into()))?;
    }
    Ok(arguments)
}

/// Waits for the database until the deadline.
pub(crate) async fn timed<T>(deadline: Instant, future: impl Future<Output = T>) -> Result<T, Error> {
    timeout_at(deadline, future)
        .await
        .map_err(|_| Error::Unavailable("no answer from the database before the deadline".into()))
}
