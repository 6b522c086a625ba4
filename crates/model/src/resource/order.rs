//! Comparison of resources: a partial order over the components, after promotion.
//!
//! A relation holds only if it holds for every component, so for (4G, 2 CPU) and (2G, 4 CPU) none of `more_than`, `less_than`,
//! `equals`, `not_less_than` and `not_more_than` holds. Kinds or queues that do not combine are `KIND_MISMATCH`.

use super::arithmetic::combined;
use super::{LoadInstance, Resource};
use crate::error::UserError;

/// A key for sorting: memory, CPU, instances. It decides no admission: a resource with a smaller key may need more of
/// a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SortKey {
    memory: i128,
    cpu_m: i128,
    instances: i128,
}

impl Resource {
    pub fn more_than(&self, other: &Self) -> Result<bool, UserError> {
        let pairs = pairs(self, other)?;
        // Two resources without any amount are equal.
        Ok(!pairs.is_empty() && pairs.iter().all(|(left, right)| left > right))
    }

    pub fn less_than(&self, other: &Self) -> Result<bool, UserError> {
        other.more_than(self)
    }

    pub fn equals(&self, other: &Self) -> Result<bool, UserError> {
        Ok(pairs(self, other)?.iter().all(|(left, right)| left == right))
    }

    pub fn not_less_than(&self, other: &Self) -> Result<bool, UserError> {
        Ok(pairs(self, other)?.iter().all(|(left, right)| left >= right))
    }

    pub fn not_more_than(&self, other: &Self) -> Result<bool, UserError> {
        other.not_less_than(self)
    }

    /// Whether at least one component is less.
    pub fn any_less(&self, other: &Self) -> Result<bool, UserError> {
        Ok(pairs(self, other)?.iter().any(|(left, right)| left < right))
    }

    /// The key for sorting. A driver and its executors count as their sum, and custom amounts do not count.
    pub fn sort_key(&self) -> SortKey {
        let none = LoadInstance::default();
        let (one, two) = match self {
            Self::Queue(queue) => (queue.load, none),
            Self::DriverAndExecutor { driver, executors } => (*driver, executors.load),
            _ => (self.load().unwrap_or_default(), none),
        };
        let sum = |component: fn(&LoadInstance) -> i64| i128::from(component(&one)) + i128::from(component(&two));
        SortKey {
            memory: sum(|load| load.memory),
            cpu_m: sum(|load| load.cpu_m),
            instances: sum(|load| load.instances),
        }
    }
}

/// The components of both resources, in pairs; of custom amounts the union of the names.
fn pairs(left: &Resource, right: &Resource) -> Result<Vec<(i64, i64)>, UserError> {
    let mut pairs = Vec::new();
    combined(left, right, |left, right| {
        pairs.push((left, right));
        Ok(left)
    })?;
    Ok(pairs)
}
