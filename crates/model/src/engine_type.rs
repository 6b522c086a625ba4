//! Engine types: the words of the control language, and what engines of each type request.
//!
//! An engine type has three parts: what its engines request, how they are launched and how they are reached. The first is the
//! [`Descriptor`] below, because planners, metadata agents and masters must compute the same charge from the catalog alone. The
//! other two are a folder of the program, `engine_types/<word>`.
//!
//! The words are stored in catalogs, labels and configuration hashes: a word never changes its meaning.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, UserError};

/// The engine behind an engine agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineType {
    /// Apache DataFusion in one process.
    Datafusion,
    /// Spark's Thrift server: a driver with executors.
    Spark,
    /// Any `HiveServer2` server, started from the command template of the installation.
    HiveServer2,
}

/// The first part of an engine type: its word and what its engines request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// The word of the control language, in lower case.
    pub word: &'static str,
    pub resources: Resources,
}

/// What the engines of a type request, in addition to the sizes of their unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// The memory of driver and executors beyond the configured size.
    pub overhead: MemoryOverhead,
    pub agent: AgentContainer,
    pub executors: Executors,
}

/// The memory of a container beyond the configured size, which is that of the engine's heap or pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryOverhead {
    None,
    /// A part of the heap: at least `min_mib`, else the heap divided by `divisor`, in whole MiB rounded down.
    OfHeap {
        divisor: u64,
        min_mib: u64,
    },
}

/// The container of the engine agent in a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentContainer {
    /// That of the engine, which is in the agent's process or a child of it.
    Engine,
    /// One of its own next to the engine's.
    Own,
}

/// The role of the options for executors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executors {
    /// Engines that are pods have executors of these sizes.
    Used,
    /// Engines have no executors; the options have no effect.
    Ignored,
    /// Engines have no executors, and statements that name such an option are refused.
    Refused,
}

/// The overhead with which Spark requests its pods.
const SPARK_OVERHEAD: MemoryOverhead = MemoryOverhead::OfHeap { divisor: 10, min_mib: 384 };

impl EngineType {
    /// In the order in which errors list them.
    pub const ALL: [Self; 3] = [Self::Datafusion, Self::Spark, Self::HiveServer2];

    /// The one place where the first part of a type is defined.
    pub const fn descriptor(self) -> Descriptor {
        match self {
            Self::Datafusion => Descriptor {
                word: "datafusion",
                resources: Resources {
                    overhead: MemoryOverhead::None,
                    agent: AgentContainer::Engine,
                    executors: Executors::Ignored,
                },
            },
            Self::Spark => Descriptor {
                word: "spark",
                resources: Resources {
                    overhead: SPARK_OVERHEAD,
                    agent: AgentContainer::Own,
                    executors: Executors::Used,
                },
            },
            Self::HiveServer2 => Descriptor {
                word: "hiveserver2",
                resources: Resources {
                    overhead: MemoryOverhead::None,
                    agent: AgentContainer::Engine,
                    executors: Executors::Refused,
                },
            },
        }
    }

    pub const fn resources(self) -> Resources {
        self.descriptor().resources
    }

    /// The word of the control language.
    pub const fn as_str(self) -> &'static str {
        self.descriptor().word
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
                .hint(format!("The engine types are {}.", listed()))
        })
    }
}

/// `'a', 'b' and 'c'`.
fn listed() -> String {
    let words = EngineType::ALL.map(|engine_type| format!("'{engine_type}'"));
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => words.join(", "),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_type_is_stored_as_its_word() {
        for engine_type in EngineType::ALL {
            let stored = serde_json::to_value(engine_type).unwrap();
            assert_eq!(stored, engine_type.as_str(), "{engine_type:?}");
            assert_eq!(serde_json::from_value::<EngineType>(stored).unwrap(), engine_type);
            assert_eq!(engine_type.as_str().to_uppercase().parse::<EngineType>().unwrap(), engine_type);
        }
        let words: BTreeSet<&str> = EngineType::ALL.iter().map(|engine_type| engine_type.as_str()).collect();
        assert_eq!(words.len(), EngineType::ALL.len());
        // Those of catalogs, labels and hashes of earlier versions.
        assert!(words.is_superset(&["datafusion", "spark"].into()));
    }

    #[test]
    fn an_unknown_type_is_refused_with_the_list() {
        let error = "presto".parse::<EngineType>().unwrap_err();
        assert_eq!(
            (error.sqlstate(), error.hint.as_deref()),
            ("22023", Some("The engine types are 'datafusion', 'spark' and 'hiveserver2'."))
        );
    }
}
