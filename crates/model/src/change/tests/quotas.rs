//! The rules of quotas, and of the options of pools and units that quotas need.

use super::*;
use crate::capacity::Amount;
use crate::catalog::{ChargedExecutors, PoolSpec, Versioned};
use crate::configuration::Configuration;
use crate::instance::InstanceKind;
use crate::name::QuotaName;
use crate::quota::{
    Capacity, DeclaredAmount, MAX_QUOTAS, Principal, PrincipalQuota, QuotaScope, Reclaim, TransferLimit,
};
use crate::resource::Kind;

fn quota(name: &str, patch: QuotaPatch) -> ObjectPatch {
    ObjectPatch::ResourceQuota(QuotaName::new(name).unwrap(), patch)
}

fn amount(json: &str) -> DeclaredAmount {
    serde_json::from_str(json).unwrap()
}

fn of_tenant(tenant: &str, pool: &str, guarantee: &str) -> QuotaPatch {
    QuotaPatch {
        tenant: Some(TenantName::new(tenant).unwrap()),
        pool: Some(PoolName::new(pool).unwrap()),
        guarantee: Setting::Set(amount(guarantee)),
        ..QuotaPatch::default()
    }
}

fn of_user(user: &str, limit: &str) -> QuotaPatch {
    let user = Some(Principal::Named(user.to_owned()));
    QuotaPatch { user, limit: Setting::Set(amount(limit)), ..QuotaPatch::default() }
}

fn with_quota() -> Catalog {
    applied(&founding(), &create(quota("q_1", of_tenant("t_1", "rp_1", r#"{"cpu":"18"}"#))))
}

fn refused(catalog: &Catalog, change: &Change) -> UserError {
    change.apply(catalog, &Rules::default()).unwrap_err()
}

fn spec_of(catalog: &Catalog, name: &str) -> QuotaSpec {
    catalog.quotas[&QuotaName::new(name).unwrap()].spec.clone()
}

#[test]
fn a_quota_begins_with_hard_partitioning() {
    let QuotaScope::Tenant(of_tenant) = spec_of(&with_quota(), "q_1").scope else { panic!("a tenant's quota") };
    assert_eq!(of_tenant.guarantee, amount(r#"{"cpu":"18"}"#));
    assert_eq!((of_tenant.borrow_limit, of_tenant.lend_limit), (TransferLimit::None, TransferLimit::Unlimited));
    assert_eq!(of_tenant.weight, 1);
}

#[test]
fn a_quota_needs_exactly_one_subject() {
    let catalog = founding();
    let tenant = of_tenant("t_1", "rp_1", "{}");
    let default = || Some(Principal::Default);
    for (patch, what) in [
        (QuotaPatch::default(), "has no subject"),
        (QuotaPatch { pool: None, ..tenant.clone() }, "has no POOL"),
        (QuotaPatch { tenant: None, ..tenant.clone() }, "has no TENANT"),
        (QuotaPatch { user: default(), ..tenant.clone() }, "has more than one subject"),
        (QuotaPatch { user: default(), creator: default(), ..QuotaPatch::default() }, "has more than one subject"),
        (QuotaPatch { tenant: None, creator: default(), ..tenant }, "has more than one subject"),
    ] {
        let error = refused(&catalog, &create(quota("q_1", patch)));
        assert_eq!(error.sqlstate(), "22023");
        assert_eq!(error.message, format!("resource quota \"q_1\" {what}"));
        assert!(error.detail.is_some() && error.hint.is_some());
    }
}

#[test]
fn the_subject_of_a_quota_cannot_be_altered() {
    let catalog = applied(&with_quota(), &create(quota("q_2", of_user("alice", r#"{"engines":3}"#))));
    let catalog = applied(&catalog, &create(tenant("t_2", &["rp_1"])));
    let comment = || Setting::Set("x".to_owned());
    for (name, patch) in [
        ("q_1", of_tenant("t_2", "rp_1", "{}")),
        ("q_1", QuotaPatch { creator: Some(Principal::Default), ..QuotaPatch::default() }),
        ("q_2", QuotaPatch { user: Some(Principal::Default), ..QuotaPatch::default() }),
        ("q_2", QuotaPatch { creator: Some(Principal::Named("alice".to_owned())), ..QuotaPatch::default() }),
        ("q_2", of_tenant("t_1", "rp_1", "{}")),
    ] {
        let error = refused(&catalog, &alter(quota(name, QuotaPatch { comment: comment(), ..patch })));
        assert_eq!((error.sqlstate(), error.hint.is_some()), ("0A000", true), "{error}");
    }
    // To name it as it is changes nothing.
    let same = QuotaPatch { comment: comment(), guarantee: Setting::Keep, ..of_tenant("t_1", "rp_1", "{}") };
    let catalog = applied(&catalog, &alter(quota("q_1", same)));
    assert_eq!(spec_of(&catalog, "q_1").comment.as_deref(), Some("x"));
}

#[test]
fn a_second_quota_of_a_subject_is_refused_and_the_error_names_the_first() {
    let catalog = applied(&with_quota(), &create(quota("q_2", of_user("alice", "{}"))));
    for (second, subject, first) in [
        (of_tenant("t_1", "rp_1", r#"{"cpu":"1"}"#), "tenant \"t_1\" on resource pool \"rp_1\"", "q_1"),
        (of_user("alice", "{}"), "user \"alice\"", "q_2"),
    ] {
        let error = refused(&catalog, &create(quota("q_9", second)));
        assert_eq!(error.sqlstate(), "42710");
        assert_eq!(error.message, format!("a resource quota of {subject} already exists"));
        assert_eq!(error.detail.unwrap(), format!("It is resource quota \"{first}\"."));
    }
    let creator = QuotaPatch { creator: Some(Principal::Named("alice".to_owned())), ..QuotaPatch::default() };
    applied(&catalog, &create(quota("q_9", creator)));
    applied(&catalog, &create(quota("q_9", QuotaPatch { user: Some(Principal::Default), ..QuotaPatch::default() })));
}

#[test]
fn a_tenant_or_pool_with_a_quota_cannot_be_dropped() {
    // The tenant no longer lists the pool: only the quota needs it.
    let catalog = applied(&with_quota(), &alter(tenant("t_1", &[])));
    for (kind, name) in [(ObjectKind::Tenant, "t_1"), (ObjectKind::ResourcePool, "rp_1")] {
        let error = refused(&catalog, &drop_of(kind, name));
        assert_eq!(error.sqlstate(), "2BP01");
        assert_eq!(error.detail.as_deref(), Some("Resource quota \"q_1\" is for it."));
        assert_eq!(error.hint.as_deref(), Some("Use DROP RESOURCE QUOTA q_1 first."));
    }
    let catalog = applied(&catalog, &drop_of(ObjectKind::ResourceQuota, "q_1"));
    assert!(catalog.quotas.is_empty());
    applied(&catalog, &drop_of(ObjectKind::Tenant, "t_1"));
    applied(&catalog, &drop_of(ObjectKind::ResourcePool, "rp_1"));
    assert_eq!(refused(&catalog, &drop_of(ObjectKind::ResourceQuota, "q_1")).sqlstate(), "42704");
}

#[test]
fn an_amount_replaces_the_whole_amount_and_a_reset_restores_the_default() {
    let catalog = with_quota();
    let set = QuotaPatch {
        guarantee: Setting::Set(amount(r#"{"memory":"64G"}"#)),
        borrow_limit: Setting::Set(TransferLimit::Amount(amount(r#"{"memory":"1G"}"#))),
        lend_limit: Setting::Set(TransferLimit::None),
        weight: Setting::Set(7),
        ..QuotaPatch::default()
    };
    let catalog = applied(&catalog, &alter(quota("q_1", set)));
    let QuotaScope::Tenant(changed) = spec_of(&catalog, "q_1").scope else { panic!("a tenant's quota") };
    assert_eq!(changed.guarantee, amount(r#"{"memory":"64G"}"#), "CPU is no longer guaranteed");
    assert_eq!((changed.lend_limit, changed.weight), (TransferLimit::None, 7));
    let reset = QuotaPatch {
        guarantee: Setting::Reset,
        borrow_limit: Setting::Reset,
        lend_limit: Setting::Reset,
        weight: Setting::Reset,
        ..QuotaPatch::default()
    };
    let catalog = applied(&catalog, &alter(quota("q_1", reset)));
    let fresh = applied(&founding(), &create(quota("q_1", of_tenant("t_1", "rp_1", "{}"))));
    assert_eq!(spec_of(&catalog, "q_1"), spec_of(&fresh, "q_1"));
}

#[test]
fn options_of_another_subject_are_refused() {
    let catalog = applied(&with_quota(), &create(quota("q_2", of_user("alice", "{}"))));
    let limit = QuotaPatch { limit: Setting::Reset, ..QuotaPatch::default() };
    let error = refused(&catalog, &alter(quota("q_1", limit)));
    assert_eq!(error.message, "option LIMIT does not apply to resource quota \"q_1\"");
    let none = QuotaPatch::default;
    for (option, patch) in [
        ("GUARANTEE", QuotaPatch { guarantee: Setting::Reset, ..none() }),
        ("BORROW_LIMIT", QuotaPatch { borrow_limit: Setting::Set(TransferLimit::None), ..none() }),
        ("LEND_LIMIT", QuotaPatch { lend_limit: Setting::Reset, ..none() }),
        ("WEIGHT", QuotaPatch { weight: Setting::Set(1), ..none() }),
    ] {
        let error = refused(&catalog, &alter(quota("q_2", patch)));
        assert_eq!(error.sqlstate(), "22023");
        assert_eq!(error.message, format!("option {option} does not apply to resource quota \"q_2\""));
        assert!(error.detail.unwrap().contains("user \"alice\""));
    }
}

#[test]
fn impossible_quotas_are_refused() {
    let catalog = founding();
    let gpu = r#"{"custom":{"nvidia.com/gpu":2}}"#;
    let transfer = |limit: &str| Setting::Set(TransferLimit::Amount(amount(limit)));
    let many = format!("{{\"custom\":{{{}}}}}", (0..17).map(|n| format!("\"c{n}\":1")).collect::<Vec<_>>().join(","));
    let base = || of_tenant("t_1", "rp_1", "{}");
    for (patch, sqlstate, part) in [
        (of_tenant("t_9", "rp_1", "{}"), "42704", "tenant \"t_9\" does not exist"),
        (of_tenant("t_1", "rp_9", "{}"), "42704", "resource pool \"rp_9\" does not exist"),
        (of_tenant("t_1", "rp_1", gpu), "0A000", "GUARANTEE of resource quota \"q_1\""),
        (QuotaPatch { borrow_limit: transfer(gpu), ..base() }, "0A000", "BORROW_LIMIT of resource quota \"q_1\""),
        (QuotaPatch { lend_limit: transfer(gpu), ..base() }, "0A000", "LEND_LIMIT of resource quota \"q_1\""),
        (QuotaPatch { weight: Setting::Set(10_001), ..base() }, "22023", "invalid WEIGHT 10001"),
        (of_user("@etl", "{}"), "22023", "invalid user name \"@etl\""),
        (of_user(" ", "{}"), "22023", "invalid user name"),
        (of_user(&"x".repeat(256), "{}"), "22023", "invalid user name"),
        (of_user("alice", &many), "54000", "too many custom amounts"),
        (of_user("alice", r#"{"custom":{"":1}}"#), "22023", "invalid name of a custom amount"),
        (of_user("alice", r#"{"custom":{"Memory":1}}"#), "22023", "invalid name of a custom amount \"Memory\""),
        (QuotaPatch { comment: Setting::Set("x".repeat(5_000)), ..base() }, "54000", "COMMENT of resource quota"),
    ] {
        let error = refused(&catalog, &create(quota("q_1", patch)));
        assert_eq!(error.sqlstate(), sqlstate, "{error}");
        assert!(error.message.contains(part) && error.message.len() < 500, "{error}");
        assert!(error.detail.is_some(), "{error}");
    }
    applied(&catalog, &create(quota("q_1", of_user("alice", gpu))));
}

#[test]
fn the_guarantees_of_a_pool_have_a_sum_within_the_largest_amount() {
    let most = r#"{"engines":9007199254740991}"#;
    let catalog = applied(&founding(), &create(quota("q_1", of_tenant("t_1", "rp_1", most))));
    let catalog = applied(&catalog, &create(tenant("t_2", &["rp_1"])));
    let error = refused(&catalog, &create(quota("q_2", of_tenant("t_2", "rp_1", r#"{"engines":2}"#))));
    assert_eq!(error.sqlstate(), "54000");
    assert_eq!(error.detail.as_deref(), Some("The limit of their sum is 9007199254740992 engines."));
    let catalog = applied(&catalog, &create(quota("q_2", of_tenant("t_2", "rp_1", r#"{"engines":1}"#))));
    // Its own earlier amount does not count.
    applied(&catalog, &alter(quota("q_1", of_tenant("t_1", "rp_1", most))));
}

#[test]
fn the_number_of_quotas_has_a_limit() {
    let mut catalog = founding();
    let spec = spec_of(&applied(&catalog, &create(quota("q_0", of_user("u0", "{}")))), "q_0");
    for n in 0..MAX_QUOTAS {
        let name = Principal::Named(format!("u{n}"));
        let scope = QuotaScope::User(PrincipalQuota { name, limit: DeclaredAmount::default() });
        let spec = QuotaSpec { scope, ..spec.clone() };
        catalog.quotas.insert(QuotaName::new(format!("q_{n}")).unwrap(), Versioned { spec, generation: Generation(1) });
    }
    let error = refused(&catalog, &create(quota("one-more", of_user("bob", "{}"))));
    assert_eq!((error.sqlstate(), error.detail.as_deref()), ("54000", Some("The limit is 10000.")));
    applied(
        &catalog,
        &alter(quota("q_7", QuotaPatch { comment: Setting::Set("x".to_owned()), ..QuotaPatch::default() })),
    );
}

fn pool_with(patch: PoolPatch) -> ObjectPatch {
    ObjectPatch::ResourcePool(PoolName::new("rp_1").unwrap(), patch)
}

fn capacity(json: &str) -> PoolPatch {
    PoolPatch { capacity: Setting::Set(Capacity::Amount(amount(json))), ..PoolPatch::default() }
}

#[test]
fn a_capacity_of_nodes_needs_pods() {
    let nodes = || create(pool_with(PoolPatch { capacity: Setting::Set(Capacity::Nodes), ..PoolPatch::default() }));
    let error = nodes().apply(&Catalog::default(), &Rules::default()).unwrap_err();
    assert_eq!((error.sqlstate(), error.hint.is_some()), ("55000", true));
    let mut rules = Rules::default();
    rules.defaults.instances = InstanceKind::Pod;
    nodes().apply(&Catalog::default(), &rules).unwrap();
}

#[test]
fn the_capacity_of_a_pool_includes_its_protected_part() {
    let protected = |json: &str| Setting::Set(amount(json));
    let whole = || capacity(r#"{"cpu":"42","engines":9,"custom":{"nvidia.com/gpu":2}}"#);
    let try_with = |patch: PoolPatch| create(pool_with(patch)).apply(&Catalog::default(), &Rules::default());
    try_with(PoolPatch { protected: protected(r#"{"cpu":"42","memory":"4G"}"#), ..whole() }).unwrap();
    for (part, sqlstate, text) in [
        (r#"{"cpu":"42001m"}"#, "22023", "PROTECTED of resource pool \"rp_1\" is above its CAPACITY"),
        (r#"{"engines":1}"#, "0A000", "ENGINES is not supported in PROTECTED"),
        (r#"{"custom":{"nvidia.com/gpu":1}}"#, "0A000", "PROTECTED of resource pool \"rp_1\""),
    ] {
        let error = try_with(PoolPatch { protected: protected(part), ..whole() }).unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate, "{error}");
        assert!(error.message.contains(text) && error.hint.is_some(), "{error}");
    }
    let special = PoolPatch { resource_kind: Setting::Set(Kind::Special), ..PoolPatch::default() };
    assert_eq!(try_with(special).unwrap_err().error_code(), crate::error::KIND_UNKNOWN);
}

#[test]
fn no_option_of_quotas_replaces_an_engine() {
    let before = founding();
    let slots = rows(&[(0, Origin::Minimum), (1, Origin::Start)]);
    let hash =
        |catalog: &Catalog| Configuration::from_slot(catalog, &slots[0].key, &Defaults::default()).unwrap().hash();
    let pool = |patch: PoolPatch| alter(pool_with(patch));
    let unit_with = |patch: UnitPatch| alter(unit("uc_1", patch));
    for change in [
        pool(capacity(r#"{"cpu":"1"}"#)),
        pool(PoolPatch { protected: Setting::Set(amount(r#"{"cpu":"1"}"#)), ..PoolPatch::default() }),
        pool(PoolPatch { reclaim: Setting::Set(Reclaim::None), ..PoolPatch::default() }),
        pool(PoolPatch { resource_kind: Setting::Set(Kind::Queue), ..PoolPatch::default() }),
        unit_with(UnitPatch { priority: Some(100), ..UnitPatch::default() }),
        unit_with(UnitPatch { charge: Some(ChargedExecutors::Min), ..UnitPatch::default() }),
        create(quota("q_1", of_tenant("t_1", "rp_1", r#"{"cpu":"0"}"#))),
    ] {
        let after = applied(&before, &change);
        assert_eq!(hash(&before), hash(&after), "{change:?}");
        assert_eq!(changed(&before, &after, &slots), (vec![], vec![], vec![]), "{change:?}");
    }
}

#[test]
fn a_priority_has_a_range() {
    let with = |priority| create(unit("uc_1", UnitPatch { priority: Some(priority), ..UnitPatch::default() }));
    for fits in [-100, 0, 100] {
        with(fits).apply(&Catalog::default(), &Rules::default()).unwrap();
    }
    for bad in [-101, 101, i32::MIN] {
        let error = refused(&Catalog::default(), &with(bad));
        assert_eq!(error.detail.as_deref(), Some("It is a whole number from -100 to 100."));
    }
}

#[test]
fn absent_options_leave_rows_as_older_programs_wrote_them() {
    let catalog = founding();
    let (unit, pool) = (&catalog.units[&unit_name("uc_1")].spec, &catalog.pools[&PoolName::new("rp_1").unwrap()].spec);
    let (unit, pool) = (serde_json::to_string(unit).unwrap(), serde_json::to_string(pool).unwrap());
    for option in ["priority", "charge", "capacity", "protected", "resource_kind", "reclaim"] {
        assert!(!unit.contains(option) && !pool.contains(option), "{option}: {unit} {pool}");
    }
    let read: PoolSpec = serde_json::from_str(&pool).unwrap();
    assert_eq!((read.capacity, read.reclaim.unwrap_or_default()), (None, Reclaim::Idle));
}

#[test]
fn a_change_warns_of_what_has_no_effect() {
    let warned = |before: &Catalog, change: &Change| {
        let warnings = change.warnings(&applied(before, change));
        assert!(warnings.is_empty() || change.concerns_quotas(), "{change:?}");
        warnings
    };
    let before = founding();
    let guarantee = |json: &str| create(quota("q_1", of_tenant("t_1", "rp_1", json)));
    assert_eq!(warned(&before, &guarantee(r#"{"cpu":"18"}"#)), Vec::<String>::new());
    assert_eq!(warned(&before, &alter(tenant("t_1", &["rp_1"]))), Vec::<String>::new());
    let unused = "resource quota \"q_1\" has no effect while tenant \"t_1\" does not list resource pool \"rp_1\"";
    assert_eq!(warned(&with_quota(), &alter(tenant("t_1", &[]))), [unused]);
    let unlinked = applied(&before, &alter(tenant("t_1", &[])));
    assert_eq!(warned(&unlinked, &guarantee("{}")), [unused]);
    let borrow = QuotaPatch {
        borrow_limit: Setting::Set(TransferLimit::Amount(amount(r#"{"memory":"1G","engines":2}"#))),
        ..of_tenant("t_1", "rp_1", r#"{"cpu":"18"}"#)
    };
    let without = "BORROW_LIMIT of resource quota \"q_1\" has no effect on MEMORY and ENGINES, which its GUARANTEE does \
                   not name";
    assert_eq!(warned(&before, &create(quota("q_1", borrow))), [without]);
    let plain = alter(unit("uc_1", minimum(1, 5)));
    assert!(warned(&before, &plain).is_empty() && !plain.concerns_quotas());
}

#[test]
fn guarantees_above_the_capacity_are_warned_of() {
    let catalog = applied(&founding(), &create(tenant("t_2", &["rp_1"])));
    let catalog = applied(&catalog, &create(quota("q_1", of_tenant("t_1", "rp_1", r#"{"cpu":"18","memory":"32G"}"#))));
    let catalog = applied(&catalog, &create(quota("q_2", of_tenant("t_2", "rp_1", r#"{"cpu":"18"}"#))));
    let warning = |patch: PoolPatch, nodes: Option<Amount>| {
        let catalog = applied(&catalog, &alter(pool_with(patch)));
        let name = PoolName::new("rp_1").unwrap();
        excess_guarantees(&catalog, &name, catalog.pool(&name).unwrap(), nodes)
    };
    let exceeds =
        |what: &str| Some(format!("guarantees on resource pool \"rp_1\" exceed its capacity: {what} are guaranteed"));
    assert_eq!(warning(capacity(r#"{"cpu":"36"}"#), None), None);
    assert_eq!(
        warning(capacity(r#"{"cpu":"35500m","memory":"16G"}"#), None),
        exceeds("36 CPU of 35.5 CPU and 32 GiB of 16 GiB")
    );
    let protected = PoolPatch { protected: Setting::Set(amount(r#"{"cpu":"2"}"#)), ..capacity(r#"{"cpu":"36"}"#) };
    assert_eq!(warning(protected, None), exceeds("36 CPU of 34 CPU"));
    // What is guaranteed is nominal: twice as many engines fit.
    let overcommitted = PoolPatch { cpu_overcommit: Setting::Set(200), ..capacity(r#"{"cpu":"18"}"#) };
    assert_eq!(warning(overcommitted, None), None);
    // Without a declared capacity there is nothing to compare with.
    let none = PoolPatch { comment: Setting::Set("x".to_owned()), ..PoolPatch::default() };
    assert_eq!(warning(none, Some(Amount { cpu_millis: 1, memory_bytes: 1 })), None);
}

#[test]
fn a_capacity_above_that_of_the_nodes_is_warned_of() {
    let warning = |json: &str, cpu_millis, memory_bytes| {
        let catalog = applied(&founding(), &alter(pool_with(capacity(json))));
        let name = PoolName::new("rp_1").unwrap();
        excess_capacity(&name, catalog.pool(&name).unwrap(), Amount { cpu_millis, memory_bytes })
    };
    assert_eq!(warning(r#"{"cpu":"11","engines":100}"#, 10_000, 0), None, "10 % more");
    assert_eq!(
        warning(r#"{"cpu":"11001m","memory":"16G"}"#, 10_000, 1 << 30).as_deref(),
        Some(
            "CAPACITY of resource pool \"rp_1\" exceeds that of its nodes by more than 10 %: 11.001 CPU of 10 CPU and \
             16 GiB of 1 GiB are declared"
        )
    );
}
