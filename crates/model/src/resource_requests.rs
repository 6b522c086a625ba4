//! The resources that an engine requests, by its type.

use crate::configuration::Configuration;
use crate::engine_type::EngineType;
use crate::quantity::Memory;

/// Spark's smallest memory overhead, in bytes (384 MiB).
pub const SPARK_MIN_OVERHEAD_BYTES: u64 = 384 << 20;

/// The resources that an engine requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceRequests {
    /// CPU of the driver, in thousandths of a core.
    pub driver_cpu_millis: u64,
    /// Memory of the driver with its overhead, in bytes.
    pub driver_memory_bytes: u64,
    /// CPU of each executor, in thousandths of a core.
    pub executor_cpu_millis: u64,
    /// Memory of each executor with its overhead, in bytes; 0 when the type has no executors.
    pub executor_memory_bytes: u64,
    /// The most executors; 0 when the type has none.
    pub executors: u32,
}

impl ResourceRequests {
    /// The resources for this configuration. Spark's memory includes its overhead of 10 %, at least 384 MiB.
    pub fn new(configuration: &Configuration) -> Self {
        let with_overhead = |memory: Memory| memory.bytes() + (memory.bytes() / 10).max(SPARK_MIN_OVERHEAD_BYTES);
        match configuration.engine_type {
            EngineType::Datafusion => Self {
                driver_cpu_millis: configuration.driver_cpu.millis(),
                driver_memory_bytes: configuration.driver_memory.bytes(),
                executor_cpu_millis: 0,
                executor_memory_bytes: 0,
                executors: 0,
            },
            EngineType::Spark => Self {
                driver_cpu_millis: configuration.driver_cpu.millis(),
                driver_memory_bytes: with_overhead(configuration.driver_memory),
                executor_cpu_millis: configuration.executor_cpu.millis(),
                executor_memory_bytes: with_overhead(configuration.executor_memory),
                executors: configuration.max_executors,
            },
        }
    }
}
