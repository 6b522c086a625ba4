//! Schema migrations.
//!
//! `SQLite` and `PostgreSQL` run all migrations in one transaction. `MariaDB` commits each DDL statement, so every statement can
//! be repeated; rows are filled and the version is written in a transaction after the last one.

use crate::backend::{Backend, Mode};
use crate::error::Error;
use crate::failpoints::{MIGRATE_AFTER, MIGRATE_BEFORE};
use crate::missing_scopes;
use crate::rows;
use crate::sql;
use crate::store::Store;
use crate::transaction::{CommitPoints, Done, Transaction, args};

/// The number of attempts if another process migrates concurrently.
const ATTEMPTS: u32 = 5;

const POINTS: CommitPoints = CommitPoints { before: MIGRATE_BEFORE, after: MIGRATE_AFTER };

/// The first version that charges engines.
const LEDGER_IN_USE: i64 = 10;

/// The schema version of this program.
pub const SCHEMA_VERSION: i64 = sql::MIGRATIONS.len() as i64;

/// Refuses a database of another version.
pub(crate) async fn check(store: &Store) -> Result<(), Error> {
    let mut tx = store.begin(Mode::Snapshot).await?;
    let found = found(&mut tx, store.backend()).await;
    let found = tx.leave(found).await?;
    refuse_newer(found)?;
    if found < SCHEMA_VERSION {
        return Err(Error::OlderSchema { found, known: SCHEMA_VERSION });
    }
    Ok(())
}

/// Applies the missing migrations and returns the version.
pub(crate) async fn run(store: &Store) -> Result<i64, Error> {
    let mut attempt = 1;
    loop {
        let mut tx = store.begin(Mode::Write).await?;
        let result = migrate(&mut tx, store.backend()).await;
        match tx.end(POINTS, result).await {
            // If two processes create the same table at once, one fails and finds it the next time.
            Err(Error::Conflict(_) | Error::Broken(_) | Error::OutcomeUnknown(_)) if attempt < ATTEMPTS => attempt += 1,
            other => return other,
        }
    }
}

async fn migrate(tx: &mut Transaction, backend: Backend) -> Result<Done<i64>, Error> {
    let before = found(tx, backend).await?;
    refuse_newer(before)?;
    if before == SCHEMA_VERSION {
        return Ok(Done::Same(before));
    }
    tx.migrate(sql::VERSION_CREATE).await?;
    tx.migrate(sql::VERSION_FIRST).await?;
    tx.execute(sql::VERSION_LOCK, args![]).await?;
    let version = version(tx).await?;
    refuse_newer(version)?;
    for (at, migration) in sql::MIGRATIONS.iter().enumerate().skip(version.max(0) as usize) {
        for statement in *migration {
            tx.migrate(statement).await?;
        }
        tracing::info!(version = at + 1, "schema migrated");
    }
    tx.begin_after_ddl().await?;
    if version < LEDGER_IN_USE {
        fill_scopes(tx).await?;
    }
    tx.execute(sql::VERSION_SET, args![SCHEMA_VERSION]).await?;
    Ok(Done::Write(SCHEMA_VERSION))
}

/// Inserts the scopes of the catalog. Holds the catalog lock until the version is written, so that no program of an earlier
/// version commits an alteration in between.
async fn fill_scopes(tx: &mut Transaction) -> Result<(), Error> {
    tx.execute(sql::CATALOG_RAISE, args![0_i64]).await?;
    missing_scopes::insert(tx).await.map(drop)
}

pub(crate) fn refuse_newer(found: i64) -> Result<(), Error> {
    if found > SCHEMA_VERSION { Err(Error::NewerSchema { found, known: SCHEMA_VERSION }) } else { Ok(()) }
}

pub(crate) async fn found(tx: &mut Transaction, backend: Backend) -> Result<i64, Error> {
    let query = match backend {
        Backend::Sqlite => sql::VERSION_TABLE_SQLITE,
        Backend::Postgres => sql::VERSION_TABLE_POSTGRES,
        Backend::Mariadb => sql::VERSION_TABLE_MARIADB,
    };
    let exists = match tx.row(query, args![]).await? {
        Some(row) => rows::int(&row, "tables")? > 0,
        None => false,
    };
    if exists { version(tx).await } else { Ok(0) }
}

async fn version(tx: &mut Transaction) -> Result<i64, Error> {
    match tx.row(sql::VERSION, args![]).await? {
        Some(row) => rows::int(&row, "version"),
        None => Ok(0),
    }
}
