//! Cases of the reports of a master: uids, ends, observed engines, namespaces.

use metadata::NAMESPACE_KEEP;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::observation::{
    ClusterWarnings, CreatedEngine, EndedEngine, EngineFacts, ForeignEngine, MAX_LOG_TAIL_BYTES, ObservedEngine,
    Publication,
};
use model::slot::{Renewal, Replacement};

use super::bench::Bench;

fn made(name: &EngineName, uid: &str) -> CreatedEngine {
    CreatedEngine { name: name.clone(), uid: uid.to_owned(), config: "0123456789abcdef".to_owned() }
}

pub fn seen(name: &EngineName, phase: Phase) -> ObservedEngine {
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
        idle_since_ms: Some(4_000),
        stateful: Some(2),
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
    let unknown = EngineName::new("unknown").unwrap();
    let report = EngineFacts { created: vec![made(&name, "uid-1"), made(&unknown, "x")], ..EngineFacts::default() };
    let recorded = store.record(epoch, &report).await.unwrap();
    assert_eq!((recorded.other_uid.len(), &recorded.unknown), (0, &vec![unknown]));
    let record = store.engine(&name).await.unwrap().unwrap().record;
    assert_eq!((record.uid.as_deref(), record.config.as_str()), (Some("uid-1"), "0123456789abcdef"));
    assert!(record.started_at_ms.unwrap() >= record.issued_at_ms);
    let report = EngineFacts { created: vec![made(&name, "uid-1"), made(&name, "uid-2")], ..EngineFacts::default() };
    let recorded = store.record(epoch, &report).await.unwrap();
    assert_eq!(recorded.other_uid, [(name.clone(), "uid-1".to_owned())]);
    assert_eq!(store.engine(&name).await.unwrap().unwrap().record, record);
}

pub async fn a_report_replaces_observed_rows(bench: Bench) {
    let bench = bench.founded(2).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let names = bench.present().await;
    let engines = vec![seen(&names[0], Phase::Starting), seen(&names[1], Phase::Running)];
    let waits_for = Some("engine agent of x".to_owned());
    store.publish(epoch, &Publication { engines, waits_for, ..Publication::default() }).await.unwrap();
    let overview = store.overview(None).await.unwrap();
    let mut by_phase: Vec<_> = overview.observed.iter().map(|row| row.engine.clone()).collect();
    by_phase.sort_by_key(|engine| engine.phase);
    assert_eq!(by_phase, [seen(&names[0], Phase::Starting), seen(&names[1], Phase::Running)]);
    let master = overview.snapshot.master;
    assert_eq!(master.waits_for.as_deref(), Some("engine agent of x"));
    assert!((overview.snapshot.now_ms - master.last_tick_ms).abs() < 60_000);
    assert_eq!(store.proxy_snapshot().await.unwrap().observed.len(), 2);
    assert_eq!(master.cluster_warnings, ClusterWarnings::default());
    // A part changes; rows that are not named stay.
    let foreign = ForeignEngine {
        namespace: "rp-1--t-1".to_owned(),
        name: "stranger".to_owned(),
        uid: "u".to_owned(),
        reason: "it has no signature".to_owned(),
    };
    let around = ClusterWarnings::new(vec![foreign], &["create pods in the whole cluster".to_owned()]);
    let report = Publication {
        engines: vec![seen(&names[0], Phase::Running)],
        cluster_warnings: Some(around.clone()),
        ..Publication::default()
    };
    store.publish(epoch, &report).await.unwrap();
    assert_eq!(store.master().await.unwrap().cluster_warnings, around);
    store.publish(epoch, &Publication::default()).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().master.cluster_warnings, around, "a report that says nothing of it");
    assert_eq!(
        store.proxy_snapshot().await.unwrap().master.cluster_warnings,
        ClusterWarnings::default(),
        "no proxy needs it"
    );
    let detail = store.engine(&names[0]).await.unwrap().unwrap();
    assert_eq!((detail.seen.unwrap().engine.phase, detail.master.waits_for), (Phase::Running, None));
    assert!(store.engine(&names[1]).await.unwrap().unwrap().seen.is_some());
    // One is gone, then all others through a complete report.
    store.publish(epoch, &Publication { gone: vec![names[0].clone()], ..Publication::default() }).await.unwrap();
    assert_eq!(store.overview(None).await.unwrap().observed.len(), 1);
    let engines = vec![seen(&names[0], Phase::Running)];
    store.publish(epoch, &Publication { engines, complete: true, ..Publication::default() }).await.unwrap();
    let tenant = model::TenantName::new("t_1").unwrap();
    let left = store.overview(Some(&tenant)).await.unwrap().observed;
    assert_eq!(left.iter().map(|row| &row.engine.name).collect::<Vec<_>>(), [&names[0]]);
    let other_tenant = model::TenantName::new("t_2").unwrap();
    let other = store.overview(Some(&other_tenant)).await.unwrap();
    assert!(other.observed.is_empty() && other.snapshot.slots.is_empty() && other.snapshot.engines.is_empty());
}

pub async fn an_ended_engine_stays_only_while_it_is_current(bench: Bench) {
    let bench = bench.founded(1).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let name = bench.present().await[0].clone();
    bench.made(&name).await;
    let log = "line\n".repeat(MAX_LOG_TAIL_BYTES);
    let ended = |reason: &str| {
        let ended =
            EndedEngine { name: name.clone(), reason: reason.to_owned(), class: None, log_tail: Some(log.clone()) };
        EngineFacts { ended: vec![ended], ..EngineFacts::default() }
    };
    store.record(epoch, &ended("exit status 1")).await.unwrap();
    store.record(epoch, &ended("something else")).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.engines.len(), 1, "the present engine is shown though it ended");
    let record = &snapshot.engines[0];
    assert!(record.ended_at_ms.is_some());
    assert_eq!(record.ended_reason.as_deref(), Some("exit status 1"), "the first report stands");
    assert_eq!(record.log_tail, None, "no plan reads a log");
    let described = store.engine(&name).await.unwrap().unwrap().record;
    assert_eq!(described.log_tail.as_ref().map(String::len), Some(MAX_LOG_TAIL_BYTES));
    let slot = &snapshot.slots[0];
    let renewal = Renewal {
        slot: slot.key.clone(),
        observed: slot.incarnation,
        failures: 1,
        replacement: Replacement::StandIn,
        condemn: None,
        ends: None,
    };
    store.new_incarnation(epoch, &renewal).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.engines.iter().map(|engine| &engine.name).collect::<Vec<_>>(), [&snapshot.slots[0].engine()]);
    let before = snapshot.engines[0].failure_before.as_deref();
    assert_eq!(before, Some("exit status 1"), "SHOW names it during the next attempt");
    // An engine that has ended is not condemned.
    bench.restart("r-1", &snapshot.slots[0].engine(), false).await.unwrap();
    assert_eq!(store.engine(&name).await.unwrap().unwrap().record.end_grace_ms, None);
}

pub async fn a_namespace_is_kept_for_a_day_after_its_last_pod(bench: Bench) {
    let bench = bench.founded(0).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let engine = bench.start("s-1").await.unwrap().engine;
    let in_use = |names: &[&str]| Publication {
        namespaces_in_use: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..Publication::default()
    };
    let a_day_passes = || async {
        let keep_ms = NAMESPACE_KEEP.as_millis();
        bench.raw(&format!("UPDATE namespace SET retired_at_ms = retired_at_ms - {keep_ms}")).await;
    };
    store.publish(epoch, &in_use(&["other"])).await.unwrap();
    let names = || async { store.snapshot().await.unwrap().namespaces };
    assert_eq!(names().await, ["other", "rp-1--t-1"]);
    // Nothing runs there: "other" is retired; the namespace of the slot is still needed.
    store.publish(epoch, &in_use(&[])).await.unwrap();
    a_day_passes().await;
    store.publish(epoch, &Publication::default()).await.unwrap();
    assert_eq!(names().await.len(), 2, "without a list no namespace is deleted");
    store.publish(epoch, &in_use(&[])).await.unwrap();
    assert_eq!(names().await, ["rp-1--t-1"]);
    bench.stop("s-2", &engine).await.unwrap();
    let ended = EndedEngine { name: engine, reason: "stopped".to_owned(), class: None, log_tail: None };
    store.record(epoch, &EngineFacts { ended: vec![ended], ..EngineFacts::default() }).await.unwrap();
    store.publish(epoch, &in_use(&["rp-1--t-1"])).await.unwrap();
    store.publish(epoch, &in_use(&[])).await.unwrap();
    store.publish(epoch, &in_use(&[])).await.unwrap();
    assert_eq!(names().await, ["rp-1--t-1"], "it is kept for a day");
    // An engine comes back within the day.
    bench.start("s-3").await.unwrap();
    a_day_passes().await;
    store.publish(epoch, &in_use(&[])).await.unwrap();
    assert_eq!(names().await, ["rp-1--t-1"]);
}

pub async fn a_null_character_of_an_engine_blocks_no_report(bench: Bench) {
    let bench = bench.founded(2).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let names = bench.present().await;
    let odd = ObservedEngine {
        reason: Some("a\0b".to_owned()),
        node: Some("n\0".to_owned()),
        address: Some("\0:1".to_owned()),
        log_tail: Some("\0\0end".to_owned()),
        details: std::sync::Arc::new([("d\0".to_owned(), "v\0".to_owned())].into()),
        ..seen(&names[0], Phase::Running)
    };
    let ended = EndedEngine {
        name: names[1].clone(),
        reason: "drained \0".to_owned(),
        class: None,
        log_tail: Some("log\0".to_owned()),
    };
    let report = Publication {
        engines: vec![odd],
        waits_for: Some("engine \0".to_owned()),
        complete: true,
        ..Publication::default()
    };
    store.record(epoch, &EngineFacts { ended: vec![ended], ..EngineFacts::default() }).await.unwrap();
    store.publish(epoch, &report).await.unwrap();
    let seen = store.engine(&names[0]).await.unwrap().unwrap().seen.unwrap().engine;
    let words = [seen.reason, seen.node, seen.address, seen.log_tail].map(Option::unwrap);
    assert_eq!(words, ["a\u{fffd}b", "n\u{fffd}", "\u{fffd}:1", "\u{fffd}\u{fffd}end"]);
    assert_eq!(seen.details.get("d\0").map(String::as_str), Some("v\0"), "JSON escapes it");
    let record = store.engine(&names[1]).await.unwrap().unwrap().record;
    assert_eq!(record.ended_reason.as_deref(), Some("drained \u{fffd}"));
    assert_eq!(record.log_tail.as_deref(), Some("log\u{fffd}"));
    assert_eq!(store.master().await.unwrap().waits_for.as_deref(), Some("engine \u{fffd}"));
}

/// In batched statements the exceptions of single rows are kept.
pub async fn a_batch_records_each_engine_like_a_single_report(bench: Bench) {
    const ENGINES: u32 = 700;
    bench.alter("a-1", super::bench::create_unit("uc_1", ENGINES, ENGINES)).await;
    bench.alter("a-2", super::bench::create_pool("rp_1", &["uc_1"])).await;
    bench.alter("a-3", super::bench::create_tenant("t_1", &["rp_1"], &[])).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let names = bench.present().await;
    assert_eq!(names.len(), ENGINES as usize);
    let unknown = EngineName::new("never-issued").unwrap();
    let made_all = |uid: &str| names.iter().map(|name| made(name, &format!("{uid}-{name}"))).collect::<Vec<_>>();
    let mut first = made_all("one");
    first.truncate(ENGINES as usize / 2);
    store.record(epoch, &EngineFacts { created: first.clone(), ..EngineFacts::default() }).await.unwrap();
    let mut second = made_all("two");
    second.push(made(&unknown, "x"));
    let recorded = store.record(epoch, &EngineFacts { created: second, ..EngineFacts::default() }).await.unwrap();
    let wanted: Vec<_> = first.iter().map(|made| (made.name.clone(), made.uid.clone())).collect();
    assert_eq!((recorded.other_uid, recorded.unknown), (wanted, vec![unknown.clone()]));
    let end = |name: &EngineName, reason: &str| EndedEngine {
        name: name.clone(),
        reason: reason.to_owned(),
        class: None,
        log_tail: (reason == "first").then(|| format!("log of {name}")),
    };
    let mut ended: Vec<_> = names.iter().skip(1).map(|name| end(name, "first")).collect();
    ended.push(end(&names[1], "second"));
    ended.push(end(&unknown, "first"));
    let engines = names.iter().map(|name| seen(name, Phase::Running)).collect();
    let recorded = store.record(epoch, &EngineFacts { ended, ..EngineFacts::default() }).await.unwrap();
    assert_eq!(recorded.unknown, [unknown]);
    store.publish(epoch, &Publication { engines, ..Publication::default() }).await.unwrap();
    let records = store.snapshot().await.unwrap().engines;
    assert_eq!(records.len(), ENGINES as usize);
    for record in &records {
        let uid = if first.iter().any(|made| made.name == record.name) { "one" } else { "two" };
        assert_eq!(record.uid.as_deref(), Some(format!("{uid}-{}", record.name).as_str()));
        assert_eq!(record.ended_reason.as_deref(), (record.name != names[0]).then_some("first"));
    }
    let log = store.engine(&names[5]).await.unwrap().unwrap().record.log_tail;
    assert_eq!(log, Some(format!("log of {}", names[5])));
    assert_eq!(store.overview(None).await.unwrap().observed.len(), ENGINES as usize);
    let kept = names.iter().take(3).cloned().collect();
    store.publish(epoch, &Publication { kept, complete: true, ..Publication::default() }).await.unwrap();
    assert_eq!(store.overview(None).await.unwrap().observed.len(), 3);
}

pub async fn current_engines_are_found_by_index_among_ended_ones(bench: Bench) {
    let bench = bench.founded(2).await;
    let (store, epoch) = (&bench.store, bench.epoch().await);
    let ended =
        EndedEngine { name: bench.present().await[0].clone(), reason: "over".to_owned(), class: None, log_tail: None };
    store.record(epoch, &EngineFacts { ended: vec![ended], ..EngineFacts::default() }).await.unwrap();
    // 6,400 that ended long ago, with lower numbers than all others.
    let digits = |name: &str| format!("{name}(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM {name} WHERE i < 80)");
    bench
        .raw(&format!(
            "INSERT INTO engine (name, tenant, pool, unit, ordinal, incarnation, namespace, config, issued_at_ms, \
             ended_at_ms) WITH RECURSIVE {}, {} SELECT CONCAT('old-', a.i * 100 + b.i), 't_1', 'rp_1', 'uc_1', \
             a.i, -(a.i * 100 + b.i), 'n', '', 1, 2 FROM a CROSS JOIN b",
            digits("a"),
            digits("b")
        ))
        .await;
    let is_mariadb = store.backend() == metadata::Backend::Mariadb;
    bench.raw(if is_mariadb { "ANALYZE TABLE engine, slot" } else { "ANALYZE" }).await;
    let plan = store.engines_plan().await.unwrap().join("\n");
    let scans = match store.backend() {
        metadata::Backend::Sqlite => plan.lines().any(|line| line.contains("SCAN engine") || line.contains("SCAN e")),
        metadata::Backend::Postgres => plan.contains("Seq Scan on engine"),
        // The access path follows the name of each table; all slots are read.
        metadata::Backend::Mariadb => plan.split("\"table_name\": ").skip(1).any(|table| {
            let of_engine = table.starts_with("\"engine\"") || table.starts_with("\"e\"");
            of_engine && table.contains("\"access_type\": \"ALL\"")
        }),
    };
    assert!(!scans, "{plan}");
    assert_eq!(store.snapshot().await.unwrap().engines.len(), 2);
}
