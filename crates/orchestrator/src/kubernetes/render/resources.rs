//! CPU and memory of containers, as Kubernetes quantities. Its `1G` is 10^9 bytes, so memory is always in Mi.
//!
//! The numbers are those of the engine's [charge](model::charge), except the CPU limit of an agent next to Spark.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use model::charge::Container;

const MIB: u64 = 1 << 20;
/// The CPU limit of the agent of a Spark engine. It is above the nominal size: the agent is idle except while it relays.
const AGENT_CPU_LIMIT_MILLIS: u64 = 1_000;

/// CPU: `2`, `500m`.
pub(super) fn cpu(millis: u64) -> String {
    if millis.is_multiple_of(1_000) { (millis / 1_000).to_string() } else { format!("{millis}m") }
}

/// Memory in MiB, which a charge is a whole number of.
pub(super) fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(MIB)
}

/// Of the container of an engine.
pub(super) fn engine(container: &Container) -> ResourceRequirements {
    requirements(container, container.cpu_millis)
}

/// Of an agent that does not contain the engine.
pub(super) fn agent(container: &Container) -> ResourceRequirements {
    requirements(container, AGENT_CPU_LIMIT_MILLIS)
}

fn requirements(container: &Container, cpu_limit: u64) -> ResourceRequirements {
    let memory = format!("{}Mi", mebibytes(container.memory_request_bytes()));
    let quantities = |millis: u64| {
        BTreeMap::from([("cpu".to_owned(), Quantity(cpu(millis))), ("memory".to_owned(), Quantity(memory.clone()))])
    };
    ResourceRequirements {
        claims: None,
        limits: Some(quantities(cpu_limit)),
        requests: Some(quantities(container.cpu_request_millis)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_cores_are_written_without_a_suffix() {
        assert_eq!((cpu(2_000), cpu(2_500)), ("2".to_owned(), "2500m".to_owned()));
    }
}
