//! Reservations of engines that exist: adoption, confirmation, deadlines, and when a charge is returned.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use std::sync::Arc;
use std::time::Duration;

use cluster::pools::{commit, count, ledger_changes, reasons, running, settle, start, tick, verbs, with, with_nodes};
use cluster::{Cluster, slot_key};
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::ledger::{Change, State};
use model::observed_pods::{ObservedPods, PodSize};
use planner::{Action, NodeAmount};

#[test]
fn running_engines_are_adopted_before_anything_is_granted_in_their_pool() {
    let mut cluster = with(&["t_a", "t_b"], "1", &[("capacity", "2")]);
    commit(&mut cluster, Cluster::pool("rp_2", &[("units", "uc_1")].into()));
    commit(&mut cluster, Cluster::tenant("t_b", &[("pools", "rp_1,rp_2")].into()));
    let engine = start(&mut cluster, "t_a", 1).remove(0);
    settle(&mut cluster);
    cluster.lose_reservation(engine.as_str());
    start(&mut cluster, "t_b", 2);
    cluster.start("t_b/rp_2/uc_1");
    let plan = tick(&mut cluster);
    let adopted = ledger_changes(&plan).filter(|change| matches!(change, Change::Adopt { .. })).count();
    assert_eq!((adopted, count(&plan, "rp_1"), count(&plan, "rp_2")), (1, None, Some(0)));
    let created: Vec<&EngineName> =
        plan.chains.iter().filter_map(|chain| chain.decisions.get(1)?.engine.as_ref()).collect();
    assert!(created.iter().all(|name| name.as_str().starts_with("t-b-rp-2")), "{created:?}");
    let waits =
        plan.waits.iter().filter(|wait| wait.reason == "waits until resource pool \"rp_1\" has counted its engines");
    assert_eq!(waits.count(), 2);
    assert_eq!(cluster.reservation(&engine).map(|held| held.state), Some(State::Used));
    let plan = settle(&mut cluster);
    assert_eq!((running(&cluster), count(&plan, "rp_1")), (3, Some(1)), "one of the two fits");
}

/// The row of the slot had the user that its engines are charged to. The reservation of a newer engine still has it.
#[test]
fn an_engine_without_slot_and_reservation_is_charged_with_the_others_of_its_slot() {
    let mut cluster = with(&["t_a"], "1", &[("capacity", "4")]);
    let old = cluster.start_for("t_a/rp_1/uc_1", "alice");
    settle(&mut cluster);
    commit(&mut cluster, Cluster::unit("uc_1", &[("memory", "2G")].into()));
    let new = cluster.engine("t_a/rp_1/uc_1/0");
    assert_ne!(old, new, "it stands in");
    cluster.stop(&slot_key("t_a/rp_1/uc_1/0"));
    cluster.lose_reservation(old.as_str());
    // Each change of this plan is judged, and is accepted.
    let plan = tick(&mut cluster);
    assert!(ledger_changes(&plan).any(|change| matches!(change, Change::Adopt { .. })), "{:?}", verbs(&plan));
    let scopes = |cluster: &Cluster, name| cluster.reservation(name).unwrap().request.scopes.clone();
    assert_eq!(scopes(&cluster, &old), scopes(&cluster, &new));
    assert_eq!(scopes(&cluster, &old).user_name(), Some("alice"));
    settle(&mut cluster);
    assert_eq!(running(&cluster), 0);
}

#[test]
fn an_engine_is_charged_until_nothing_is_listed_under_its_name() {
    let mut cluster = with(&["t_a"], "1", &[("capacity", "1")]);
    let engine = start(&mut cluster, "t_a", 1).remove(0);
    settle(&mut cluster);
    cluster.stop(&slot_key("t_a/rp_1/uc_1/0"));
    start(&mut cluster, "t_a", 1);
    tick(&mut cluster);
    let state = |cluster: &Cluster| cluster.reservation(&engine).map(|held| held.state);
    for phase in [Phase::Running, Phase::Terminating] {
        cluster.simulation.observed.instances[0].phase = phase;
        let plan = tick(&mut cluster);
        assert_eq!((state(&cluster), reasons(&plan).len()), (Some(State::Used), 1), "{phase:?}");
    }
    cluster.simulation.observed.instances.clear();
    let plan = tick(&mut cluster);
    assert!(
        ledger_changes(&plan).any(|change| matches!(change, Change::End(end) if end.state == State::Lost)),
        "no end was recorded"
    );
    assert!(verbs(&plan).contains(&"create engine"), "by the same plan");
}

#[test]
fn a_registered_engine_is_confirmed_whatever_its_deadline() {
    let mut cluster = with(&["t_a"], "1", &[("capacity", "1")]);
    let engine = start(&mut cluster, "t_a", 1).remove(0);
    tick(&mut cluster);
    assert!(cluster.simulation.register(&engine));
    cluster.simulation.advance(Duration::from_mins(7));
    let plan = tick(&mut cluster);
    assert_eq!(verbs(&plan), ["confirm reservation"]);
    assert_eq!(cluster.reservation(&engine).map(|held| held.state), Some(State::Used));
    assert!(tick(&mut cluster).chains.is_empty());
}

#[test]
fn an_engine_that_does_not_register_in_time_is_replaced_and_counts_as_a_failure() {
    let mut cluster = with(&["t_a"], "1", &[("capacity", "2")]);
    start(&mut cluster, "t_a", 1);
    tick(&mut cluster);
    let now_ms = cluster.simulation.desired.snapshot.now_ms;
    assert_eq!(cluster.simulation.plan().next_due(now_ms), Some(Duration::from_mins(6)));
    cluster.simulation.observed.instances[0].reason = Some("ImagePullBackOff".to_owned());
    cluster.simulation.advance(Duration::from_mins(6));
    cluster.simulation.observed.registry_complete = false;
    assert!(tick(&mut cluster).chains.is_empty(), "it may be registered");
    cluster.simulation.observed.registry_complete = true;
    let plan = tick(&mut cluster);
    let renewed = plan.decisions().next().unwrap();
    assert_eq!(renewed.reason, "not registered within 6m: ImagePullBackOff");
    assert!(matches!(renewed.action, Action::DrawIncarnation { failures: 1, .. }));
    let plan = tick(&mut cluster);
    assert!(verbs(&plan).contains(&"reserve") && verbs(&plan).contains(&"drain engine"), "{:?}", verbs(&plan));
    settle(&mut cluster);
    assert_eq!(running(&cluster), 1);
}

#[test]
fn an_engine_that_is_not_created_in_time_is_renewed_without_a_failure() {
    let mut cluster = with(&["t_a"], "1", &[("capacity", "1")]);
    let first = start(&mut cluster, "t_a", 1).remove(0);
    let plan = cluster.simulation.plan();
    cluster.apply_first(&plan, 1);
    assert_eq!(
        verbs(&cluster.simulation.plan()),
        ["create permit", "create engine", "record uid", "write uid into permit"]
    );
    cluster.simulation.advance(Duration::from_mins(6));
    let plan = tick(&mut cluster);
    let renewed = plan.decisions().next().unwrap();
    assert_eq!(renewed.reason, "not created within 6m");
    assert!(matches!(renewed.action, Action::DrawIncarnation { failures: 0, .. }));
    let plan = tick(&mut cluster);
    assert_eq!(verbs(&plan)[..2], ["end reservation", "reserve"]);
    assert!(cluster.reservation(&first).is_none_or(|held| held.state == State::Released));
}

#[test]
fn a_slot_whose_reservation_has_ended_receives_another_name() {
    let mut cluster = with(&["t_a"], "1", &[]);
    let first = start(&mut cluster, "t_a", 1).remove(0);
    let plan = cluster.simulation.plan();
    cluster.apply_first(&plan, 1);
    cluster.end_reservation(first.as_str());
    let plan = tick(&mut cluster);
    assert_eq!(verbs(&plan), ["draw incarnation"]);
    assert_eq!(plan.decisions().next().unwrap().reason, "the reservation of the current engine has ended: it is lost");
    settle(&mut cluster);
    assert_eq!(running(&cluster), 1);
}

#[test]
fn without_limits_a_reservation_has_no_deadline_and_nothing_is_explained() {
    let mut cluster = with(&["t_a"], "1", &[]);
    let engine = start(&mut cluster, "t_a", 1).remove(0);
    let rows = cluster.explain_now();
    assert_eq!(rows[0].decision, "create permit");
    assert!(rows.iter().all(|row| !row.decision.contains("reserv")), "{rows:?}");
    tick(&mut cluster);
    assert_eq!(cluster.reservation(&engine).unwrap().deadline_ms, None);
    cluster.simulation.advance(Duration::from_hours(1));
    assert!(tick(&mut cluster).chains.is_empty(), "an engine that never registers stays");
}

#[test]
fn an_old_stand_in_is_adopted_with_what_its_pods_request() {
    let mut cluster = with_nodes("1", &[("nodes", "node-0,node-1")]);
    let engine = start(&mut cluster, "t_a", 1).remove(0);
    settle(&mut cluster);
    let charged = cluster.reservation(&engine).unwrap().amounts;
    let observe = |cluster: &mut Cluster, pods: Option<&ObservedPods>| {
        let instances = &mut cluster.simulation.observed.instances;
        let instance = instances.iter_mut().find(|instance| instance.name == engine).unwrap();
        instance.pods = pods.cloned().map(Arc::new);
    };
    let pods = ObservedPods::of_driver(size(1_000, 1_280), Some("node-0"));
    commit(&mut cluster, Cluster::unit("uc_1", &[("cpu", "4"), ("memory", "4G")].into()));
    let adopted = |cluster: &mut Cluster| {
        cluster.lose_reservation(engine.as_str());
        tick(cluster);
        cluster.reservation(&engine).unwrap().amounts
    };
    observe(&mut cluster, Some(&pods));
    assert_eq!(adopted(&mut cluster), charged, "not by the current configuration of its slot");
    observe(&mut cluster, None);
    assert_eq!(adopted(&mut cluster).requests().cpu_m, 4_000, "a local process has no pods");
    // Its unit is gone.
    observe(&mut cluster, Some(&pods));
    cluster.simulation.desired.snapshot.catalog.units.clear();
    assert_eq!(adopted(&mut cluster), charged);
}

#[test]
fn an_adopted_spark_engine_is_charged_its_executors_and_those_that_it_may_have() {
    let unit = [("type", "SPARK"), ("executors", "2"), ("executor_cpu", "1")];
    let mut cluster = with_nodes("1", &[("nodes", "node-0,node-1")]);
    commit(&mut cluster, Cluster::unit("uc_1", &unit.into()));
    let engine = start(&mut cluster, "t_a", 1).remove(0);
    settle(&mut cluster);
    let charged = cluster.reservation(&engine).unwrap().amounts;
    let mut pods = ObservedPods::of_driver(size(1_100, 1_664), Some("node-0"));
    let mut adopted = |pods: &ObservedPods| {
        cluster.simulation.observed.instances[0].pods = Some(Arc::new(pods.clone()));
        cluster.lose_reservation(engine.as_str());
        tick(&mut cluster);
        cluster.reservation(&engine).unwrap().amounts
    };
    assert_eq!(adopted(&pods), charged, "none exists yet");
    let executor = charged.requests().memory - (1_664 << 20);
    let executor = PodSize {
        cpu_millis: 1_000,
        requests: NodeAmount { cpu_millis: 1_000, memory_bytes: executor.unsigned_abs() / 2 },
    };
    pods.add_executor(executor, "node-1");
    assert_eq!(adopted(&pods), charged, "one exists");
    let large = PodSize { cpu_millis: 3_000, requests: NodeAmount { cpu_millis: 3_000, ..executor.requests } };
    let mut large_pods = ObservedPods::of_driver(pods.driver, Some("node-0"));
    large_pods.add_executor(large, "node-1");
    assert_eq!(adopted(&large_pods).requests().cpu_m, 1_100 + 2 * 3_000, "of the size that exists");
    for _ in 0..3 {
        large_pods.add_executor(large, "node-1");
    }
    assert_eq!(adopted(&large_pods).requests().cpu_m, 1_100 + 4 * 3_000, "as many as exist");
}

fn size(cpu_millis: u64, memory_mib: u64) -> PodSize {
    PodSize { cpu_millis, requests: NodeAmount { cpu_millis, memory_bytes: memory_mib << 20 } }
}
