//! The capacity of a resource pool: what its nodes can take, the figures of DESCRIBE RESOURCE POOL, and nodes that two
//! pools claim.
//!
//! Pure arithmetic over the nodes that the orchestrator observed. CPU and memory are allocatable amounts, and *used*
//! is the sum of our own requests: what other workloads use is not known here, so an engine that fits by these
//! figures may still have to wait. [`of_nodes`] is what a master records of a pool with `CAPACITY NODES`; the rest is
//! informational only, and a stale reading shows the pool as it was.

use crate::catalog::{Catalog, PoolSpec};
use crate::name::PoolName;
use crate::observation::ObservedNode;

/// The difference between the nodes of a pool above which a warning is shown, in percent of the largest node.
pub const MAX_DIFFERENCE_PERCENT: u64 = 10;

/// An amount of CPU and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// In thousandths of a core.
    pub cpu_millis: u64,
    pub memory_bytes: u64,
}

/// What engines can request of the nodes of a pool whose capacity is that of its nodes.
///
/// A node that is ready and takes no new engines counts what those on it request, so it neither adds nor removes
/// headroom. A node that is not ready counts nothing.
pub fn of_nodes(spec: &PoolSpec, nodes: &[ObservedNode]) -> Amount {
    let admitted = nodes.iter().filter(|node| spec.admits(&node.name, &node.labels));
    sum(admitted.map(|node| match (node.open, node.ready) {
        (true, _) => (node.cpu_millis, node.memory_bytes),
        (false, true) => (node.cpu_used_millis, node.memory_used_bytes),
        (false, false) => (0, 0),
    }))
}

fn sum(amounts: impl Iterator<Item = (u64, u64)>) -> Amount {
    amounts.fold(Amount::default(), |sum, (cpu, memory)| Amount {
        cpu_millis: sum.cpu_millis.saturating_add(cpu),
        memory_bytes: sum.memory_bytes.saturating_add(memory),
    })
}

/// The nodes of a pool with their use.
#[derive(Debug, Clone)]
pub struct PoolCapacity<'a> {
    /// The existing nodes that its engines may run on, sorted by name.
    pub nodes: Vec<&'a ObservedNode>,
    /// Names in its list for which no node exists.
    pub missing: Vec<&'a str>,
    /// Nodes that another pool also claims, with that pool.
    pub shared: Vec<(&'a str, &'a PoolName)>,
    percent: u64,
}

/// Every node that two pools claim, with the two pools; further claimants are left out.
pub fn nodes_in_two_pools<'a>(
    catalog: &'a Catalog,
    nodes: &'a [ObservedNode],
) -> Vec<(&'a str, &'a PoolName, &'a PoolName)> {
    let two = nodes.iter().filter_map(|node| {
        let mut owners = owners(catalog, node);
        Some((node.name.as_str(), owners.next()?, owners.next()?))
    });
    two.collect()
}

fn owners<'a>(catalog: &'a Catalog, node: &'a ObservedNode) -> impl Iterator<Item = &'a PoolName> {
    let claiming = catalog.pools.iter().filter(|(_, pool)| pool.spec.claims(&node.name, &node.labels));
    claiming.map(|(name, _)| name)
}

impl<'a> PoolCapacity<'a> {
    /// The capacity of a pool of the catalog.
    pub fn new(catalog: &'a Catalog, name: &PoolName, spec: &'a PoolSpec, nodes: &'a [ObservedNode]) -> Self {
        let listed = spec.nodes.iter().flatten().map(String::as_str);
        let missing = listed.filter(|listed| nodes.iter().all(|node| node.name != *listed)).collect();
        let mut own: Vec<_> = nodes.iter().filter(|node| spec.admits(&node.name, &node.labels)).collect();
        own.sort_by(|one, other| one.name.cmp(&other.name));
        let claimed = own.iter().filter(|node| spec.claims(&node.name, &node.labels));
        let shared = claimed
            .flat_map(|node| {
                owners(catalog, node).filter(|owner| *owner != name).map(|owner| (node.name.as_str(), owner))
            })
            .collect();
        Self { nodes: own, missing, shared, percent: u64::from(spec.cpu_overcommit.unwrap_or(100)).max(1) }
    }

    /// The allocatable amount of all nodes.
    pub fn total(&self) -> Amount {
        self.sum(|node| (node.cpu_millis, node.memory_bytes))
    }

    /// The requests of our engines on all nodes.
    pub fn used(&self) -> Amount {
        self.sum(|node| (node.cpu_used_millis, node.memory_used_bytes))
    }

    fn sum(&self, of: impl Fn(&ObservedNode) -> (u64, u64)) -> Amount {
        sum(self.nodes.iter().map(|node| of(node)))
    }

    /// The largest engine that still fits on one schedulable node, with the node: the most CPU, then the most memory.
    /// CPU is an engine's limit, so an overcommit raises it above the free amount.
    pub fn largest_fit(&self) -> Option<(Amount, &'a str)> {
        let free = self.nodes.iter().filter(|node| node.open).map(|node| {
            let cpu_millis = node.cpu_millis.saturating_sub(node.cpu_used_millis).saturating_mul(self.percent) / 100;
            let memory_bytes = node.memory_bytes.saturating_sub(node.memory_used_bytes);
            (Amount { cpu_millis, memory_bytes }, node.name.as_str())
        });
        let fitting = free.filter(|(amount, _)| amount.cpu_millis > 0 && amount.memory_bytes > 0);
        fitting.max_by_key(|(amount, _)| (amount.cpu_millis, amount.memory_bytes))
    }

    /// The smallest and the largest node if they differ by more than [`MAX_DIFFERENCE_PERCENT`] in CPU or memory.
    pub fn uneven(&self) -> Option<(&'a ObservedNode, &'a ObservedNode)> {
        let measures: [fn(&ObservedNode) -> u64; 2] = [|node| node.cpu_millis, |node| node.memory_bytes];
        measures.into_iter().find_map(|measure| {
            let smallest = self.nodes.iter().min_by_key(|node| measure(node))?;
            let largest = self.nodes.iter().max_by_key(|node| measure(node))?;
            let (least, most) = (u128::from(measure(smallest)), u128::from(measure(largest)));
            let differ = (most - least) * 100 > most * u128::from(MAX_DIFFERENCE_PERCENT);
            differ.then_some((*smallest, *largest))
        })
    }
}

impl std::fmt::Display for Amount {
    /// `3.5 CPU and 12.4G`: rounded down, so that the printed amount fits.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} CPU and {}", tenths(self.cpu_millis, 1_000), memory(self.memory_bytes))
    }
}

fn tenths(amount: u64, unit: u64) -> String {
    let tenths = u128::from(amount) * 10 / u128::from(unit);
    if tenths.is_multiple_of(10) { (tenths / 10).to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) }
}

fn memory(bytes: u64) -> String {
    match bytes {
        0 => "0G".to_owned(),
        1..0x4000_0000 => format!("{}M", bytes >> 20),
        _ => format!("{}G", tenths(bytes, 1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::catalog::Versioned;
    use crate::labels::LabelMap;
    use crate::number::Generation;

    const GIB: u64 = 1 << 30;

    fn zone(value: &str) -> LabelMap {
        [("zone".to_owned(), value.to_owned())].into()
    }

    fn node(name: &str, cores: u64, gib: u64) -> ObservedNode {
        ObservedNode {
            name: name.to_owned(),
            labels: zone("a"),
            cpu_millis: cores * 1_000,
            memory_bytes: gib * GIB,
            open: true,
            ..ObservedNode::default()
        }
    }

    fn name(text: &str) -> PoolName {
        PoolName::new(text).unwrap()
    }

    fn catalog(of: &[(&str, PoolSpec)]) -> Catalog {
        let versioned = |spec: &PoolSpec| Versioned { spec: spec.clone(), generation: Generation(1) };
        Catalog { pools: of.iter().map(|(pool, spec)| (name(pool), versioned(spec))).collect(), ..Catalog::default() }
    }

    fn listed(nodes: &[&str]) -> PoolSpec {
        PoolSpec { nodes: Some(nodes.iter().map(|node| (*node).to_owned()).collect()), ..PoolSpec::default() }
    }

    #[test]
    fn free_is_total_less_used_and_more_with_an_overcommit() {
        let mut nodes = vec![node("node-1", 4, 16), node("node-2", 4, 16), node("node-3", 64, 256)];
        (nodes[0].cpu_used_millis, nodes[0].memory_used_bytes) = (3_000, 4 * GIB);
        let spec = listed(&["node-1", "node-2", "gone"]);
        let catalog = catalog(&[("rp_1", spec.clone())]);
        let capacity = PoolCapacity::new(&catalog, &name("rp_1"), &spec, &nodes);
        assert_eq!(capacity.total().to_string(), "8 CPU and 32G");
        assert_eq!(capacity.used().to_string(), "3 CPU and 4G");
        assert_eq!(capacity.missing, ["gone"]);
        let (amount, at) = capacity.largest_fit().unwrap();
        assert_eq!((amount.to_string().as_str(), at), ("4 CPU and 16G", "node-2"));
        // A closed node takes no engine; with half requests, half a free core is a whole one for an engine.
        nodes[1].open = false;
        nodes[0].cpu_used_millis = 3_500;
        let spec = PoolSpec { cpu_overcommit: Some(200), ..spec };
        let capacity = PoolCapacity::new(&catalog, &name("rp_1"), &spec, &nodes);
        let (amount, at) = capacity.largest_fit().unwrap();
        assert_eq!((amount.to_string().as_str(), at), ("1 CPU and 12G", "node-1"));
        nodes[0].cpu_used_millis = 5_000;
        assert_eq!(PoolCapacity::new(&catalog, &name("rp_1"), &spec, &nodes).largest_fit(), None);
    }

    #[test]
    fn a_cordoned_node_counts_its_use_and_one_that_is_not_ready_nothing() {
        let mut nodes = vec![node("node-1", 4, 16), node("node-2", 4, 16), node("node-3", 64, 256)];
        let spec = listed(&["node-1", "node-2", "gone"]);
        let capacity = |nodes: &[ObservedNode]| of_nodes(&spec, nodes).to_string();
        assert_eq!(capacity(&nodes), "8 CPU and 32G");
        (nodes[0].cpu_used_millis, nodes[0].memory_used_bytes) = (3_000, 4 * GIB);
        assert_eq!(capacity(&nodes), "8 CPU and 32G");
        (nodes[0].ready, nodes[0].open) = (true, false);
        assert_eq!(capacity(&nodes), "7 CPU and 20G");
        nodes[0].ready = false;
        assert_eq!(capacity(&nodes), "4 CPU and 16G");
        nodes[0].labels = zone("b");
        let selected = PoolSpec { node_selector: zone("a"), ..PoolSpec::default() };
        assert_eq!(of_nodes(&selected, &nodes).to_string(), "68 CPU and 272G");
    }

    #[test]
    fn nodes_that_differ_by_more_than_a_tenth_are_uneven() {
        let catalog = Catalog::default();
        let spec = PoolSpec::default();
        let differ = |nodes: &[ObservedNode]| {
            let capacity = PoolCapacity::new(&catalog, &name("rp_1"), &spec, nodes);
            capacity.uneven().map(|(small, large)| (small.name.clone(), large.name.clone()))
        };
        assert_eq!(differ(&[]), None);
        assert_eq!(differ(&[node("a", 10, 100), node("b", 9, 90)]), None);
        assert_eq!(differ(&[node("a", 10, 100), node("b", 9, 89)]), Some(("b".to_owned(), "a".to_owned())));
        assert_eq!(differ(&[node("a", 8, 64), node("b", 10, 64)]), Some(("a".to_owned(), "b".to_owned())));
    }

    #[test]
    fn a_node_that_two_pools_claim_by_labels_is_found() {
        let nodes = [node("node-1", 4, 16), node("node-2", 4, 16)];
        let selected = PoolSpec { node_selector: zone("a"), ..PoolSpec::default() };
        let catalog = catalog(&[("any", PoolSpec::default()), ("rp_1", selected), ("rp_2", listed(&["node-2"]))]);
        assert_eq!(nodes_in_two_pools(&catalog, &nodes), [("node-2", &name("rp_1"), &name("rp_2"))]);
        let spec = catalog.pool(&name("rp_2")).unwrap();
        let capacity = PoolCapacity::new(&catalog, &name("rp_2"), spec, &nodes);
        assert_eq!(capacity.shared, [("node-2", &name("rp_1"))]);
        // A pool that names no node owns none.
        let spec = catalog.pool(&name("any")).unwrap();
        let capacity = PoolCapacity::new(&catalog, &name("any"), spec, &nodes);
        assert_eq!((capacity.nodes.len(), capacity.shared.len()), (2, 0));
    }

    #[test]
    fn amounts_are_rounded_down() {
        let text = |cpu_millis, memory_bytes| Amount { cpu_millis, memory_bytes }.to_string();
        assert_eq!(text(3_990, 16 * GIB - 1), "3.9 CPU and 15.9G");
        assert_eq!(text(0, 0), "0 CPU and 0G");
        assert_eq!(text(50, 512 << 20), "0 CPU and 512M");
    }
}
