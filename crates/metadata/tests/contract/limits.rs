//! Cases of the limits of scopes: whatever an alteration or a measurement changes, they are those that follow from the
//! catalog, and what is held is never lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metadata::{Error, SCHEMA_VERSION, Store};
use model::alteration::ObjectKind;
use model::change::{Change, ObjectPatch, PoolPatch, QuotaPatch, Rules, Setting};
use model::clock::SystemClock;
use model::ledger::{Measured, Refusal, ScopeKey, Scopes, derive};
use model::name::{PoolName, QuotaName, TenantName};
use model::quota::{Capacity, DeclaredAmount, Limit, Principal, TransferLimit};
use model::resource::Triple;

use super::bench::{Bench, change_tenant, create_pool, create_tenant, drop_object};
use super::ledgers::{EPOCH, UNLIMITED, claim, external, one_engine};
use super::random_ledgers::{Random, rand_seed, steps};

/// The number of random alterations, and that of the long tier.
const ALTERATIONS: usize = 40;
const LONG_ALTERATIONS: usize = 160;
/// The number of programs that reserve meanwhile.
const WORKERS: usize = 3;

pub fn engines(number: i64) -> DeclaredAmount {
    DeclaredAmount { engines: Some(number.try_into().unwrap()), ..DeclaredAmount::default() }
}

pub fn change_pool(name: &str, patch: PoolPatch) -> Change {
    Change::Alter { if_exists: false, object: ObjectPatch::ResourcePool(PoolName::new(name).unwrap(), patch) }
}

pub fn capacity(capacity: Capacity) -> PoolPatch {
    PoolPatch { capacity: Setting::Set(capacity), ..PoolPatch::default() }
}

pub fn create_quota(name: &str, patch: QuotaPatch) -> Change {
    Change::Create { if_not_exists: false, object: ObjectPatch::ResourceQuota(QuotaName::new(name).unwrap(), patch) }
}

fn change_quota(name: &str, patch: QuotaPatch) -> Change {
    Change::Alter { if_exists: false, object: ObjectPatch::ResourceQuota(QuotaName::new(name).unwrap(), patch) }
}

/// The limits of all scopes are those that follow from the catalog, and they hold what their reservations say.
async fn are_derived(bench: &Bench, step: &str) {
    let catalog = bench.store.catalog().await.unwrap();
    let stored = bench.store.quota_scopes().await.unwrap();
    let measured: Measured =
        stored.iter().filter_map(|scope| Some((PoolName::new(&*scope.key.name).ok()?, scope.capacity?))).collect();
    let existing: BTreeSet<ScopeKey> = stored.iter().map(|scope| scope.key.clone()).collect();
    let derived = derive(&catalog, &measured, &existing).unwrap();
    assert_eq!(derived.keys().cloned().collect::<BTreeSet<_>>(), existing, "{step}");
    for scope in stored {
        let derived = derived[&scope.key];
        assert_eq!(derived.with_limits_of(&scope.scope), derived, "{step}: {}", scope.key);
        assert_eq!(derived.is_open, scope.scope.is_open, "{step}: {}", scope.key);
    }
    assert_eq!(bench.store.whole_ledger().await.unwrap().drifts().unwrap(), Vec::new(), "{step}");
}

fn amount(random: &mut Random) -> DeclaredAmount {
    match random.below(3) {
        0 => DeclaredAmount::default(),
        1 => engines(random.amount(6)),
        _ => DeclaredAmount { cpu: Some("2".parse().unwrap()), ..engines(random.amount(6)) },
    }
}

fn transfer(random: &mut Random) -> Setting<TransferLimit> {
    Setting::Set(match random.below(3) {
        0 => TransferLimit::None,
        1 => TransferLimit::Unlimited,
        _ => TransferLimit::Amount(amount(random)),
    })
}

/// A CREATE, ALTER or DROP of any kind. Many are refused.
fn alteration(random: &mut Random) -> Change {
    let tenant = ["t_1", "t_2"][random.below(2) as usize];
    let pool = ["rp_1", "rp_2"][random.below(2) as usize];
    let quota = ["q_1", "q_2", "q_3", "q_4", "q_5", "q_6"][random.below(6) as usize];
    let patch = || QuotaPatch {
        tenant: Some(TenantName::new(tenant).unwrap()),
        pool: Some(PoolName::new(pool).unwrap()),
        ..QuotaPatch::default()
    };
    match random.below(16) {
        0 => create_pool(pool, &[]),
        1 => create_tenant(tenant, &[pool], &[]),
        2 => drop_object(ObjectKind::ResourcePool, pool),
        3 => drop_object(ObjectKind::Tenant, tenant),
        4 | 5 => drop_object(ObjectKind::ResourceQuota, quota),
        6 => change_tenant(tenant, [&["rp_1", "rp_2"][..], &["rp_1"], &["rp_2"], &[]][random.below(4) as usize]),
        7 => change_pool(pool, capacity(Capacity::Amount(amount(random)))),
        8 => change_pool(pool, PoolPatch { capacity: Setting::Reset, ..PoolPatch::default() }),
        9 => change_pool(pool, capacity([Capacity::Nodes, Capacity::Registered][random.below(2) as usize].clone())),
        10 => change_pool(pool, PoolPatch { cpu_overcommit: Setting::Set(200), ..PoolPatch::default() }),
        11 => {
            let guarantee = Setting::Set(amount(random));
            create_quota(quota, QuotaPatch { guarantee, ..patch() })
        }
        12 => {
            let (guarantee, borrow_limit) = (Setting::Set(amount(random)), transfer(random));
            let lend_limit = transfer(random);
            change_quota(quota, QuotaPatch { guarantee, borrow_limit, lend_limit, ..QuotaPatch::default() })
        }
        13 => change_quota(quota, QuotaPatch { limit: Setting::Set(amount(random)), ..QuotaPatch::default() }),
        at => {
            let name = [Principal::Named("alice".to_owned()), Principal::Default][random.below(2) as usize].clone();
            let limit = Setting::Set(amount(random));
            let patch = QuotaPatch { limit, ..QuotaPatch::default() };
            create_quota(
                quota,
                if at == 14 {
                    QuotaPatch { user: Some(name), ..patch }
                } else {
                    QuotaPatch { creator: Some(name), ..patch }
                },
            )
        }
    }
}

/// Reserves and releases until `stop`, and notes each grant. Refusals are expected, errors are not.
async fn reserve_meanwhile(
    bench: Bench,
    worker: usize,
    stop: Arc<AtomicBool>,
    granting: Arc<tokio::sync::Notify>,
) -> usize {
    let (mut granted, mut at) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        at += 1;
        let tenant = TenantName::new(["t_1", "t_2"][(worker + at) % 2]).unwrap();
        let pool = PoolName::new(["rp_1", "rp_2"][at / 2 % 2]).unwrap();
        let user = ["alice", "bob"][at / 4 % 2];
        let id = format!("x{worker}-{at}");
        let request = external(&id, &id, Scopes::new(&tenant, &pool, Some(user), Some("IDE")), one_engine());
        match bench.store.reserve(&request).await.unwrap() {
            Ok(_) => {
                granted += 1;
                granting.notify_one();
                // Every fourth stays charged.
                if at % 4 != 0 {
                    let claim = model::ledger::Claim { pool: pool.to_string(), ..claim(&request, "u") };
                    bench.store.release(&claim).await.unwrap().unwrap();
                }
            }
            Err(Refusal::Short(_) | Refusal::NoScope(_) | Refusal::Closed(_)) => {}
            Err(refusal) => panic!("{refusal:?}"),
        }
    }
    granted
}

pub async fn limits_follow_every_alteration_while_reservations_change(bench: Bench) {
    let bench = bench.with_pods().await;
    let seed = std::env::var("EH_TEST_SEED").ok().map_or_else(rand_seed, |seed| seed.parse().unwrap());
    println!("contract: EH_TEST_SEED={seed}");
    let mut random = Random(seed | 1);
    bench.alter("found-1", create_pool("rp_1", &[])).await;
    bench.alter("found-2", create_pool("rp_2", &[])).await;
    bench.alter("found-3", create_tenant("t_1", &["rp_1", "rp_2"], &[])).await;
    bench.alter("found-4", create_tenant("t_2", &["rp_1"], &[])).await;
    let (stop, granting) = (Arc::default(), Arc::new(tokio::sync::Notify::new()));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| tokio::spawn(reserve_meanwhile(bench.clone(), worker, Arc::clone(&stop), granting.clone())))
        .collect();
    // The first limits may leave nothing for the rest of the test.
    granting.notified().await;
    let (mut committed, mut refused) = (0, 0);
    for step in 0..steps(ALTERATIONS, LONG_ALTERATIONS) {
        let context = format!("seed {seed}, step {step}");
        if step % 8 == 7 {
            let limit = Triple { engines: Limit::Of(random.amount(9)), ..UNLIMITED };
            let of_pools = ["rp_1", "rp_2"].map(|pool| (PoolName::new(pool).unwrap(), limit));
            bench.store.record_capacity(EPOCH, &of_pools.into()).await.unwrap();
        }
        let change = alteration(&mut random);
        match bench.try_alter(&format!("a-{step}"), change.clone()).await {
            Ok(done) => {
                committed += 1;
                bench.store.finish(EPOCH, &done.record.id, done.record.generation).await.unwrap();
            }
            Err(Error::Refused(_)) => refused += 1,
            Err(error) => panic!("{context}: {change:?}: {error}"),
        }
        are_derived(&bench, &format!("{context}: {change:?}")).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut granted = 0;
    for worker in workers {
        granted += worker.await.unwrap();
    }
    println!("contract: alterations committed={committed} refused={refused}, reservations granted={granted}");
    assert!(committed > 3 && granted > 0, "{committed} {granted}");
    assert_eq!(bench.store.audit_ledger(EPOCH).await.unwrap(), Vec::new());
}

/// The limit of the scope's engines.
async fn limit(bench: &Bench, key: &ScopeKey) -> Option<Limit> {
    let ledger = bench.store.whole_ledger().await.unwrap();
    ledger.scope(key).map(|scope| scope.counter.limit.engines)
}

pub async fn a_limit_of_all_other_users_changes_every_row_at_once(bench: Bench) {
    let bench = bench.founded(0).await;
    let users: BTreeSet<ScopeKey> = (0..300).map(|at| ScopeKey::user(&format!("u{at}"))).collect();
    bench.store.insert_principals(&users).await.unwrap();
    let quota = |user, limit| QuotaPatch { user, limit: Setting::Set(engines(limit)), ..QuotaPatch::default() };
    bench.alter("a-1", create_quota("q_1", quota(Some(Principal::Named("u7".to_owned())), 2))).await;
    bench.alter("a-2", create_quota("q_2", quota(Some(Principal::Default), 5))).await;
    are_derived(&bench, "a default").await;
    assert_eq!(limit(&bench, &ScopeKey::user("u8")).await, Some(Limit::Of(5)));
    assert_eq!(limit(&bench, &ScopeKey::user("u7")).await, Some(Limit::Of(2)));
    bench.alter("a-3", drop_object(ObjectKind::ResourceQuota, "q_1")).await;
    assert_eq!(limit(&bench, &ScopeKey::user("u7")).await, Some(Limit::Of(5)));
    bench.alter("a-4", drop_object(ObjectKind::ResourceQuota, "q_2")).await;
    assert_eq!(limit(&bench, &ScopeKey::user("u8")).await, Some(Limit::Unlimited));
    are_derived(&bench, "no default").await;
}

pub async fn a_measured_capacity_opens_its_pool(bench: Bench) {
    let bench = bench.founded(0).await.with_pods().await;
    let (name, key) = (PoolName::new("rp_1").unwrap(), ScopeKey::pool(&PoolName::new("rp_1").unwrap()));
    let protected = Setting::Set(DeclaredAmount { cpu: Some("1".parse().unwrap()), ..DeclaredAmount::default() });
    let patch = PoolPatch { protected, cpu_overcommit: Setting::Set(200), ..capacity(Capacity::Nodes) };
    bench.alter("a-1", change_pool("rp_1", patch)).await;
    let scope = async || *bench.store.whole_ledger().await.unwrap().scope(&key).unwrap();
    assert!(!scope().await.is_open, "nothing is known about its nodes");
    let measured = |cpu_m| [(name.clone(), Triple { cpu_m: Limit::Of(cpu_m), ..UNLIMITED })].into();
    bench.store.record_capacity(EPOCH, &measured(5_000)).await.unwrap();
    let open = scope().await;
    assert!(open.is_open);
    assert_eq!(open.counter.limit.cpu_m, Limit::Of(4_000), "in requests, without the protected part");
    let of_parts = open.pool_component(model::resource::Component::Cpu).unwrap();
    assert_eq!(of_parts.unguaranteed, Limit::Of(8_000), "nominal");
    let before = bench.store.catalog().await.unwrap().generation;
    bench.store.record_capacity(EPOCH, &measured(6_000)).await.unwrap();
    assert_eq!(bench.store.catalog().await.unwrap().generation, before, "no number is drawn");
    bench.alter("a-2", change_pool("rp_1", PoolPatch { protected: Setting::Reset, ..PoolPatch::default() })).await;
    assert_eq!(scope().await.counter.limit.cpu_m, Limit::Of(6_000), "an alteration keeps what was measured");
    let shown = bench.store.quota_scopes().await.unwrap().into_iter().find(|scope| scope.key == key).unwrap();
    assert!(shown.capacity.is_some() && shown.measured_at_ms.is_some(), "{shown:?}");
    // Of a pool that does not exist, or is not measured by its nodes, nothing is recorded.
    bench.alter("a-3", change_pool("rp_1", PoolPatch { capacity: Setting::Reset, ..PoolPatch::default() })).await;
    bench.store.record_capacity(EPOCH, &measured(7_000)).await.unwrap();
    let unknown = [(PoolName::new("rp_9").unwrap(), UNLIMITED)].into();
    bench.store.record_capacity(EPOCH, &unknown).await.unwrap();
    assert_eq!(scope().await.counter.limit.cpu_m, Limit::Unlimited);
    bench.store.raise_epoch(EPOCH, "another").await.unwrap();
    assert!(matches!(bench.store.record_capacity(EPOCH, &measured(1)).await, Err(Error::Deposed(_))));
    are_derived(&bench, "at the end").await;
}

pub async fn a_capacity_that_is_no_longer_measured_is_forgotten(bench: Bench) {
    let bench = bench.founded(0).await.with_pods().await;
    let (name, key) = (PoolName::new("rp_1").unwrap(), ScopeKey::pool(&PoolName::new("rp_1").unwrap()));
    let is_open = async || bench.store.whole_ledger().await.unwrap().scope(&key).unwrap().is_open;
    let measured = [(name, Triple { cpu_m: Limit::Of(1), ..UNLIMITED })].into();
    for (at, other) in [Capacity::Registered, Capacity::Amount(engines(3))].into_iter().enumerate() {
        bench.alter(&format!("n-{at}"), change_pool("rp_1", capacity(Capacity::Nodes))).await;
        bench.store.record_capacity(EPOCH, &measured).await.unwrap();
        assert!(is_open().await);
        let is_declared = matches!(other, Capacity::Amount(_));
        bench.alter(&format!("o-{at}"), change_pool("rp_1", capacity(other))).await;
        assert_eq!(is_open().await, is_declared, "the capacity of the nodes is none that is registered");
        bench.alter(&format!("p-{at}"), change_pool("rp_1", capacity(Capacity::Nodes))).await;
        assert!(!is_open().await, "it is measured again first");
    }
    bench.store.record_capacity(EPOCH, &measured).await.unwrap();
    bench.alter("a-1", change_tenant("t_1", &[])).await;
    bench.alter("a-2", drop_object(ObjectKind::ResourcePool, "rp_1")).await;
    are_derived(&bench, "dropped").await;
    bench.alter("a-3", create_pool("rp_1", &[])).await;
    bench.alter("a-4", change_pool("rp_1", capacity(Capacity::Nodes))).await;
    assert!(!is_open().await, "another pool of that name");
    are_derived(&bench, "created again").await;
}

/// Schema 9 has the tables of the ledger, without rows.
pub async fn a_database_of_schema_9_receives_its_scopes(bench: Bench) {
    let bench = bench.founded(1).await;
    let name = bench.present().await[0].clone();
    bench.made(&name).await;
    let quota = QuotaPatch {
        tenant: Some(TenantName::new("t_1").unwrap()),
        pool: Some(PoolName::new("rp_1").unwrap()),
        guarantee: Setting::Set(engines(3)),
        ..QuotaPatch::default()
    };
    bench.alter("a-1", create_quota("q_1", quota)).await;
    let of_user = QuotaPatch {
        user: Some(Principal::Named("alice".to_owned())),
        limit: Setting::Set(engines(2)),
        ..QuotaPatch::default()
    };
    bench.alter("a-2", create_quota("q_2", of_user)).await;
    bench.alter("a-3", change_pool("rp_1", capacity(Capacity::Amount(engines(5))))).await;
    let before = bench.store.snapshot().await.unwrap();
    bench.raw("DELETE FROM quota_scope").await;
    bench.without_schema_10().await;
    bench.raw("UPDATE schema_version SET version = 9").await;
    let settings = bench.settings.clone();
    bench.store.close().await;
    drop(bench);
    assert_eq!(Store::migrate(&settings).await.unwrap(), SCHEMA_VERSION);
    let clock = model::clock::ManualClock::at(1_000_000);
    let store = Store::open(&settings, Rules::default(), clock.clone()).await.unwrap();
    let bench = Bench { settings: settings.clone(), store, clock };
    are_derived(&bench, "migrated").await;
    let after = bench.store.snapshot().await.unwrap();
    assert_eq!(after.engines, before.engines, "no engine is replaced");
    assert_eq!(after.ledger, before.ledger, "nothing is charged");
    let slot = &after.slots[0];
    assert_eq!((slot.asked_at_ms, &slot.started_for), (0, &None), "unknown");
    assert_eq!((slot.born, slot.incarnation), (before.slots[0].born, before.slots[0].incarnation));
    assert_eq!(limit(&bench, &ScopeKey::user("alice")).await, Some(Limit::Of(2)));
    // A repeat, as after a crash before the version is written, adds nothing.
    if settings.backend().unwrap() == metadata::Backend::Mariadb {
        bench.raw("DELETE FROM quota_scope WHERE kind = 3").await;
        bench.raw("UPDATE schema_version SET version = 9").await;
        bench.store.close().await;
        drop(bench);
        assert_eq!(Store::migrate(&settings).await.unwrap(), SCHEMA_VERSION);
        let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
        assert_eq!(store.snapshot().await.unwrap().ledger, after.ledger);
        return;
    }
    // Engines of it start and are charged.
    bench.start("s-1").await.unwrap();
}
