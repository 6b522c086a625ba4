//! The capacities of pools with `CAPACITY NODES`: which of them differ from what the ledger has, and are due.
//!
//! Usage on a cordoned node changes with every engine that ends there, so the changes of one pool are recorded at most every
//! ten seconds. A pool that has not been recorded in this term is recorded at once, whatever other pools do: it may be new,
//! and a pool grants nothing until its capacity is known.

use std::collections::BTreeMap;
use std::time::Duration;

use model::capacity::of_nodes;
use model::catalog::PoolSpec;
use model::ledger::{Scope, ScopeKey};
use model::name::PoolName;
use model::observation::ObservedNode;
use model::quota::{Capacity, Limit, pool_limit};
use model::resource::{MAX_AMOUNT, Triple};
use model::snapshot::Snapshot;

/// The minimum time between two records of the capacity of one pool.
const INTERVAL: Duration = Duration::from_secs(10);

/// When the capacity of each pool was last recorded in this term.
#[derive(Debug, Default)]
pub(crate) struct NodeCapacities(BTreeMap<PoolName, Duration>);

impl NodeCapacities {
    /// The capacities to record now, in requests. Without any node the orchestrator has none or could not read them: the
    /// last capacities remain.
    pub fn due(
        &mut self,
        snapshot: &Snapshot,
        nodes: &[ObservedNode],
        now: Duration,
    ) -> BTreeMap<PoolName, Triple<Limit>> {
        let pools = &snapshot.catalog.pools;
        let of_nodes = |spec: &PoolSpec| spec.capacity == Some(Capacity::Nodes);
        // A pool whose capacity was something else meanwhile is recorded at once.
        self.0.retain(|pool, _| pools.get(pool).is_some_and(|pool| of_nodes(&pool.spec)));
        if nodes.is_empty() {
            return BTreeMap::new();
        }
        let is_due = |pool: &PoolName| self.0.get(pool).is_none_or(|last| now.saturating_sub(*last) >= INTERVAL);
        let measured = pools.iter().filter(|(name, pool)| of_nodes(&pool.spec) && is_due(name)).map(|(name, pool)| {
            let capacity = measure(&pool.spec, nodes);
            let row = snapshot.ledger.scope(&ScopeKey::pool(name));
            (name, capacity, row.is_some_and(|row| !has(row, &pool.spec, &capacity)))
        });
        measured.filter(|(.., differs)| *differs).map(|(name, capacity, _)| (name.clone(), capacity)).collect()
    }

    /// The capacities of these pools were recorded.
    pub fn recorded(&mut self, pools: Vec<PoolName>, now: Duration) {
        self.0.extend(pools.into_iter().map(|pool| (pool, now)));
    }
}

/// What the nodes of the pool can take, in requests. Nodes do not limit the number of engines.
fn measure(spec: &PoolSpec, nodes: &[ObservedNode]) -> Triple<Limit> {
    let amount = of_nodes(spec, nodes);
    let limit = |amount: u64| Limit::Of(i64::try_from(amount).unwrap_or(MAX_AMOUNT).min(MAX_AMOUNT));
    Triple { cpu_m: limit(amount.cpu_millis), memory: limit(amount.memory_bytes), engines: Limit::Unlimited }
}

/// Whether the pool is open with the limits of this capacity.
fn has(row: &Scope, spec: &PoolSpec, capacity: &Triple<Limit>) -> bool {
    let limit = Triple::from_fn(|component| {
        pool_limit(capacity.get(component), spec.protected.get(component).unwrap_or_default())
    });
    row.is_open && row.counter.limit == limit
}
