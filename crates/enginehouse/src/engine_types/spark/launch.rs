//! The launch of a Spark engine: the parameters of its agent, and the container of its pod.
//!
//! In a pod Spark is a second container, started by the kubelet. On one machine it is a child of its agent. Program,
//! properties and the address of its server are computed here for both.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use model::configuration::Configuration;
use model::error::{ErrorKind, UserError};
use model::instance::InstanceKind;
use orchestrator::kubernetes::names::{SPARK_DIR, SPARK_PROPERTIES};
use orchestrator::{InstanceOptions, SparkOptions};

use super::location::{SparkChild, SparkLocation};
use super::section::SparkSection;
use super::server;
use crate::engine_file::EngineFile;
use crate::engine_types::LaunchPart;

/// The launch part of type `spark`.
#[derive(Debug)]
pub struct SparkLaunch {
    section: SparkSection,
    instances: InstanceKind,
}

impl SparkLaunch {
    pub fn new(section: &SparkSection, instances: InstanceKind) -> Self {
        Self { section: section.clone(), instances }
    }
}

impl LaunchPart for SparkLaunch {
    fn complete(
        &self,
        launch: &master::Launch<'_>,
        file: &mut EngineFile,
        options: &mut InstanceOptions,
    ) -> Result<(), UserError> {
        let (section, configuration) = (&self.section, launch.configuration);
        let location = match self.instances {
            InstanceKind::Process => child(section, configuration)?,
            InstanceKind::Pod => {
                let (location, spark) = sidecar(section, configuration)?;
                options.spark = Some(Box::new(spark));
                location
            }
        };
        file.spark = Some(location);
        let properties = server::effective_properties(&section.properties, &configuration.properties);
        file.has_metastore = server::has_metastore(&properties);
        Ok(())
    }
}

/// Spark as a local process.
fn child(section: &SparkSection, configuration: &Configuration) -> Result<SparkLocation, UserError> {
    if !section.unconfined {
        return Err(UserError::new(
            ErrorKind::NotSupported,
            "engines of type 'spark' are not accepted as local processes",
        )
        .detail(
            "Users of Spark have all rights of its operating system process, such as reading the keys of the roles.",
        )
        .hint("Run engines as pods (orchestrator.kind), or set spark.unconfined = true if all users are trusted."));
    }
    Ok(SparkLocation::Child(SparkChild {
        program: section.program.clone(),
        environment: section.environment.clone(),
        properties: server::effective_properties(&section.properties, &configuration.properties),
    }))
}

/// Spark as a container of a pod.
fn sidecar(section: &SparkSection, configuration: &Configuration) -> Result<(SparkLocation, SparkOptions), UserError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, section.port));
    let properties = server::effective_properties(&section.properties, &configuration.properties);
    let options = SparkOptions {
        version: version(section, &configuration.image)?,
        argv: server::command_line(&section.program, &Path::new(SPARK_DIR).join(SPARK_PROPERTIES)),
        environment: section.environment.clone(),
        properties: server::listening(properties, address),
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
