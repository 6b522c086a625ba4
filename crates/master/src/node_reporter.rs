//! The node reporter: publishes the rows of nodes when they change, usage of many nodes at most every ten seconds.
//!
//! A publication has all nodes or none, and the writer compares them with the stored rows: there may be thousands. Existence,
//! labels, capacity, readiness and openness are published immediately. Usage changes with every engine; above
//! [`MAX_NODES_AT_ONCE`] it is published some seconds later, with all other changes until then. START with NOWAIT decides by
//! the published usage.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::catalog::Catalog;
use model::observation::{MAX_NODES, ObservedNode};

/// The most bytes of labels in one publication: a quarter of the largest request to an agent.
const MAX_LABEL_BYTES: usize = 4 << 20;
/// The maximum number of nodes of which usage is published immediately.
const MAX_NODES_AT_ONCE: usize = 100;
/// The minimum time between publications of more nodes if only usage has changed.
const USAGE_INTERVAL: Duration = Duration::from_secs(10);

/// The nodes of the last publication.
#[derive(Debug, Default)]
pub(crate) struct NodeReporter {
    /// With the time; kept while the nodes cannot be read.
    last: Option<(Vec<ObservedNode>, Duration)>,
}

impl NodeReporter {
    /// The nodes to publish now: all, if any has changed. If the labels are too long, only those that a pool selects by.
    pub fn due(&self, catalog: &Catalog, nodes: Option<&[ObservedNode]>, now: Duration) -> Option<Vec<ObservedNode>> {
        let mut nodes = nodes.map(|nodes| Cow::Borrowed(&nodes[..nodes.len().min(MAX_NODES)]))?;
        let labels = nodes.iter().flat_map(|node| &node.labels);
        if labels.map(|(label, value)| label.len() + value.len()).sum::<usize>() > MAX_LABEL_BYTES {
            let selectors = catalog.pools.values().map(|pool| &pool.spec.node_selector);
            let selected_by: BTreeSet<&String> = selectors.flat_map(BTreeMap::keys).collect();
            for node in nodes.to_mut() {
                node.labels.retain(|label, _| selected_by.contains(label));
            }
        }
        let is_due = self.last.as_ref().is_none_or(|(published, at)| match change(published, &nodes) {
            Change::Nothing => false,
            Change::Usage => nodes.len() <= MAX_NODES_AT_ONCE || now.saturating_sub(*at) >= USAGE_INTERVAL,
            Change::Other => true,
        });
        is_due.then(|| nodes.into_owned())
    }

    /// A publication with these nodes was written. If it may not have been, a new reporter publishes them again.
    pub fn published(&mut self, nodes: Vec<ObservedNode>, now: Duration) {
        self.last = Some((nodes, now));
    }
}

/// How nodes differ from the published ones.
enum Change {
    Nothing,
    Usage,
    Other,
}

fn change(published: &[ObservedNode], nodes: &[ObservedNode]) -> Change {
    if published.len() != nodes.len() {
        return Change::Other;
    }
    let mut change = Change::Nothing;
    for (published, node) in published.iter().zip(nodes) {
        // Destructured, so that a new field does not compile without a decision here.
        let ObservedNode { name, labels, cpu_millis, memory_bytes, cpu_used_millis, memory_used_bytes, ready, open } =
            node;
        let is_same = *name == published.name
            && *labels == published.labels
            && (*cpu_millis, *memory_bytes) == (published.cpu_millis, published.memory_bytes)
            && (*ready, *open) == (published.ready, published.open);
        if !is_same {
            return Change::Other;
        }
        if (*cpu_used_millis, *memory_used_bytes) != (published.cpu_used_millis, published.memory_used_bytes) {
            change = Change::Usage;
        }
    }
    change
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::catalog::{PoolSpec, Versioned};
    use model::name::PoolName;
    use model::number::Generation;

    use super::*;

    const NOW: Duration = Duration::from_mins(1);

    fn node(name: &str) -> ObservedNode {
        let labels = [("zone".to_owned(), "a".to_owned())].into();
        ObservedNode { name: name.to_owned(), labels, ..ObservedNode::default() }
    }

    fn due(reporter: &NodeReporter, nodes: Option<&[ObservedNode]>, now: Duration) -> Option<Vec<ObservedNode>> {
        reporter.due(&Catalog::default(), nodes, now)
    }

    #[test]
    fn nodes_are_published_once_per_change_and_again_after_a_failure() {
        let mut reporter = NodeReporter::default();
        let nodes = [node("node-1")];
        assert_eq!(due(&reporter, None, NOW), None);
        let report = due(&reporter, Some(&nodes), NOW);
        assert_eq!(report.as_deref(), Some(&nodes[..]), "the first publication of a term has them");
        reporter.published(report.unwrap(), NOW);
        assert_eq!(due(&reporter, Some(&nodes), NOW), None);
        assert_eq!(due(&reporter, Some(&[]), NOW), Some(Vec::new()));
        assert_eq!(due(&NodeReporter::default(), Some(&nodes), NOW), Some(nodes.to_vec()));
    }

    #[test]
    fn usage_of_many_nodes_is_published_later_and_everything_else_at_once() {
        let mut reporter = NodeReporter::default();
        let nodes: Vec<ObservedNode> = (0..=MAX_NODES_AT_ONCE).map(|at| node(&format!("node-{at}"))).collect();
        reporter.published(nodes.clone(), NOW);
        let mut used = nodes.clone();
        used[0].cpu_used_millis = 500;
        let soon = NOW + Duration::from_secs(9);
        assert_eq!(due(&reporter, Some(&used), soon), None);
        assert_eq!(due(&reporter, Some(&used), NOW + USAGE_INTERVAL).unwrap(), used);
        let mut closed = used.clone();
        closed[1].open = true;
        assert_eq!(due(&reporter, Some(&closed), soon).unwrap(), closed, "with the usage");
        let mut other = nodes.clone();
        other[1].name = "node-other".to_owned();
        assert_eq!(due(&reporter, Some(&other), soon).unwrap(), other);

        reporter.published(nodes[1..].to_vec(), NOW);
        assert_eq!(due(&reporter, Some(&used[1..]), NOW), None, "no change");
        used[1].cpu_used_millis = 500;
        assert_eq!(due(&reporter, Some(&used[1..]), NOW).unwrap(), used[1..]);
    }

    #[test]
    fn too_many_labels_are_reduced_to_those_that_pools_select_by() {
        let mut catalog = Catalog::default();
        let node_selector = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let spec = PoolSpec { node_selector, ..PoolSpec::default() };
        catalog.pools.insert(PoolName::new("rp_1").unwrap(), Versioned { spec, generation: Generation(1) });
        let mut large = node("node-1");
        large.labels.insert("feature".to_owned(), "x".repeat(MAX_LABEL_BYTES));
        let published = NodeReporter::default().due(&catalog, Some(&[large, node("node-2")]), NOW).unwrap();
        assert_eq!(published, [node("node-1"), node("node-2")]);
    }
}
