//! Node fit, compared with a reference that puts one pod on a node after the other.
//!
//! A failure prints the nodes and the engines, and proptest the seed.

use std::cmp::Reverse;

use planner::{NodeAmount, NodeCapacity, Nodes, Pods};
use proptest::prelude::*;

fn amount(largest: u64) -> impl Strategy<Value = NodeAmount> {
    (0..=largest, 0..=largest).prop_map(|(cpu_millis, memory_bytes)| NodeAmount { cpu_millis, memory_bytes })
}

fn nodes() -> impl Strategy<Value = Vec<NodeCapacity>> {
    let node = (amount(12), amount(6), prop::bool::weighted(0.9));
    prop::collection::vec(node, 0..7).prop_map(|nodes| {
        let node = |(number, (allocatable, used, open))| NodeCapacity {
            // The order of the names is not that of the list.
            name: format!("node-{}", 9 - number),
            allocatable,
            used,
            open,
        };
        nodes.into_iter().enumerate().map(node).collect()
    })
}

fn engines() -> impl Strategy<Value = Vec<Pods>> {
    let engine = (amount(5), amount(7), 0..6u32);
    prop::collection::vec(engine.prop_map(|(driver, executor, executors)| Pods { driver, executor, executors }), 1..8)
}

/// A share of a whole as a fraction; 0 of 0 is nothing.
fn share(part: u64, whole: u64) -> (u64, u64) {
    (part, whole.max(1))
}

fn is_larger((part, whole): (u64, u64), (other_part, other_whole): (u64, u64)) -> bool {
    part * other_whole > other_part * whole
}

fn dominant(amount: NodeAmount, whole: NodeAmount) -> (u64, u64) {
    let (cpu, memory) = (share(amount.cpu_millis, whole.cpu_millis), share(amount.memory_bytes, whole.memory_bytes));
    if is_larger(memory, cpu) { memory } else { cpu }
}

/// The free amounts after every pod was put on a node; `None` if one fits on none. The nodes are in the order of their
/// names.
fn one_by_one(free: &[NodeAmount], whole: NodeAmount, pods: &Pods) -> Option<Vec<NodeAmount>> {
    let mut free = free.to_vec();
    let mut all = vec![pods.driver];
    all.extend(std::iter::repeat_n(pods.executor, pods.executors as usize));
    if is_larger(dominant(pods.executor, whole), dominant(pods.driver, whole)) {
        all.rotate_left(1);
    }
    for pod in all {
        let fitting = (0..free.len()).filter(|node| pod.fits(free[*node]));
        let fullest = fitting.reduce(|best, node| {
            if is_larger(dominant(free[best], whole), dominant(free[node], whole)) { node } else { best }
        })?;
        free[fullest] = free[fullest].minus(pod);
    }
    Some(free)
}

/// Whether any choice of nodes has capacity for all pods.
fn is_possible(free: &[NodeAmount], pods: &[NodeAmount]) -> bool {
    let Some((pod, rest)) = pods.split_first() else { return true };
    (0..free.len()).filter(|node| pod.fits(free[*node])).any(|node| {
        let mut after = free.to_vec();
        after[node] = after[node].minus(*pod);
        is_possible(&after, rest)
    })
}

const POOL: &str = "rp_1";

fn free(nodes: &Nodes, names: &[String]) -> Vec<NodeAmount> {
    names.iter().map(|name| nodes.free(name).unwrap()).collect()
}

fn sum(amounts: &[NodeAmount]) -> NodeAmount {
    amounts.iter().fold(NodeAmount::ZERO, |sum, amount| sum.plus(*amount))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn pods_are_put_where_one_after_the_other_would_be(all in nodes(), engines in engines()) {
        // With nothing in total every share is 0; the reference counts the amounts then.
        let allocatable: Vec<NodeAmount> = all.iter().map(|node| node.allocatable).collect();
        let whole = sum(&allocatable);
        prop_assume!(whole.cpu_millis > 0 && whole.memory_bytes > 0);
        let mut names: Vec<String> = all.iter().map(|node| node.name.clone()).collect();
        let mut nodes = Nodes::new(all, [(POOL.to_owned(), names.clone())]);
        names.sort();
        for pods in &engines {
            let before = free(&nodes, &names);
            let expected = one_by_one(&before, whole, pods);
            let taken = nodes.take(POOL, pods);
            let after = free(&nodes, &names);
            prop_assert_eq!(taken.is_ok(), expected.is_some(), "{:?}: {:?} on {:?}", taken, pods, before);
            prop_assert_eq!(&after, &expected.unwrap_or_else(|| before.clone()), "{:?} on {:?}", pods, before);
            if taken.is_ok() {
                let requested = pods.driver.plus(pods.executor.times(u64::from(pods.executors)));
                prop_assert_eq!(sum(&after).plus(requested), sum(&before), "nothing is counted twice or not at all");
            }
        }
    }

    #[test]
    fn an_engine_that_no_choice_of_nodes_can_run_is_refused(all in nodes(), pods in engines()) {
        let names: Vec<String> = all.iter().map(|node| node.name.clone()).collect();
        let mut nodes = Nodes::new(all, [(POOL.to_owned(), names.clone())]);
        let before = free(&nodes, &names);
        let mut each = vec![pods[0].driver];
        each.extend(std::iter::repeat_n(pods[0].executor, pods[0].executors as usize));
        each.sort_by_key(|pod| Reverse(*pod));
        if !is_possible(&before, &each) {
            prop_assert!(nodes.take(POOL, &pods[0]).is_err());
        }
    }

    #[test]
    fn a_pod_is_oversized_if_it_fits_on_no_empty_node(all in nodes(), pods in engines()) {
        let names: Vec<String> = all.iter().map(|node| node.name.clone()).collect();
        let nodes = Nodes::new(all.clone(), [(POOL.to_owned(), names)]);
        let has_node = |size: NodeAmount| all.iter().any(|node| size.fits(node.allocatable));
        let pods = &pods[0];
        let fits = has_node(pods.driver) && (pods.executors == 0 || has_node(pods.executor));
        prop_assert_eq!(nodes.oversized(POOL, pods).is_none(), fits || all.is_empty());
    }

    #[test]
    fn node_fit_does_not_depend_on_the_order_of_nodes(all in nodes(), engines in engines()) {
        let names: Vec<String> = all.iter().map(|node| node.name.clone()).collect();
        let mut nodes = Nodes::new(all.clone(), [(POOL.to_owned(), names.clone())]);
        let of_pool = names.iter().rev().cloned().collect();
        let mut reversed = Nodes::new(all.into_iter().rev(), [(POOL.to_owned(), of_pool)]);
        for pods in &engines {
            prop_assert_eq!(nodes.take(POOL, pods), reversed.take(POOL, pods));
            prop_assert_eq!(free(&nodes, &names), free(&reversed, &names));
        }
    }
}
