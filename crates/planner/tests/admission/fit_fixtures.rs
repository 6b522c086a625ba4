//! Node fit: the table of the design, and the nodes that are unknown, closed or of several pools.

use std::collections::BTreeMap;

use model::catalog::{Catalog, PoolSpec, Versioned};
use model::charge::{Charge, Container, DriverPod, ExecutorPods};
use model::name::PoolName;
use model::number::Generation;
use model::observation::ObservedNode;
use planner::{NodeAmount, NodeCapacity, Nodes, NodesFull, Oversized, Pods};

/// An amount with as many GiB as cores.
const fn cores(count: u64) -> NodeAmount {
    NodeAmount { cpu_millis: 1_000 * count, memory_bytes: count << 30 }
}

fn name(number: usize) -> String {
    format!("node-{number:03}")
}

/// Nodes of `size` cores that have these left, all of pool `rp_1`.
fn nodes(size: u64, free: &[u64]) -> Nodes {
    let node = |(number, free): (usize, &u64)| NodeCapacity {
        name: name(number),
        allocatable: cores(size),
        used: cores(size - free),
        open: true,
    };
    Nodes::new(free.iter().enumerate().map(node), [("rp_1".to_owned(), (0..free.len()).map(name).collect())])
}

fn engine(driver: u64, executors: u32, executor: u64) -> Pods {
    Pods { driver: cores(driver), executor: cores(executor), executors }
}

fn left(nodes: &Nodes, count: usize) -> Vec<u64> {
    (0..count).map(|number| nodes.free(&name(number)).unwrap().cpu_millis / 1_000).collect()
}

#[test]
fn the_fullest_node_that_fits_is_filled_first() {
    let mut nodes = nodes(8, &[8, 8]);
    assert!(nodes.take("rp_1", &engine(1, 3, 4)).is_ok());
    assert_eq!(left(&nodes, 2), [0, 3]);
}

#[test]
fn a_pod_larger_than_every_node_never_fits() {
    let nodes = nodes(4, &[4, 4, 4]);
    let large = engine(1, 2, 5);
    assert_eq!(nodes.oversized("rp_1", &large), Some(Oversized { pod: cores(5), largest: cores(4) }));
    assert_eq!(nodes.oversized("rp_1", &engine(5, 0, 9)), Some(Oversized { pod: cores(5), largest: cores(4) }));
    assert_eq!(nodes.oversized("rp_1", &engine(4, 0, 9)), None, "no executor needs a node");
}

#[test]
fn large_pods_are_put_on_nodes_before_small_ones() {
    let mut nodes = nodes(8, &[2, 3, 3]);
    assert!(nodes.take("rp_1", &engine(1, 2, 3)).is_ok());
    assert_eq!(left(&nodes, 3), [1, 0, 0]);
}

#[test]
fn an_engine_that_fits_only_on_empty_nodes_is_queued_whole() {
    let mut nodes = nodes(8, &[3, 3, 2]);
    let engine = engine(1, 2, 4);
    assert_eq!(nodes.oversized("rp_1", &engine), None);
    assert_eq!(nodes.take("rp_1", &engine), Err(NodesFull { asked: 3, left: 0 }));
    assert_eq!(left(&nodes, 3), [3, 3, 2]);
}

#[test]
fn a_driver_without_a_node_returns_what_the_executors_took() {
    let mut nodes = nodes(8, &[4, 4]);
    assert_eq!(nodes.take("rp_1", &engine(1, 2, 4)), Err(NodesFull { asked: 3, left: 2 }));
    assert_eq!(left(&nodes, 2), [4, 4]);
    assert!(nodes.take("rp_1", &engine(4, 1, 4)).is_ok());
}

#[test]
fn whole_engines_run_where_drivers_alone_would_fill_the_pool() {
    let mut nodes = nodes(4, &[4, 4, 4]);
    let granted = (0..12).filter(|_| nodes.take("rp_1", &engine(1, 2, 1)).is_ok()).count();
    assert_eq!((granted, left(&nodes, 3)), (4, vec![0, 0, 0]));
}

#[test]
fn a_hundred_thousand_executors_are_put_on_nodes_by_count() {
    let mut nodes = nodes(101, &[101; 1_000]);
    assert!(nodes.take("rp_1", &engine(1, 100_000, 1)).is_ok());
    let (full, driver) = (left(&nodes, 1_000), 990);
    // The driver and 100 executors are on the first, 101 executors on each of 989 others, and 11 on the next.
    assert!(full.iter().take(driver).all(|left| *left == 0));
    assert_eq!((full[driver], full[driver + 1]), (90, 101));
}

#[test]
fn unknown_nodes_refuse_nothing_and_known_ones_are_used_first() {
    let known = NodeCapacity { name: name(0), allocatable: cores(4), used: cores(0), open: true };
    let mut nodes = Nodes::new([known], [("rp_1".to_owned(), vec![name(0), name(1)])]);
    assert_eq!(nodes.oversized("rp_1", &engine(9, 0, 0)), None);
    assert!(nodes.take("rp_1", &engine(1, 2, 3)).is_ok());
    assert_eq!(left(&nodes, 1), [0]);
    assert!(nodes.take("rp_2", &engine(9, 9, 9)).is_ok(), "nothing is known of the pool");
}

#[test]
fn a_pool_without_nodes_is_full_and_its_pods_are_not_too_large() {
    let mut nodes = Nodes::new([], [("rp_1".to_owned(), Vec::new())]);
    assert_eq!(nodes.oversized("rp_1", &engine(1, 0, 0)), None);
    assert_eq!(nodes.take("rp_1", &engine(1, 0, 0)), Err(NodesFull { asked: 1, left: 0 }));
}

#[test]
fn engines_of_two_pools_share_the_nodes_that_both_have() {
    let all =
        [0, 1].map(|number| NodeCapacity { name: name(number), allocatable: cores(4), used: cores(0), open: true });
    let pools = [("rp_1".to_owned(), vec![name(0)]), ("rp_2".to_owned(), vec![name(0), name(1)])];
    let mut nodes = Nodes::new(all, pools);
    assert!(nodes.take("rp_2", &engine(1, 0, 0)).is_ok());
    assert_eq!(left(&nodes, 2), [3, 4]);
    assert_eq!(nodes.take("rp_1", &engine(4, 0, 0)), Err(NodesFull { asked: 1, left: 0 }));
    assert!(nodes.take("rp_2", &engine(3, 0, 0)).is_ok(), "on the fullest node");
    assert_eq!(left(&nodes, 2), [0, 4]);
}

#[test]
fn what_is_returned_can_be_taken_except_on_a_closed_node() {
    let closed = NodeCapacity { name: name(0), allocatable: cores(4), used: cores(4), open: false };
    let overfull = NodeCapacity { name: name(1), allocatable: cores(4), used: cores(6), open: true };
    let mut nodes = Nodes::new([closed, overfull], [("rp_1".to_owned(), vec![name(0), name(1)])]);
    assert_eq!(nodes.oversized("rp_1", &engine(4, 0, 0)), None, "it fits on the closed node when that is empty");
    for number in [0, 1, 2] {
        nodes.give_back(&name(number), cores(3));
    }
    assert_eq!(left(&nodes, 2), [0, 1], "a node that has shrunk has 2 less than was returned");
    assert!(nodes.take("rp_1", &engine(1, 0, 0)).is_ok());
}

#[test]
fn the_nodes_of_a_pool_are_those_that_it_admits_and_its_unknown_ones() {
    let node = |number: usize, zone: &str| ObservedNode {
        name: name(number),
        labels: [("zone".to_owned(), zone.to_owned())].into(),
        cpu_millis: 4_000,
        memory_bytes: 4 << 30,
        cpu_used_millis: 1_000,
        memory_used_bytes: 1 << 30,
        open: true,
        ready: true,
    };
    let selector: BTreeMap<String, String> = [("zone".to_owned(), "a".to_owned())].into();
    let mut catalog = Catalog::default();
    for (name, nodes, node_selector) in [
        ("rp_any", None, BTreeMap::new()),
        ("rp_zone", None, selector.clone()),
        ("rp_both", Some(vec![name(0), name(1)]), selector.clone()),
        ("rp_unknown", Some(vec![name(1), name(7)]), selector),
    ] {
        let spec = PoolSpec { nodes, node_selector, ..PoolSpec::default() };
        catalog.pools.insert(PoolName::new(name).unwrap(), Versioned { spec, generation: Generation(1) });
    }
    let observed = [node(1, "b"), node(0, "a"), node(2, "a")];
    let fits = |pool_name: &str, executors: u32| {
        Nodes::observed(&observed, &catalog).take(pool_name, &engine(3, executors, 3)).is_ok()
    };
    assert_eq!([2, 3].map(|executors| fits("rp_any", executors)), [true, false]);
    assert_eq!([1, 2].map(|executors| fits("rp_zone", executors)), [true, false]);
    assert_eq!([0, 1].map(|executors| fits("rp_both", executors)), [true, false]);
    assert_eq!([0, 1].map(|executors| fits("rp_unknown", executors)), [true, true]);
    assert!(Nodes::observed(&[], &catalog).take("rp_any", &engine(9, 9, 9)).is_ok());
}

#[test]
fn the_pods_are_those_of_the_charge() {
    let container = |cpu_request_millis, memory_bytes| Container {
        cpu_millis: 9_000,
        cpu_request_millis,
        memory_bytes,
        overhead_bytes: 10,
    };
    let driver = DriverPod { engine: container(500, 100), agent: Some(container(100, 0)) };
    let executors = Some(ExecutorPods { count: 2, container: container(700, 200) });
    let amount = |cpu_millis, memory_bytes| NodeAmount { cpu_millis, memory_bytes };
    let expected = Pods { driver: amount(600, 120), executor: amount(700, 210), executors: 2 };
    assert_eq!(Pods::from(&Charge { driver, executors }), expected);
    let single = Charge { driver: DriverPod { agent: None, ..driver }, executors: None };
    assert_eq!(Pods::from(&single), Pods::single(amount(500, 110)));
}
