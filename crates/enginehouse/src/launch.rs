//! The launch of an engine: the file that the master writes and the engine agent reads.
//!
//! Secrets in the file give access to this engine only. The contents of an engine are public to its tenant, because engines
//! run users' code. The cluster secret is not in the file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use coordination::EngineCredential;
use model::credential::{ClusterSecret, Purpose};
use model::engine_name::EngineName;
use model::engine_type::EngineType;
use model::error::UserError;
use model::name::TenantName;
use orchestrator::{InstanceOptions, LogPolicy, Spec, SpecFile};
use serde::{Deserialize, Serialize};

use crate::command::failpoints;
use crate::configuration::{Span, SparkSection, ZookeeperSection};

mod spark;

pub use spark::{SparkChild, SparkLocation};

/// The name of the file in the engine's working directory.
const FILE: &str = "engine.toml";

/// The start-up parameters of an engine agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineFile {
    pub name: EngineName,
    pub tenant: TenantName,
    pub engine_type: EngineType,
    /// The hash of its configuration.
    pub config: String,
    /// CPU of the driver, in threads.
    pub cpu_threads: usize,
    /// Memory of the driver, in bytes.
    pub memory_bytes: u64,
    /// The key that proxies and masters present.
    pub key: String,
    /// The key that the agent presents to the engine.
    pub backend_key: String,
    /// The deadline of the warm-up query.
    pub start_deadline: Span,
    /// The tenant's catalog, shared by its engines.
    pub catalog_dir: PathBuf,
    /// The catalogs of all tenants in an object store, instead of the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<CatalogBucket>,
    /// Whether an engine that is not our own has its tables in a metastore that outlives it. An agent of version 0.1.0
    /// refuses a file that has this, or `catalog`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_metastore: bool,
    /// The folder for spilled data.
    pub scratch_dir: PathBuf,
    /// Folders that an external table's LOCATION may be in.
    pub allowed_locations: Vec<PathBuf>,
    /// Paths of Enginehouse itself: no statement reads or writes there, whatever is allowed.
    #[serde(default)]
    pub own_paths: Vec<PathBuf>,
    pub zookeeper: ZookeeperSection,
    /// The credential of the engine in ZooKeeper.
    pub credential: EngineCredential,
    /// Free properties of the unit.
    pub properties: BTreeMap<String, String>,
    /// The location of Spark, for engines of type `spark`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spark: Option<SparkLocation>,
}

/// The object store of catalogs: `engines.catalog_url` and `engines.catalog_options`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogBucket {
    /// Such as `s3://bucket/prefix`.
    pub url: String,
    /// Options of the store; keys and secrets among them.
    pub options: BTreeMap<String, String>,
}

impl fmt::Debug for CatalogBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogBucket").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The launcher: computes the spec of an engine agent for the orchestrator.
#[derive(Debug)]
pub struct AgentLauncher {
    /// The program; this path and the following ones are those of the machine or image on which the engine runs.
    pub program: PathBuf,
    /// The parent of the engines' scratch folders.
    pub data_dir: PathBuf,
    /// The parent of the tenants' catalogs.
    pub catalog_dir: PathBuf,
    /// The object store with the catalogs, instead of that folder.
    pub catalog: Option<CatalogBucket>,
    /// Folders in which the LOCATION of an external table may be.
    pub allowed_locations: Vec<PathBuf>,
    /// Paths of Enginehouse itself.
    pub own_paths: Vec<PathBuf>,
    /// The deadline of the warm-up query.
    pub start_deadline: Span,
    pub zookeeper: ZookeeperSection,
    /// The secret from which the engine's keys are derived.
    pub secret: ClusterSecret,
    /// The log filter of the engine.
    pub log: Option<String>,
    /// The folder whose files arm the engine's failpoints.
    pub failpoints: Option<String>,
    /// The grace of an engine that is terminated from outside, not by a drain.
    pub grace: Duration,
    /// Whether engines are pods.
    pub in_pods: bool,
    pub spark: SparkSection,
}

impl master::Launcher for AgentLauncher {
    fn spec(&self, launch: &master::Launch<'_>) -> Result<Spec, UserError> {
        let configuration = launch.configuration;
        let (spark, spark_options) = match (configuration.engine_type, self.in_pods) {
            (EngineType::Datafusion, _) => (None, None),
            (EngineType::Spark, false) => (Some(spark::child(&self.spark, configuration)?), None),
            (EngineType::Spark, true) => {
                let (location, options) = spark::sidecar(&self.spark, configuration)?;
                (Some(location), Some(Box::new(options)))
            }
        };
        let file = EngineFile {
            name: launch.engine.clone(),
            tenant: launch.slot.tenant.clone(),
            engine_type: configuration.engine_type,
            config: configuration.hash(),
            cpu_threads: configuration.driver_cpu.threads(),
            memory_bytes: configuration.driver_memory.bytes(),
            key: self.secret.derive(&Purpose::Engine(launch.engine)),
            backend_key: self.secret.derive(&Purpose::EngineBackend(launch.engine)),
            start_deadline: self.start_deadline,
            catalog_dir: self.catalog_dir.join(launch.slot.tenant.as_str()),
            catalog: self.catalog.clone().filter(|_| configuration.engine_type == EngineType::Datafusion),
            has_metastore: configuration.engine_type == EngineType::Spark
                && crate::spark::has_metastore(&crate::spark::effective_properties(
                    &self.spark.properties,
                    &configuration.properties,
                )),
            scratch_dir: self.data_dir.join("scratch"),
            allowed_locations: self.allowed_locations.clone(),
            own_paths: self.own_paths.clone(),
            zookeeper: self.zookeeper.clone(),
            credential: EngineCredential::derive(&self.secret, launch.engine),
            properties: configuration.properties.clone(),
            spark,
        };
        let content = toml::to_string(&file).map_err(|error| {
            UserError::internal(format!("could not write the file of engine \"{}\": {error}", launch.engine))
        })?;
        let argv = [&*self.program.to_string_lossy(), "engine-agent", "--config", FILE].map(str::to_owned).to_vec();
        let mut environment = BTreeMap::new();
        if let Some(log) = &self.log {
            environment.insert("ENGINEHOUSE_LOG".to_owned(), log.clone());
        }
        if let Some(folder) = &self.failpoints {
            environment.insert(failpoints::FOLDER_VARIABLE.to_owned(), folder.clone());
        }
        Ok(Spec {
            name: launch.engine.clone(),
            labels: launch.labels.encode(),
            generation: launch.generation,
            annotations: BTreeMap::new(),
            locality: configuration.namespace.clone(),
            image: configuration.image.clone(),
            argv,
            files: vec![SpecFile { path: FILE.to_owned(), content: content.into_bytes(), mode: 0o600 }],
            environment,
            charge: *launch.charge,
            nodes: launch.nodes.map(<[String]>::to_vec),
            grace: self.grace,
            log: LogPolicy::default(),
            options: InstanceOptions { spark: spark_options, ..InstanceOptions::default() },
        })
    }
}
