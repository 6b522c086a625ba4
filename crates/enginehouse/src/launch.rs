//! How an engine is launched: the master's side makes the file, the engine agent's side reads it.
//!
//! Everything secret in the file opens this one engine and nothing else: what is in an engine is public to its tenant,
//! because engines run users' code. The cluster secret is not in it.

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
use orchestrator::{LogPolicy, PodWish, Spec, SpecFile};
use serde::{Deserialize, Serialize};

use crate::command::failpoints;
use crate::configuration::{Span, SparkSection, ZookeeperSection};

mod spark;

pub use spark::{SparkChild, SparkLocation};

/// The name of the file in the engine's working directory.
const FILE: &str = "engine.toml";

/// What an engine agent is told when it starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineFile {
    /// The engine's name.
    pub name: EngineName,
    /// Whose engine it is.
    pub tenant: TenantName,
    /// What runs.
    pub engine_type: EngineType,
    /// The hash of its configuration.
    pub config: String,
    /// CPU of the driver, in threads.
    pub cpu_threads: usize,
    /// Memory of the driver, in bytes.
    pub memory_bytes: u64,
    /// The key that proxies and masters show.
    pub key: String,
    /// The key that the agent shows to the engine.
    pub backend_key: String,
    /// How long it may take to answer its warm-up query.
    pub start_deadline: Span,
    /// The tenant's catalog, shared by its engines.
    pub catalog_dir: PathBuf,
    /// The catalogs of all tenants in an object store, in the place of the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<CatalogBucket>,
    /// Whether an engine that is not our own has its tables in a metastore that outlives it. An agent of version 0.1.0
    /// refuses a file that has this, or `catalog`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_metastore: bool,
    /// Where it may spill.
    pub scratch_dir: PathBuf,
    /// Folders that an external table's LOCATION may be in.
    pub allowed_locations: Vec<PathBuf>,
    /// What belongs to Enginehouse itself: no statement reads or writes there, whatever is allowed.
    #[serde(default)]
    pub own_paths: Vec<PathBuf>,
    /// The coordination service.
    pub zookeeper: ZookeeperSection,
    /// What it may do there.
    pub credential: EngineCredential,
    /// Free properties of the unit.
    pub properties: BTreeMap<String, String>,
    /// Where Spark is, if that is what runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spark: Option<SparkLocation>,
}

/// Where catalogs are kept in an object store: `engines.catalog_url` and `engines.catalog_options`.
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

/// Makes what the orchestrator starts: an engine agent.
#[derive(Debug)]
pub struct AgentLauncher {
    /// The program, where the engine runs.
    pub program: PathBuf,
    /// Below it each engine's scratch space, where the engine runs.
    pub data_dir: PathBuf,
    /// Below it each tenant's catalog, where the engine runs.
    pub catalog_dir: PathBuf,
    /// The object store with the catalogs, in the place of that folder.
    pub catalog: Option<CatalogBucket>,
    /// Folders that an external table's LOCATION may be in, where the engine runs.
    pub allowed_locations: Vec<PathBuf>,
    /// What belongs to Enginehouse itself, where the engine runs.
    pub own_paths: Vec<PathBuf>,
    /// How long an engine may take to answer its warm-up query.
    pub start_deadline: Span,
    /// From the configuration.
    pub zookeeper: ZookeeperSection,
    /// To derive the engine's keys from.
    pub secret: ClusterSecret,
    /// Passed on to the engine: how it logs.
    pub log: Option<String>,
    /// Passed on to the engine: the folder whose files arm its failpoints.
    pub failpoints: Option<String>,
    /// How long an engine may take that is told to end from outside (not by a drain).
    pub grace: Duration,
    /// Whether engines are pods.
    pub in_pods: bool,
    /// What Spark is made from.
    pub spark: SparkSection,
}

impl master::Launcher for AgentLauncher {
    fn spec(&self, launch: &master::Launch<'_>) -> Result<Spec, UserError> {
        let configuration = launch.configuration;
        let (spark, wish) = match (configuration.engine_type, self.in_pods) {
            (EngineType::Datafusion, _) => (None, None),
            (EngineType::Spark, false) => (Some(spark::child(&self.spark, configuration)?), None),
            (EngineType::Spark, true) => {
                let (location, wish) = spark::sidecar(&self.spark, configuration)?;
                (Some(location), Some(Box::new(wish)))
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
            UserError::internal(format!("the file of engine \"{}\" can't be made: {error}", launch.engine))
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
            namespace: configuration.namespace.clone(),
            image: configuration.image.clone(),
            argv,
            files: vec![SpecFile { path: FILE.to_owned(), content: content.into_bytes(), mode: 0o600 }],
            environment,
            requests: configuration.engine_type.requests(configuration),
            nodes: launch.nodes.map(<[String]>::to_vec),
            grace: self.grace,
            log: LogPolicy::default(),
            pod: PodWish { spark: wish, ..PodWish::default() },
        })
    }
}
