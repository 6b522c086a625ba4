//! The engine types: a folder for each type, with how its engines are launched and how they are reached.
//!
//! A type has three parts:
//!
//! | part | where | what it does |
//! | --- | --- | --- |
//! | resources | its row in [`model::engine_type`] | what an engine requests; planners, metadata agents and masters compute it from the catalog alone |
//! | launch | `<type>/launch.rs`, a [`LaunchPart`] | in the process of the master: completes the file of the engine's agent and the options of its instance |
//! | connector | `<type>/connector.rs`, a [`Connector`] | in the engine agent: starts the engine or attaches to it, observes it and stops it |
//!
//! To add a type, add its row there and its folder here; the compiler then names the two `match`es of this file, the registry.
//! A type that needs settings has a section of the configuration in its folder too. What the launch part computes for the
//! connector is in the file, [`EngineFile::connector`].
//!
//! A launch part is constructed from the master's configuration when the process starts: engines that run already keep the
//! file that they were created with.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use engine_agent::engine::EngineRuntime;
use model::engine_type::EngineType;
use model::error::UserError;
use model::table_catalog::TableCatalog;
use orchestrator::InstanceOptions;

use crate::configuration::Configuration;
use crate::engine_file::EngineFile;

pub mod cause;
pub mod child_process;
pub mod child_server;
pub mod datafusion;
pub mod hiveserver2;
pub mod host;
pub mod port;
pub mod server_end;
pub mod spark;
pub mod supervised;

use datafusion::connector::DatafusionConnector;
use datafusion::launch::DatafusionLaunch;
use hiveserver2::connector::HiveServer2Connector;
use hiveserver2::launch::HiveServer2Launch;
use host::EngineHost;
use spark::connector::SparkConnector;
use spark::launch::SparkLaunch;

/// How engines of one type are launched.
pub trait LaunchPart: fmt::Debug + Send + Sync {
    /// Completes the file of the agent and the options of its instance, or refuses the engine: it then counts as one whose start
    /// failed and is not retryable.
    fn complete(
        &self,
        launch: &master::Launch<'_>,
        file: &mut EngineFile,
        options: &mut InstanceOptions,
    ) -> Result<(), UserError>;
    /// Why the installation cannot launch any engine of the type, if so: the error for a statement that chooses the type.
    fn refusal(&self) -> Option<UserError> {
        None
    }
}

/// How engines of one type are reached by their agent.
pub trait Connector: fmt::Debug + Sync {
    /// The engine that the file describes. It is started later.
    fn runtime(&self, file: &EngineFile, host: &EngineHost) -> anyhow::Result<Arc<dyn EngineRuntime>>;
    /// Whether the engine's tables are its own.
    fn catalog(&self, file: &EngineFile, host: &EngineHost) -> TableCatalog;
    /// Whether the address space of the agent's process is limited on a machine that engines share: only if the engine is in that
    /// process, and reserves no addresses that it does not use.
    fn limits_address_space(&self) -> bool {
        false
    }
    /// Whether the start failed because of a setting of the unit, so that it would fail again.
    fn is_misconfigured(&self, _error: &(dyn Error + 'static)) -> bool {
        false
    }
}

/// The launch parts of all types.
#[derive(Debug)]
pub struct LaunchParts {
    datafusion: DatafusionLaunch,
    spark: SparkLaunch,
    hiveserver2: HiveServer2Launch,
}

impl LaunchParts {
    pub fn new(configuration: &Configuration) -> anyhow::Result<Self> {
        let instances = configuration.orchestrator.kind.instances();
        Ok(Self {
            datafusion: DatafusionLaunch::new(&configuration.engines)?,
            spark: SparkLaunch::new(&configuration.spark, instances),
            hiveserver2: HiveServer2Launch::new(&configuration.hiveserver2, instances),
        })
    }

    pub fn part(&self, engine_type: EngineType) -> &dyn LaunchPart {
        match engine_type {
            EngineType::Datafusion => &self.datafusion,
            EngineType::Spark => &self.spark,
            EngineType::HiveServer2 => &self.hiveserver2,
        }
    }

    /// The types that the installation cannot launch.
    pub fn refused_types(&self) -> BTreeMap<EngineType, UserError> {
        let refusal = |engine_type| Some((engine_type, self.part(engine_type).refusal()?));
        EngineType::ALL.into_iter().filter_map(refusal).collect()
    }
}

/// The connector of a type.
pub fn connector(engine_type: EngineType) -> &'static dyn Connector {
    match engine_type {
        EngineType::Datafusion => &DatafusionConnector,
        EngineType::Spark => &SparkConnector,
        EngineType::HiveServer2 => &HiveServer2Connector,
    }
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    const DEADLINE: Duration = Duration::from_mins(1);

    /// Waits for the future; panics at the deadline.
    pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
        tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
    }

    /// The words of the first part, the folders of the other two, and the registry name the same types.
    #[test]
    fn every_type_has_its_three_parts() {
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine_types");
        let folders: BTreeSet<String> = std::fs::read_dir(&source)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        let words: BTreeSet<String> = EngineType::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(folders, words, "a folder without a row in model::engine_type, or a row without a folder");
        let parts = LaunchParts::new(&Configuration::default()).unwrap();
        for engine_type in EngineType::ALL {
            for part in ["launch.rs", "connector.rs"] {
                assert!(source.join(engine_type.as_str()).join(part).is_file(), "{engine_type} has no {part}");
            }
            // The names of the registered structs begin with the word of their type.
            for part in [format!("{:?}", parts.part(engine_type)), format!("{:?}", connector(engine_type))] {
                assert!(part.to_ascii_lowercase().starts_with(engine_type.as_str()), "{engine_type}: {part}");
            }
        }
    }
}
