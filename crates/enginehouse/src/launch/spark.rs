//! The launch of a Spark engine: the parameters of its agent, and the container of its pod.
//!
//! In a pod Spark is a second container, started by the kubelet. On one machine it is a child of its agent. Program,
//! properties and the address of its server are computed here for both.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use model::configuration::Configuration;
use model::error::{ErrorKind, UserError};
use orchestrator::SparkOptions;
use orchestrator::kubernetes::names::{SPARK_DIR, SPARK_PROPERTIES};
use serde::{Deserialize, Serialize};

use crate::configuration::SparkSection;
use crate::spark;

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

/// Spark as a local process.
pub(super) fn child(section: &SparkSection, configuration: &Configuration) -> Result<SparkLocation, UserError> {
    if !section.unconfined {
        return Err(UserError::new(
            ErrorKind::NotSupported,
            "engines of type 'spark' are not accepted as local processes",
        )
        .detail("Users of Spark have all rights of its operating system process, such as reading the cluster secret.")
        .hint("Run engines as pods (orchestrator.kind), or set spark.unconfined = true if all users are trusted."));
    }
    Ok(SparkLocation::Child(SparkChild {
        program: section.program.clone(),
        environment: section.environment.clone(),
        properties: spark::effective_properties(&section.properties, &configuration.properties),
    }))
}

/// Spark as a container of a pod.
pub(super) fn sidecar(
    section: &SparkSection,
    configuration: &Configuration,
) -> Result<(SparkLocation, SparkOptions), UserError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, section.port));
    let properties = spark::effective_properties(&section.properties, &configuration.properties);
    let options = SparkOptions {
        version: version(section, &configuration.image)?,
        argv: spark::command_line(&section.program, &Path::new(SPARK_DIR).join(SPARK_PROPERTIES)),
        environment: section.environment.clone(),
        properties: spark::listening(properties, address),
        min_executors: configuration.min_executors,
        max_executors: configuration.max_executors,
    };
    Ok((SparkLocation::Sidecar { address }, options))
}

/// The version is configured, because it cannot be read from the image. The orchestrator reports a missing image.
fn version(section: &SparkSection, image: &str) -> Result<String, UserError> {
    if image.is_empty() {
        return Ok(String::new());
    }
    section.versions.get(image).cloned().ok_or_else(|| {
        UserError::new(ErrorKind::WrongState, format!("the version of Spark in image \"{image}\" is unknown"))
            .detail("The version is a label of the engine's pods.")
            .hint(format!("Add it to spark.versions in the masters' configuration: \"{image}\" = \"…\"."))
    })
}
