//! Cases of what a master reports: uids, ends, what is seen, namespaces.

use metadata::NAMESPACE_KEEP_MS;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::observation::{
    EndedEngine, ForeignEngine, MAX_LOG_TAIL_BYTES, MadeEngine, ObservedEngine, Report, Surroundings,
};
use model::slot::Renewal;

use super::bench::Bench;

fn made(name: &EngineName, uid: &str) -> MadeEngine {
    MadeEngine { name: name.clone(), uid: uid.to_owned(), config: "0123456789abcdef".to_owned() }
}

pub(super) fn seen(name: &EngineName, phase: Phase) -> ObservedEngine {
    ObservedEngine {
        name: name.clone(),
        uid: Some("uid-1".to_owned()),
        phase,
        reason: Some("because".to_owned()),
        node: None,
        address: Some("127.0.0.1:1".to_owned()),
        registered: phase == Phase::Running,
        answered: phase == Phase::Running,
        draining: false,
        sessions: Some(3),
        running: None,
        started_at_ms: Some(5),
        log_tail: None,
        labels: std::sync::Arc::new([("k".to_owned(), "v".to_owned())].into()),
        details: std::sync::Arc::new([("process pid".to_owned(), "7".to_owned())].into()),
    }
}

pub async fn a_uid_is_recorded_once_and_never_changes(bench: Bench) {
    let bench = bench.founded(1).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let name = bench.present().await[0].clone();
    let unknown = EngineName::new("nobody").unwrap();
    let report = Report { made: vec![made(&name, "uid-1"), made(&unknown, "x")], ..Report::default() };
    let recorded = store.observed(epoch, &report).await.unwrap();
    assert_eq!((recorded.other_uid.len(), &recorded.unknown), (0, &vec![unknown]));
    let record = store.engine(&name).await.unwrap().unwrap().record;
    assert_eq!((record.uid.as_deref(), record.config.as_str()), (Some("uid-1"), "0123456789abcdef"));
    assert!(record.started_at_ms.unwrap() >= record.issued_at_ms);
    let report = Report { made: vec![made(&name, "uid-1"), made(&name, "uid-2")], ..Report::default() };
    let recorded = store.observed(epoch, &report).await.unwrap();
    assert_eq!(recorded.other_uid, [(name.clone(), "uid-1".to_owned())]);
    assert_eq!(store.engine(&name).await.unwrap().unwrap().record, record);
}

pub async fn a_report_replaces_what_was_seen(bench: Bench) {
    let bench = bench.founded(2).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let names = bench.present().await;
    let engines = vec![seen(&names[0], Phase::Starting), seen(&names[1], Phase::Running)];
    let waits_for = Some("engine agent of x".to_owned());
    store.observed(epoch, &Report { engines, waits_for, ..Report::default() }).await.unwrap();
    let overview = store.overview(None).await.unwrap();
    let mut by_phase: Vec<_> = overview.observed.iter().map(|it| it.engine.clone()).collect();
    by_phase.sort_by_key(|it| it.phase);
    assert_eq!(by_phase, [seen(&names[0], Phase::Starting), seen(&names[1], Phase::Running)]);
    let master = overview.snapshot.master;
    assert_eq!(master.waits_for.as_deref(), Some("engine agent of x"));
    assert!((overview.snapshot.now_ms - master.last_tick_ms).abs() < 60_000);
    assert_eq!(store.proxy_snapshot().await.unwrap().observed.len(), 2);
    assert_eq!(master.surroundings, Surroundings::default());
    // A part of it changes; what is not named stays.
    let foreign = ForeignEngine {
        namespace: "rp-1--t-1".to_owned(),
        name: "stranger".to_owned(),
        uid: "u".to_owned(),
        reason: "it has no signature".to_owned(),
    };
    let around = Surroundings::new(vec![foreign], &["create pods in the whole cluster".to_owned()]);
    let report = Report {
        engines: vec![seen(&names[0], Phase::Running)],
        surroundings: Some(around.clone()),
        ..Report::default()
    };
    store.observed(epoch, &report).await.unwrap();
    assert_eq!(store.master().await.unwrap().surroundings, around);
    store.observed(epoch, &Report::default()).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().master.surroundings, around, "a report that says nothing of it");
    assert_eq!(store.proxy_snapshot().await.unwrap().master.surroundings, Surroundings::default(), "no proxy needs it");
    let detail = store.engine(&names[0]).await.unwrap().unwrap();
    assert_eq!((detail.seen.unwrap().engine.phase, detail.master.waits_for), (Phase::Running, None));
    assert!(store.engine(&names[1]).await.unwrap().unwrap().seen.is_some());
    // Gone, and then all others by a complete report.
    store.observed(epoch, &Report { gone: vec![names[0].clone()], ..Report::default() }).await.unwrap();
    assert_eq!(store.overview(None).await.unwrap().observed.len(), 1);
    let engines = vec![seen(&names[0], Phase::Running)];
    store.observed(epoch, &Report { engines, complete: true, ..Report::default() }).await.unwrap();
    let tenant = model::TenantName::new("t_1").unwrap();
    let left = store.overview(Some(&tenant)).await.unwrap().observed;
    assert_eq!(left.iter().map(|it| &it.engine.name).collect::<Vec<_>>(), [&names[0]]);
    let nobody = model::TenantName::new("t_2").unwrap();
    let other = store.overview(Some(&nobody)).await.unwrap();
    assert!(other.observed.is_empty() && other.snapshot.slots.is_empty() && other.snapshot.engines.is_empty());
}

pub async fn an_ended_engine_stays_only_while_it_is_present(bench: Bench) {
    let bench = bench.founded(1).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let name = bench.present().await[0].clone();
    bench.made(&name).await;
    let log = "line\n".repeat(MAX_LOG_TAIL_BYTES);
    let ended = |reason: &str| {
        let ended = EndedEngine { name: name.clone(), reason: reason.to_owned(), log_tail: Some(log.clone()) };
        Report { ended: vec![ended], ..Report::default() }
    };
    store.observed(epoch, &ended("exit status 1")).await.unwrap();
    store.observed(epoch, &ended("something else")).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.engines.len(), 1, "the present engine is shown though it ended");
    let record = &snapshot.engines[0];
    assert!(record.ended_at_ms.is_some());
    assert_eq!(record.ended_reason.as_deref(), Some("exit status 1"), "the first report stands");
    assert_eq!(record.log_tail.as_ref().map(String::len), Some(MAX_LOG_TAIL_BYTES));
    let slot = &snapshot.slots[0];
    let renewal = Renewal { slot: slot.key.clone(), observed: slot.incarnation, failures: 1 };
    store.new_incarnation(epoch, &renewal).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.engines.iter().map(|it| &it.name).collect::<Vec<_>>(), [&snapshot.slots[0].engine()]);
    // What ended is not told how to end.
    bench.restart("r-1", &snapshot.slots[0].engine(), false).await.unwrap();
    assert_eq!(store.engine(&name).await.unwrap().unwrap().record.end_grace_ms, None);
}

pub async fn a_namespace_is_remembered_until_a_day_after_its_last_pod(bench: Bench) {
    let bench = bench.founded(0).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let engine = bench.start("s-1").await.unwrap().engine;
    let in_use = |names: &[&str]| Report {
        namespaces_in_use: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..Report::default()
    };
    let a_day_passes = || async {
        bench.raw(&format!("UPDATE namespace SET retired_at_ms = retired_at_ms - {NAMESPACE_KEEP_MS}")).await;
    };
    store.observed(epoch, &in_use(&["other"])).await.unwrap();
    let names = || async { store.snapshot().await.unwrap().namespaces };
    assert_eq!(names().await, ["other", "rp-1--t-1"]);
    // Nothing runs there: "other" is retired; the slot's own namespace is wanted.
    store.observed(epoch, &in_use(&[])).await.unwrap();
    a_day_passes().await;
    store.observed(epoch, &Report::default()).await.unwrap();
    assert_eq!(names().await.len(), 2, "nobody looked, nothing is forgotten");
    store.observed(epoch, &in_use(&[])).await.unwrap();
    assert_eq!(names().await, ["rp-1--t-1"]);
    bench.stop("s-2", &engine).await.unwrap();
    let ended = EndedEngine { name: engine, reason: "stopped".to_owned(), log_tail: None };
    store.observed(epoch, &Report { ended: vec![ended], ..in_use(&["rp-1--t-1"]) }).await.unwrap();
    store.observed(epoch, &in_use(&[])).await.unwrap();
    store.observed(epoch, &in_use(&[])).await.unwrap();
    assert_eq!(names().await, ["rp-1--t-1"], "it is kept for a day");
    // An engine comes back within the day.
    bench.start("s-3").await.unwrap();
    a_day_passes().await;
    store.observed(epoch, &in_use(&[])).await.unwrap();
    assert_eq!(names().await, ["rp-1--t-1"]);
}
