//! Node fit: whether the pods of an engine find nodes, so that an engine is created only if all of it can run.
//!
//! Pods are put on nodes by best-fit decreasing: in descending order of their dominant share of the pool's nodes, each
//! on the fullest node that it fits on. Equal executors are put on nodes by count, so the work depends on the number of
//! nodes and not of executors. The order and every tie are fixed, so equal inputs give equal results.
//!
//! Invariants:
//!
//! - All pods of an engine are put on nodes, or none is.
//! - No node has more pods than fit on it, counting the earlier engines of the plan, also those of other pools.
//! - Nodes that are not known refuse nothing.
//!
//! The scheduler decides where pods run and may choose other nodes: an engine of which a pod stays pending ends by the
//! deadline of its reservation. Nodes that were observed too long ago have the same effect.

mod amount;
mod node_set;
mod pods;
mod refusal;

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::{Catalog, PoolSpec};
use crate::labels::LabelMap;
use crate::observation::ObservedNode;

pub use amount::NodeAmount;
use node_set::NodeSet;
pub use pods::Pods;

/// A node with its amounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCapacity {
    pub name: String,
    /// What pods can request on the node while it is empty.
    pub allocatable: NodeAmount,
    /// What its pods request. More than is allocatable after the node has shrunk.
    pub used: NodeAmount,
    /// Whether it accepts further pods.
    pub open: bool,
}

impl NodeCapacity {
    /// What further pods can request.
    fn free(&self) -> NodeAmount {
        if self.open { self.allocatable.minus(self.used) } else { NodeAmount::ZERO }
    }
}

impl From<&ObservedNode> for NodeCapacity {
    fn from(node: &ObservedNode) -> Self {
        Self {
            name: node.name.clone(),
            allocatable: NodeAmount { cpu_millis: node.cpu_millis, memory_bytes: node.memory_bytes },
            used: NodeAmount { cpu_millis: node.cpu_used_millis, memory_bytes: node.memory_used_bytes },
            open: node.open,
        }
    }
}

/// The known nodes with what they have free, and which of them each pool has.
///
/// A pool that it does not know has unknown nodes only.
#[derive(Debug, Clone, Default)]
pub struct Nodes {
    /// By name. Everywhere else a node is its index.
    known: Vec<NodeCapacity>,
    /// What each node has free.
    free: Vec<NodeAmount>,
    sets: Vec<NodeSet>,
    /// The indexes of the sets that each node is in.
    sets_of: Vec<Vec<usize>>,
    /// By name.
    pools: BTreeMap<String, PoolNodes>,
    /// The last pods that did not find nodes of a set, while nothing has changed since: a queue has many equal ones.
    refused: Option<(usize, Pods, NodesFull)>,
}

#[derive(Debug, Clone, Copy)]
struct PoolNodes {
    /// The index of the set of its known nodes.
    set: usize,
    /// Whether it has other nodes, which are assumed to take every pod.
    has_unknown: bool,
}

/// A pod that fits on no node of its pool, not even on an empty one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oversized {
    pub pod: NodeAmount,
    /// What the largest node has.
    pub largest: NodeAmount,
}

/// What the pods of an engine were given: the index of each node, with the sum of their requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken(Vec<(usize, NodeAmount)>);

impl Taken {
    /// Whether it is nothing of any known node.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what others were given.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// Pods that do not all find a node now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodesFull {
    /// The number of pods.
    pub asked: u64,
    /// How many of them, the largest first, find a node.
    pub left: u64,
}

impl Nodes {
    /// From the known nodes and the names of each pool's nodes. A name without a node is an unknown node.
    pub fn new(
        nodes: impl IntoIterator<Item = NodeCapacity>,
        pools: impl IntoIterator<Item = (String, Vec<String>)>,
    ) -> Self {
        let mut nodes: Vec<NodeCapacity> = nodes.into_iter().collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        nodes.dedup_by(|one, other| one.name == other.name);
        let free: Vec<NodeAmount> = nodes.iter().map(NodeCapacity::free).collect();
        let mut all = Self { sets_of: vec![Vec::new(); nodes.len()], known: nodes, free, ..Self::default() };
        let mut sets: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        for (pool, names) in pools {
            let known: BTreeSet<usize> = names.iter().filter_map(|name| all.index(name)).collect();
            let has_unknown = names.iter().any(|name| all.index(name).is_none());
            let members: Vec<usize> = known.into_iter().collect();
            let set = *sets.entry(members).or_insert_with_key(|members| all.add_set(members));
            all.pools.insert(pool, PoolNodes { set, has_unknown });
        }
        all
    }

    fn add_set(&mut self, members: &[usize]) -> usize {
        let set = self.sets.len();
        for node in members {
            self.sets_of[*node].push(set);
        }
        let of_node = |node: &usize| (*node, self.known[*node].allocatable, self.free[*node]);
        self.sets.push(NodeSet::new(members.iter().map(of_node)));
        set
    }

    /// From what the orchestrator observed. Without any node it has none or was not read, so all nodes are unknown.
    pub fn observed(nodes: &[ObservedNode], catalog: &Catalog) -> Self {
        let labels: BTreeMap<&str, &LabelMap> = nodes.iter().map(|node| (node.name.as_str(), &node.labels)).collect();
        Self::of_pools(nodes.iter().map(NodeCapacity::from).collect(), |node| labels.get(node).copied(), catalog)
    }

    /// From the known nodes and the labels of those whose labels are known. A node with unknown labels is one of every pool
    /// that does not name others. Without any node all nodes are unknown.
    pub fn of_pools<'a>(
        nodes: Vec<NodeCapacity>,
        labels: impl Fn(&str) -> Option<&'a LabelMap>,
        catalog: &Catalog,
    ) -> Self {
        if nodes.is_empty() {
            return Self::default();
        }
        let pools: Vec<(String, Vec<String>)> = catalog
            .pools
            .iter()
            .map(|(name, pool)| (name.to_string(), names_of(&pool.spec, &nodes, &labels)))
            .collect();
        Self::new(nodes, pools)
    }

    /// A pod that fits on no node of the pool, if there is one: the engine can never run there. A pool without nodes is
    /// full, and none of its pods is too large.
    pub fn oversized(&self, pool: &str, pods: &Pods) -> Option<Oversized> {
        let nodes = self.pools.get(pool).filter(|nodes| !nodes.has_unknown)?;
        let set = self.sets.get(nodes.set).filter(|set| !set.is_empty())?;
        let pod = pods.sizes().find(|size| !set.has_node_for(*size))?;
        Some(Oversized { pod, largest: set.largest() })
    }

    /// Puts the pods on nodes of the pool: all, or none.
    pub fn take(&mut self, pool: &str, pods: &Pods) -> Result<Taken, NodesFull> {
        let mut taken = Taken::default();
        let Some(&PoolNodes { set, has_unknown }) = self.pools.get(pool) else { return Ok(taken) };
        if let Some((_, _, full)) =
            self.refused.filter(|(of, refused, _)| (*of, refused) == (set, pods) && !has_unknown)
        {
            return Err(full);
        }
        let mut put = 0;
        for (size, count) in pods.descending(self.sets[set].whole()) {
            let (nodes, missing) = self.sets[set].choose(&self.free, size, count);
            put += count - missing;
            if missing > 0 && !has_unknown {
                self.put_back(&taken);
                let full = NodesFull { asked: pods.count(), left: put };
                self.refused = Some((set, *pods, full));
                return Err(full);
            }
            for (node, here) in nodes {
                let amount = size.times(here);
                self.set_used(node, self.known[node].used.plus(amount));
                taken.0.push((node, amount));
            }
        }
        Ok(taken)
    }

    /// Undoes a [`Self::take`].
    pub fn put_back(&mut self, taken: &Taken) {
        for &(node, amount) in &taken.0 {
            self.set_used(node, self.known[node].used.minus(amount));
        }
    }

    /// Takes nodes of the pool for pods that will be there, as many as find one: the others wait for a node.
    pub fn set_aside(&mut self, pool: &str, pods: &Pods) -> Taken {
        if let Ok(taken) = self.take(pool, pods) {
            return taken;
        }
        // A pod that fits on no node takes nothing.
        let mut all = self.take(pool, &Pods::single(pods.driver)).unwrap_or_default();
        let (mut left, mut step) = (pods.executors, pods.executors);
        while left > 0 && step > 0 {
            let executors = step.min(left);
            match self.take(pool, &Pods { driver: NodeAmount::ZERO, executor: pods.executor, executors }) {
                Ok(taken) => {
                    all.0.extend(taken.0);
                    left -= executors;
                }
                Err(_) => step /= 2,
            }
        }
        all
    }

    /// Undoes a [`Self::put_back`], whether or not the pods fit.
    pub fn take_again(&mut self, taken: &Taken) {
        for &(node, amount) in &taken.0 {
            self.set_used(node, self.known[node].used.plus(amount));
        }
    }

    /// What pods that are counted as used have of their nodes. Nothing of an unknown node.
    pub fn used_by<'a>(&self, pods: impl IntoIterator<Item = (&'a str, NodeAmount)>) -> Taken {
        Taken(pods.into_iter().filter_map(|(node, amount)| Some((self.index(node)?, amount))).collect())
    }

    /// The names of the nodes, with what was taken of each.
    pub fn named<'a>(&'a self, taken: &'a Taken) -> impl Iterator<Item = (&'a str, NodeAmount)> {
        taken.0.iter().map(|(node, amount)| (self.known[*node].name.as_str(), *amount))
    }

    /// Whether all nodes of the pool are known, so that an engine can be refused for want of one.
    pub fn are_known(&self, pool: &str) -> bool {
        self.pools.get(pool).is_some_and(|nodes| !nodes.has_unknown)
    }

    /// Counts the pods of an engine that will be gone no longer. An unknown node is ignored.
    pub fn give_back(&mut self, node: &str, amount: NodeAmount) {
        if let Some(node) = self.index(node) {
            self.set_used(node, self.known[node].used.minus(amount));
        }
    }

    /// Counts the pods of an engine again, whether or not they fit.
    pub fn occupy(&mut self, node: &str, amount: NodeAmount) {
        if let Some(node) = self.index(node) {
            self.set_used(node, self.known[node].used.plus(amount));
        }
    }

    /// What a known node has free.
    pub fn free(&self, node: &str) -> Option<NodeAmount> {
        self.index(node).map(|node| self.free[node])
    }

    fn index(&self, node: &str) -> Option<usize> {
        self.known.binary_search_by(|other| other.name.as_str().cmp(node)).ok()
    }

    fn set_used(&mut self, node: usize, used: NodeAmount) {
        self.refused = None;
        self.known[node].used = used;
        let after = self.known[node].free();
        let before = std::mem::replace(&mut self.free[node], after);
        for set in &self.sets_of[node] {
            self.sets[*set].update(node, before, after);
        }
    }
}

/// The nodes of a pool: the known ones that it admits, and those of its list that are not known.
fn names_of<'a>(pool: &PoolSpec, nodes: &[NodeCapacity], labels: impl Fn(&str) -> Option<&'a LabelMap>) -> Vec<String> {
    let admits = |name: &&String| labels(name).is_none_or(|labels| pool.selects(labels));
    match &pool.nodes {
        Some(listed) => listed.iter().filter(admits).cloned().collect(),
        None => nodes.iter().map(|node| &node.name).filter(admits).cloned().collect(),
    }
}
