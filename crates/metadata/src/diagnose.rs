//! Reads for `doctor`: schema version, round-trip time, clock offset, the effective timeouts of a connection, and the durability
//! of acknowledged commits.
//!
//! Works on a database of any version and on an empty one. An `SQLite` file belongs to one process: while another process has
//! it open, the diagnosis is refused like any other opening.

use std::time::Duration;

use model::change::Rules;
use model::clock::SharedClock;
use tokio::time::{Instant, timeout};

use crate::backend::{Backend, Mode, StoreSettings};
use crate::durability::{self, Durability};
use crate::error::Error;
use crate::migration;
use crate::rows;
use crate::sql;
use crate::store::Store;
use crate::transaction::{Transaction, args};

/// The number of measured round trips.
pub const ROUND_TRIPS: usize = 15;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    pub backend: Backend,
    /// The schema version; 0 for a database without our tables.
    pub schema: i64,
    /// The durations of small queries in ascending order; never empty.
    pub round_trips: Vec<Duration>,
    /// The offset of its clock from this machine's, in milliseconds; positive if it is ahead.
    pub ahead_ms: i64,
    pub timeouts: Vec<TimeoutSetting>,
    /// The settings that decide whether acknowledged commits are durable.
    pub durability: Vec<Durability>,
}

/// A timeout of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeoutSetting {
    /// The name of the setting in the database.
    pub name: &'static str,
    /// The value that each connection sets.
    pub expected: Duration,
    /// The effective value; zero means no timeout.
    pub found: Duration,
}

impl Store {
    /// Diagnoses the database of the settings.
    pub async fn diagnose(settings: &StoreSettings, clock: &SharedClock) -> Result<Diagnosis, Error> {
        let store = Self::connect(settings, Rules::default(), clock.clone()).await?;
        // The pool would retry until its deadline; a diagnosis reports the error at once.
        let diagnosis = match timeout(settings.connect_deadline, store.connect_once()).await {
            Ok(Ok(())) => store.read_diagnosis(settings, clock).await,
            Ok(Err(error)) => Err(store.unavailable(error)),
            Err(_) => Err(Error::Unavailable("no answer".into())),
        };
        store.close().await;
        diagnosis
    }

    /// The database's query plans for the engines of a snapshot, in lines: for tests, and for operators with slow snapshots.
    pub async fn engines_plan(&self) -> Result<Vec<String>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let plans = engines_plan(&mut tx).await;
        tx.leave(plans).await
    }

    async fn read_diagnosis(&self, settings: &StoreSettings, clock: &SharedClock) -> Result<Diagnosis, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let diagnosis = diagnosis(&mut tx, self.backend(), settings, clock).await;
        tx.leave(diagnosis).await
    }
}

async fn engines_plan(tx: &mut Transaction) -> Result<Vec<String>, Error> {
    let mut lines = tx.explain(sql::ENGINES).await?;
    lines.extend(tx.explain(sql::CURRENT_ENGINES_ENDED).await?);
    Ok(lines)
}

async fn diagnosis(
    tx: &mut Transaction,
    backend: Backend,
    settings: &StoreSettings,
    clock: &SharedClock,
) -> Result<Diagnosis, Error> {
    let schema = migration::found(tx, backend).await?;
    let mut trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let (before_ms, began) = (clock.wall_ms(), Instant::now());
        let there_ms = tx.now_ms().await?;
        let took = began.elapsed();
        // The database read its clock at some point within the round trip; assume its middle.
        trips.push((took, there_ms - before_ms - took.as_millis() as i64 / 2));
    }
    trips.sort_unstable();
    let ahead_ms = trips.first().map(|(_, ahead_ms)| *ahead_ms).unwrap_or_default();
    let mut timeouts = Vec::new();
    for (name, query, unit, expected) in backend.timeouts(settings) {
        let row = tx.row(query, args![]).await?;
        let row = row.ok_or_else(|| Error::Broken(format!("the database has no setting {name}").into()))?;
        let found = unit.saturating_mul(u32::try_from(rows::int(&row, "value")?).unwrap_or(0));
        timeouts.push(TimeoutSetting { name, expected, found });
    }
    let durability = durability::read(tx, backend).await?;
    let round_trips = trips.into_iter().map(|(took, _)| took).collect();
    Ok(Diagnosis { backend, schema, round_trips, ahead_ms, timeouts, durability })
}

/// The name of a timeout, its query, the unit of the result, and the expected value.
type TimeoutQuery = (&'static str, &'static str, Duration, Duration);

impl Backend {
    fn timeouts(self, settings: &StoreSettings) -> Vec<TimeoutQuery> {
        let ms = Duration::from_millis(1);
        let s = Duration::from_secs(1);
        let whole_s = |span: Duration| Duration::from_secs(span.as_millis().div_ceil(1_000).max(1) as u64);
        let (lock, statement, idle) = (settings.lock_timeout, settings.statement_timeout, settings.idle_timeout);
        match self {
            Self::Sqlite => vec![("busy_timeout", sql::TIMEOUT_SQLITE_BUSY, ms, lock)],
            Self::Postgres => vec![
                ("lock_timeout", sql::TIMEOUT_POSTGRES_LOCK, ms, lock),
                ("statement_timeout", sql::TIMEOUT_POSTGRES_STATEMENT, ms, statement),
                ("idle_in_transaction_session_timeout", sql::TIMEOUT_POSTGRES_IDLE, ms, idle),
            ],
            Self::Mariadb => vec![
                ("innodb_lock_wait_timeout", sql::TIMEOUT_MARIADB_ROW, s, whole_s(lock)),
                ("lock_wait_timeout", sql::TIMEOUT_MARIADB_TABLE, s, whole_s(lock)),
                ("max_statement_time", sql::TIMEOUT_MARIADB_STATEMENT, s, whole_s(statement)),
                ("idle_transaction_timeout", sql::TIMEOUT_MARIADB_IDLE, s, whole_s(idle)),
            ],
        }
    }
}
