//! The pods of an instance, as the orchestrator observes them: what they request, and where.
//!
//! Of pods that exist and have not ended. An instance of another kind has none, and what it takes follows from its
//! configuration. The numbers are those of the pods' specs, which nothing changes after their creation: they are right also
//! for an engine that was created from an older configuration. A stale observation lacks executors that were created since.

use std::collections::BTreeMap;

use crate::charge::{Charge, Container, ExecutorPods};
use crate::fit::NodeAmount;

/// One pod, or a sum of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PodSize {
    /// The CPU that it may use, in thousandths of a core.
    pub cpu_millis: u64,
    pub requests: NodeAmount,
}

impl PodSize {
    pub const ZERO: Self = Self { cpu_millis: 0, requests: NodeAmount::ZERO };

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            requests: self.requests.plus(other.requests),
        }
    }

    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self { cpu_millis: self.cpu_millis.saturating_mul(count), requests: self.requests.times(count) }
    }

    /// The larger one of each component.
    #[must_use]
    pub fn maximum(self, other: Self) -> Self {
        Self { cpu_millis: self.cpu_millis.max(other.cpu_millis), requests: self.requests.maximum(other.requests) }
    }
}

impl From<&Container> for PodSize {
    fn from(container: &Container) -> Self {
        let requests =
            NodeAmount { cpu_millis: container.cpu_request_millis, memory_bytes: container.memory_request_bytes() };
        Self { cpu_millis: container.cpu_millis, requests }
    }
}

/// The pods of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedPods {
    /// The pod that it began with.
    pub driver: PodSize,
    /// The executors that are on a node.
    pub executors: Executors,
    /// What they take of each node, by its name; without pods that are on no node yet.
    pub on_nodes: BTreeMap<String, NodeAmount>,
}

/// Executors that are on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Executors {
    pub count: u32,
    /// Their sum.
    pub total: PodSize,
    /// The largest one of each component.
    pub largest: PodSize,
}

impl ObservedPods {
    /// A driver; without a node it is on none yet.
    pub fn of_driver(driver: PodSize, node: Option<&str>) -> Self {
        let on_nodes = node.map(|node| (node.to_owned(), driver.requests)).into_iter().collect();
        Self { driver, executors: Executors::default(), on_nodes }
    }

    /// All pods of a charge, on one node.
    pub fn on_one_node(charge: &Charge, node: &str) -> Self {
        let agent = charge.driver.agent.as_ref().map_or(PodSize::ZERO, PodSize::from);
        let mut pods = Self::of_driver(PodSize::from(&charge.driver.engine).plus(agent), Some(node));
        if let Some(ExecutorPods { count, container }) = charge.executors {
            let largest = PodSize::from(&container);
            pods.executors = Executors { count, total: largest.times(u64::from(count)), largest };
            pods.on_nodes = [(node.to_owned(), pods.requests())].into();
        }
        pods
    }

    /// Adds an executor that is on a node.
    pub fn add_executor(&mut self, executor: PodSize, node: &str) {
        let Executors { count, total, largest } = &mut self.executors;
        *count = count.saturating_add(1);
        (*total, *largest) = (total.plus(executor), largest.maximum(executor));
        match self.on_nodes.get_mut(node) {
            Some(there) => *there = there.plus(executor.requests),
            None => drop(self.on_nodes.insert(node.to_owned(), executor.requests)),
        }
    }

    /// What all of them request.
    pub const fn requests(&self) -> NodeAmount {
        self.driver.requests.plus(self.executors.total.requests)
    }
}
