//! CPU and memory of containers, as Kubernetes quantities. Its `1G` is 10^9 bytes, so memory is always in Mi.
//!
//! CPU requests are divided by the pool's overcommit, limits never. Memory is requested in full, because a shortage of memory
//! kills the container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use model::resource_requests::SPARK_MIN_OVERHEAD_BYTES;

use crate::Spec;

const MIB: u64 = 1 << 20;
/// The CPU request of the agent of a Spark engine.
const AGENT_CPU_MILLIS: u64 = 100;
/// Its CPU limit.
const AGENT_CPU_LIMIT_MILLIS: u64 = 1_000;
/// Request and limit of the agent's memory: next to Spark, or in addition to the memory of the engine that it contains.
const AGENT_MEMORY_BYTES: u64 = 256 * MIB;

/// CPU: `2`, `500m`.
pub(super) fn cpu(millis: u64) -> String {
    if millis.is_multiple_of(1_000) { (millis / 1_000).to_string() } else { format!("{millis}m") }
}

/// Memory, rounded up: `1408Mi`.
pub(super) fn memory(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(MIB))
}

/// The request if `percent` of the existing CPU may be requested; at least 1.
pub(super) fn overcommitted(millis: u64, percent: Option<u32>) -> u64 {
    (millis * 100).div_ceil(u64::from(percent.unwrap_or(100)).max(1)).max(1)
}

/// Spark's memory overhead of a heap, in whole MiB as Spark computes it: 10 %, at least 384.
pub(super) fn overhead_mib(heap_bytes: u64) -> u64 {
    (heap_bytes / 10).max(SPARK_MIN_OVERHEAD_BYTES).div_ceil(MIB)
}

/// Of the container that the unit's sizes describe.
pub(super) fn driver(spec: &Spec) -> ResourceRequirements {
    let requests = &spec.requests;
    let requested = overcommitted(requests.driver_cpu_millis, spec.options.cpu_overcommit_percent);
    requirements(requested, requests.driver_cpu_millis, requests.driver_memory_bytes)
}

/// Of an agent that contains the engine: its statements share the unit's memory, and the program needs some more.
pub(super) fn embedded_engine(spec: &Spec) -> ResourceRequirements {
    let requests = &spec.requests;
    let requested = overcommitted(requests.driver_cpu_millis, spec.options.cpu_overcommit_percent);
    requirements(requested, requests.driver_cpu_millis, requests.driver_memory_bytes.saturating_add(AGENT_MEMORY_BYTES))
}

/// Of the agent of a Spark engine.
pub(super) fn agent() -> ResourceRequirements {
    requirements(AGENT_CPU_MILLIS, AGENT_CPU_LIMIT_MILLIS, AGENT_MEMORY_BYTES)
}

fn requirements(cpu_request: u64, cpu_limit: u64, memory_bytes: u64) -> ResourceRequirements {
    let quantities = |millis: u64| {
        BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu(millis))),
            ("memory".to_owned(), Quantity(memory(memory_bytes))),
        ])
    };
    ResourceRequirements { claims: None, limits: Some(quantities(cpu_limit)), requests: Some(quantities(cpu_request)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_written_in_mib_and_rounded_up() {
        assert_eq!(memory(1 << 30), "1024Mi");
        assert_eq!(memory((1 << 30) + 1), "1025Mi");
        assert_eq!((cpu(2_000), cpu(2_500)), ("2".to_owned(), "2500m".to_owned()));
    }

    #[test]
    fn an_overcommit_divides_the_request_but_not_to_zero() {
        assert_eq!(overcommitted(2_000, None), 2_000);
        assert_eq!(overcommitted(2_000, Some(200)), 1_000);
        assert_eq!(overcommitted(1, Some(400)), 1);
        assert_eq!(overcommitted(1_000, Some(50)), 2_000);
    }

    #[test]
    fn the_overhead_is_a_tenth_and_at_least_384_mib() {
        assert_eq!(overhead_mib(1 << 30), 384);
        assert_eq!(overhead_mib(20 << 30), 2_048);
    }
}
