//! The scopes that follow from a catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::catalog::{Catalog, PoolSpec, TenantSpec, Versioned};
use model::ledger::{Ledger, Measured, Role, Scope, ScopeKey, changed, derive, principal};
use model::name::QuotaName;
use model::number::Generation;
use model::quota::{
    Capacity, DeclaredAmount, Limit, Principal, PrincipalQuota, QuotaScope, QuotaSpec, TenantQuota, TransferLimit,
};
use model::resource::{Amount, Triple};
use proptest::prelude::*;

use crate::sample::{UNLIMITED, at, cores, cpu, engine, pool_name, tenant_name};

fn versioned<T>(spec: T) -> Versioned<T> {
    Versioned { spec, generation: Generation(1) }
}

fn declared(cpu: i64) -> DeclaredAmount {
    DeclaredAmount { cpu: Some(format!("{cpu}m").parse().unwrap()), ..DeclaredAmount::default() }
}

/// Tenants that use pool `rp_1`, which has this capacity.
fn catalog(capacity: Option<Capacity>, tenants: &[&str]) -> Catalog {
    let pool = PoolSpec { capacity, ..PoolSpec::default() };
    let tenant = || versioned(TenantSpec { pools: vec![pool_name("rp_1")], ..TenantSpec::default() });
    Catalog {
        pools: [(pool_name("rp_1"), versioned(pool))].into(),
        tenants: tenants.iter().map(|name| (tenant_name(name), tenant())).collect(),
        ..Catalog::default()
    }
}

fn put(catalog: &mut Catalog, name: &str, scope: QuotaScope) {
    catalog.quotas.insert(QuotaName::new(name).unwrap(), versioned(QuotaSpec { scope, comment: None }));
}

fn of_tenant(tenant: &str, guarantee: i64, borrow_limit: TransferLimit, lend_limit: TransferLimit) -> QuotaScope {
    let (tenant, pool) = (tenant_name(tenant), pool_name("rp_1"));
    QuotaScope::Tenant(TenantQuota {
        tenant,
        pool,
        guarantee: declared(guarantee),
        borrow_limit,
        lend_limit,
        weight: 1,
    })
}

fn of_user(name: Principal, cpu: i64) -> QuotaScope {
    QuotaScope::User(PrincipalQuota { name, limit: declared(cpu) })
}

fn all(catalog: &Catalog) -> BTreeMap<ScopeKey, Scope> {
    derive(catalog, &Measured::new(), &BTreeSet::new()).unwrap()
}

#[test]
fn a_catalog_without_quotas_limits_nothing() {
    let scopes = all(&catalog(None, &["t_a", "t_b"]));
    let keys: Vec<String> = scopes.keys().map(ToString::to_string).collect();
    assert_eq!(
        keys,
        [
            "tenant \"t_a\" on resource pool \"rp_1\"",
            "tenant \"t_b\" on resource pool \"rp_1\"",
            "resource pool \"rp_1\""
        ]
    );
    assert!(scopes.values().all(|scope| scope.is_open && scope.counter.limit == UNLIMITED));
}

/// R4-14: the fixture of 42 CPU with guarantees of 18, 12 and 12, in which a guarantee cannot be exceeded.
#[test]
fn guarantees_of_18_12_and_12_partition_42_cpu() {
    let mut catalog = catalog(Some(Capacity::Amount(declared(42_000))), &["t_a", "t_b", "t_c", "t_d"]);
    for (tenant, guarantee) in [("t_a", 18_000), ("t_b", 12_000), ("t_c", 12_000)] {
        let quota = of_tenant(tenant, guarantee, TransferLimit::None, TransferLimit::Unlimited);
        put(&mut catalog, &format!("q_{tenant}"), quota);
    }
    let mut ledger = Ledger::new(all(&catalog), []);
    let ask = |tenant: &str, at: i64| Arc::new(engine(tenant, &format!("{tenant}/{at}"), 1, cores(1_000)));
    let mut granted = BTreeMap::new();
    for number in 0..20 {
        for tenant in ["t_d", "t_c", "t_b", "t_a"] {
            let is_granted = ledger.reserve(&ask(tenant, number), at(1)).is_ok();
            *granted.entry(tenant).or_insert(0) += i32::from(is_granted);
        }
    }
    assert_eq!(granted, [("t_a", 18), ("t_b", 12), ("t_c", 12), ("t_d", 0)].into());
}

#[test]
fn a_pool_of_unknown_capacity_is_closed_until_it_is_measured() {
    for capacity in [Capacity::Nodes, Capacity::Registered] {
        let catalog = catalog(Some(capacity), &["t_a"]);
        let key = ScopeKey::pool(&pool_name("rp_1"));
        assert!(!all(&catalog)[&key].is_open);
        let measured = Measured::from([(pool_name("rp_1"), cpu(8_000))]);
        let scope = derive(&catalog, &measured, &BTreeSet::new()).unwrap()[&key];
        assert!(scope.is_open);
        assert_eq!(scope.counter.limit.cpu_m, Limit::Of(8_000));
    }
}

#[test]
fn the_limit_of_default_is_that_of_each_user_without_a_quota() {
    let mut catalog = catalog(None, &["t_a"]);
    put(&mut catalog, "q_alice", of_user(Principal::Named("alice".to_owned()), 8_000));
    put(&mut catalog, "q_users", of_user(Principal::Default, 2_000));
    let existing = BTreeSet::from([ScopeKey::user("alice"), ScopeKey::user("bob"), ScopeKey::creator("IDE")]);
    let scopes = derive(&catalog, &Measured::new(), &existing).unwrap();
    for (key, limit) in [
        (ScopeKey::user("alice"), cpu(8_000)),
        (ScopeKey::user("bob"), cpu(2_000)),
        (ScopeKey::creator("IDE"), UNLIMITED),
    ] {
        assert_eq!(scopes[&key].counter.limit, limit, "{key}");
        assert_eq!(principal(&catalog, &key), Some(scopes[&key]), "{key}");
    }
    assert_eq!(principal(&catalog, &ScopeKey::user("carol")).unwrap().counter.limit, cpu(2_000));
    assert_eq!(principal(&catalog, &ScopeKey::pool(&pool_name("rp_1"))), None);
}

#[test]
fn the_scopes_of_objects_that_are_gone_are_closed() {
    let before = all(&catalog(None, &["t_a", "t_b"]));
    let existing: BTreeSet<ScopeKey> = before.keys().cloned().collect();
    let after = derive(&catalog(None, &["t_a"]), &Measured::new(), &existing).unwrap();
    let gone = ScopeKey::tenant(&tenant_name("t_b"), &pool_name("rp_1"));
    let closed = Scope { is_open: false, ..before[&gone] };
    assert_eq!(changed(&before, after), [(gone, closed)]);
    let after = derive(&Catalog::default(), &Measured::new(), &existing).unwrap();
    assert!(after.len() == 3 && after.values().all(|scope| !scope.is_open));
}

/// A tenant's quota: guarantee, borrow limit and lend limit in cores, or none.
type Quota = Option<(i64, Option<i64>, Option<i64>)>;

fn limit() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![Just(None), (0..20i64).prop_map(Some)]
}

fn quota() -> impl Strategy<Value = Quota> {
    prop_oneof![Just(None), (0..20i64, limit(), limit()).prop_map(Some)]
}

fn with_quotas(capacity: i64, quotas: &[Quota], is_linked: &[bool]) -> Catalog {
    let names = ["t_a", "t_b", "t_c"];
    let linked: Vec<&str> =
        names.iter().zip(is_linked).filter_map(|(name, is_linked)| is_linked.then_some(*name)).collect();
    let mut catalog = catalog(Some(Capacity::Amount(declared(capacity * 1_000))), &linked);
    for (tenant, quota) in names.iter().zip(quotas) {
        let Some((guarantee, borrow, lend)) = quota else { continue };
        let limit = |limit: &Option<i64>| match limit {
            Some(0) => TransferLimit::None,
            Some(cores) => TransferLimit::Amount(declared(cores * 1_000)),
            None => TransferLimit::Unlimited,
        };
        put(&mut catalog, &format!("q_{tenant}"), of_tenant(tenant, guarantee * 1_000, limit(borrow), limit(lend)));
    }
    catalog
}

proptest! {
    /// An alteration that writes only the changed scopes leaves the ledger as if all had been derived from the catalog, with
    /// every sum equal to its recount.
    #[test]
    fn an_alteration_that_writes_the_difference_leaves_no_drift(
        capacities in [1..60i64, 1..60i64],
        quotas in prop::array::uniform6(quota()),
        links in prop::array::uniform3(any::<bool>()),
        held in prop::collection::vec((0..3usize, 1..9i64), 0..12),
    ) {
        let before = with_quotas(capacities[0], &quotas[..3], &[true; 3]);
        let after = with_quotas(capacities[1], &quotas[3..], &links);
        let scopes = all(&before);
        let mut ledger = Ledger::new(scopes.clone(), []);
        for (at_lineage, (tenant, size)) in held.iter().enumerate() {
            let tenant = ["t_a", "t_b", "t_c"][*tenant];
            let request = Arc::new(engine(tenant, &at_lineage.to_string(), 1, cores(size * 1_000)));
            ledger.adopt(&request, "uid", at(1)).unwrap();
        }
        let existing: BTreeSet<ScopeKey> = scopes.keys().cloned().collect();
        let derived = derive(&after, &Measured::new(), &existing).unwrap();
        let difference = changed(&scopes, derived.clone());
        for (key, scope) in difference.iter().rev() {
            ledger.set_limits(key, scope).unwrap();
        }
        prop_assert_eq!(ledger.drifts().unwrap(), []);
        for (key, expected) in derived {
            let scope = ledger.scope(&key).unwrap();
            prop_assert_eq!(scope.is_open, expected.is_open);
            prop_assert_eq!(scope.counter.limit, expected.counter.limit);
            match (scope.role, expected.role) {
                (Role::Pool(row), Role::Pool(expected)) => {
                    prop_assert_eq!(row.shared.limit, expected.shared.limit);
                    prop_assert_eq!(row.unguaranteed.limit, expected.unguaranteed.limit);
                }
                (role, expected) => prop_assert_eq!(role, expected),
            }
        }
        let total: i64 = held.iter().map(|(_, size)| size * 1_000).sum();
        let of_pool = ledger.scope(&ScopeKey::pool(&pool_name("rp_1"))).unwrap().counter.held;
        prop_assert_eq!(of_pool, Amount { cpu_m: total, memory: 0, engines: held.len() as i64 });
    }
}

#[test]
fn components_that_no_quota_names_are_unlimited() {
    let mut catalog = catalog(Some(Capacity::Amount(declared(42_000))), &["t_a"]);
    put(&mut catalog, "q_a", of_tenant("t_a", 18_000, TransferLimit::None, TransferLimit::None));
    let scope = all(&catalog)[&ScopeKey::tenant(&tenant_name("t_a"), &pool_name("rp_1"))];
    assert_eq!(scope.counter.limit, Triple { cpu_m: Limit::Of(18_000), ..UNLIMITED });
    assert_eq!(scope.guarantees().exclusive, Amount { cpu_m: 18_000, ..Amount::ZERO });
}
