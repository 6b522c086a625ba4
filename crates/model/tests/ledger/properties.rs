//! Properties of random sequences of operations.
//!
//! A failure prints the operations, and proptest the seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ledger::{
    Actual, Amounts, Change, Claim, Confirmation, Counter, End, Ledger, PoolCapacity, Refusal, Request, Reservation,
    Role, Scope, ScopeKey, Scopes, State,
};
use model::quota::{Guarantee, Limit};
use model::resource::{Amount, Component, Resource, Triple};
use proptest::prelude::*;

use crate::sample::{at, claim, engine, external, ledger, pool, pool_name, tenant, tenant_name};

const TENANTS: [&str; 3] = ["t_a", "t_b", "t_c"];
const USERS: [&str; 2] = ["alice", "bob"];

#[derive(Debug, Clone)]
enum Operation {
    Change(Change),
    Limits(ScopeKey, Scope),
}

fn amounts() -> impl Strategy<Value = Amounts> {
    (0..7i64, 0..7i64, 0..3i64, 0..7i64).prop_map(|(cpu_m, memory, engines, request)| {
        Amounts::new(Amount { cpu_m, memory, engines }, request.min(cpu_m), memory).unwrap()
    })
}

/// Four lineages of engines, each of its own tenant, user and creator, with four incarnations; six programs.
fn request() -> impl Strategy<Value = Request> {
    let engines = (0..4usize, 1..5i64, amounts()).prop_map(|(lineage, incarnation, amounts)| {
        let tenant = TENANTS[lineage % 3];
        let user = (lineage > 1).then(|| USERS[lineage % 2]);
        let scopes = Scopes::new(&tenant_name(tenant), &pool_name("rp_1"), user, user.map(|_| "IDE"));
        Request { scopes, ..engine(tenant, &format!("l{lineage}"), incarnation, amounts) }
    });
    let programs =
        (0..6usize, amounts()).prop_map(|(at, amounts)| external(&format!("x{at}"), Some(USERS[at % 2]), amounts));
    prop_oneof![3 => engines, 2 => programs]
}

fn claims() -> impl Strategy<Value = Claim> {
    (request(), 0..2u8).prop_map(|(request, uid)| claim(&request, &format!("u{uid}")))
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![1 => Just(Limit::Unlimited), 3 => (0..40i64).prop_map(Limit::Of)]
}

fn limits() -> impl Strategy<Value = Triple<Limit>> {
    (limit(), limit(), limit()).prop_map(|(cpu_m, memory, engines)| Triple { cpu_m, memory, engines })
}

fn guarantees() -> impl Strategy<Value = Triple<Option<Guarantee>>> {
    let one = || {
        let guarantee =
            (0..15i64, limit(), limit()).prop_map(|(amount, borrow, lend)| Guarantee { amount, borrow, lend });
        prop::option::of(guarantee)
    };
    (one(), one(), one()).prop_map(|(cpu_m, memory, engines)| Triple { cpu_m, memory, engines })
}

fn capacities() -> impl Strategy<Value = PoolCapacity> {
    (limits(), 100..300u32).prop_map(|(capacity, overcommit_percent)| PoolCapacity {
        capacity,
        protected: Amount { cpu_m: 1, ..Amount::ZERO },
        overcommit_percent,
    })
}

fn alteration() -> impl Strategy<Value = (ScopeKey, Scope)> {
    prop_oneof![
        (0..3usize, guarantees()).prop_map(|(at, guarantee)| (tenant(TENANTS[at]), Scope::tenant(&guarantee))),
        (0..2usize, limits()).prop_map(|(at, limits)| (ScopeKey::user(USERS[at]), Scope::principal(limits))),
        (capacities(), prop::collection::vec(guarantees(), 3))
            .prop_map(|(capacity, guarantees)| (pool(), capacity.scope(&guarantees).unwrap())),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let ended = prop::sample::select(vec![State::Released, State::Lost, State::Expired, State::Cancelled, State::Used]);
    let requests = || request().prop_map(Arc::new);
    prop_oneof![
        8 => requests().prop_map(Change::Reserve),
        2 => (requests(), 0..30i64).prop_map(|(request, wait_ms)| Change::Enqueue { request, wait_ms }),
        2 => request().prop_map(|request| Change::Admit { id: request.id }),
        2 => requests().prop_map(|request| Change::Adopt { request, uid: "u0".into() }),
        3 => (requests(), 1..5i64).prop_map(|(request, from)| {
            Change::Transfer { from: format!("{}-{from}", request.lineage).into(), request }
        }),
        4 => (claims(), prop::option::of(amounts())).prop_map(|(claim, amounts)| {
            let actual = amounts.map(|amounts| Actual { resource: Resource::Cpu { cpu_m: 1 }, amounts });
            Change::Confirm(Confirmation { claim, actual, lease_ms: Some(20) })
        }),
        1 => claims().prop_map(|claim| Change::Renew { claim, lease_ms: 30 }),
        3 => claims().prop_map(Change::Release),
        1 => request().prop_map(|request| Change::Cancel { id: request.id }),
        4 => (request(), ended).prop_map(|(request, state)| {
            Change::End(End { id: request.id, state, reason: "random".into() })
        }),
        2 => request().prop_map(|request| Change::Expire { id: request.id }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        16 => change().prop_map(Operation::Change),
        1 => alteration().prop_map(|(key, scope)| Operation::Limits(key, scope)),
    ]
}

impl Operation {
    fn run(&self, ledger: &mut Ledger, now_ms: i64) -> Result<Option<Arc<Reservation>>, Refusal> {
        match self {
            Self::Change(change) => ledger.apply(change, at(now_ms)).map(Some),
            Self::Limits(key, scope) => ledger.set_limits(key, scope).map(|()| None),
        }
    }

    /// Whether its success means that the limits allow what it charged.
    fn is_grant(&self) -> bool {
        matches!(self, Self::Change(Change::Reserve(_) | Change::Admit { .. } | Change::Transfer { .. }))
    }
}

fn scopes(ledger: &Ledger) -> BTreeMap<ScopeKey, Scope> {
    ledger.scopes().map(|(key, scope)| (key.clone(), *scope)).collect()
}

fn reservations(ledger: &Ledger) -> Vec<Arc<Reservation>> {
    ledger.reservations().cloned().collect()
}

fn counters(scope: &Scope) -> Vec<Counter> {
    match &scope.role {
        Role::Pool(row) => vec![scope.counter, row.shared, row.unguaranteed],
        Role::Principal | Role::Tenant(_) => vec![scope.counter],
    }
}

/// I1, computed from the definition and not by the ledger's own audit.
fn is_counted(ledger: &Ledger) {
    let all = reservations(ledger);
    let charged = || all.iter().filter(|reservation| reservation.state.is_charged());
    for (key, scope) in ledger.scopes() {
        for component in Component::ALL {
            let mut lineages: BTreeMap<&str, i64> = BTreeMap::new();
            let mut requests = 0;
            for reservation in charged() {
                let request = &reservation.request;
                if request.scopes.policy().any(|scope| scope == key) {
                    let most = lineages.entry(&request.lineage).or_default();
                    *most = (*most).max(reservation.amounts.nominal().get(component));
                }
                requests += reservation.amounts.requests().get(component);
            }
            let expected = if *key == pool() { requests } else { lineages.values().sum() };
            assert_eq!(scope.counter.held.get(component), expected, "{key}: {component:?}");
        }
    }
    let tenants: Vec<&Scope> =
        ledger.scopes().filter(|(key, _)| key.tenant_and_pool().is_some()).map(|(_, scope)| scope).collect();
    for component in Component::ALL {
        let row = ledger.scope(&pool()).unwrap().pool_component(component).unwrap();
        let of = |tenant: &&Scope| tenant.tenant_component(component);
        assert_eq!(row.shared_held, tenants.iter().map(|tenant| of(tenant).shared_held()).sum::<i64>());
        let unguaranteed = tenants.iter().map(of).filter(|tenant| tenant.guarantee.is_none()).map(|tenant| tenant.held);
        assert_eq!(row.unguaranteed_held, unguaranteed.sum::<i64>());
    }
}

/// I2: nothing was raised above its limit.
fn is_within_limits(before: &BTreeMap<ScopeKey, Scope>, after: &BTreeMap<ScopeKey, Scope>) {
    for (key, scope) in after {
        for (old, new) in counters(&before[key]).iter().zip(counters(scope)) {
            for component in Component::ALL {
                let (old, held) = (old.held.get(component), new.held.get(component));
                assert!(held <= old || new.limit.get(component).allows(held), "{key}: {component:?}");
            }
        }
    }
}

fn is_nowhere_negative(scopes: &BTreeMap<ScopeKey, Scope>) {
    for (key, scope) in scopes {
        for counter in counters(scope) {
            assert!(Component::ALL.into_iter().all(|component| counter.held.get(component) >= 0), "{key}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_operation_keeps_the_sums_the_limits_and_is_repeatable(
        capacity in capacities(), quotas in prop::collection::vec(guarantees(), 3),
        of_principals in prop::collection::vec(limits(), 3),
        operations in prop::collection::vec((operation(), 0..8i64), 1..80),
    ) {
        let tenants: Vec<_> = TENANTS.into_iter().zip(quotas).collect();
        let mut ledger = ledger(capacity, &tenants);
        let principals = [ScopeKey::user("alice"), ScopeKey::user("bob"), ScopeKey::creator("IDE")];
        for (key, limits) in principals.into_iter().zip(of_principals) {
            ledger.put_scope(key, Scope::principal(limits));
        }
        let mut now_ms = 0;
        for (operation, later) in operations {
            now_ms += later;
            let (before, rows) = (scopes(&ledger), reservations(&ledger));
            match operation.run(&mut ledger, now_ms) {
                Ok(first) => {
                    if operation.is_grant() {
                        is_within_limits(&before, &scopes(&ledger));
                    }
                    let after = (scopes(&ledger), reservations(&ledger));
                    let again = operation.run(&mut ledger, now_ms);
                    prop_assert_eq!(again, Ok(first), "a repeat of {:?}", operation);
                    prop_assert_eq!((scopes(&ledger), reservations(&ledger)), after);
                }
                Err(refusal) => {
                    prop_assert_eq!(scopes(&ledger), before, "{:?}: {:?}", operation, refusal);
                    prop_assert_eq!(reservations(&ledger), rows);
                }
            }
            is_nowhere_negative(&scopes(&ledger));
            is_counted(&ledger);
            prop_assert_eq!(ledger.drifts().unwrap(), Vec::new());
        }
    }

    #[test]
    fn a_request_is_granted_exactly_if_it_is_short_of_nothing(
        capacity in capacities(), quotas in prop::collection::vec(guarantees(), 3),
        requests in prop::collection::vec(request(), 1..20),
    ) {
        let tenants: Vec<_> = TENANTS.into_iter().zip(quotas).collect();
        let mut ledger = ledger(capacity, &tenants);
        for key in [ScopeKey::user("alice"), ScopeKey::user("bob"), ScopeKey::creator("IDE")] {
            ledger.put_scope(key, Scope::principal(Triple::all(Limit::Of(9))));
        }
        for request in requests {
            if ledger.of_key(&request).is_some() {
                continue;
            }
            let (shortages, impossible) = (ledger.shortages(&request, 1).unwrap(), ledger.impossible(&request, 1));
            let granted = ledger.clone().reserve(&Arc::new(request.clone()), at(1));
            prop_assert_eq!(granted.is_ok(), shortages.is_empty() && impossible.is_none(), "{:?}", shortages);
            if let Some(shortage) = &impossible {
                prop_assert!(!shortage.is_retryable);
            }
            if shortages.is_empty() && impossible.is_none() {
                ledger.reserve(&Arc::new(request), at(1)).unwrap();
            }
        }
    }

    #[test]
    fn equal_requests_are_counted_and_charged_as_they_are_granted_one_by_one(
        capacity in capacities(), quotas in prop::collection::vec(guarantees(), 3),
        of_principals in prop::collection::vec(limits(), 3),
        operations in prop::collection::vec(operation(), 0..20),
        of_engine in (0..3usize, any::<bool>(), amounts()), most in 0..12u64,
    ) {
        let tenants: Vec<_> = TENANTS.into_iter().zip(quotas).collect();
        let mut ledger = ledger(capacity, &tenants);
        let principals = [ScopeKey::user("alice"), ScopeKey::user("bob"), ScopeKey::creator("IDE")];
        for (key, limits) in principals.into_iter().zip(of_principals) {
            ledger.put_scope(key, Scope::principal(limits));
        }
        for operation in operations {
            let _ = operation.run(&mut ledger, 1);
        }
        let (tenant, has_user, amounts) = (TENANTS[of_engine.0], of_engine.1, of_engine.2);
        let user = has_user.then_some("alice");
        let scopes_of = Scopes::new(&tenant_name(tenant), &pool_name("rp_1"), user, user.map(|_| "IDE"));
        let request = |number: u64| {
            Request { scopes: scopes_of.clone(), ..engine(tenant, &format!("new{number}"), 0, amounts) }
        };
        let counted = ledger.grantable(&request(0), most, at(1));
        let (mut one_by_one, mut unplaced) = (ledger.clone(), ledger);
        let mut granted = 0;
        while granted < most {
            let is_possible = one_by_one.impossible(&request(granted), 1).is_none();
            let reserved = one_by_one.reserve(&Arc::new(request(granted)), at(1)).map(drop);
            if is_possible {
                prop_assert_eq!(&unplaced.charge_unplaced(&request(granted), at(1)), &reserved);
            }
            prop_assert_eq!(scopes(&unplaced), scopes(&one_by_one));
            if reserved.is_err() {
                break;
            }
            granted += 1;
        }
        prop_assert_eq!(counted, granted);
    }
}
