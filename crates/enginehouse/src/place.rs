//! Where engines run, as the configuration says: the orchestrator, and what it starts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use model::clock::SharedClock;
use model::credential::ClusterSecret;
use orchestrator::Orchestrator;
use orchestrator::kubernetes::Kubernetes;
use orchestrator::kubernetes::connect::connect;
use orchestrator::kubernetes::names::SCRATCH_DIR;
use orchestrator::process::{self, Process};

use crate::command::failpoints;
use crate::configuration::{Configuration, OrchestratorKind};
use crate::launch::AgentLauncher;

/// How long an engine that is a local process may take when it is told to end from outside (not by a drain).
const TERMINATION_GRACE: Duration = Duration::from_secs(10);

/// Where local processes are kept, and how many.
pub fn of_processes(configuration: &Configuration) -> anyhow::Result<process::Config> {
    let section = &configuration.orchestrator;
    Ok(process::Config {
        nodes: section.nodes.clone(),
        max_engines: section.max_engines,
        ..process::Config::new(std::path::absolute(&section.state_dir)?)
    })
}

/// Opens the orchestrator. That a cluster does not answer is told by what is asked of it, not here.
pub async fn orchestrator(
    configuration: &Configuration,
    secret: &ClusterSecret,
    clock: &SharedClock,
) -> anyhow::Result<Arc<dyn Orchestrator>> {
    match configuration.orchestrator.kind {
        OrchestratorKind::Process => {
            let process = Process::open(of_processes(configuration)?, clock.clone())
                .map_err(|error| anyhow::anyhow!("the state directory of engines can't be used: {error}"))?;
            Ok(Arc::new(process))
        }
        OrchestratorKind::Kubernetes => Ok(Arc::new(pods(configuration, secret, clock).await?.watching_rights())),
    }
}

/// Opens the orchestrator of pods.
pub async fn pods(
    configuration: &Configuration,
    secret: &ClusterSecret,
    clock: &SharedClock,
) -> anyhow::Result<Kubernetes> {
    let section = &configuration.kubernetes;
    let way = connect(section.kubeconfig(), section.context()).await.map_err(|error| {
        anyhow::anyhow!(
            "{error}\nHint: kubernetes.kubeconfig names a file; without it this process must run in the cluster, with the \
             token of a service account"
        )
    })?;
    let config = configuration.pods(&way.namespace);
    Kubernetes::open(way.client, config, secret.clone(), clock.clone())
        .map_err(|error| anyhow::anyhow!("section [kubernetes]: {error}"))
}

/// How engines are launched there.
pub fn launcher(configuration: &Configuration, secret: &ClusterSecret) -> anyhow::Result<AgentLauncher> {
    let engines = &configuration.engines;
    let here = configuration.orchestrator.kind == OrchestratorKind::Process;
    // A pod sees nothing of this machine's files: it has its own program, and a volume of its own to write to.
    let (program, data_dir) = if here {
        let program = std::env::current_exe().context("the program's own path can't be found")?;
        (program, std::path::absolute(&engines.data_dir)?)
    } else {
        (configuration.kubernetes.program.clone(), PathBuf::from(SCRATCH_DIR))
    };
    let absolute = |path: &PathBuf| std::path::absolute(path);
    Ok(AgentLauncher {
        program,
        data_dir,
        allowed_locations: engines.allowed_locations.iter().map(absolute).collect::<Result<_, _>>()?,
        start_deadline: engines.start_deadline,
        zookeeper: configuration.zookeeper.clone(),
        secret: secret.clone(),
        log: std::env::var("ENGINEHOUSE_LOG").ok(),
        failpoints: failpoints::folder().filter(|_| here),
        // A node that is shut down ends its pods with the grace that they have: as long as a drain takes.
        grace: if here { TERMINATION_GRACE } else { configuration.metadata_agent.drain_grace.0 },
        in_pods: !here,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::collections::BTreeMap;

    use super::*;
    use master::{Launch, Launcher as _};
    use model::configuration::{Configuration as Effective, Defaults};
    use model::labels::EngineLabels;
    use model::{Epoch, Generation, Incarnation, PoolName, SlotKey, TenantName, UnitName};
    use orchestrator::Spec;
    use serde_json::json;

    use crate::launch::EngineFile;

    /// What the configuration makes of an engine of that type.
    fn spec(text: &str, engine_type: &str) -> Result<Spec, model::error::UserError> {
        let configuration = Configuration::parse(text, &[]).unwrap();
        configuration.check().unwrap();
        let secret = ClusterSecret::new(*b"0123456789abcdef").unwrap();
        let slot = SlotKey {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            unit: UnitName::new("uc_1").unwrap(),
            ordinal: 0,
        };
        let unit = serde_json::from_value(json!({"engine_type": engine_type, "driver_cpu": "1", "driver_memory": "1G",
            "executor_cpu": "2", "executor_memory": "2G", "min_executors": 0, "max_executors": 4, "min_engines": 0,
            "max_engines": 3, "properties": {}, "comment": null}))
        .unwrap();
        let pool = serde_json::from_value(json!({"units": ["uc_1"], "namespace": null, "nodes": null, "image": null,
            "comment": null}))
        .unwrap();
        let defaults = Defaults { images: configuration.engines.images.clone(), ..Defaults::default() };
        let effective = Effective::new(&slot.tenant, &slot.pool, &pool, &unit, &defaults);
        let labels = EngineLabels::new("eh", &slot, Incarnation(1), &effective);
        launcher(&configuration, &secret).unwrap().spec(&Launch {
            engine: &labels.name,
            slot: &slot,
            incarnation: Incarnation(1),
            labels: &labels,
            configuration: &effective,
            nodes: None,
            node_selector: &BTreeMap::new(),
            generation: Generation(1),
            epoch: Epoch(1),
        })
    }

    const PODS: &str = "[orchestrator]\nkind = \"kubernetes\"\n[kubernetes]\nprogram = \"/opt/eh\"\n\
                        [metadata_agent]\ndrain_grace = \"20m\"\n[engines]\nimages = { datafusion = \"eh:1\" }\n";

    #[test]
    fn a_pod_has_a_program_a_volume_and_the_time_of_a_drain_of_its_own() {
        let spec = spec(PODS, "datafusion").unwrap();
        assert_eq!(spec.argv, ["/opt/eh", "engine-agent", "--config", "engine.toml"]);
        assert_eq!((spec.namespace.as_str(), spec.image.as_str()), ("rp-1--t-1", "eh:1"));
        assert_eq!(spec.grace, Duration::from_mins(20));
        let file: EngineFile = toml::from_str(std::str::from_utf8(&spec.files[0].content).unwrap()).unwrap();
        assert!(file.catalog_dir.starts_with(SCRATCH_DIR) && file.scratch_dir.starts_with(SCRATCH_DIR), "{file:?}");
    }

    #[test]
    fn a_local_process_runs_this_program_on_this_machines_files() {
        let spec = spec("[engines]\ndata_dir = \"/srv/eh\"\n", "datafusion").unwrap();
        assert_eq!(spec.argv[0], std::env::current_exe().unwrap().to_string_lossy());
        let file: EngineFile = toml::from_str(std::str::from_utf8(&spec.files[0].content).unwrap()).unwrap();
        assert!(file.catalog_dir.starts_with("/srv/eh"), "{file:?}");
    }

    #[test]
    fn an_engine_of_a_type_that_no_pod_can_be_is_refused_with_the_type_that_can() {
        let error = spec(PODS, "spark").unwrap_err();
        assert_eq!(error.sqlstate(), "0A000");
        assert!(
            error.text().contains("can't be pods") && error.text().contains("ENGINE_TYPE 'datafusion'"),
            "{error:?}"
        );
        spec("", "spark").unwrap();
    }
}
