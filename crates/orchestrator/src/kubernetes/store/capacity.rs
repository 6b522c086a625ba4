//! The capacity of the nodes and what the pods in the store request of it.

use std::collections::BTreeMap;

use model::fit::NodeAmount;
use model::observation::ObservedNode;

use super::Store;

impl Store {
    /// The nodes with what the engines on them request, their executors included; `None` until the first list of nodes has
    /// succeeded or failed. Other pods are not counted.
    pub(in crate::kubernetes) fn observed_nodes(&self) -> Option<Vec<ObservedNode>> {
        let inner = self.lock();
        if !inner.nodes.is_tried() {
            return None;
        }
        let engines = inner.entries.values().filter_map(|entry| entry.engine()?.observed.pods.as_ref());
        let on_nodes = engines.flat_map(|pods| pods.on_nodes.iter().map(|(node, requests)| (node.as_str(), *requests)));
        let executors = inner.executors.on_nodes().map(|(node, size)| (node, size.requests));
        let mut used: BTreeMap<&str, NodeAmount> = BTreeMap::new();
        for (node, requests) in on_nodes.chain(executors) {
            let used = used.entry(node).or_default();
            *used = used.plus(requests);
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
