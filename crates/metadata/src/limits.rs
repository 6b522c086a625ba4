//! The limits of scopes, written in the transaction of what determines them: an alteration, a measured capacity, a
//! registration.
//!
//! All of them hold the catalog lock, so no limit is derived from a quota or a capacity that another one replaces. They
//! never change what a scope holds. A change of a tenant's guarantee also changes what its pool holds of its parts, so
//! the pool is locked with its tenants.

use std::collections::{BTreeMap, BTreeSet};

use model::alteration::{ObjectKind, ObjectRef};
use model::catalog::Catalog;
use model::ledger::{Measured, Scope, ScopeKey, ScopeKind, bound, changed, derive};
use model::name::PoolName;
use model::number::Epoch;
use model::quota::Capacity;

use crate::backend::Mode;
use crate::batch::keys;
use crate::error::Error;
use crate::ledger::Loaded;
use crate::ledger_rows;
use crate::ledger_sql as sql;
use crate::master;
use crate::rows;
use crate::store::Store;
use crate::transaction::{Arg, Done, Transaction, args};

impl Store {
    /// Gives scopes these limits, whatever the catalog says: for tests of the ledger alone.
    pub async fn write_limits(&self, epoch: Epoch, limits: &[(ScopeKey, Scope)]) -> Result<(), Error> {
        let mut attempt = 1;
        loop {
            let mut tx = self.begin(Mode::Write).await?;
            let result = write(&mut tx, epoch, limits).await;
            match tx.end(master::POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                other => return other,
            }
        }
    }
}

async fn write(tx: &mut Transaction, epoch: Epoch, limits: &[(ScopeKey, Scope)]) -> Result<Done<()>, Error> {
    master::lock(tx, epoch).await?;
    tx.lock_catalog().await?;
    Ok(if tx.set_limits(limits).await? { Done::Write(()) } else { Done::Same(()) })
}

/// Writes what an alteration of the object makes of the limits. Only scopes that it changes are locked. No limit follows
/// from a unit.
pub(crate) async fn alter(
    tx: &mut Transaction,
    object: &ObjectRef,
    before: &Catalog,
    after: &Catalog,
) -> Result<(), Error> {
    if object.kind == ObjectKind::ResourceUnit {
        return Ok(());
    }
    let measured = tx.measured().await?;
    let kept: Measured = measured
        .iter()
        .filter(|(pool, _)| measured_as(before, pool) == measured_as(after, pool))
        .map(|(pool, capacity)| (pool.clone(), *capacity))
        .collect();
    // The limits of users and creators follow from quotas only.
    let mut existing = match object.kind {
        ObjectKind::ResourceQuota => tx.principals().await?,
        ObjectKind::Tenant | ObjectKind::ResourcePool | ObjectKind::ResourceUnit => BTreeSet::new(),
    };
    let old = derive(before, &measured, &existing)?;
    existing.extend(old.keys().cloned());
    tx.set_limits(&changed(&old, derive(after, &kept, &existing)?)).await?;
    for pool in measured.keys().filter(|pool| !kept.contains_key(*pool)) {
        tx.execute(sql::CAPACITY_FORGET, args![i64::MAX, pool.as_str()]).await?;
    }
    Ok(())
}

/// Where the capacity of a pool comes from; `None` if it is not measured.
fn measured_as<'a>(catalog: &'a Catalog, pool: &PoolName) -> Option<&'a Capacity> {
    catalog.pool(pool)?.capacity.as_ref().filter(|capacity| !matches!(capacity, Capacity::Amount(_)))
}

impl Transaction {
    /// The measured capacities. They change only under the catalog lock.
    pub(crate) async fn measured(&mut self) -> Result<Measured, Error> {
        let mut measured = Measured::new();
        for row in self.rows(sql::CAPACITIES, args![]).await? {
            let pool = rows::text(&row, "name")?;
            let capacity = ledger_rows::capacity(&row)?;
            let pool = PoolName::new(pool).map_err(|error| Error::Broken(error.text().into()))?;
            measured.extend(capacity.map(|capacity| (pool, capacity)));
        }
        Ok(measured)
    }

    /// All users and creators that have a row.
    async fn principals(&mut self) -> Result<BTreeSet<ScopeKey>, Error> {
        self.rows(sql::PRINCIPALS, args![]).await?.iter().map(ledger_rows::key).collect()
    }

    /// Those of the scopes that have a row.
    pub(crate) async fn existing_scopes(&mut self, scopes: &BTreeSet<ScopeKey>) -> Result<BTreeSet<ScopeKey>, Error> {
        let of_each = scopes.iter().map(|key| args![key.kind.number(), &*key.name]).collect();
        self.rows_in_tuples(sql::SCOPE_KEYS_OF, of_each).await?.iter().map(ledger_rows::key).collect()
    }

    /// Gives scopes these limits, under the catalog lock, and inserts those that have no row; returns whether anything
    /// was written.
    pub(crate) async fn set_limits(&mut self, limits: &[(ScopeKey, Scope)]) -> Result<bool, Error> {
        let is_principal = |key: &ScopeKey| matches!(key.kind, ScopeKind::User | ScopeKind::Creator);
        let (principals, of_pools): (Vec<_>, Vec<_>) = limits.iter().partition(|(key, _)| is_principal(key));
        let are_written = self.limit_principals(&principals).await?;
        Ok(self.limit_pools(&of_pools).await? || are_written)
    }

    /// Gives users and creators their limits: those with the same limit, such as all without a quota of their own, in
    /// one statement. The limit does not depend on what they hold, so nothing is read of them.
    async fn limit_principals(&mut self, limits: &[&(ScopeKey, Scope)]) -> Result<bool, Error> {
        if limits.is_empty() {
            return Ok(false);
        }
        let existing = self.existing_scopes(&limits.iter().map(|(key, _)| key.clone()).collect()).await?;
        let mut same: BTreeMap<(ScopeKind, [i64; 3]), Vec<&str>> = BTreeMap::new();
        let mut inserted = Vec::new();
        for (key, scope) in limits {
            if existing.contains(key) {
                let limit = scope.counter.limit.map(bound);
                same.entry((key.kind, [limit.cpu_m, limit.memory, limit.engines])).or_default().push(&key.name);
            } else {
                inserted.push(ledger_rows::scope_args(key, scope, 0));
            }
        }
        for ((kind, [cpu_m, memory, engines]), names) in same {
            let values: Vec<Arg> = args![cpu_m, memory, engines, kind.number()];
            self.execute_in(sql::PRINCIPALS_LIMIT, &values, keys(names)).await?;
        }
        self.insert_all(sql::SCOPES_INSERT, inserted).await?;
        Ok(true)
    }

    /// Gives pools and tenants on pools their limits. The rows are read after their lock has changed them, so that also
    /// `MariaDB` reads the newest.
    async fn limit_pools(&mut self, limits: &[&(ScopeKey, Scope)]) -> Result<bool, Error> {
        if limits.is_empty() {
            return Ok(false);
        }
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
