//! A set of nodes, indexed by how full they are: those of one pool, or of several pools with the same nodes.
//!
//! It has no free amounts of its own, because a node can be in several sets: the owner of the amounts reports every
//! change. Nodes are numbers in the order of their names.

use std::collections::BTreeSet;

use super::amount::NodeAmount;

/// Equal pods on nodes: each node with their number, and the number of those without a node.
pub(super) type Choice = (Vec<(usize, u64)>, u64);

#[derive(Debug, Clone)]
pub(super) struct NodeSet {
    /// The sum of what the nodes have.
    whole: NodeAmount,
    /// What the largest nodes have, in ascending order of CPU and descending order of memory: every other node has at
    /// most as much of both as one of them.
    largest: Vec<NodeAmount>,
    /// The dominant share of what each node has free, with the node. The fullest node is the first.
    by_free: BTreeSet<(u128, usize)>,
}

impl NodeSet {
    /// From nodes with what they have, and with what of it is free.
    pub fn new(nodes: impl Iterator<Item = (usize, NodeAmount, NodeAmount)> + Clone) -> Self {
        let whole = nodes.clone().fold(NodeAmount::ZERO, |sum, (_, allocatable, _)| sum.plus(allocatable));
        let by_free = nodes.clone().map(|(node, _, free)| (free.dominant_share(whole), node)).collect();
        let mut sizes: Vec<NodeAmount> = nodes.map(|(_, allocatable, _)| allocatable).collect();
        sizes.sort_unstable();
        let mut largest: Vec<NodeAmount> = Vec::new();
        while let Some(next) = sizes.pop() {
            if largest.last().is_none_or(|last| next.memory_bytes > last.memory_bytes) {
                largest.push(next);
            }
        }
        largest.reverse();
        Self { whole, largest, by_free }
    }

    pub const fn whole(&self) -> NodeAmount {
        self.whole
    }

    pub fn is_empty(&self) -> bool {
        self.by_free.is_empty()
    }

    /// What the node with the largest dominant share has.
    pub fn largest(&self) -> NodeAmount {
        let largest = self.largest.iter().max_by_key(|node| node.dominant_share(self.whole));
        largest.copied().unwrap_or_default()
    }

    /// Whether a pod of this size fits on a node without other pods.
    pub fn has_node_for(&self, size: NodeAmount) -> bool {
        // Of the nodes with enough CPU the first has the most memory.
        let at = self.largest.partition_point(|node| node.cpu_millis < size.cpu_millis);
        self.largest.get(at).is_some_and(|node| size.fits(*node))
    }

    /// The nodes of equal pods: one after the other on the fullest node that it fits on, of equally full nodes on the
    /// first by name. The node that a pod was put on becomes fuller, so it stays the fullest until none fits on it any
    /// more.
    pub fn choose(&self, free: &[NodeAmount], size: NodeAmount, count: u64) -> Choice {
        let (mut nodes, mut left) = (Vec::new(), count);
        // On nodes with a smaller dominant share free it does not fit.
        for &(_, node) in self.by_free.range((size.dominant_share(self.whole), 0)..) {
            if left == 0 {
                break;
            }
            let here = free.get(node).map_or(0, |free| size.times_in(*free)).min(left);
            if here > 0 {
                nodes.push((node, here));
                left -= here;
            }
        }
        (nodes, left)
    }

    /// Records that what the node has free has changed.
    pub fn update(&mut self, node: usize, before: NodeAmount, after: NodeAmount) {
        self.by_free.remove(&(before.dominant_share(self.whole), node));
        self.by_free.insert((after.dominant_share(self.whole), node));
    }
}
