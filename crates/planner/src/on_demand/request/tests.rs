//! Requests without slots equal those that the slots would have.
#![allow(clippy::unwrap_used)]

use model::catalog::{Catalog, PoolSpec, Versioned};
use model::change::UnitPatch;
use model::configuration::Defaults;
use model::engine_type::EngineType;
use model::instance::InstanceKind;
use model::ledger::{PoolCapacity, Scope};
use model::name::{PoolName, TenantName, UnitName};
use model::number::Generation;
use model::quota::Limit;
use model::resource::{Amount, Triple};
use model::slot::{Origin, Replacement, Slot};
use proptest::prelude::*;

use super::*;

fn link() -> Link {
    Link {
        tenant: TenantName::new("t_1").unwrap(),
        pool: PoolName::new("rp_1").unwrap(),
        unit: UnitName::new("uc_1").unwrap(),
    }
}

fn desired(
    (engine_type, instances): (EngineType, InstanceKind),
    (executors, cpu_overcommit): (u32, Option<u32>),
    (pool_limit, user_limit): (Limit, Limit),
) -> DesiredState {
    let mut catalog = Catalog::default();
    let versioned_unit = {
        let mut spec = UnitPatch::default().create(&Defaults::default()).unwrap();
        (spec.engine_type, spec.max_executors) = (engine_type, executors);
        Versioned { spec, generation: Generation(1) }
    };
    catalog.units.insert(link().unit, versioned_unit);
    let spec = PoolSpec { cpu_overcommit, units: vec![link().unit], ..PoolSpec::default() };
    catalog.pools.insert(link().pool, Versioned { spec, generation: Generation(1) });
    let mut desired = DesiredState::default();
    desired.defaults.instances = instances;
    desired.snapshot.now_ms = 9;
    desired.snapshot.catalog = catalog;
    let ledger = &mut desired.snapshot.ledger;
    ledger.put_scope(ScopeKey::user("ann"), Scope::principal(Triple::all(user_limit)));
    let pool = PoolCapacity { capacity: Triple::all(pool_limit), protected: Amount::ZERO, overcommit_percent: 100 };
    ledger.put_scope(ScopeKey::pool(&link().pool), pool.scope(&[]).unwrap());
    desired
}

/// The request of a slot with this ordinal before its incarnation is drawn.
fn of_slot(
    desired: &DesiredState,
    ordinal: u32,
    started_for: Option<&StartedFor>,
) -> Option<(Arc<ledger::Request>, Pods)> {
    let Link { tenant, pool, unit } = link();
    let key = SlotKey { tenant, pool, unit, ordinal };
    let slot = Slot {
        key: key.clone(),
        incarnation: Incarnation::UNDRAWN,
        origin: Origin::Demand,
        failures: 0,
        replacement: Replacement::StandIn,
        born: Incarnation::UNDRAWN,
        started_for: started_for.cloned(),
        owner: None,
        asked_at_ms: desired.snapshot.now_ms,
    };
    engine_request::of_engine(desired, &key, Incarnation::UNDRAWN, Some(&slot))
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![Just(Limit::Unlimited), Just(Limit::Of(7))]
}

proptest! {
    #[test]
    fn a_request_without_a_slot_equals_that_of_the_slot(
        engine_type in prop_oneof![Just(EngineType::Datafusion), Just(EngineType::Spark)],
        instances in prop_oneof![Just(InstanceKind::Process), Just(InstanceKind::Pod)],
        executors in 0..4_u32, cpu_overcommit in proptest::option::of(100..300_u32),
        limits in (limit(), limit()), ordinal in UNPLACED..UNPLACED + 20, has_user in any::<bool>(),
    ) {
        let desired = desired((engine_type, instances), (executors, cpu_overcommit), limits);
        let user = StartedFor { user: "ann".to_owned(), creator: "IDE".to_owned() };
        let user = has_user.then_some(&user);
        let of_tenant = UnplacedEngine::new(&desired, &link()).unwrap();
        let engine = user.map_or(of_tenant.clone(), |user| of_tenant.started_for(&desired, user));
        let expected = of_slot(&desired, ordinal, user).unwrap();
        prop_assert_eq!(engine.requests(UNPLACED..ordinal + 1).last(), Some(expected.0));
        prop_assert_eq!(engine.pods, expected.1);
    }
}

#[test]
fn a_link_without_a_unit_has_no_request() {
    let mut desired = DesiredState::default();
    assert!(UnplacedEngine::new(&desired, &link()).is_none());
    desired
        .snapshot
        .catalog
        .pools
        .insert(link().pool, Versioned { spec: PoolSpec::default(), generation: Generation(1) });
    assert!(UnplacedEngine::new(&desired, &link()).is_none());
}
