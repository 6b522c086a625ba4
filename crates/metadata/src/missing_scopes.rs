//! The scopes of the catalog that have no row: all of them when the schema is migrated, and those of objects that a metadata agent
//! of version 0.1.0 writes afterwards. It knows no scopes, and does not check the version of the schema.
//!
//! Every new master has them inserted before its first tick: without its scopes no engine of a pool can be adopted or granted.
//! Agents are replaced before masters, so no earlier agent writes after that.

use std::collections::BTreeSet;

use model::ledger::{Scope, ScopeKey, derive};
use model::number::Epoch;

use crate::backend::Mode;
use crate::error::Error;
use crate::ledger_rows;
use crate::ledger_sql;
use crate::master;
use crate::read;
use crate::store::Store;
use crate::transaction::{Done, Transaction};

impl Store {
    /// Inserts them for a new master. The catalog lock is taken only if there are any.
    pub(crate) async fn insert_missing_scopes(&self, epoch: Epoch) -> Result<(), Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let missing = missing(&mut tx).await;
        if tx.leave(missing).await?.is_empty() {
            return Ok(());
        }
        let mut attempt = 1;
        loop {
            let mut tx = self.begin(Mode::Write).await?;
            let result = locked(&mut tx, epoch).await;
            match tx.end(master::POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                other => return other,
            }
        }
    }
}

async fn locked(tx: &mut Transaction, epoch: Epoch) -> Result<Done<()>, Error> {
    master::lock(tx, epoch).await?;
    tx.lock_catalog().await?;
    let inserted = insert(tx).await?;
    tracing::info!(scopes = inserted, "scopes inserted that an earlier version left out");
    Ok(if inserted == 0 { Done::Same(()) } else { Done::Write(()) })
}

/// Inserts them under the catalog lock, which the transaction holds, and returns their number. Nothing is charged: the master
/// adopts the engines that run.
pub(crate) async fn insert(tx: &mut Transaction) -> Result<usize, Error> {
    let missing = missing(tx).await?;
    let rows: Vec<_> = missing.iter().map(|(key, scope)| ledger_rows::scope_args(key, scope, 0)).collect();
    let inserted = rows.len();
    tx.insert_all(ledger_sql::SCOPES_INSERT, rows).await?;
    Ok(inserted)
}

async fn missing(tx: &mut Transaction) -> Result<Vec<(ScopeKey, Scope)>, Error> {
    let catalog = read::catalog(tx).await?;
    let measured = tx.measured().await?;
    let mut limits = derive(&catalog, &measured, &BTreeSet::new())?;
    for key in tx.existing_scopes(&limits.keys().cloned().collect()).await? {
        limits.remove(&key);
    }
    Ok(limits.into_iter().collect())
}
