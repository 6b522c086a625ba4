//! A read-only diagnosis of an `SQLite` file while another process has it open, for `doctor`.
//!
//! The file is opened read-only and without its lock file: `SQLite` allows readers during writes. The diagnosis reads what is
//! committed and changes nothing but `SQLite`'s list of readers. It has a deadline, because a stopped reader would keep the
//! writer from truncating its journal.

use std::time::Duration;

use model::name::UnitName;
use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};
use tokio::time::{Instant, timeout};

use crate::backend::{Backend, StoreSettings};
use crate::diagnose::ROUND_TRIPS;
use crate::error::{Error, SQLITE_DAMAGED, sqlite_code};
use crate::migration::SCHEMA_VERSION;
use crate::rows;
use crate::sql;
use crate::store::Store;
use crate::stored_secrets::StoredSecrets;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnlySqlite {
    /// The schema version; 0 for a file without our tables.
    pub schema: i64,
    /// The durations of small queries in ascending order; never empty.
    pub round_trips: Vec<Duration>,
    /// The errors that `SQLite` found in the file; empty if it is intact.
    pub damage: Vec<String>,
    /// How secret properties are stored; empty if the file has another schema version than this program.
    pub secrets: StoredSecrets,
}

impl Store {
    /// Diagnoses the `SQLite` file of the settings, which another process may have open.
    pub async fn diagnose_read_only(settings: &StoreSettings) -> Result<ReadOnlySqlite, Error> {
        if settings.backend()? != Backend::Sqlite {
            return Err(Error::Settings("only an SQLite database supports a read-only diagnosis".into()));
        }
        sqlx::any::install_default_drivers();
        match timeout(settings.call_deadline, read_file(settings)).await {
            Ok(read) => read.map_err(|error| Error::Unavailable(error.into())),
            Err(_) => Err(Error::Unavailable(
                format!("the diagnosis took longer than {} s", settings.call_deadline.as_secs()).into(),
            )),
        }
    }
}

fn is_damage(code: &str) -> bool {
    sqlite_code(code).is_some_and(|code| SQLITE_DAMAGED.contains(&code))
}

async fn read_file(settings: &StoreSettings) -> Result<ReadOnlySqlite, sqlx::Error> {
    let file = settings.url.split('?').next().unwrap_or_default();
    let options: AnyConnectOptions = format!("{file}?mode=ro").parse()?;
    let mut connection = options.disable_statement_logging().connect().await?;
    let busy = format!("PRAGMA busy_timeout = {}", settings.lock_timeout.as_millis());
    sqlx::query(AssertSqlSafe(busy)).execute(&mut connection).await?;
    let diagnosis = diagnosis(&mut connection).await;
    connection.close().await?;
    diagnosis
}

async fn diagnosis(connection: &mut AnyConnection) -> Result<ReadOnlySqlite, sqlx::Error> {
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
    let mut secrets = StoredSecrets::default();
    if schema == SCHEMA_VERSION {
        for row in sqlx::query(sql::UNITS).fetch_all(&mut *connection).await? {
            // The state of a row that cannot be decoded is reported by those who need it.
            if let Ok((name, unit)) = rows::object(&row, UnitName::try_from) {
                secrets.add(&name, &unit.spec);
            }
        }
    }
    let damage = match sqlx::query(sql::SQLITE_CHECK).fetch_all(&mut *connection).await {
        Ok(rows) => {
            let errors = rows.iter().map(|row| row.try_get::<String, _>(0)).collect::<Result<Vec<_>, _>>()?;
            errors.into_iter().filter(|error| error != "ok").collect()
        }
        // Damage that aborts the check itself.
        Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| is_damage(&code)) => {
            vec![error.message().to_owned()]
        }
        Err(error) => return Err(error),
    };
    Ok(ReadOnlySqlite { schema, round_trips, damage, secrets })
}
