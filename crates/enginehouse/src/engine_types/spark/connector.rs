//! The Spark engine: a child process of the agent, or another container of its pod.

use std::error::Error;
use std::sync::Arc;

use anyhow::Context as _;
use engine_agent::engine::EngineRuntime;
use model::table_catalog::TableCatalog;

use super::location::SparkLocation;
use super::{child, sidecar};
use crate::engine_file::EngineFile;
use crate::engine_types::Connector;
use crate::engine_types::child_server::{ChildServer, is_without_program};
use crate::engine_types::host::EngineHost;
use crate::engine_types::server_end::is_hopeless;

/// The folder for everything that Spark writes on one machine; it is deleted with the engine's directory.
const FOLDER: &str = "spark";

/// The connector of type `spark`.
#[derive(Debug)]
pub struct SparkConnector;

impl Connector for SparkConnector {
    /// A child process writes to this process's log.
    fn runtime(&self, file: &EngineFile, host: &EngineHost) -> anyhow::Result<Arc<dyn EngineRuntime>> {
        Ok(match file.spark.clone().context("the file of the engine has no location of Spark")? {
            SparkLocation::Sidecar { address } => Arc::new(sidecar::Sidecar::new(address)),
            SparkLocation::Child(launch) => {
                let folder = std::path::absolute(FOLDER).context("cannot determine the directory of the engine")?;
                let (cpu_threads, memory_bytes) = (file.cpu_threads, file.memory_bytes);
                let resources = child::Resources { name: file.name.clone(), cpu_threads, memory_bytes };
                Arc::new(
                    ChildServer::new(child::Child { launch, resources }, folder, host).naming(file.run_as.as_deref()),
                )
            }
        })
    }

    fn catalog(&self, file: &EngineFile, _host: &EngineHost) -> TableCatalog {
        if file.has_metastore { TableCatalog::Shared } else { TableCatalog::Own }
    }

    /// Whether `spark-submit` is missing, or Spark ended by one of the causes that are known to be final.
    fn is_misconfigured(&self, error: &(dyn Error + 'static)) -> bool {
        is_without_program(error) || is_hopeless(error)
    }
}
