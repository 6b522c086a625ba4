//! Resource values: the amounts of memory, CPU and instances that a request asks for, in seven kinds.
//!
//! | module | concept |
//! | --- | --- |
//! | `kind` | the names of the kinds, with the aliases that are read |
//! | `json` | the JSON form: one printed form for each value, several accepted ones |
//! | `promotion` | which kinds combine, and as what |
//! | `ratio`, `arithmetic` | decimals; checked arithmetic of two resources, or of a resource and a ratio |
//! | `order` | comparison, a partial order |
//! | `policy` | the amount that a request is charged |
//! | `triple` | the components of that amount |
//!
//! Amounts are totals, also where they stand next to a number of instances: two drivers of 1 GiB are 2 GiB and 2
//! instances. An amount that is read from JSON is from 0 to [`MAX_AMOUNT`]; a difference may be negative. No result depends on a
//! float. A resource is a value without a version: a caller whose copy is stale computes a stale result, and the conditions of
//! the write that uses it decide.

mod arithmetic;
mod error;
mod json;
mod kind;
mod order;
mod policy;
mod promotion;
mod ratio;
mod triple;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::UserError;

pub use kind::Kind;
pub use order::SortKey;
pub use policy::RequestPolicy;
pub use promotion::promote;
pub use ratio::Ratio;
pub(crate) use triple::whole_unit;
pub use triple::{Amount, Component, Triple};

/// The largest amount of a request or a limit: JSON readers that keep numbers as doubles hold it exactly.
pub const MAX_AMOUNT: i64 = 1 << 53;

/// The most custom amounts of one resource.
pub const MAX_CUSTOM_AMOUNTS: usize = 16;

/// The length of the name of a custom amount, in bytes.
pub const MAX_CUSTOM_NAME_BYTES: usize = 128;

/// A resource of one of the seven kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
pub enum Resource {
    Memory {
        /// In bytes.
        memory: i64,
    },
    Cpu {
        /// In thousandths of a core.
        cpu_m: i64,
    },
    Load {
        memory: i64,
        cpu_m: i64,
    },
    LoadInstance(LoadInstance),
    Queue(Queue),
    DriverAndExecutor {
        driver: LoadInstance,
        executors: Queue,
    },
    Special(Special),
}

/// Memory and CPU of a number of instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LoadInstance {
    /// In bytes, of all instances.
    pub memory: i64,
    /// In thousandths of a core, of all instances.
    pub cpu_m: i64,
    pub instances: i64,
}

/// A load in a named queue. Loads of two queues do not combine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Queue {
    pub queue: String,
    #[serde(flatten)]
    pub load: LoadInstance,
}

/// Custom amounts by name, such as `nvidia.com/gpu`; a name that is absent has the amount 0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Special {
    /// Without zeros, so that equal amounts are equal values.
    amounts: BTreeMap<String, i64>,
}

impl Special {
    /// From names of 1 to 128 bytes. More than [`MAX_CUSTOM_AMOUNTS`] amounts other than 0 are an error (54000).
    pub fn new(mut amounts: BTreeMap<String, i64>) -> Result<Self, UserError> {
        if let Some(name) = amounts.keys().find(|name| name.is_empty() || name.len() > MAX_CUSTOM_NAME_BYTES) {
            return Err(error::custom_name(name));
        }
        amounts.retain(|_, amount| *amount != 0);
        if amounts.len() > MAX_CUSTOM_AMOUNTS {
            Err(error::custom_amounts(amounts.len()))
        } else {
            Ok(Self { amounts })
        }
    }

    /// The amounts other than 0.
    pub const fn amounts(&self) -> &BTreeMap<String, i64> {
        &self.amounts
    }
}

impl Resource {
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Memory { .. } => Kind::Memory,
            Self::Cpu { .. } => Kind::Cpu,
            Self::Load { .. } => Kind::Load,
            Self::LoadInstance(_) => Kind::LoadInstance,
            Self::Queue(_) => Kind::Queue,
            Self::DriverAndExecutor { .. } => Kind::DriverAndExecutor,
            Self::Special(_) => Kind::Special,
        }
    }
}
