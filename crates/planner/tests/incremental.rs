//! Inputs of many engines: when one changes, an incremental plan covers all engines.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use std::collections::BTreeSet;

use cluster::Cluster;
use planner::{IncrementalPlanner, Plan};

fn prepared() -> Cluster {
    let mut cluster = Cluster::new();
    for change in [
        Cluster::unit("uc_1", &[("min", "3")].into()),
        Cluster::pool("rp_1", &[("units", "uc_1"), ("labels", "zone:a")].into()),
        Cluster::tenant("t_1", &[("pools", "rp_1")].into()),
    ] {
        cluster.settle(|_, _| {});
        cluster.commit(&cluster.change_to(change)).unwrap();
    }
    cluster.settle(|_, _| {});
    let observed = &mut cluster.simulation.observed;
    for instance in &mut observed.instances {
        instance.node = Some("node-1".to_owned());
    }
    observed.nodes = [("node-1".to_owned(), [("zone".to_owned(), "a".to_owned())].into())].into();
    cluster
}

/// The incremental plan, which equals the full one.
fn planned(planner: &mut IncrementalPlanner, cluster: &Cluster) -> Plan {
    let mut delta = planner.compare(cluster.simulation.desired.clone(), cluster.simulation.observed.clone());
    let plan = planner.plan(&mut delta);
    planner.keep(delta);
    assert_eq!(plan, planner::plan(&cluster.simulation.desired, &cluster.simulation.observed));
    plan
}

#[test]
fn an_unchanged_engine_has_no_decision_and_keeps_its_row() {
    let (cluster, mut planner) = (prepared(), IncrementalPlanner::default());
    let first = planned(&mut planner, &cluster);
    let second = planned(&mut planner, &cluster);
    assert_eq!((first.chains.len(), first.rows.len()), (0, 3));
    let same = first.rows.iter().zip(&second.rows).all(|(one, other)| std::sync::Arc::ptr_eq(one, other));
    assert!(same, "unchanged rows are shared");
}

#[test]
fn a_relabelled_node_loses_all_its_engines() {
    let (mut cluster, mut planner) = (prepared(), IncrementalPlanner::default());
    assert!(planned(&mut planner, &cluster).chains.is_empty());
    cluster.simulation.observed.nodes.get_mut("node-1").unwrap().insert("zone".to_owned(), "b".to_owned());
    assert_eq!(planned(&mut planner, &cluster).chains.len(), 3);
}

#[test]
fn an_altered_unit_affects_all_its_engines() {
    let (mut cluster, mut planner) = (prepared(), IncrementalPlanner::default());
    assert!(planned(&mut planner, &cluster).chains.is_empty());
    cluster.commit(&cluster.change_to(Cluster::unit("uc_1", &[("memory", "2G")].into()))).unwrap();
    let plan = planned(&mut planner, &cluster);
    let waiting: BTreeSet<_> = plan.waits.iter().filter_map(|wait| wait.slot.clone()).collect();
    assert_eq!(waiting.len(), 3, "one slot's turn, and two that wait for theirs");
}
