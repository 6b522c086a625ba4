//! Spark engines on nodes: executors that are not there yet keep their nodes, and a larger successor in place is checked before
//! its predecessor drains.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use std::sync::Arc;

use cluster::pools::{
    commit, idle, ledger_changes, nodes, quota, reasons, retired, running, settle, start, tick, verbs, with_nodes,
};
use cluster::{Cluster, slot_key};
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::ledger::Change;
use model::observed_pods::{ObservedPods, PodSize};
use model::slot::Replacement;
use planner::{Action, NodeAmount, Plan};

const SLOT: &str = "t_a/rp_1/uc_1/0";
/// Of a driver of 1 CPU with its agent.
const DRIVER: PodSize = size(1_100, 1_664);

const fn size(cpu_millis: u64, memory_mib: u64) -> PodSize {
    PodSize { cpu_millis, requests: NodeAmount { cpu_millis, memory_bytes: memory_mib << 20 } }
}

/// An executor with this many cores.
const fn executor(cores: u64) -> PodSize {
    size(1_000 * cores, 1_408)
}

/// A pool with nodes of so many cores, and a unit of Spark with so many executors of so many cores.
fn spark(cores: &[u64], executors: &str, executor_cpu: &str) -> Cluster {
    let names: Vec<String> = (0..cores.len()).map(|number| format!("node-{number}")).collect();
    let mut cluster = with_nodes("1", &[("nodes", &names.join(","))]);
    alter(&mut cluster, executors, executor_cpu, Replacement::StandIn);
    nodes(&mut cluster, cores);
    cluster
}

fn alter(cluster: &mut Cluster, executors: &str, executor_cpu: &str, replacement: Replacement) {
    let options = [("type", "SPARK"), ("executors", executors), ("executor_cpu", executor_cpu)];
    let change = cluster.change_to(Cluster::unit("uc_1", &options.into()));
    cluster.commit_with(&change, replacement).unwrap();
}

/// The orchestrator observes the driver on the first node, and executors on these nodes.
fn observe(cluster: &mut Cluster, engine: &EngineName, executors: &[(PodSize, &str)]) {
    let mut pods = ObservedPods::of_driver(DRIVER, Some("node-0"));
    for (size, node) in executors {
        pods.add_executor(*size, node);
    }
    let observed = &mut cluster.simulation.observed;
    for node in &mut observed.capacity {
        node.used = pods.on_nodes.get(&node.name).copied().unwrap_or_default();
    }
    let instance = observed.instances.iter_mut().find(|instance| instance.name == *engine).unwrap();
    (instance.node, instance.pods) = (Some("node-0".to_owned()), Some(Arc::new(pods)));
}

fn is_drained(plan: &Plan) -> bool {
    plan.decisions().any(|decision| matches!(decision.action, Action::Drain { .. }))
}

#[test]
fn executors_that_are_on_no_node_yet_keep_their_nodes() {
    let mut cluster = spark(&[6], "2", "1");
    let first = start(&mut cluster, "t_a", 1).remove(0);
    settle(&mut cluster);
    start(&mut cluster, "t_a", 1);
    let reason =
        "queued at position 1: resource pool \"rp_1\": asked nodes for 3 pods, left for 2 (POOL_NODES, retryable)";
    let there = [(executor(1), "node-0"), (executor(1), "node-0")];
    for count in 0..=2 {
        observe(&mut cluster, &first, &there[..count]);
        assert_eq!(reasons(&tick(&mut cluster)), [reason], "{count} executors are there");
    }
    // A larger node has capacity for both, wherever the executors of the first are.
    nodes(&mut cluster, &[7]);
    observe(&mut cluster, &first, &there[..1]);
    assert!(reasons(&cluster.simulation.plan()).is_empty());
    observe(&mut cluster, &first, &there);
    assert!(reasons(&tick(&mut cluster)).is_empty());
    assert_eq!(running(&cluster), 2);
}

#[test]
fn an_engine_that_ends_needs_no_nodes_for_executors() {
    let mut cluster = spark(&[6], "2", "1");
    let first = start(&mut cluster, "t_a", 1).remove(0);
    settle(&mut cluster);
    observe(&mut cluster, &first, &[]);
    cluster.simulation.observed.instances[0].phase = Phase::Terminating;
    cluster.stop(&slot_key(SLOT));
    start(&mut cluster, "t_a", 1);
    assert!(reasons(&tick(&mut cluster)).is_empty());
}

#[test]
fn a_driver_that_has_ended_is_charged_while_an_executor_is_left() {
    let mut cluster = spark(&[6], "1", "1");
    let engine = start(&mut cluster, "t_a", 1).remove(0);
    settle(&mut cluster);
    let mut ended = |executors: &[PodSize]| {
        let mut pods = ObservedPods::of_driver(DRIVER, None);
        for size in executors {
            pods.add_executor(*size, "node-0");
        }
        let instance = &mut cluster.simulation.observed.instances[0];
        (instance.phase, instance.pods) = (Phase::Ended, Some(Arc::new(pods)));
        let plan = cluster.simulation.plan();
        ledger_changes(&plan).any(|change| matches!(change, Change::End(end) if *end.id == *engine.as_str()))
    };
    assert!(!ended(&[executor(1)]));
    assert!(ended(&[]), "in the plan that also records the end of the engine");
}

/// A Spark engine that serves on two nodes of 3 cores, with its executors there.
fn serving(executors: &str, there: &[(PodSize, &str)]) -> (Cluster, EngineName) {
    let mut cluster = spark(&[3, 3], executors, "1");
    let engine = start(&mut cluster, "t_a", 1).remove(0);
    settle(&mut cluster);
    observe(&mut cluster, &engine, there);
    (cluster, engine)
}

#[test]
fn a_successor_in_place_with_a_pod_larger_than_any_node_drains_nothing() {
    let (mut cluster, old) = serving("2", &[(executor(1), "node-0"), (executor(1), "node-1")]);
    alter(&mut cluster, "2", "4", Replacement::InPlace);
    for _ in 0..3 {
        let plan = tick(&mut cluster);
        assert!(!is_drained(&plan), "{:?}", verbs(&plan));
        let [reason] = reasons(&plan)[..] else { panic!("{:?}", plan.waits) };
        assert!(reason.starts_with("cannot start") && reason.contains("POD_LARGER_THAN_ANY_NODE"), "{reason}");
    }
    let observed = &cluster.simulation.observed;
    assert!(observed.registrations.iter().any(|registration| registration.engine == old), "the older engine serves");
    assert!(cluster.simulation.desired.snapshot.alterations.is_empty(), "it delays no alteration");
}

#[test]
fn a_larger_successor_in_place_drains_only_if_it_fits_without_its_predecessor() {
    let there = [(executor(1), "node-0"), (executor(1), "node-1")];
    let (mut cluster, old) = serving("2", &there);
    alter(&mut cluster, "2", "2", Replacement::InPlace);
    for _ in 0..3 {
        let plan = tick(&mut cluster);
        let reason = "queued at position 1: resource pool \"rp_1\": asked nodes for 3 pods, left for 2 \
                      (POOL_NODES, retryable)";
        assert_eq!((reasons(&plan), is_drained(&plan)), (vec![reason], false));
    }
    // Without what its predecessor returns it would not fit on these nodes either.
    nodes(&mut cluster, &[4, 3]);
    observe(&mut cluster, &old, &there);
    assert!(is_drained(&tick(&mut cluster)));
    cluster.simulation.exit_drained();
    nodes(&mut cluster, &[4, 3]);
    settle(&mut cluster);
    assert_eq!(running(&cluster), 1);
    assert!(cluster.simulation.observed.instances.iter().all(|instance| instance.name != old));
}

#[test]
fn fewer_and_larger_executors_are_checked_although_their_sum_is_the_same() {
    let there = ["node-0", "node-1", "node-1", "node-1"].map(|node| (executor(1), node));
    let (mut cluster, _) = serving("4", &there);
    alter(&mut cluster, "2", "2", Replacement::InPlace);
    let plan = tick(&mut cluster);
    assert!(
        reasons(&plan).iter().any(|reason| reason.contains("POOL_NODES")) && !is_drained(&plan),
        "{:?}",
        plan.waits
    );
}

#[test]
fn a_successor_in_place_of_the_same_size_needs_no_other_nodes() {
    let there = [(executor(1), "node-0"), (executor(1), "node-1")];
    let (mut cluster, _) = serving("2", &there);
    // More than the nodes have, after they have shrunk.
    cluster.simulation.observed.capacity.iter_mut().for_each(|node| node.allocatable.cpu_millis = 500);
    cluster.restart(&slot_key(SLOT), Replacement::InPlace);
    assert!(is_drained(&tick(&mut cluster)));
}

#[test]
fn without_observed_pods_the_executors_of_a_successor_refuse_nothing() {
    let (mut cluster, _) = serving("2", &[(executor(1), "node-0")]);
    cluster.simulation.observed.instances[0].pods = None;
    alter(&mut cluster, "2", "2", Replacement::InPlace);
    assert!(is_drained(&tick(&mut cluster)));
}

#[test]
fn an_idle_engine_is_reclaimed_for_the_nodes_of_its_executors() {
    for there in 0..=2 {
        let mut cluster = spark(&[5], "2", "1");
        commit(&mut cluster, Cluster::tenant("t_b", &[("pools", "rp_1")].into()));
        quota(&mut cluster, "t_a", "1", "unlimited");
        quota(&mut cluster, "t_b", "4", "unlimited");
        let borrower = start(&mut cluster, "t_a", 1).remove(0);
        settle(&mut cluster);
        observe(&mut cluster, &borrower, &[(executor(1), "node-0"), (executor(1), "node-0")][..there]);
        idle(&mut cluster);
        start(&mut cluster, "t_b", 1);
        let plan = cluster.simulation.plan();
        let retired: Vec<&EngineName> = retired(&plan).into_iter().map(|(engine, _)| engine).collect();
        assert_eq!(retired, [&borrower], "{there} executors are there: {:?}", plan.waits);
    }
}
