//! CPU and memory as Kubernetes writes them. Its `1G` is 10^9 bytes, so memory is always written in Mi.
//!
//! CPU requests are divided by the pool's overcommit, limits never; memory is asked for in full, because memory that is
//! not there kills.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use model::engine_type::SPARK_MIN_OVERHEAD_BYTES;

use crate::Spec;

const MIB: u64 = 1 << 20;
/// What the agent beside Spark asks for, in thousandths of a core.
const AGENT_CPU_MILLIS: u64 = 100;
/// What it may use.
const AGENT_CPU_LIMIT_MILLIS: u64 = 1_000;
/// What the agent asks for and may use: beside Spark, or besides the memory of the engine that it is.
const AGENT_MEMORY_BYTES: u64 = 256 * MIB;

/// CPU: `2`, `500m`.
pub(super) fn cpu(millis: u64) -> String {
    if millis.is_multiple_of(1_000) { (millis / 1_000).to_string() } else { format!("{millis}m") }
}

/// Memory, rounded up: `1408Mi`.
pub(super) fn memory(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(MIB))
}

/// What is asked for where `percent` of the CPU that is there may be promised: never nothing.
pub(super) fn overcommitted(millis: u64, percent: Option<u32>) -> u64 {
    (millis * 100).div_ceil(u64::from(percent.unwrap_or(100)).max(1)).max(1)
}

/// Spark's overhead over a heap, in whole MiB as Spark takes it: 10 %, at least 384.
pub(super) fn overhead_mib(heap_bytes: u64) -> u64 {
    (heap_bytes / 10).max(SPARK_MIN_OVERHEAD_BYTES).div_ceil(MIB)
}

/// Of the container that the unit's sizes are about.
pub(super) fn of_driver(spec: &Spec) -> ResourceRequirements {
    let requests = &spec.requests;
    let asked = overcommitted(requests.driver_cpu_millis, spec.pod.cpu_overcommit_percent);
    requirements(asked, requests.driver_cpu_millis, requests.driver_memory_bytes)
}

/// Of an agent that is the engine: the unit's memory is what its statements share, and the program needs some besides.
pub(super) fn of_embedded(spec: &Spec) -> ResourceRequirements {
    let requests = &spec.requests;
    let asked = overcommitted(requests.driver_cpu_millis, spec.pod.cpu_overcommit_percent);
    requirements(asked, requests.driver_cpu_millis, requests.driver_memory_bytes.saturating_add(AGENT_MEMORY_BYTES))
}

/// Of the agent beside Spark.
pub(super) fn of_agent() -> ResourceRequirements {
    requirements(AGENT_CPU_MILLIS, AGENT_CPU_LIMIT_MILLIS, AGENT_MEMORY_BYTES)
}

fn requirements(asked_cpu: u64, most_cpu: u64, memory_bytes: u64) -> ResourceRequirements {
    let quantities = |millis: u64| {
        BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu(millis))),
            ("memory".to_owned(), Quantity(memory(memory_bytes))),
        ])
    };
    ResourceRequirements { claims: None, limits: Some(quantities(most_cpu)), requests: Some(quantities(asked_cpu)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabyte_of_the_control_language_is_not_one_of_kubernetes() {
        assert_eq!(memory(1 << 30), "1024Mi");
        assert_eq!(memory((1 << 30) + 1), "1025Mi");
        assert_eq!((cpu(2_000), cpu(2_500)), ("2".to_owned(), "2500m".to_owned()));
    }

    #[test]
    fn an_overcommit_halves_what_is_asked_for_and_never_to_nothing() {
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
