//! Cases of START and the ledger: whom a slot is charged to, and requests that do not fit.

use std::collections::BTreeMap;

use metadata::{EngineAnswer, Error, StartRequest};
use model::alteration::ObjectKind;
use model::change::{PoolPatch, QuotaPatch, Setting};
use model::error::UserError;
use model::ledger::{Change, Request, ScopeKey, State};
use model::name::{PoolName, TenantName};
use model::observation::{ObservedNode, Publication};
use model::quota::{Capacity, Principal};
use model::slot::StartedFor;

use super::bench::{Bench, admin, by, change_unit, drop_object, link, memory, start_request};
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
    assert_eq!((error.sqlstate(), error.error_code()), ("53400", 46_013), "{}", error.text());
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
