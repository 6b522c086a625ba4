//! Links, pools and demand to assign.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use model::demand::{Demand, DemandKey, ScalingGroup};
use model::engine_type::EngineType;
use model::ledger::Counter;
use model::name::{PoolName, TenantName, UnitName};
use model::owner::SharedBy;
use model::resource::Amount;
use model::slot::Link;

use crate::choose::rules::Rules;
use crate::choose::{Assignment, LinkState, PoolCondition, PoolState, rounds};

pub(super) const NOW_MS: i64 = 1_000_000;
pub(super) const SEATS: u64 = 4;

/// What [`choose()`](crate::choose()) decides from.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub demand: Vec<Demand>,
    pub links: Vec<LinkState>,
    pub pools: BTreeMap<PoolName, PoolState>,
}

impl State {
    pub fn chosen_by(&self, rules: &dyn Rules) -> Assignment {
        rounds::choose(rules, &self.demand, &self.links, &self.pools, NOW_MS)
    }
}

pub(super) fn pool_name(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

/// A link that may start engines without limits, and has none.
pub(super) fn link(pool: &str, unit: &str) -> LinkState {
    LinkState {
        link: Link {
            tenant: TenantName::new("t_1").unwrap(),
            pool: pool_name(pool),
            unit: UnitName::new(unit).unwrap(),
        },
        engine_type: EngineType::Spark,
        version: Some("3.5.1".to_owned()),
        shared_by: SharedBy::Tenant,
        starts_on_demand: true,
        can_ever_fit: true,
        below_max: 1_000,
        admissible: u64::MAX,
        engine: Amount { cpu_m: 1_000, memory: 1, engines: 1 },
        seats: NonZeroU64::new(SEATS).unwrap(),
        groups: BTreeMap::new(),
    }
}

/// An open pool without limits.
pub(super) const fn pool() -> PoolState {
    PoolState { condition: PoolCondition::Open, counter: Counter::UNLIMITED, grown_at_ms: None }
}

/// A key that names the tenant only.
pub(super) fn key() -> DemandKey {
    DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "default")
}

/// Demand with a lease that has not ended.
pub(super) fn demand(key: DemandKey, waiting: u64) -> Demand {
    Demand { key, waiting, since_ms: NOW_MS - 1_000, until_ms: NOW_MS + 1 }
}

/// The group without an owner.
pub(super) fn group(pool: &str, unit: &str) -> ScalingGroup {
    ScalingGroup { link: link(pool, unit).link, owner: None }
}
