//! The choice of the orchestrator by the configuration, and the launcher of its engines.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use model::cause::chain;
use model::clock::SharedClock;
use model::credential::ClusterSecret;
use orchestrator::Orchestrator;
use orchestrator::kubernetes::Kubernetes;
use orchestrator::kubernetes::connect::connect;
use orchestrator::kubernetes::names::SCRATCH_DIR;
use orchestrator::process::{self, Process};

use crate::command::failpoints;
use crate::configuration::{Catalogs, Configuration, OrchestratorKind, resolved};
use crate::launch::AgentLauncher;

/// The grace of a local process that is terminated from outside, not by a drain.
const TERMINATION_GRACE: Duration = Duration::from_secs(10);

/// The configuration of the orchestrator of local processes.
pub fn process_config(configuration: &Configuration) -> anyhow::Result<process::Config> {
    let section = &configuration.orchestrator;
    Ok(process::Config {
        nodes: section.nodes.clone(),
        max_engines: section.max_engines,
        ..process::Config::new(std::path::absolute(&section.state_dir)?)
    })
}

/// Opens the orchestrator. An unreachable cluster is no error here, but of each later call.
pub async fn open(
    configuration: &Configuration,
    secret: &ClusterSecret,
    clock: &SharedClock,
) -> anyhow::Result<Arc<dyn Orchestrator>> {
    match configuration.orchestrator.kind {
        OrchestratorKind::Process => {
            let process = Process::open(process_config(configuration)?, clock.clone())
                .context("could not use the state directory of engines")?;
            Ok(Arc::new(process))
        }
        OrchestratorKind::Kubernetes => {
            Ok(Arc::new(open_kubernetes(configuration, secret, clock).await?.watching_permissions()))
        }
    }
}

pub async fn open_kubernetes(
    configuration: &Configuration,
    secret: &ClusterSecret,
    clock: &SharedClock,
) -> anyhow::Result<Kubernetes> {
    let section = &configuration.kubernetes;
    let way = connect(section.kubeconfig(), section.context()).await.map_err(|error| {
        anyhow::anyhow!(
            "{}\nHint: Set kubernetes.kubeconfig, or run this process in the cluster with the token of a service account.",
            chain(&error)
        )
    })?;
    let config = configuration.pods(&way.namespace);
    Kubernetes::open(way.client, config, secret.clone(), clock.clone()).context("section [kubernetes]")
}

/// The launcher of engines for the configured orchestrator.
pub fn launcher(configuration: &Configuration, secret: &ClusterSecret) -> anyhow::Result<AgentLauncher> {
    let engines = &configuration.engines;
    let here = configuration.orchestrator.kind == OrchestratorKind::Process;
    // A pod cannot access files of this machine: it has its own program, and its own volume for data.
    let (program, data_dir) = if here {
        let program = std::env::current_exe().context("cannot determine the path of the program")?;
        (program, std::path::absolute(&engines.data_dir)?)
    } else {
        (configuration.kubernetes.program.clone(), PathBuf::from(SCRATCH_DIR))
    };
    let absolute = |path: &PathBuf| std::path::absolute(path);
    let (catalog_dir, catalog) = match engines.catalog()? {
        Catalogs::Default => (data_dir.join("catalog"), None),
        Catalogs::Folder(folder) => (folder, None),
        Catalogs::Bucket(bucket) => (data_dir.join("catalog"), Some(bucket)),
    };
    let own_paths = if here {
        configuration.own_paths().iter().map(|(_, path)| resolved(path)).collect()
    } else {
        vec![data_dir.clone(), catalog_dir.clone()]
    };
    Ok(AgentLauncher {
        program,
        catalog_dir,
        catalog,
        data_dir,
        own_paths,
        allowed_locations: engines.allowed_locations.iter().map(absolute).collect::<Result<_, _>>()?,
        start_deadline: engines.start_deadline,
        zookeeper: configuration.zookeeper.clone(),
        secret: secret.clone(),
        log: std::env::var("ENGINEHOUSE_LOG").ok(),
        failpoints: failpoints::folder().filter(|_| here),
        // A node that is shut down terminates its pods with their own grace, which is that of a drain.
        grace: if here { TERMINATION_GRACE } else { configuration.metadata_agent.drain_grace.0 },
        in_pods: !here,
        spark: configuration.spark.clone(),
    })
}

/// Prefixes of the variables with credentials of object stores.
const STORE_VARIABLES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// An object store's credentials from the environment, as options: in a pod, those of its service account. A
/// local process inherits none.
pub fn store_environment() -> BTreeMap<String, String> {
    let is_of_store = |name: &String| STORE_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    variables.filter(|(name, _)| is_of_store(name)).map(|(name, value)| (name.to_ascii_lowercase(), value)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use master::{Launch, Launcher as _};
    use model::charge::Charge;
    use model::configuration::{Configuration as Effective, Defaults};
    use model::engine_labels::EngineLabels;
    use model::{Epoch, Generation, Incarnation, PoolName, SlotKey, TenantName, UnitName};
    use orchestrator::Spec;
    use serde_json::json;

    use crate::launch::{EngineFile, SparkLocation};

    /// The spec of an engine of that type.
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
        let defaults = Defaults {
            images: configuration.engines.images.clone(),
            instances: configuration.orchestrator.kind.instances(),
            ..Defaults::default()
        };
        let effective = Effective::new(&slot.tenant, &slot.pool, &pool, &unit, &defaults);
        let labels = EngineLabels::new("eh", &slot, Incarnation(1), &effective);
        launcher(&configuration, &secret).unwrap().spec(&Launch {
            engine: &labels.name,
            slot: &slot,
            incarnation: Incarnation(1),
            labels: &labels,
            configuration: &effective,
            charge: &Charge::new(&effective, defaults.instances),
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
        assert_eq!((spec.locality.as_str(), spec.image.as_str()), ("rp-1--t-1", "eh:1"));
        assert_eq!(spec.grace, Duration::from_mins(20));
        let file = file(&spec);
        assert!(file.catalog_dir.starts_with(SCRATCH_DIR) && file.scratch_dir.starts_with(SCRATCH_DIR), "{file:?}");
    }

    #[test]
    fn a_local_process_runs_this_program_on_this_machines_files() {
        let spec = spec("[engines]\ndata_dir = \"/srv/eh\"\n", "datafusion").unwrap();
        assert_eq!(spec.argv[0], std::env::current_exe().unwrap().to_string_lossy());
        let file = file(&spec);
        assert!(file.catalog_dir.starts_with("/srv/eh"), "{file:?}");
    }

    fn file(spec: &Spec) -> EngineFile {
        toml::from_str(std::str::from_utf8(&spec.files[0].content).unwrap()).unwrap()
    }

    #[test]
    fn spark_in_a_pod_is_a_container_that_listens_on_loopback_for_its_agent() {
        let text = PODS.replace("datafusion = \"eh:1\"", "spark = \"spark:3\"")
            + "[spark]\nport = 10100\nversions = { \"spark:3\" = \"3.5.9\" }\nproperties = { \"spark.a\" = \"1\" }\n";
        let spec = spec(&text, "spark").unwrap();
        let address = "127.0.0.1:10100".parse().unwrap();
        assert_eq!(file(&spec).spark, Some(SparkLocation::Sidecar { address }));
        let options = spec.options.spark.unwrap();
        assert_eq!(options.argv[0], "/opt/spark/bin/spark-submit");
        assert_eq!((options.version.as_str(), options.max_executors), ("3.5.9", 4));
        for (key, value) in [("spark.a", "1"), ("spark.hadoop.hive.server2.thrift.port", "10100")] {
            assert_eq!(options.properties[key], value);
        }
    }

    #[test]
    fn an_image_with_an_unknown_spark_is_refused_with_its_key() {
        let error = spec(&PODS.replace("datafusion = \"eh:1\"", "spark = \"spark:3\""), "spark").unwrap_err();
        assert_eq!(error.sqlstate(), "55000");
        assert!(error.text().contains("\"spark:3\"") && error.text().contains("spark.versions"), "{error:?}");
    }

    #[test]
    fn spark_as_a_local_process_has_to_be_allowed() {
        let error = spec("", "spark").unwrap_err();
        assert_eq!(error.sqlstate(), "0A000");
        assert!(error.text().contains("spark.unconfined") && error.text().contains("cluster secret"), "{error:?}");
        let allowed = "[spark]\nunconfined = true\nprogram = \"/srv/spark-submit\"\nenvironment = { A = \"b\" }\n\
                       properties = { \"spark.ui.enabled\" = \"true\" }\n";
        let spec = spec(allowed, "spark").unwrap();
        assert!(spec.options.spark.is_none());
        let Some(SparkLocation::Child(child)) = file(&spec).spark else { panic!("{spec:?}") };
        assert_eq!(child.program, PathBuf::from("/srv/spark-submit"));
        assert_eq!((child.environment["A"].as_str(), child.properties["spark.ui.enabled"].as_str()), ("b", "true"));
    }
}
