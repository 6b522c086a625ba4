//! A look at the database by an operator's tool: which version it has, how quick it answers, how its clock goes, whether
//! the time-outs that bound every wait are really set on a connection, and whether it keeps what it acknowledges.
//!
//! It only reads, and works on a database of any version, an empty one included. An `SQLite` file belongs to one
//! process: while another one has it, the look is refused like any other opening.

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

/// How many round trips are measured.
pub const ROUND_TRIPS: usize = 15;

/// What a look has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// Which database it is.
    pub backend: Backend,
    /// The version of its schema; 0 for a database without our tables.
    pub schema: i64,
    /// How long small questions took, the quickest first; never empty.
    pub round_trips: Vec<Duration>,
    /// How far its clock is ahead of this machine's, in milliseconds; negative if it is behind.
    pub ahead_ms: i64,
    /// The time-outs of a connection.
    pub timeouts: Vec<TimeoutSetting>,
    /// The settings that an acknowledged commit hangs on.
    pub durability: Vec<Durability>,
}

/// A time-out of a connection, in the database's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeoutSetting {
    /// What the database calls it.
    pub name: &'static str,
    /// What every connection is told.
    pub wanted: Duration,
    /// What the connection says that it has; zero means without end.
    pub found: Duration,
}

impl Store {
    /// Looks at the database that the settings name.
    pub async fn diagnose(settings: &StoreSettings, clock: &SharedClock) -> Result<Diagnosis, Error> {
        let store = Self::connect(settings, Rules::default(), clock.clone()).await?;
        // The pool would try until its time is over: whoever looks wants to know at once.
        let examined = match timeout(settings.connect_deadline, store.connect_once()).await {
            Ok(Ok(())) => store.look(settings, clock).await,
            Ok(Err(error)) => Err(Error::Unavailable(error.to_string())),
            Err(_) => Err(Error::Unavailable("it does not answer".to_owned())),
        };
        store.close().await;
        examined
    }

    /// How the database reads the engines of a snapshot, in its own words, one line each: for a test, and for an operator
    /// whose snapshots are slow.
    pub async fn engines_plan(&self) -> Result<Vec<String>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let plan = tx.explain(sql::ENGINES).await;
        tx.leave(plan).await
    }

    async fn look(&self, settings: &StoreSettings, clock: &SharedClock) -> Result<Diagnosis, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let examined = look(&mut tx, self.backend(), settings, clock).await;
        tx.leave(examined).await
    }
}

async fn look(
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
        // The database read its clock somewhere within the trip: taken for its middle.
        trips.push((took, there_ms - before_ms - took.as_millis() as i64 / 2));
    }
    trips.sort_unstable();
    let ahead_ms = trips.first().map(|(_, ahead_ms)| *ahead_ms).unwrap_or_default();
    let mut timeouts = Vec::new();
    for (name, question, unit, wanted) in backend.timeouts(settings) {
        let row = tx.row(question, args![]).await?;
        let row = row.ok_or_else(|| Error::Broken(format!("the database does not know {name}")))?;
        let found = unit.saturating_mul(u32::try_from(rows::int(&row, "value")?).unwrap_or(0));
        timeouts.push(TimeoutSetting { name, wanted, found });
    }
    let durability = durability::read(tx, backend).await?;
    let round_trips = trips.into_iter().map(|(took, _)| took).collect();
    Ok(Diagnosis { backend, schema, round_trips, ahead_ms, timeouts, durability })
}

/// A time-out's name, the question for it, the unit of the answer, and what it should be.
type Question = (&'static str, &'static str, Duration, Duration);

impl Backend {
    fn timeouts(self, settings: &StoreSettings) -> Vec<Question> {
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
