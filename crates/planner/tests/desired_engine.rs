//! The desired engine in a create decision.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use std::collections::BTreeMap;

use cluster::Cluster;
use model::instance::InstanceKind;
use planner::{Action, DesiredEngine};

fn create_in_pool(pool: &[(&str, &str)]) -> DesiredEngine {
    create(InstanceKind::Process, pool)
}

fn create(kind: InstanceKind, pool: &[(&str, &str)]) -> DesiredEngine {
    let mut cluster = Cluster::new();
    cluster.simulation.desired.defaults.instances = kind;
    let pool: BTreeMap<&str, &str> = pool.iter().copied().chain([("units", "uc_1")]).collect();
    for object in [
        Cluster::unit("uc_1", &BTreeMap::from([("min", "1")])),
        Cluster::pool("rp_1", &pool),
        Cluster::tenant("t_1", &BTreeMap::from([("pools", "rp_1")])),
    ] {
        let change = cluster.change_to(object);
        cluster.commit(&change).unwrap();
        let plan = cluster.simulation.plan();
        let created = plan.decisions().find_map(|decision| match &decision.action {
            Action::CreateEngine(desired) => Some((**desired).clone()),
            _ => None,
        });
        if let Some(desired) = created {
            return desired;
        }
        cluster.settle(|_, _| {});
    }
    panic!("no engine is created");
}

#[test]
fn an_engine_is_created_with_nodes_image_and_cpu_of_its_pool() {
    let desired = create_in_pool(&[
        ("nodes", "node-1,node-2"),
        ("labels", "disk:ssd,zone:a"),
        ("overcommit", "200"),
        ("image", "registry:5000/engine:7"),
    ]);
    assert_eq!(desired.nodes.as_deref(), Some(&["node-1".to_owned(), "node-2".to_owned()][..]));
    assert_eq!(desired.node_selector, cluster::labels("disk:ssd,zone:a"));
    assert_eq!(desired.configuration.cpu_overcommit, Some(200));
    assert_eq!(desired.configuration.image, "registry:5000/engine:7");
    let plain = create_in_pool(&[]);
    assert_eq!((plain.nodes, plain.configuration.cpu_overcommit), (None, None));
    assert!(plain.node_selector.is_empty());
    assert_ne!(plain.labels.config, desired.labels.config);
}

#[test]
fn an_engine_is_created_with_the_charge_of_what_it_runs_in() {
    let requests = |kind| {
        let charge = create(kind, &[("nodes", "node-1"), ("overcommit", "200")]).charge;
        (charge.requests().cpu_millis, charge.requests().memory_bytes >> 20)
    };
    assert_eq!(requests(InstanceKind::Process), (1_000, 1_280));
    assert_eq!(requests(InstanceKind::Pod), (500, 1_280));
}
