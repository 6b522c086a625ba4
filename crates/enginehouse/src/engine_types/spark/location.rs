//! The location of Spark: the part of an engine's file that only engines of type `spark` have.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The location of Spark, for its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SparkLocation {
    /// A child process of the agent.
    Child(SparkChild),
    /// Another container of the pod.
    #[serde(rename = "beside")]
    Sidecar {
        /// The address of its server.
        address: SocketAddr,
    },
}

/// Spark as a child process of its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SparkChild {
    /// `spark-submit`.
    pub program: PathBuf,
    /// Its environment, in addition to the variables that the agent sets.
    pub environment: BTreeMap<String, String>,
    /// The properties of the installation and the unit.
    pub properties: BTreeMap<String, String>,
}
