//! The pods of an engine, which run only if all of them do.

use model::charge::{Charge, Container};

use super::amount::NodeAmount;

/// What the pods of an engine request of their nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pods {
    pub driver: NodeAmount,
    /// What each executor requests; of no meaning without executors.
    pub executor: NodeAmount,
    pub executors: u32,
}

impl Pods {
    /// A driver without executors.
    pub const fn single(driver: NodeAmount) -> Self {
        Self { driver, executor: NodeAmount::ZERO, executors: 0 }
    }

    /// How many pods they are.
    pub fn count(&self) -> u64 {
        1 + u64::from(self.executors)
    }

    /// Equal pods with their number, in descending order of their dominant share of `whole`; the driver first if they
    /// are equal.
    pub(super) fn descending(&self, whole: NodeAmount) -> [(NodeAmount, u64); 2] {
        let (driver, executors) = ((self.driver, 1), (self.executor, u64::from(self.executors)));
        if self.executor.dominant_share(whole) > self.driver.dominant_share(whole) {
            [executors, driver]
        } else {
            [driver, executors]
        }
    }

    /// Each size of a pod, once.
    pub(super) fn sizes(&self) -> impl Iterator<Item = NodeAmount> {
        [Some(self.driver), (self.executors > 0).then_some(self.executor)].into_iter().flatten()
    }
}

impl From<&Charge> for Pods {
    fn from(charge: &Charge) -> Self {
        let request = |container: &Container| NodeAmount {
            cpu_millis: container.cpu_request_millis,
            memory_bytes: container.memory_request_bytes(),
        };
        let agent = charge.driver.agent.as_ref().map_or(NodeAmount::ZERO, request);
        let executors = charge.executors;
        Self {
            driver: request(&charge.driver.engine).plus(agent),
            executor: executors.map_or(NodeAmount::ZERO, |executors| request(&executors.container)),
            executors: executors.map_or(0, |executors| executors.count),
        }
    }
}
