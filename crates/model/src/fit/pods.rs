//! The pods of an engine, which run only if all of them do.

use super::amount::NodeAmount;
use crate::charge::{Charge, Container};
use crate::observed_pods::{ObservedPods, PodSize};
use crate::resource::Amount;

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

    /// One pod with the whole requests of an engine whose pods are not known.
    pub fn whole(requests: &Amount) -> Self {
        let part = |amount: i64| amount.max(0).unsigned_abs();
        Self::single(NodeAmount { cpu_millis: part(requests.cpu_m), memory_bytes: part(requests.memory) })
    }

    /// Whether one of them is larger, in any component, than the pod in its place.
    pub fn has_larger_than(&self, observed: &ObservedPods) -> bool {
        let has_executors = self.executors > 0 && observed.executors.count > 0;
        !self.driver.fits(observed.driver.requests)
            || (has_executors && !self.executor.fits(observed.executors.largest.requests))
    }

    /// What of the executors that `reserved` includes is on no node yet: as many as miss both CPU and memory, so that what
    /// others have added to a pod makes no difference. Executors are of the observed size, else of this one.
    #[must_use]
    pub fn missing_executors(&self, reserved: NodeAmount, observed: &ObservedPods) -> Option<Self> {
        let executor = if observed.executors.count > 0 { observed.executors.largest.requests } else { self.executor };
        let missing = reserved.minus(observed.requests());
        let parts = [(missing.cpu_millis, executor.cpu_millis), (missing.memory_bytes, executor.memory_bytes)];
        let counts = parts.into_iter().filter(|(_, each)| *each > 0).map(|(missing, each)| missing.div_ceil(each));
        let executors = u32::try_from(counts.min().unwrap_or(0)).unwrap_or(u32::MAX);
        (executors > 0).then_some(Self { driver: NodeAmount::ZERO, executor, executors })
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
        let request = |container: &Container| PodSize::from(container).requests;
        let agent = charge.driver.agent.as_ref().map_or(NodeAmount::ZERO, request);
        let executors = charge.executors;
        Self {
            driver: request(&charge.driver.engine).plus(agent),
            executor: executors.map_or(NodeAmount::ZERO, |executors| request(&executors.container)),
            executors: executors.map_or(0, |executors| executors.count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn amount(cpu_millis: u64, memory_mib: u64) -> NodeAmount {
        NodeAmount { cpu_millis, memory_bytes: memory_mib << 20 }
    }

    const PODS: Pods = Pods { driver: amount(1_100, 1_664), executor: amount(2_000, 2_432), executors: 4 };
    const RESERVED: NodeAmount = PODS.driver.plus(PODS.executor.times(4));

    /// A driver with so many executors.
    fn observed(driver: NodeAmount, executor: NodeAmount, count: u32) -> ObservedPods {
        let mut pods = ObservedPods::of_driver(PodSize { cpu_millis: 0, requests: driver }, Some("node-1"));
        for _ in 0..count {
            pods.add_executor(PodSize { cpu_millis: 0, requests: executor }, "node-2");
        }
        pods
    }

    fn missing(observed: &ObservedPods) -> Option<(NodeAmount, u32)> {
        PODS.missing_executors(RESERVED, observed).map(|missing| (missing.executor, missing.executors))
    }

    #[test]
    fn what_is_charged_and_not_requested_are_missing_executors() {
        for (count, expected) in [(0, Some(4)), (3, Some(1)), (4, None), (5, None)] {
            let expected = expected.map(|missing| (PODS.executor, missing));
            assert_eq!(missing(&observed(PODS.driver, PODS.executor, count)), expected, "{count}");
        }
        // Of an engine with other executors than the current ones.
        let large = observed(PODS.driver, amount(4_000, 4_864), 1);
        assert_eq!(missing(&large), Some((amount(4_000, 4_864), 1)));
    }

    #[test]
    fn containers_that_others_add_hide_no_missing_executor_and_add_none() {
        let with_more = |count| observed(PODS.driver.plus(amount(100, 0)), PODS.executor.plus(amount(100, 0)), count);
        assert_eq!(missing(&with_more(0)), Some((PODS.executor, 4)));
        assert_eq!(missing(&with_more(3)).map(|(_, count)| count), Some(1));
        assert_eq!(missing(&with_more(4)), None);
        // Charged 1 MiB more than the pods request.
        let smaller = observed(PODS.driver.minus(amount(0, 1)), PODS.executor, 4);
        assert_eq!(missing(&smaller), None);
    }

    #[test]
    fn a_pod_is_larger_if_any_component_is() {
        let there = observed(PODS.driver, PODS.executor, 1);
        assert!(!PODS.has_larger_than(&there));
        assert!(Pods { driver: amount(1_100, 1_665), ..PODS }.has_larger_than(&there));
        let larger = Pods { executor: amount(2_001, 1), ..PODS };
        assert!(larger.has_larger_than(&there) && !Pods { executors: 0, ..larger }.has_larger_than(&there));
        assert!(!larger.has_larger_than(&observed(PODS.driver, PODS.executor, 0)), "the size of none is not known");
    }
}
