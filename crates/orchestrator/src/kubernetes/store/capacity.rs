//! The capacity of the nodes and what the pods in the store request of it.

use std::collections::BTreeMap;

use model::engine_state::Phase;
use model::observation::ObservedNode;

use super::{Entry, Store};
use crate::kubernetes::nodes::NodeCapacity;

impl Store {
    /// The nodes with what the engines on them request; `None` until the first list of nodes has succeeded or failed.
    /// Executors are created by their drivers and are not counted.
    pub(in crate::kubernetes) fn observed_nodes(&self) -> Option<Vec<ObservedNode>> {
        let inner = self.lock();
        if !inner.nodes.is_tried() {
            return None;
        }
        let mut used: BTreeMap<&str, NodeCapacity> = BTreeMap::new();
        let is_alive = |entry: &&Entry| entry.engine().is_some_and(|engine| engine.observed.phase < Phase::Ended);
        for entry in inner.entries.values().filter(is_alive) {
            let Some(node) = entry.pod.node() else { continue };
            let used = used.entry(node).or_default();
            *used = used.saturating_add(entry.requests);
        }
        let observed = inner.nodes.all().iter().map(|(name, facts)| {
            let used = used.get(name.as_str()).copied().unwrap_or_default();
            ObservedNode {
                name: name.clone(),
                labels: facts.labels.clone(),
                cpu_millis: facts.allocatable.cpu_millis,
                memory_bytes: facts.allocatable.memory_bytes,
                cpu_used_millis: used.cpu_millis,
                memory_used_bytes: used.memory_bytes,
                ready: facts.is_ready,
                open: facts.is_schedulable,
            }
        });
        Some(observed.collect())
    }
}
