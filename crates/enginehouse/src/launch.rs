//! The launcher: computes the spec of an engine agent, with its file, for the orchestrator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use agent_api::ClusterTls;
use coordination::EngineCredential;
use engine_agent::engine::EngineTls;
use keys::{Current, EngineTlsKey, MasterKeys};
use model::error::UserError;
use orchestrator::{InstanceOptions, LogPolicy, Spec, SpecFile};

use crate::command::failpoints;
use crate::configuration::Span;
use crate::engine_file::{BackendKey, EngineFile, EngineZookeeper};
use crate::engine_types::LaunchParts;
use crate::telemetry;

mod run_as;

pub use run_as::USER_VARIABLES;

/// The name of the file in the engine's working directory.
const FILE: &str = "engine.toml";

/// The launcher: computes the spec of an engine agent for the orchestrator.
#[derive(Debug)]
pub struct AgentLauncher {
    /// The program; this path and the following ones are those of the machine or image on which the engine runs.
    pub program: PathBuf,
    /// The parent of the engines' scratch folders.
    pub data_dir: PathBuf,
    /// The parent of the tenants' catalogs.
    pub catalog_dir: PathBuf,
    /// Folders in which the LOCATION of an external table may be.
    pub allowed_locations: Vec<PathBuf>,
    /// Paths of Enginehouse itself.
    pub own_paths: Vec<PathBuf>,
    /// The deadline of the warm-up query.
    pub start_deadline: Span,
    pub zookeeper: EngineZookeeper,
    /// The keys from which those of the engine are derived.
    pub keys: Current<MasterKeys>,
    /// Whether agents offer or require TLS.
    pub cluster_tls: ClusterTls,
    /// The log filter of the engine.
    pub log: Option<String>,
    /// The folder whose files arm the engine's failpoints.
    pub failpoints: Option<String>,
    /// The grace of an engine that is terminated from outside, not by a drain.
    pub grace: Duration,
    /// What is particular to each engine type.
    pub types: LaunchParts,
    /// Whether engines are pods.
    pub in_pods: bool,
    /// Whether clients prove their names.
    pub names_are_proven: bool,
    /// Whether this process may start others as any user.
    pub is_root: bool,
}

impl AgentLauncher {
    /// TLS of the engine's agent.
    fn tls(&self, launch: &master::Launch<'_>, key: Option<EngineTlsKey>) -> Result<Option<EngineTls>, UserError> {
        let required = self.cluster_tls == ClusterTls::Required;
        match key {
            _ if self.cluster_tls.is_off() => Ok(None),
            None if required => Err(UserError::internal(format!(
                "there is no key for TLS of engine \"{}\": the master uses keys of generation 0",
                launch.engine
            ))),
            key => Ok(key.map(|key| EngineTls { required, key })),
        }
    }
}

impl master::Launcher for AgentLauncher {
    fn spec(&self, launch: &master::Launch<'_>) -> Result<Spec, UserError> {
        let configuration = launch.configuration;
        let run_as = self.run_as(launch)?;
        let folders = self.folders(launch.slot.tenant.as_str(), run_as.as_ref());
        let keys = self.keys.get().engine(launch.engine);
        let mut file = EngineFile {
            name: launch.engine.clone(),
            tenant: launch.slot.tenant.clone(),
            engine_type: configuration.engine_type,
            config: configuration.hash(),
            cpu_threads: configuration.driver_cpu.threads(),
            memory_bytes: configuration.driver_memory.bytes(),
            keys: keys.generation,
            callers: keys.callers,
            tls: self.tls(launch, keys.tls)?,
            key: None,
            old_backend_key: None,
            backend_key: BackendKey::default(),
            start_deadline: self.start_deadline,
            catalog_dir: folders.catalog,
            catalog: None,
            has_metastore: false,
            scratch_dir: folders.scratch,
            allowed_locations: self.allowed_locations.clone(),
            own_paths: self.own_paths.clone(),
            zookeeper: self.zookeeper.clone(),
            credential: EngineCredential::new(launch.engine.clone(), keys.zookeeper_password, keys.readers),
            properties: configuration.properties.clone(),
            run_as: run_as.as_ref().map(|run_as| run_as.user.clone()),
            spark: None,
            connector: None,
        };
        let mut options = InstanceOptions::default();
        self.types.part(configuration.engine_type).complete(launch, &mut file, &mut options)?;
        let content = toml::to_string(&file).map_err(|error| {
            UserError::internal(format!("could not write the file of engine \"{}\": {error}", launch.engine))
        })?;
        let argv = [&*self.program.to_string_lossy(), "engine-agent", "--config", FILE].map(str::to_owned).to_vec();
        let mut environment = BTreeMap::new();
        if let Some(log) = &self.log {
            environment.insert(telemetry::LOG_VARIABLE.to_owned(), log.clone());
        }
        if let Some(folder) = &self.failpoints {
            environment.insert(failpoints::FOLDER_VARIABLE.to_owned(), folder.clone());
        }
        let mut spec = Spec {
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
            run_as: None,
            options,
        };
        run_as::complete(&mut spec, run_as);
        Ok(spec)
    }
}
