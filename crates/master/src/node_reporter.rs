//! What SHOW was told of nodes, and what it is to be told next.
//!
//! A report names all nodes or none, and whoever writes it compares them with what is stored: there may be thousands. That a node
//! is there, takes engines and has these labels and this room is told at once. How much of it is used changes with every engine
//! that comes or goes, and is told some seconds later at most, together with what else has changed until then.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::catalog::Catalog;
use model::observation::{MAX_NODES, ObservedNode};

/// The most bytes of labels that the nodes of a report have: a quarter of what a request to an agent may be.
const MAX_LABEL_BYTES: usize = 4 << 20;
/// How long after the last time nothing is told if only what is used has changed.
const USE_PAUSE: Duration = Duration::from_secs(10);

/// What was told last.
#[derive(Debug, Default)]
pub(crate) struct NodeReporter {
    /// The nodes as they were reported, and when; kept when they could not be read.
    last: Option<(Vec<ObservedNode>, Duration)>,
}

impl NodeReporter {
    /// The nodes that are to be reported now: all of them, if they are not as they were. Where their labels are more than a
    /// report should have, only those that some pool chooses by are told.
    pub fn due(&self, catalog: &Catalog, nodes: Option<&[ObservedNode]>, now: Duration) -> Option<Vec<ObservedNode>> {
        let mut nodes = nodes.map(|nodes| Cow::Borrowed(&nodes[..nodes.len().min(MAX_NODES)]))?;
        let labels = nodes.iter().flat_map(|node| &node.labels);
        if labels.map(|(label, value)| label.len() + value.len()).sum::<usize>() > MAX_LABEL_BYTES {
            let selectors = catalog.pools.values().map(|pool| &pool.spec.node_selector);
            let chosen_by: BTreeSet<&String> = selectors.flat_map(BTreeMap::keys).collect();
            for node in nodes.to_mut() {
                node.labels.retain(|label, _| chosen_by.contains(label));
            }
        }
        let is_due = self.last.as_ref().is_none_or(|(told, at)| match change(told, &nodes) {
            Change::Nothing => false,
            Change::Use => now.saturating_sub(*at) >= USE_PAUSE,
            Change::More => true,
        });
        is_due.then(|| nodes.into_owned())
    }

    /// A report with these nodes was written; if it may not have been, the next one names them again.
    pub fn told(&mut self, written: bool, nodes: Option<Vec<ObservedNode>>, now: Duration) {
        match (written, nodes) {
            (false, _) => self.last = None,
            (true, Some(nodes)) => self.last = Some((nodes, now)),
            (true, None) => {}
        }
    }
}

/// How nodes differ from what was told of them.
enum Change {
    Nothing,
    /// In what is used of them, and in nothing else.
    Use,
    More,
}

fn change(told: &[ObservedNode], nodes: &[ObservedNode]) -> Change {
    if told.len() != nodes.len() {
        return Change::More;
    }
    let mut change = Change::Nothing;
    for (told, node) in told.iter().zip(nodes) {
        // Named one by one, so that a field that is added is thought of here.
        let ObservedNode { name, labels, cpu_millis, memory_bytes, cpu_used_millis, memory_used_bytes, open } = node;
        let is_same = *name == told.name
            && *labels == told.labels
            && (*cpu_millis, *memory_bytes, *open) == (told.cpu_millis, told.memory_bytes, told.open);
        if !is_same {
            return Change::More;
        }
        if (*cpu_used_millis, *memory_used_bytes) != (told.cpu_used_millis, told.memory_used_bytes) {
            change = Change::Use;
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

    fn due(told: &NodeReporter, nodes: Option<&[ObservedNode]>, now: Duration) -> Option<Vec<ObservedNode>> {
        told.due(&Catalog::default(), nodes, now)
    }

    #[test]
    fn nodes_are_reported_when_they_changed_and_again_when_it_is_not_known_whether_they_were() {
        let mut told = NodeReporter::default();
        let nodes = [node("node-1")];
        assert_eq!(due(&told, None, NOW), None);
        let report = due(&told, Some(&nodes), NOW);
        assert_eq!(report.as_deref(), Some(&nodes[..]), "a new master tells, if only that there are none");
        told.told(true, report, NOW);
        assert_eq!(due(&told, Some(&nodes), NOW), None);
        told.told(true, None, NOW);
        assert_eq!(due(&told, Some(&nodes), NOW), None, "a report without nodes says nothing of them");
        assert_eq!(due(&told, Some(&[]), NOW), Some(Vec::new()));
        told.told(false, None, NOW);
        assert_eq!(due(&told, Some(&nodes), NOW), Some(nodes.to_vec()));
    }

    #[test]
    fn what_is_used_is_told_after_a_while_and_everything_else_at_once() {
        let mut told = NodeReporter::default();
        told.told(true, Some(vec![node("node-1"), node("node-2")]), NOW);
        let used = [ObservedNode { cpu_used_millis: 500, ..node("node-1") }, node("node-2")];
        let soon = NOW + Duration::from_secs(9);
        assert_eq!(due(&told, Some(&used), soon), None);
        assert_eq!(due(&told, Some(&used), NOW + USE_PAUSE).unwrap(), used);
        let closed = [used[0].clone(), ObservedNode { open: true, ..node("node-2") }];
        assert_eq!(due(&told, Some(&closed), soon).unwrap(), closed, "with what is used");
        let other = [node("node-1"), node("node-3")];
        assert_eq!(due(&told, Some(&other), soon).unwrap(), other);
    }

    #[test]
    fn of_very_many_labels_only_those_that_a_pool_chooses_by_are_reported() {
        let mut catalog = Catalog::default();
        let node_selector = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let spec = PoolSpec { node_selector, ..PoolSpec::default() };
        catalog.pools.insert(PoolName::new("rp_1").unwrap(), Versioned { spec, generation: Generation(1) });
        let mut large = node("node-1");
        large.labels.insert("feature".to_owned(), "x".repeat(MAX_LABEL_BYTES));
        let told = NodeReporter::default().due(&catalog, Some(&[large, node("node-2")]), NOW).unwrap();
        assert_eq!(told, [node("node-1"), node("node-2")]);
    }
}
