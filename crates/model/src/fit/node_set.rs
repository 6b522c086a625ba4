//! A set of nodes, indexed by how full they are: those of one pool, or of several pools with the same nodes.
//!
//! It has no free amounts of its own, because a node can be in several sets: the owner of the amounts reports every
//! change. Nodes are numbers in the order of their names.
//!
//! A node without CPU may have much memory left, and is then not full by its dominant share. So that not each pod passes all
//! such nodes, those that have less than every pod so far are kept apart.

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
    /// The least CPU and the least memory of the pods so far; nothing before the first one.
    least: NodeAmount,
    /// The nodes that have less CPU or less memory free than `least`. They are not in `by_free`.
    without: BTreeSet<usize>,
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
        Self { whole, largest, by_free, least: NodeAmount::ZERO, without: BTreeSet::new() }
    }

    pub const fn whole(&self) -> NodeAmount {
        self.whole
    }

    pub fn is_empty(&self) -> bool {
        self.by_free.is_empty() && self.without.is_empty()
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
    pub fn choose(&mut self, free: &[NodeAmount], size: NodeAmount, count: u64) -> Choice {
        if count == 0 || (size == NodeAmount::ZERO && !self.is_empty()) {
            // It takes nothing of any node.
            return (Vec::new(), 0);
        }
        self.ask(free, size);
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

    /// Counts a pod of this size, and looks at the nodes again for which it makes a difference.
    fn ask(&mut self, free: &[NodeAmount], size: NodeAmount) {
        let least = if self.least == NodeAmount::ZERO { size } else { self.least.minimum(size) };
        if least == self.least {
            return;
        }
        self.least = least;
        let of_first = std::mem::take(&mut self.by_free).into_iter().map(|(_, node)| node);
        let nodes: Vec<usize> = of_first.chain(std::mem::take(&mut self.without)).collect();
        for node in nodes {
            self.insert(node, free.get(node).copied().unwrap_or_default());
        }
    }

    fn insert(&mut self, node: usize, free: NodeAmount) {
        if self.least.fits(free) {
            self.by_free.insert((free.dominant_share(self.whole), node));
        } else {
            self.without.insert(node);
        }
    }

    /// Records that what the node has free has changed.
    pub fn update(&mut self, node: usize, before: NodeAmount, after: NodeAmount) {
        if !self.by_free.remove(&(before.dominant_share(self.whole), node)) {
            self.without.remove(&node);
        }
        self.insert(node, after);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The nodes by their dominant share, each looked at.
    fn chosen_one_by_one(whole: NodeAmount, free: &[NodeAmount], size: NodeAmount, count: u64) -> Choice {
        let mut order: Vec<usize> = (0..free.len()).collect();
        order.sort_by_key(|node| (free[*node].dominant_share(whole), *node));
        let (mut nodes, mut left) = (Vec::new(), count);
        for node in order {
            let here = size.times_in(free[node]).min(left);
            if here > 0 {
                nodes.push((node, here));
                left -= here;
            }
        }
        (nodes, left)
    }

    fn amounts(most: u64) -> impl Strategy<Value = NodeAmount> {
        (0..=most, 0..=most).prop_map(|(cpu_millis, memory_bytes)| NodeAmount { cpu_millis, memory_bytes })
    }

    proptest! {
        #[test]
        fn pods_find_the_nodes_that_they_find_one_by_one(
            allocatable in proptest::collection::vec(amounts(9), 1..8),
            asked in proptest::collection::vec((amounts(4), 1..4_u64, any::<bool>()), 1..40),
        ) {
            let mut free = allocatable.clone();
            let mut set = NodeSet::new(allocatable.iter().enumerate().map(|(node, has)| (node, *has, *has)));
            let mut taken: Vec<(usize, NodeAmount)> = Vec::new();
            for (size, count, returns) in asked {
                let mut changed = Vec::new();
                if returns && let Some((node, amount)) = taken.pop() {
                    changed.push((node, free[node].plus(amount)));
                } else if size != NodeAmount::ZERO {
                    let (nodes, left) = set.choose(&free, size, count);
                    prop_assert_eq!(&(nodes.clone(), left), &chosen_one_by_one(set.whole(), &free, size, count));
                    for (node, here) in nodes {
                        changed.push((node, free[node].minus(size.times(here))));
                        taken.push((node, size.times(here)));
                    }
                }
                for (node, after) in changed {
                    set.update(node, free[node], after);
                    free[node] = after;
                }
            }
        }
    }
}
