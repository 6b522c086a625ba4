//! The observation log: one line per new warning about what a tick observed, and a throttled one about what it did not read.

use std::collections::BTreeSet;
use std::time::Duration;

use coordination::Unread;
use model::capacity::nodes_in_two_pools;
use model::catalog::Catalog;
use model::log_throttle::LogThrottle;
use model::name::PoolName;
use model::observation::ObservedNode;

use crate::ctx::{InstanceList, Observation};

/// A throttle, and the warnings of the last tick.
#[derive(Debug, Default)]
pub(crate) struct ObservationLog {
    unread: LogThrottle,
    shared: BTreeSet<String>,
    unreadable: BTreeSet<String>,
}

impl ObservationLog {
    /// Logs what a tick could not read, new unreadable instances, and nodes that have just become part of two pools.
    pub fn observed(&mut self, now: Duration, catalog: &Catalog, observation: &Observation) {
        self.unread_nodes(now, &observation.coordination.unread);
        if let Ok(list) = &observation.instances {
            self.warnings(catalog, list);
        }
    }

    fn unread_nodes(&mut self, now: Duration, unread: &Unread) {
        let (permits, drains) = (unread.permits.len(), unread.drains.len());
        if unread.is_empty() {
            self.unread.clear();
        } else if let Some(times) = self.unread.hit(now) {
            let limit = coordination::MAX_CHILDREN;
            tracing::warn!(permits, drains, limit, times, "more permits or drain orders than are read in one tick");
        }
    }

    fn warnings(&mut self, catalog: &Catalog, list: &InstanceList) {
        for (name, reason) in self.newly_unreadable(&list.unreadable) {
            tracing::warn!(name, reason, "could not read an engine of the orchestrator");
        }
        for (node, one, other) in self.newly_shared(catalog, list.nodes.as_deref().unwrap_or_default()) {
            tracing::warn!(
                node,
                %one,
                %other,
                "a node is in two resource pools: NODE_LIST or NODE_SELECTOR of both select it"
            );
        }
    }

    fn newly_unreadable<'a>(&mut self, unreadable: &'a [(String, String)]) -> Vec<&'a (String, String)> {
        let new = unreadable.iter().filter(|(name, _)| !self.unreadable.contains(name)).collect();
        self.unreadable = unreadable.iter().map(|(name, _)| name.clone()).collect();
        new
    }

    fn newly_shared(&mut self, catalog: &Catalog, nodes: &[ObservedNode]) -> Vec<(String, PoolName, PoolName)> {
        let found = nodes_in_two_pools(catalog, nodes);
        let new = found.iter().filter(|(node, ..)| !self.shared.contains(*node));
        let new = new.map(|(node, one, other)| ((*node).to_owned(), (*one).clone(), (*other).clone())).collect();
        self.shared = found.into_iter().map(|(node, ..)| node.to_owned()).collect();
        new
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use model::catalog::{PoolSpec, Versioned};
    use model::number::Generation;

    use super::*;

    fn node(name: &str) -> ObservedNode {
        let labels = [("zone".to_owned(), "a".to_owned())].into();
        ObservedNode { name: name.to_owned(), labels, ..ObservedNode::default() }
    }

    #[test]
    fn a_node_in_two_pools_is_logged_once_and_again_after_it_left() {
        let mut catalog = Catalog::default();
        for (name, disk) in [("rp_1", false), ("rp_2", true)] {
            let mut node_selector = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
            if disk {
                node_selector = BTreeMap::from([("disk".to_owned(), "ssd".to_owned())]);
            }
            let spec = PoolSpec { node_selector, ..PoolSpec::default() };
            catalog.pools.insert(PoolName::new(name).unwrap(), Versioned { spec, generation: Generation(1) });
        }
        let mut both = node("node-1");
        both.labels.insert("disk".to_owned(), "ssd".to_owned());
        let mut log = ObservationLog::default();
        let mut logged = |nodes: &[ObservedNode]| {
            let new = log.newly_shared(&catalog, nodes);
            new.into_iter().map(|(node, one, other)| format!("{node} {one} {other}")).collect::<Vec<_>>()
        };
        assert_eq!(logged(&[both.clone(), node("node-2")]), ["node-1 rp_1 rp_2"]);
        assert!(logged(&[both.clone(), node("node-2")]).is_empty());
        assert!(logged(&[node("node-1")]).is_empty());
        assert_eq!(logged(&[both]).len(), 1);
    }
}
