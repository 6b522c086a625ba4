//! Pods that fit on no node: an engine that has one can never start.
//!
//! By the nodes as the master last observed them. Unknown nodes refuse nothing: none was observed, or the pool lists one that
//! was not. The planner checks again, by newer nodes and by what is free on them.

use model::capacity::PoolCapacity;
use model::catalog::Catalog;
use model::charge::{Charge, Container};
use model::error::{ErrorKind, UserError};
use model::observation::ObservedNode;
use model::resource::Component;
use model::slot::SlotKey;

/// The `errorCode` of a pod that fits on no node of its pool.
const POD_LARGER_THAN_ANY_NODE: i32 = 46_081;

/// What a pod requests, or a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Size {
    cpu_millis: u64,
    memory_bytes: u64,
}

impl Size {
    const fn fits(self, node: Self) -> bool {
        self.cpu_millis <= node.cpu_millis && self.memory_bytes <= node.memory_bytes
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu_millis: self.cpu_millis.saturating_add(other.cpu_millis),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    /// `0.5 CPU and 1280 MiB`
    fn shown(self) -> String {
        let cpu_m = i64::try_from(self.cpu_millis).unwrap_or(i64::MAX);
        format!("{} and {} MiB", Component::Cpu.shown(cpu_m), self.memory_bytes >> 20)
    }
}

/// Refuses an engine with a pod that is larger than every node of its pool.
pub(crate) fn unless_a_node_fits(
    catalog: &Catalog,
    slot: &SlotKey,
    nodes: &[ObservedNode],
    charge: &Charge,
) -> Result<(), UserError> {
    let Some(spec) = catalog.pool(&slot.pool) else { return Ok(()) };
    let pool = PoolCapacity::new(catalog, &slot.pool, spec, nodes);
    let nodes: Vec<Size> =
        pool.nodes.iter().map(|node| Size { cpu_millis: node.cpu_millis, memory_bytes: node.memory_bytes }).collect();
    let Some(largest) = nodes.iter().max().filter(|_| pool.missing.is_empty()) else { return Ok(()) };
    let Some(pod) = pods(charge).into_iter().find(|pod| nodes.iter().all(|node| !pod.fits(*node))) else {
        return Ok(());
    };
    let message = format!("no node is large enough for an engine of resource unit \"{}\"", slot.unit);
    Err(UserError::new(ErrorKind::LimitReached, message)
        .detail(format!(
            "Resource pool \"{}\": a pod requests {}, and the largest node has {} (POD_LARGER_THAN_ANY_NODE, not \
             retryable).",
            slot.pool,
            pod.shown(),
            largest.shown()
        ))
        .hint("ALTER RESOURCE UNIT with smaller drivers or executors, or add a larger node to the resource pool.")
        .with_error_code(POD_LARGER_THAN_ANY_NODE))
}

/// The driver, and an executor if there are any.
fn pods(charge: &Charge) -> Vec<Size> {
    let request = |container: &Container| Size {
        cpu_millis: container.cpu_request_millis,
        memory_bytes: container.memory_request_bytes(),
    };
    let driver = request(&charge.driver.engine);
    let driver = charge.driver.agent.as_ref().map_or(driver, |agent| driver.plus(request(agent)));
    let executors = charge.executors.filter(|executors| executors.count > 0);
    [Some(driver), executors.map(|executors| request(&executors.container))].into_iter().flatten().collect()
}
