//! A look at an `SQLite` file beside the process that has it, for an operator's tool.
//!
//! The file is opened for reading only and its lock is not asked for: `SQLite` lets others read while one writes. What was
//! committed before the look is seen; nothing is made, and nothing is changed but the file's bookkeeping of who reads. A
//! reader that is stopped keeps the writer from shortening its journal, so the look has a deadline.

use std::time::Duration;

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};
use tokio::time::{Instant, timeout};

use crate::backend::{Backend, StoreSettings};
use crate::diagnose::ROUND_TRIPS;
use crate::error::{Error, SQLITE_DAMAGED, sqlite_code};
use crate::sql;
use crate::store::Store;

/// What a look has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnlySqlite {
    /// The version of its schema; 0 for a file without our tables.
    pub schema: i64,
    /// How long small questions took, the quickest first; never empty.
    pub round_trips: Vec<Duration>,
    /// What is damaged in the file, in `SQLite`'s words; empty if it is whole.
    pub damage: Vec<String>,
}

impl Store {
    /// Looks at the `SQLite` file that the settings name, which another process may have.
    pub async fn diagnose_read_only(settings: &StoreSettings) -> Result<ReadOnlySqlite, Error> {
        if settings.backend()? != Backend::Sqlite {
            return Err(Error::Settings("only a database in a file is looked at beside its process".to_owned()));
        }
        sqlx::any::install_default_drivers();
        match timeout(settings.call_deadline, look(settings)).await {
            Ok(looked) => looked.map_err(|error| Error::Unavailable(error.to_string())),
            Err(_) => {
                Err(Error::Unavailable(format!("the look took longer than {} s", settings.call_deadline.as_secs())))
            }
        }
    }
}

fn is_damage(code: &str) -> bool {
    sqlite_code(code).is_some_and(|code| SQLITE_DAMAGED.contains(&code))
}

async fn look(settings: &StoreSettings) -> Result<ReadOnlySqlite, sqlx::Error> {
    let file = settings.url.split('?').next().unwrap_or_default();
    let options: AnyConnectOptions = format!("{file}?mode=ro").parse()?;
    let mut connection = options.disable_statement_logging().connect().await?;
    let busy = format!("PRAGMA busy_timeout = {}", settings.lock_timeout.as_millis());
    sqlx::query(AssertSqlSafe(busy)).execute(&mut connection).await?;
    let looked = look_over(&mut connection).await;
    connection.close().await?;
    looked
}

async fn look_over(connection: &mut AnyConnection) -> Result<ReadOnlySqlite, sqlx::Error> {
    let tables = sqlx::query(sql::VERSION_TABLE_SQLITE).fetch_one(&mut *connection).await?;
    let schema = if tables.try_get::<i64, _>("tables")? > 0 {
        let row = sqlx::query(sql::VERSION).fetch_optional(&mut *connection).await?;
        row.map_or(Ok(0), |row| row.try_get("version"))?
    } else {
        0
    };
    let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let began = Instant::now();
        sqlx::query(Backend::Sqlite.now_sql()).fetch_one(&mut *connection).await?;
        round_trips.push(began.elapsed());
    }
    round_trips.sort_unstable();
    let damage = match sqlx::query(sql::SQLITE_CHECK).fetch_all(&mut *connection).await {
        Ok(rows) => {
            let said = rows.iter().map(|row| row.try_get::<String, _>(0)).collect::<Result<Vec<_>, _>>()?;
            said.into_iter().filter(|said| said != "ok").collect()
        }
        // Damage that ends the check itself.
        Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| is_damage(&code)) => {
            vec![error.message().to_owned()]
        }
        Err(error) => return Err(error),
    };
    Ok(ReadOnlySqlite { schema, round_trips, damage })
}
