//! What a user reads about pods that find no node.

use super::{NodeAmount, NodesFull, Oversized};
use crate::error::{ErrorKind, UserError};
use crate::ledger::Request;
use crate::resource::Component;

/// The `errorCode` of pods that do not all find a node now.
const POOL_NODES: i32 = 46_015;
/// The `errorCode` of a pod that fits on no node of its pool.
const POD_LARGER_THAN_ANY_NODE: i32 = 46_081;

impl NodesFull {
    /// The error for the request. `position` is the rank of a queued request.
    pub fn error(&self, request: &Request, position: Option<usize>) -> UserError {
        UserError::new(ErrorKind::InsufficientResources, format!("not enough nodes for {}", request.what()))
            .detail(self.detail(request.scopes.pool_name(), position))
            .hint("Stop an engine of the resource pool, or add a node to it.")
            .with_error_code(POOL_NODES)
    }

    /// `Resource pool "rp_1": asked nodes for 3 pods, left for 1 (POOL_NODES, retryable).` With the position of a queued
    /// request, if it is to be named.
    pub fn detail(&self, pool: &str, position: Option<usize>) -> String {
        let Self { asked, left } = self;
        let pods = if *asked == 1 { "pod" } else { "pods" };
        let position = position.map(|position| format!(", position {position}")).unwrap_or_default();
        format!(
            "Resource pool \"{pool}\": asked nodes for {asked} {pods}, left for {left} (POOL_NODES, retryable{position})."
        )
    }
}

impl Oversized {
    /// The error for the request. Not retryable.
    pub fn error(&self, request: &Request) -> UserError {
        let pool = request.scopes.pool_name();
        let [pod, largest] = [self.pod, self.largest].map(shown);
        UserError::new(ErrorKind::LimitReached, format!("no node is large enough for {}", request.what()))
            .detail(format!(
                "Resource pool \"{pool}\": a pod requests {pod}, and the largest node has {largest} \
                 (POD_LARGER_THAN_ANY_NODE, not retryable)."
            ))
            .hint("ALTER RESOURCE UNIT with smaller drivers or executors, or add a larger node to the resource pool.")
            .with_error_code(POD_LARGER_THAN_ANY_NODE)
    }
}

/// `0.5 CPU and 1280 MiB`
fn shown(amount: NodeAmount) -> String {
    let cpu_m = i64::try_from(amount.cpu_millis).unwrap_or(i64::MAX);
    format!("{} and {} MiB", Component::Cpu.shown(cpu_m), amount.memory_bytes >> 20)
}
