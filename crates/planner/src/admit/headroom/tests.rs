//! How many equal requests are granted, counted and one by one.
#![allow(clippy::unwrap_used)]

use model::fit::{NodeAmount, NodeCapacity, Pods};
use model::ledger::{Amounts, Holder, PoolCapacity, Request as Reserve, Scope};
use model::name::{PoolName, TenantName, UnitName};
use model::number::{Epoch, Incarnation};
use model::quota::Guarantee;
use model::resource::Triple;
use proptest::prelude::*;

use super::super::impossible;
use super::*;

const AT: Moment = Moment { now_ms: 9, epoch: Epoch(1) };

const fn of_cpu<T: Copy>(cpu_m: T, other: T) -> Triple<T> {
    Triple { cpu_m, memory: other, engines: other }
}

/// A pool of this CPU with one tenant, which may have a guarantee, and with nodes of so many CPU; an unknown one if there is none.
fn headroom(capacity: Limit, guarantee: Option<i64>, nodes: &[u64]) -> Headroom {
    let (tenant, pool) = (TenantName::new("t_1").unwrap(), PoolName::new("rp_1").unwrap());
    let guarantee = guarantee.map(|amount| Guarantee { amount, borrow: Limit::Of(5), lend: Limit::Of(1) });
    let guarantee = of_cpu(guarantee, None);
    let capacity =
        PoolCapacity { capacity: of_cpu(capacity, Limit::Unlimited), protected: Amount::ZERO, overcommit_percent: 150 };
    let mut ledger = Ledger::default();
    ledger.put_scope(ScopeKey::pool(&pool), capacity.scope(&[guarantee]).unwrap());
    ledger.put_scope(ScopeKey::tenant(&tenant, &pool), Scope::tenant(&guarantee));
    let name = |number: usize| format!("node-{number}");
    let known = nodes.iter().enumerate().map(|(number, cpu_millis)| NodeCapacity {
        name: name(number),
        allocatable: NodeAmount { cpu_millis: *cpu_millis, memory_bytes: 99 },
        used: NodeAmount::ZERO,
        open: true,
    });
    let names = (0..nodes.len().max(1)).map(name).collect();
    Headroom { ledger, nodes: Nodes::new(known, [("rp_1".to_owned(), names)]), ..Headroom::default() }
}

/// An engine of this CPU with so many executors.
fn request(number: usize, cpu: u64, executors: u32, incarnation: Incarnation) -> Request {
    let all = i64::try_from(cpu * (1 + u64::from(executors))).unwrap();
    let (tenant, pool) = (TenantName::new("t_1").unwrap(), PoolName::new("rp_1").unwrap());
    let pod = NodeAmount { cpu_millis: cpu, memory_bytes: 1 };
    let reservation = Reserve {
        id: format!("e{number}").into(),
        holder: Holder::Engine { unit: UnitName::new("uc_1").unwrap(), incarnation },
        lineage: format!("l{number}").into(),
        scopes: Scopes::new(&tenant, &pool, None, None),
        amounts: Amounts::same(Amount { cpu_m: all, memory: 0, engines: 1 }).unwrap(),
        asked: None,
        ttl_ms: None,
    };
    let pods = Some(Pods { driver: pod, executor: pod, executors });
    Request { reservation: Arc::new(reservation), replaces: None, priority: 0, asked_at_ms: 0, pods }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn as_many_are_grantable_as_are_granted_one_by_one(
        capacity in prop_oneof![Just(Limit::Unlimited), (0..40i64).prop_map(Limit::Of)],
        guarantee in proptest::option::of(0..20i64), nodes in proptest::collection::vec(1..12u64, 0..4),
        cpu in 0..5u64, executors in 0..3u32, most in 0..12u64,
    ) {
        let mut headroom = headroom(capacity, guarantee, &nodes);
        let unplaced = request(0, cpu, executors, Incarnation::UNDRAWN);
        if impossible(&unplaced, &headroom, AT.now_ms).is_some() {
            return Ok(());
        }
        let mut one_by_one = headroom.clone();
        let granted = (0..most as usize)
            .take_while(|number| one_by_one.grant(&request(*number, cpu, executors, Incarnation(1)), AT).is_ok())
            .count();
        prop_assert_eq!(headroom.grantable(&unplaced, most, AT), granted as u64);
        prop_assert_eq!(headroom.grantable(&unplaced, most, AT), granted as u64, "it has changed nothing");
    }
}
