//! The executors of Spark engines that are on a node: what they take of it, up to a limit.
//!
//! An executor is created by its driver, so it has no signature and is recognized by its labels. It is counted and nothing else:
//! it is no engine, and no verb touches it. One that is on no node yet takes nothing, and one that has ended takes nothing any
//! more; one that terminates is still there. A pod that imitates an executor takes as much of its node as a real one.
//!
//! Only watches report executors. An event that was lost is corrected by the next resync.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use model::labels;
use model::observed_pods::PodSize;
use model::shared::Shared;

use super::Key;
use crate::ObservedInstance;
use crate::kubernetes::nodes;
use crate::kubernetes::trimmed::TrimmedPod;

/// The limit of executors that are kept: more than a cluster runs. Above it, further ones are not counted.
pub const MAX_EXECUTORS: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Executors {
    by_pod: BTreeMap<Key, Executor>,
    /// How often what they take of nodes has changed.
    changes: u64,
    /// Whether one was dropped since the last resync.
    is_over_limit: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Executor {
    uid: String,
    version: Option<u64>,
    /// The name of its engine, from its label.
    engine: String,
    node: String,
    size: PodSize,
}

impl Executor {
    /// `None` if it takes nothing of a node.
    fn new(pod: &TrimmedPod) -> Option<Self> {
        let phase = pod.0.status.as_ref().and_then(|status| status.phase.as_deref());
        let node = pod.node().filter(|node| !node.is_empty() && !matches!(phase, Some("Succeeded" | "Failed")))?;
        Some(Self {
            uid: pod.uid().to_owned(),
            version: pod.version(),
            engine: pod.label(labels::NAME).unwrap_or_default().to_owned(),
            node: node.to_owned(),
            size: nodes::size_of(&pod.0),
        })
    }
}

/// Whether the pod has the labels of an executor.
pub(super) fn is_executor(pod: &TrimmedPod) -> bool {
    pod.label(labels::ROLE) == Some(labels::ROLE_EXECUTOR)
}

impl Executors {
    /// Returns whether what is taken of a node changed.
    pub(super) fn apply(&mut self, pod: &TrimmedPod) -> bool {
        let key = pod.key();
        let known = self.by_pod.get(&key);
        let is_older = |known: &Executor| matches!((pod.version(), known.version), (Some(new), Some(old)) if new < old);
        if known.is_some_and(is_older) {
            return false;
        }
        let Some(executor) = Executor::new(pod) else {
            let was_kept = self.by_pod.remove(&key).is_some();
            self.changes += u64::from(was_kept);
            return was_kept;
        };
        if known.is_none() && self.by_pod.len() >= MAX_EXECUTORS {
            if !std::mem::replace(&mut self.is_over_limit, true) {
                tracing::warn!(
                    limit = MAX_EXECUTORS,
                    "too many executors; further ones are not counted on their nodes"
                );
            }
            return false;
        }
        let before = self.by_pod.insert(key, executor.clone());
        let of_engine = |executor: Executor| (executor.engine, executor.node, executor.size);
        let is_changed = before.map(of_engine) != Some(of_engine(executor));
        self.changes += u64::from(is_changed);
        is_changed
    }

    /// Removes the pod with this uid; returns whether it was kept.
    pub(super) fn remove(&mut self, key: &Key, uid: &str) -> bool {
        let is_it = self.by_pod.get(key).is_some_and(|executor| executor.uid == uid);
        self.changes += u64::from(is_it);
        is_it && self.by_pod.remove(key).is_some()
    }

    /// After a resync.
    pub(super) fn retain(&mut self, stays: impl Fn(&Key) -> bool) {
        let before = self.by_pod.len();
        self.by_pod.retain(|key, _| stays(key));
        self.changes += u64::from(self.by_pod.len() < before);
        self.is_over_limit = false;
    }

    /// As long as it is equal, no engine has other executors.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The node of each, and what it takes of it.
    pub(super) fn on_nodes(&self) -> impl Iterator<Item = (&str, PodSize)> {
        self.by_pod.values().map(|executor| (executor.node.as_str(), executor.size))
    }

    /// The executors of each engine, which is a name in a namespace.
    pub(super) fn by_engine(&self) -> ByEngine<'_> {
        let mut by_engine: HashMap<_, Vec<&Executor>> = HashMap::new();
        for ((_, namespace), executor) in &self.by_pod {
            by_engine.entry((executor.engine.as_str(), namespace.as_str())).or_default().push(executor);
        }
        ByEngine(by_engine)
    }
}

/// Executors by the name and the namespace of their engine.
pub(super) struct ByEngine<'a>(HashMap<(&'a str, &'a str), Vec<&'a Executor>>);

impl ByEngine<'_> {
    /// The engine with its executors added to its pods.
    pub(super) fn complete(&self, engine: Shared<ObservedInstance>, namespace: &str) -> Shared<ObservedInstance> {
        let Some(executors) = self.0.get(&(engine.name.as_str(), namespace)) else { return engine };
        let Some(pods) = &engine.pods else { return engine };
        let mut pods = Arc::clone(pods);
        let all = Arc::make_mut(&mut pods);
        for executor in executors {
            all.add_executor(executor.size, &executor.node);
        }
        ObservedInstance { pods: Some(pods), ..ObservedInstance::clone(&engine) }.into()
    }
}
