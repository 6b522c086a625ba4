//! Engine types, and how an engine of each type is launched.
//!
//! Starting an engine and probing its readiness belong to the engine agent. A new engine type is one variant here and
//! one module there.

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
}

/// How an engine agent launches its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launch {
    /// In the engine agent's own process.
    Embedded,
    /// As a child process that the engine agent supervises.
    Child,
}

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
