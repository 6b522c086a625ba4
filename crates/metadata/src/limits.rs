//! The limits of scopes, written in the transaction of what determines them: an alteration, observed nodes, a
//! registration.
//!
//! They never change what a scope holds. A change of a tenant's guarantee also changes what its pool holds of its
//! parts, so the pool is locked with its tenants.

use std::collections::BTreeSet;

use model::catalog::Catalog;
use model::error::UserError;
use model::ledger::{Scope, ScopeKey, ScopeKind};
use model::number::Epoch;

use crate::backend::Mode;
use crate::error::Error;
use crate::ledger::Loaded;
use crate::master;
use crate::read;
use crate::store::Store;
use crate::transaction::{Done, Transaction};

impl Store {
    /// Writes the limits that a master derives from the catalog and what it has observed, such as the capacity of
    /// nodes. The catalog is read under its lock, so no limit is derived from a quota that a concurrent ALTER replaces.
    pub async fn write_limits(
        &self,
        epoch: Epoch,
        derive: impl FnOnce(&Catalog) -> Result<Vec<(ScopeKey, Scope)>, UserError> + Send,
    ) -> Result<(), Error> {
        let mut tx = self.begin(Mode::Write).await?;
        let result = write(&mut tx, epoch, derive).await;
        tx.end(master::POINTS, result).await
    }
}

async fn write(
    tx: &mut Transaction,
    epoch: Epoch,
    derive: impl FnOnce(&Catalog) -> Result<Vec<(ScopeKey, Scope)>, UserError> + Send,
) -> Result<Done<()>, Error> {
    master::lock(tx, epoch).await?;
    tx.lock_catalog().await?;
    let limits = derive(&read::catalog(tx).await?)?;
    Ok(if tx.set_limits(&limits).await? { Done::Write(()) } else { Done::Same(()) })
}

impl Transaction {
    /// Gives scopes these limits, under the catalog lock, and inserts those that have no row; returns whether anything
    /// changed. The rows are read after their lock has changed them, so that also `MariaDB` reads the newest.
    pub(crate) async fn set_limits(&mut self, limits: &[(ScopeKey, Scope)]) -> Result<bool, Error> {
        let mut keys: BTreeSet<ScopeKey> = limits.iter().map(|(key, _)| key.clone()).collect();
        let of_tenants = limits.iter().filter_map(|(key, _)| key.tenant_and_pool());
        let pools: Vec<ScopeKey> =
            of_tenants.map(|(_, pool)| ScopeKey { kind: ScopeKind::Pool, name: pool.into() }).collect();
        keys.extend(pools);
        let locked = self.lock_scopes(&keys).await?;
        let loaded = Loaded::new(self.scopes(&locked).await?, Vec::new());
        let mut ledger = loaded.ledger.clone();
        // Pools first: a tenant is added to the row of its pool.
        let in_order = limits.iter().filter(|(key, _)| key.kind == ScopeKind::Pool);
        let in_order = in_order.chain(limits.iter().filter(|(key, _)| key.kind != ScopeKind::Pool));
        for (key, scope) in in_order {
            ledger.set_limits(key, scope).map_err(|refusal| Error::Broken(format!("{key}: {refusal:?}").into()))?;
        }
        self.write_ledger(&loaded, &ledger).await
    }
}
