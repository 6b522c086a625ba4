//! Engine types: what an engine of each type requests and how it is launched.
//!
//! Starting an engine and probing its readiness belong to the engine agent. A new engine type is one variant here and
//! one module there.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::configuration::Configuration;
use crate::error::{ErrorKind, UserError};
use crate::quantity::Memory;

/// The engine behind an engine agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineType {
    /// Apache DataFusion in one process.
    Datafusion,
    /// Spark's Thrift server: a driver with executors.
    Spark,
}

/// How an engine agent launches its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launch {
    /// In the engine agent's own process.
    Embedded,
    /// As a child process that the engine agent supervises.
    Child,
}

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

/// Spark's smallest memory overhead, in bytes (384 MiB).
pub const SPARK_MIN_OVERHEAD_BYTES: u64 = 384 << 20;

impl EngineType {
    /// In the order in which errors list them.
    pub const ALL: [Self; 2] = [Self::Datafusion, Self::Spark];

    /// The word of the control language.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Datafusion => "datafusion",
            Self::Spark => "spark",
        }
    }

    pub const fn launch(self) -> Launch {
        match self {
            Self::Datafusion => Launch::Embedded,
            Self::Spark => Launch::Child,
        }
    }

    /// The resources for this configuration. Spark's memory includes its overhead of 10 %, at least 384 MiB.
    pub fn requests(self, configuration: &Configuration) -> ResourceRequests {
        let with_overhead = |memory: Memory| memory.bytes() + (memory.bytes() / 10).max(SPARK_MIN_OVERHEAD_BYTES);
        match self {
            Self::Datafusion => ResourceRequests {
                driver_cpu_millis: configuration.driver_cpu.millis(),
                driver_memory_bytes: configuration.driver_memory.bytes(),
                executor_cpu_millis: 0,
                executor_memory_bytes: 0,
                executors: 0,
            },
            Self::Spark => ResourceRequests {
                driver_cpu_millis: configuration.driver_cpu.millis(),
                driver_memory_bytes: with_overhead(configuration.driver_memory),
                executor_cpu_millis: configuration.executor_cpu.millis(),
                executor_memory_bytes: with_overhead(configuration.executor_memory),
                executors: configuration.max_executors,
            },
        }
    }
}

impl fmt::Display for EngineType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for EngineType {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        Self::ALL.into_iter().find(|engine_type| engine_type.as_str().eq_ignore_ascii_case(text)).ok_or_else(|| {
            UserError::new(ErrorKind::InvalidValue, format!("unknown engine type \"{text}\""))
                .hint("The engine types are 'datafusion' and 'spark'.")
        })
    }
}
