//! The measured capacities of pools whose capacity is that of their nodes, and the limits that follow from them.
//!
//! A capacity is written under the catalog lock, which draws no number, so that no limit is derived from a catalog that a
//! concurrent alteration replaces. A repeat changes nothing.

use std::collections::BTreeMap;

use model::ledger::{Measured, ScopeKind, derive};
use model::name::PoolName;
use model::number::Epoch;
use model::quota::{Capacity, Limit};
use model::resource::Triple;

use crate::backend::Mode;
use crate::error::Error;
use crate::ledger_sql as sql;
use crate::master;
use crate::read;
use crate::rows::to_json;
use crate::store::Store;
use crate::transaction::{Done, Transaction, args};

impl Store {
    /// Records the capacities of pools, in requests. One of a pool whose capacity is not that of its nodes is ignored: the
    /// pool has been altered or dropped since it was measured.
    pub async fn record_capacity(
        &self,
        epoch: Epoch,
        capacities: &BTreeMap<PoolName, Triple<Limit>>,
    ) -> Result<(), Error> {
        let mut attempt = 1;
        loop {
            let mut tx = self.begin(Mode::Write).await?;
            let result = write(&mut tx, epoch, capacities).await;
            match tx.end(master::POINTS, result).await {
                Err(error) if error.is_retried(&mut attempt) => {}
                other => return other,
            }
        }
    }
}

async fn write(
    tx: &mut Transaction,
    epoch: Epoch,
    capacities: &BTreeMap<PoolName, Triple<Limit>>,
) -> Result<Done<()>, Error> {
    master::lock(tx, epoch).await?;
    tx.lock_catalog().await?;
    let catalog = read::catalog(tx).await?;
    let mut measured = tx.measured().await?;
    let is_measured = |pool: &PoolName| catalog.pool(pool).is_some_and(|spec| spec.capacity == Some(Capacity::Nodes));
    let new: Measured = capacities
        .iter()
        .filter(|(pool, capacity)| is_measured(pool) && measured.get(*pool) != Some(*capacity))
        .map(|(pool, capacity)| (pool.clone(), *capacity))
        .collect();
    if new.is_empty() {
        return Ok(Done::Same(()));
    }
    measured.extend(new.clone());
    let mut limits = derive(&catalog, &measured, &[].into())?;
    limits.retain(|key, _| key.kind == ScopeKind::Pool && new.keys().any(|pool| pool.as_str() == &*key.name));
    tx.set_limits(&limits.into_iter().collect::<Vec<_>>()).await?;
    let now_ms = tx.now_ms().await?;
    for (pool, capacity) in &new {
        tx.execute(sql::CAPACITY_WRITE, args![to_json(capacity)?, now_ms, pool.as_str()]).await?;
    }
    Ok(Done::Write(()))
}
