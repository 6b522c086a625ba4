//! What a Spark engine is launched with: what its agent is told, and what its pod needs besides.
//!
//! In a pod Spark is a container beside its agent, started by whoever starts containers. On one machine it is a child of
//! its agent. What is the same in both (program, properties, how its server is found) is made here, once.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use model::configuration::Configuration;
use model::error::{ErrorKind, UserError};
use orchestrator::SparkWish;
use orchestrator::kubernetes::names::{SPARK_DIR, SPARK_PROPERTIES};
use serde::{Deserialize, Serialize};

use crate::configuration::SparkSection;
use crate::spark;

/// Spark, as its agent is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SparkLocation {
    /// A child process of the agent.
    Child(SparkChild),
    /// Another container of the pod.
    #[serde(rename = "beside")]
    Sidecar {
        /// Where its server listens.
        address: SocketAddr,
    },
}

/// Spark as a child process of its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SparkChild {
    /// `spark-submit`.
    pub program: PathBuf,
    /// Its environment, besides what the agent sets.
    pub environment: BTreeMap<String, String>,
    /// What the installation and the unit say.
    pub properties: BTreeMap<String, String>,
}

/// Spark as a local process.
pub(super) fn child(section: &SparkSection, configuration: &Configuration) -> Result<SparkLocation, UserError> {
    if !section.unconfined {
        return Err(UserError::new(
            ErrorKind::NotSupported,
            "engines of type 'spark' are not accepted as local processes",
        )
        .detail(
            "users of Spark can do there whatever the operating system lets its process do, such as read the cluster \
             secret",
        )
        .hint("let engines be pods (orchestrator.kind), or set spark.unconfined = true if all users are trusted"));
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
) -> Result<(SparkLocation, SparkWish), UserError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, section.port));
    let properties = spark::effective_properties(&section.properties, &configuration.properties);
    let wish = SparkWish {
        version: version(section, &configuration.image)?,
        argv: spark::command_line(&section.program, &Path::new(SPARK_DIR).join(SPARK_PROPERTIES)),
        environment: section.environment.clone(),
        properties: spark::listening(properties, address),
        driver_memory: configuration.driver_memory,
        executor_cpu: configuration.executor_cpu,
        executor_memory: configuration.executor_memory,
        min_executors: configuration.min_executors,
        max_executors: configuration.max_executors,
    };
    Ok((SparkLocation::Sidecar { address }, wish))
}

/// Nobody can see from outside which Spark is in an image. That there is no image at all is said by the orchestrator.
fn version(section: &SparkSection, image: &str) -> Result<String, UserError> {
    if image.is_empty() {
        return Ok(String::new());
    }
    section.versions.get(image).cloned().ok_or_else(|| {
        UserError::new(ErrorKind::WrongState, format!("the version of Spark in image \"{image}\" is not known"))
            .detail("it is a label of the engine's pods")
            .hint(format!("add it to spark.versions in the masters' configuration: \"{image}\" = \"…\""))
    })
}
