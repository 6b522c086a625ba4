//! Cases of START and the ledger: whom a slot is charged to, and requests that do not fit.

use std::collections::BTreeMap;

use metadata::{EngineAnswer, Error, StartRequest};
use model::alteration::ObjectKind;
use model::change::{PoolPatch, QuotaPatch, Setting};
use model::engine_state::Phase;
use model::error::UserError;
use model::ledger::{Change, Request, ScopeKey, State};
use model::name::{PoolName, TenantName};
use model::observation::{ObservedEngine, ObservedNode, Publication};
use model::quota::{Capacity, Principal};
use model::slot::StartedFor;

use super::bench::{Bench, admin, by, change_unit, drop_object, link, memory, start_request};
use super::engines::seen;
use super::ledgers::EPOCH;
use super::limits::{change_pool, create_quota, engines};

fn pool() -> PoolName {
    PoolName::new("rp_1").unwrap()
}

async fn start(bench: &Bench, id: &str, nowait: bool) -> Result<EngineAnswer, Error> {
    let request = bench.request(id, "START ENGINE t_1 rp_1 uc_1 NOWAIT", by("alice"));
    let start = start_request(request, link("t_1", "rp_1", "uc_1"));
    bench.store.start(&StartRequest { nowait, ..start }).await
}

fn refused(started: Result<EngineAnswer, Error>) -> UserError {
    match started {
        Err(Error::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Limits the pool to that many engines.
async fn limited(bench: &Bench, id: &str, number: i64) {
    let capacity = Setting::Set(Capacity::Amount(engines(number)));
    bench.alter(id, change_pool("rp_1", PoolPatch { capacity, ..PoolPatch::default() })).await;
}

pub async fn start_charges_its_slot_to_a_user_and_a_creator(bench: Bench) {
    let bench = bench.founded(1).await;
    let answer = start(&bench, "s-1", false).await.unwrap();
    let snapshot = bench.store.snapshot().await.unwrap();
    let [minimum, started] = &snapshot.slots[..] else { panic!("{:?}", snapshot.slots) };
    assert_eq!(minimum.started_for, None, "an engine of MIN_ENGINES is charged to no user");
    let started_for = StartedFor { user: "alice".to_owned(), creator: "IDE".to_owned() };
    assert_eq!((started.engine(), started.started_for.as_ref()), (answer.engine, Some(&started_for)));
    assert!(minimum.asked_at_ms > 0 && started.asked_at_ms >= minimum.asked_at_ms);
    for key in [ScopeKey::user("alice"), ScopeKey::creator("IDE")] {
        assert!(snapshot.ledger.scope(&key).is_some(), "{key}");
    }
    assert_eq!(snapshot.ledger.reservations().count(), 0, "the master reserves");
    // New incarnations keep both, and the age of the slot.
    bench.alter("a-1", memory("uc_1", "2G")).await;
    let altered = bench.store.snapshot().await.unwrap().slots[1].clone();
    bench.restart("s-2", &altered.engine(), false).await.unwrap();
    let restarted = bench.store.snapshot().await.unwrap().slots[1].clone();
    assert!(restarted.incarnation > altered.incarnation && altered.incarnation > started.incarnation);
    for slot in [&altered, &restarted] {
        let kept = (slot.started_for.as_ref(), slot.asked_at_ms, slot.born);
        assert_eq!(kept, (Some(&started_for), started.asked_at_ms, started.born));
    }
}

pub async fn start_of_an_engine_that_can_never_fit_is_refused(bench: Bench) {
    let bench = bench.founded(0).await;
    limited(&bench, "a-1", 0).await;
    let error = refused(start(&bench, "s-1", false).await);
    assert_eq!((error.sqlstate(), error.error_code()), ("55000", 46_072), "{}", error.text());
    limited(&bench, "a-2", 5).await;
    let quota = QuotaPatch { user: Some(Principal::Default), limit: Setting::Set(engines(0)), ..QuotaPatch::default() };
    bench.alter("a-3", create_quota("q_all", quota)).await;
    let error = refused(start(&bench, "s-2", false).await);
    assert_eq!((error.sqlstate(), error.error_code()), ("53400", 46_043), "{}", error.text());
    assert!(error.text().contains("ALTER RESOURCE QUOTA q_all LIMIT (ENGINES 1)"), "{}", error.text());
    assert!(bench.present().await.is_empty());

    let bench = bench.with_pods().await;
    let selector = Setting::Set([("a".to_owned(), "a".to_owned())].into());
    bench.alter("b-1", change_pool("rp_1", PoolPatch { node_selector: selector, ..PoolPatch::default() })).await;
    bench.alter("b-2", drop_object(ObjectKind::ResourceQuota, "q_all")).await;
    let node = |name: &str, cpu_millis: u64| ObservedNode {
        name: name.to_owned(),
        labels: BTreeMap::from([("a".to_owned(), "a".to_owned())]),
        cpu_millis,
        memory_bytes: 64 << 30,
        cpu_used_millis: 0,
        memory_used_bytes: 0,
        ready: true,
        open: true,
    };
    let nodes = Some(vec![node("node-1", 2_000), node("node-2", 3_000)]);
    bench.store.publish(EPOCH, &Publication { nodes, ..Publication::default() }).await.unwrap();
    let cpu = |cpu: &str| {
        change_unit("uc_1", model::change::UnitPatch { driver_cpu: Some(cpu.parse().unwrap()), ..Default::default() })
    };
    bench.alter("b-3", cpu("4")).await;
    let error = refused(start(&bench, "s-3", false).await);
    assert_eq!((error.sqlstate(), error.error_code()), ("53400", 46_081), "{}", error.text());
    assert!(error.text().contains("the largest node has 3 CPU and 65536 MiB"), "{}", error.text());
    bench.alter("b-4", cpu("2.5")).await;
    start(&bench, "s-4", false).await.unwrap();
}

pub async fn start_without_waiting_needs_nodes_for_all_pods(bench: Bench) {
    let bench = bench.founded(0).await.with_pods().await;
    let node = |name: &str, used: u64| ObservedNode {
        name: name.to_owned(),
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        cpu_millis: 3_000,
        memory_bytes: 64 << 30,
        cpu_used_millis: used,
        ready: true,
        open: true,
        ..ObservedNode::default()
    };
    let publish = async |nodes: Vec<ObservedNode>, engines: Vec<ObservedEngine>| {
        let publication = Publication { nodes: Some(nodes), engines, ..Publication::default() };
        bench.store.publish(EPOCH, &publication).await.unwrap();
    };
    let selector = Setting::Set([("zone".to_owned(), "a".to_owned())].into());
    bench.alter("a-1", change_pool("rp_1", PoolPatch { node_selector: selector, ..PoolPatch::default() })).await;
    let unit = model::change::UnitPatch {
        driver_cpu: Some("2".parse().unwrap()),
        max_engines: Some(10),
        ..model::change::UnitPatch::default()
    };
    bench.alter("a-2", change_unit("uc_1", unit)).await;
    start(&bench, "s-0", true).await.expect("no node is known");
    // It is on no node yet, so it takes one of the two.
    publish(vec![node("node-1", 0), node("node-2", 0)], Vec::new()).await;
    let second = start(&bench, "s-1", true).await.unwrap();
    let error = refused(start(&bench, "s-2", true).await);
    assert_eq!((error.sqlstate(), error.error_code()), ("53000", 46_015), "{}", error.text());
    let detail = "Resource pool \"rp_1\": asked nodes for 1 pod, left for 0 (POOL_NODES, retryable).";
    assert_eq!(error.detail.as_deref(), Some(detail));
    assert_eq!(bench.present().await.len(), 2, "a refused request adds no slot");
    assert_eq!(bench.store.whole_ledger().await.unwrap().reservations().count(), 2, "and charges nothing");
    assert_eq!(start(&bench, "s-1", true).await.unwrap(), second, "a repeat");
    start(&bench, "s-3", false).await.expect("without NOWAIT it waits for a node");
    // One that is on a node counts as what the node reports.
    let placed = ObservedEngine { node: Some("node-2".to_owned()), ..seen(&second.engine, Phase::Running) };
    publish(vec![node("node-1", 0), node("node-2", 2_000), node("node-3", 0)], vec![placed]).await;
    start(&bench, "s-4", true).await.unwrap();
    assert_eq!(refused(start(&bench, "s-5", true).await).error_code(), 46_015);
}

pub async fn start_without_waiting_reserves_or_is_refused(bench: Bench) {
    let bench = bench.founded(0).await;
    let first = start(&bench, "s-1", true).await.unwrap();
    let reservation = bench.store.reservation(first.engine.as_str()).await.unwrap().unwrap();
    assert_eq!((reservation.state, reservation.deadline_ms), (State::Locked, None), "nothing limits it");
    assert_eq!(reservation.request.scopes, scopes_of_alice());
    limited(&bench, "a-1", 2).await;
    let second = start(&bench, "s-2", true).await.unwrap();
    assert!(bench.store.reservation(second.engine.as_str()).await.unwrap().unwrap().deadline_ms.is_some());
    let error = refused(start(&bench, "s-3", true).await);
    assert_eq!((error.sqlstate(), error.error_code()), ("53000", 46_013), "{}", error.text());
    assert_eq!(bench.present().await.len(), 2, "a refused request adds no slot");
    assert_eq!(start(&bench, "s-2", true).await.unwrap(), second, "a repeat");
    // The master's request for the engine is the same one.
    let slot = bench.store.snapshot().await.unwrap().slots[1].clone();
    let configuration = model::configuration::Configuration::from_slot(
        &bench.store.catalog().await.unwrap(),
        &slot.key,
        &bench.store.rules().defaults,
    )
    .unwrap();
    let charge = model::charge::Charge::new(&configuration, bench.store.rules().defaults.instances);
    let request = Request::of_engine(&slot.key, slot.incarnation, Some(&slot), &charge, Some(1)).unwrap();
    let change = Change::Reserve(request.clone().into());
    let repeated = [model::ledger::ScopedChange { scopes: request.scopes, change }];
    assert!(bench.store.ledger(EPOCH, &repeated).await.unwrap().remove(0).is_ok());
    assert_eq!(bench.store.whole_ledger().await.unwrap().reservations().count(), 2);

    bench.store.admitted(EPOCH, &[(pool(), 3)].into()).await.unwrap();
    let error = refused(start(&bench, "s-4", true).await);
    assert_eq!(error.sqlstate(), "53000");
    let text = error.text();
    assert!(text.contains("asked 1, left 0 of 2"), "{text}");
    assert!(text.contains("3 requests are queued for resource pool \"rp_1\" before it."), "{text}");
    limited(&bench, "a-2", 5).await;
    let error = refused(start(&bench, "s-5", true).await);
    assert_eq!(error.message, "engine cannot start without waiting");
    bench.store.admitted(EPOCH, &[(pool(), 0)].into()).await.unwrap();
    bench.store.raise_epoch(EPOCH, "the next master").await.unwrap();
    let error = refused(start(&bench, "s-6", true).await);
    assert!(error.text().contains("has not counted the engines"), "{}", error.text());
    start(&bench, "s-7", false).await.unwrap();
    assert_eq!(bench.store.whole_ledger().await.unwrap().drifts().unwrap(), Vec::new());
}

/// What is left of a scope falls by a charge and by an alteration of its limit.
pub async fn the_newest_reduction_of_each_scope_is_known(bench: Bench) {
    let bench = bench.founded(0).await;
    let principals = [ScopeKey::user("alice"), ScopeKey::creator("IDE")];
    let [tenant, of_pool] = [scopes_of_alice().tenant().clone(), ScopeKey::pool(&pool())];
    let at = async |key: &ScopeKey| bench.store.reductions().await.unwrap().get(key).copied();
    assert_eq!(at(&tenant).await, None, "nothing is charged, and a quota never limited it");
    let started = start(&bench, "s-1", true).await.unwrap();
    let locked_at_ms = bench.store.reservation(started.engine.as_str()).await.unwrap().unwrap().locked_at_ms;
    for key in principals.iter().chain([&tenant, &of_pool]) {
        assert_eq!(at(key).await, locked_at_ms, "{key}");
    }
    let age = async || {
        bench.raw("UPDATE reservation SET locked_at_ms = 1000, used_at_ms = 2000").await;
        bench.raw("UPDATE alteration SET decided_at_ms = 500").await;
    };
    let newer = async |keys: &[&ScopeKey], case: &str| {
        for key in principals.iter().chain([&tenant, &of_pool]) {
            let is_newer = at(key).await.unwrap() > 2_000;
            assert_eq!(is_newer, keys.contains(&key), "{case}: {key}");
        }
    };
    age().await;
    newer(&[], "old rows").await;
    assert_eq!(at(&tenant).await, Some(2_000));
    limited(&bench, "a-1", 3).await;
    newer(&[&of_pool], "an alteration of the pool").await;
    age().await;
    let principal =
        |user, creator| QuotaPatch { user, creator, limit: Setting::Set(engines(0)), ..QuotaPatch::default() };
    let named = |name: &str| Some(Principal::Named(name.to_owned()));
    bench.alter("a-2", create_quota("q_bob", principal(named("bob"), None))).await;
    newer(&[], "a quota of another user").await;
    bench.alter("a-3", create_quota("q_all", principal(Some(Principal::Default), None))).await;
    newer(&[&principals[0]], "a quota of every user").await;
    age().await;
    bench.alter("a-4", create_quota("q_ide", principal(None, named("IDE")))).await;
    newer(&[&principals[1]], "a quota of the creator").await;
    age().await;
    let of_tenant =
        QuotaPatch { tenant: Some(TenantName::new("t_1").unwrap()), pool: Some(pool()), ..QuotaPatch::default() };
    bench.alter("a-5", create_quota("q_t", of_tenant)).await;
    newer(&[&tenant, &of_pool], "a quota of the tenant").await;
    age().await;
    bench.alter("a-6", drop_object(ObjectKind::ResourceQuota, "q_bob")).await;
    newer(&[&principals[0], &principals[1], &tenant, &of_pool], "a dropped quota may have limited any").await;
}

fn scopes_of_alice() -> model::ledger::Scopes {
    model::ledger::Scopes::new(&TenantName::new("t_1").unwrap(), &pool(), Some("alice"), Some("IDE"))
}

/// Any client may try any statement.
pub async fn a_refused_start_adds_no_user(bench: Bench) {
    let bench = bench.founded(0).await;
    let principals = async || {
        let ledger = bench.store.whole_ledger().await.unwrap();
        ledger.scopes().filter(|(key, _)| key.tenant_and_pool().is_none() && **key != ScopeKey::pool(&pool())).count()
    };
    bench.start_as("s-1", by("eve"), link("t_1", "rp_1", "uc_1")).await.unwrap_err();
    bench.start_as("s-2", admin(), link("t_1", "rp_1", "uc_9")).await.unwrap_err();
    assert_eq!(principals().await, 0);
    bench.start("s-3").await.unwrap();
    assert_eq!(principals().await, 2);
}
