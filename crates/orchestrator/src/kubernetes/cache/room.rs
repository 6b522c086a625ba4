//! What is promised on each node, from the pods that the cache knows.

use std::collections::BTreeMap;

use model::engine_state::Phase;
use model::observation::ObservedNode;

use super::{Cache, engine};

impl Cache {
    /// The nodes with what engines on them asked for; `None` before the first look at them has an outcome. Executors are
    /// made by their drivers and are not counted.
    pub(in crate::kubernetes) fn observed_nodes(&self) -> Option<Vec<ObservedNode>> {
        let inner = self.lock();
        if !inner.nodes.is_asked() {
            return None;
        }
        let mut used: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let alive =
            inner.entries.values().filter(|it| engine(it).is_some_and(|seen| seen.observed.phase < Phase::Ended));
        for entry in alive {
            let Some(node) = entry.pod.spec.as_ref().and_then(|pod| pod.node_name.as_deref()) else { continue };
            let (cpu, memory) = used.entry(node).or_default();
            (*cpu, *memory) = (cpu.saturating_add(entry.asked.0), memory.saturating_add(entry.asked.1));
        }
        let observed = inner.nodes.all().iter().map(|(name, facts)| {
            let (cpu_used_millis, memory_used_bytes) = used.get(name.as_str()).copied().unwrap_or_default();
            ObservedNode {
                name: name.clone(),
                labels: facts.labels.clone(),
                cpu_millis: facts.cpu_millis,
                memory_bytes: facts.memory_bytes,
                cpu_used_millis,
                memory_used_bytes,
                open: facts.is_open,
            }
        });
        Some(observed.collect())
    }
}
