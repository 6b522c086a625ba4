//! The choice of the orchestrator by the configuration, and the launcher of its engines.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keys::{Current, MasterKeys};
use model::cause::chain;
use model::clock::SharedClock;
use orchestrator::Orchestrator;
use orchestrator::kubernetes::connect::connect;
use orchestrator::kubernetes::names::SCRATCH_DIR;
use orchestrator::kubernetes::{Kubernetes, PodKey};
use orchestrator::process::{self, Process};

use crate::command::failpoints;
use crate::configuration::{Authentication, Catalogs, Configuration, OrchestratorKind, resolved};
use crate::engine_file::EngineZookeeper;
use crate::engine_types::LaunchParts;
use crate::launch::AgentLauncher;
use crate::telemetry;

/// Marks pods with the key of masters.
struct PodsKey(Current<MasterKeys>);

impl PodKey for PodsKey {
    fn sign(&self, pod: &str) -> String {
        self.0.get().sign_pod(pod)
    }

    fn verifies(&self, pod: &str, signature: &str) -> bool {
        self.0.get().verifies_pod(pod, signature)
    }
}

/// The grace of a local process that is terminated from outside, not by a drain.
const TERMINATION_GRACE: Duration = Duration::from_secs(10);

/// The configuration of the orchestrator of local processes.
pub fn process_config(configuration: &Configuration) -> anyhow::Result<process::Config> {
    let section = &configuration.orchestrator;
    Ok(process::Config {
        nodes: section.nodes.clone(),
        max_engines: section.max_engines,
        min_uid: section.min_uid,
        ..process::Config::new(std::path::absolute(&section.state_dir)?)
    })
}

/// Opens the orchestrator. An unreachable cluster is no error here, but of each later call.
pub async fn open(
    configuration: &Configuration,
    keys: &Current<MasterKeys>,
    clock: &SharedClock,
) -> anyhow::Result<Arc<dyn Orchestrator>> {
    match configuration.orchestrator.kind {
        OrchestratorKind::Process => {
            let process = Process::open(process_config(configuration)?, clock.clone())
                .context("could not use the state directory of engines")?;
            Ok(Arc::new(process))
        }
        OrchestratorKind::Kubernetes => {
            Ok(Arc::new(open_kubernetes(configuration, keys, clock).await?.watching_permissions()))
        }
    }
}

pub async fn open_kubernetes(
    configuration: &Configuration,
    keys: &Current<MasterKeys>,
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
    Kubernetes::open(way.client, config, Arc::new(PodsKey(keys.clone())), clock.clone()).context("section [kubernetes]")
}

/// The launcher of engines for the configured orchestrator.
pub fn launcher(configuration: &Configuration, keys: &Current<MasterKeys>) -> anyhow::Result<AgentLauncher> {
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
    let catalog_dir = match engines.catalog()? {
        Catalogs::Folder(folder) => folder,
        Catalogs::Default | Catalogs::Bucket(_) => data_dir.join("catalog"),
    };
    let own_paths = if here {
        configuration.own_paths().iter().map(|(_, path)| resolved(path)).collect()
    } else {
        vec![data_dir.clone(), catalog_dir.clone()]
    };
    Ok(AgentLauncher {
        program,
        catalog_dir,
        data_dir,
        own_paths,
        allowed_locations: engines.allowed_locations.iter().map(absolute).collect::<Result<_, _>>()?,
        start_deadline: engines.start_deadline,
        zookeeper: EngineZookeeper::new(&configuration.zookeeper)?,
        keys: keys.clone(),
        cluster_tls: configuration.cluster_tls(),
        log: std::env::var(telemetry::LOG_VARIABLE).ok(),
        failpoints: failpoints::folder().filter(|_| here),
        // A node that is shut down terminates its pods with their own grace, which is that of a drain.
        grace: if here { TERMINATION_GRACE } else { configuration.metadata_agent.drain_grace.0 },
        in_pods: !here,
        names_are_proven: !configuration.access.uses(Authentication::None),
        is_root: rustix::process::geteuid().is_root(),
        types: LaunchParts::new(configuration)?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::collections::BTreeMap;

    use super::*;
    use keys::{KeyGeneration, Root, SecretKey};
    use master::{Launch, Launcher as _};
    use model::catalog::UnitSpec;
    use model::change::Rules;
    use model::charge::Charge;
    use model::configuration::{Configuration as Effective, Defaults};
    use model::engine_labels::EngineLabels;
    use model::run_as::RunAs;
    use model::{Epoch, Generation, Incarnation, PoolName, SlotKey, TenantName, UnitName};
    use orchestrator::Spec;
    use serde_json::json;

    use crate::engine_file::EngineFile;
    use crate::engine_types::hiveserver2::launch::ServerLaunch;
    use crate::engine_types::spark::location::SparkLocation;

    /// The spec of an engine of that type.
    fn spec(text: &str, engine_type: &str) -> Result<Spec, model::error::UserError> {
        spec_with(text, engine_type, &[])
    }

    /// The same with properties of its unit.
    fn spec_with(text: &str, engine_type: &str, properties: &[(&str, &str)]) -> Result<Spec, model::error::UserError> {
        spec_of(text, engine_type, properties, (RunAs::Service, None), true)
    }

    /// The spec of an engine that runs as its owner, for this user of its slot.
    fn spec_as(text: &str, engine_type: &str, user: Option<&str>) -> Result<Spec, model::error::UserError> {
        spec_of(text, engine_type, &[], (RunAs::Owner, user), true)
    }

    fn spec_of(
        text: &str,
        engine_type: &str,
        properties: &[(&str, &str)],
        (run_as, user): (RunAs, Option<&str>),
        is_root: bool,
    ) -> Result<Spec, model::error::UserError> {
        let properties: BTreeMap<&str, &str> = properties.iter().copied().collect();
        let configuration = Configuration::parse(text, &[]).unwrap();
        configuration.check().unwrap();
        let first = KeyGeneration::FIRST;
        let root = Root::new("eh", SecretKey::new([7; 32]));
        let keys = root.all_roles(first, &[first], coordination::digest).unwrap().master;
        let slot = SlotKey {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            unit: UnitName::new("uc_1").unwrap(),
            ordinal: 0,
        };
        let unit: UnitSpec =
            serde_json::from_value(json!({"engine_type": engine_type, "driver_cpu": "1", "driver_memory": "1G",
            "executor_cpu": "2", "executor_memory": "2G", "min_executors": 0, "max_executors": 4, "min_engines": 0,
            "max_engines": 3, "properties": properties, "comment": null}))
            .unwrap();
        let unit = Rules::default().with_fingerprint(&slot.unit, None, unit);
        let pool = serde_json::from_value(json!({"units": ["uc_1"], "namespace": null, "nodes": null, "image": null,
            "comment": null}))
        .unwrap();
        let defaults = Defaults {
            images: configuration.engines.images.clone(),
            instances: configuration.orchestrator.kind.instances(),
            ..Defaults::default()
        };
        let effective = Effective::new(&slot.tenant, &slot.pool, &pool, &unit, &defaults);
        let effective = Effective { run_as, ..effective };
        let labels = EngineLabels::new("eh", &slot, Incarnation(1), &effective);
        let launcher = AgentLauncher { is_root, ..launcher(&configuration, &keys).unwrap() };
        launcher.spec(&Launch {
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
            user,
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

    const PROVEN: &str = "[access]\nauthentication = \"file\"\n";

    #[test]
    fn a_local_engine_of_an_owner_has_folders_of_the_owner() {
        let text = format!("{PROVEN}[engines]\ndata_dir = \"/srv/eh\"\n");
        let spec = spec_as(&text, "datafusion", Some("ann")).unwrap();
        let run_as = spec.run_as.as_ref().unwrap();
        assert_eq!(
            (run_as.user.as_str(), run_as.folders.as_slice()),
            ("ann", &[PathBuf::from("/srv/eh/run-as/ann")][..])
        );
        let file = file(&spec);
        assert_eq!(file.run_as.as_deref(), Some("ann"));
        assert_eq!(file.catalog_dir, PathBuf::from("/srv/eh/run-as/ann/catalog/t_1"));
        assert_eq!(file.scratch_dir, PathBuf::from("/srv/eh/run-as/ann/scratch"));
        for variable in ["HADOOP_USER_NAME", "SPARK_USER"] {
            assert_eq!(spec.environment[variable], "ann");
        }
        let service = self::spec(&text, "datafusion").unwrap();
        assert!(service.run_as.is_none() && !service.environment.contains_key("HADOOP_USER_NAME"));
        assert!(!String::from_utf8(service.files[0].content.clone()).unwrap().contains("run_as"));
    }

    #[test]
    fn spark_and_its_executors_name_the_owner_in_a_pod() {
        let text = PODS.replace("datafusion = \"eh:1\"", "spark = \"spark:3\"")
            + "[spark]\nversions = { \"spark:3\" = \"3.5.9\" }\nenvironment = { SPARK_USER = \"root\" }\n"
            + PROVEN;
        let spec = spec_as(&text, "spark", Some("ann/admin")).unwrap();
        assert_eq!(spec.run_as.as_ref().unwrap().user, "ann/admin", "no account of this machine");
        let spark = spec.options.spark.unwrap();
        for variable in ["HADOOP_USER_NAME", "SPARK_USER"] {
            assert_eq!(spark.environment[variable], "ann/admin");
            assert_eq!(spark.properties[&format!("spark.executorEnv.{variable}")], "ann/admin");
        }
    }

    #[test]
    fn an_engine_that_cannot_run_as_its_owner_is_refused() {
        let pods = format!("{PODS}{PROVEN}");
        for (text, user, is_root, expected) in [
            ("", Some("ann"), true, "access.authentication"),
            (PODS, Some("ann"), true, "access.authentication"),
            (PROVEN, None, true, "Its slot names no user."),
            (pods.as_str(), None, true, "Its slot names no user."),
            (PROVEN, Some("ann"), false, "Only root can start a process as another user"),
            (PROVEN, Some("../ann"), true, "No account can have the name"),
            (PROVEN, Some("ann/x"), true, "No account can have the name"),
            (PROVEN, Some(".."), true, "No account can have the name"),
        ] {
            let error = spec_of(text, "datafusion", &[], (RunAs::Owner, user), is_root).unwrap_err();
            assert!(error.sqlstate() == "0A000" && error.text().contains(expected), "{user:?}: {error:?}");
        }
        spec_of(&pods, "datafusion", &[], (RunAs::Owner, Some("ann")), false).unwrap();
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
        assert!(error.text().contains("spark.unconfined") && error.text().contains("keys of the roles"), "{error:?}");
        let allowed = "[spark]\nunconfined = true\nprogram = \"/srv/spark-submit\"\nenvironment = { A = \"b\" }\n\
                       properties = { \"spark.ui.enabled\" = \"true\" }\n";
        let spec = spec(allowed, "spark").unwrap();
        assert!(spec.options.spark.is_none());
        let Some(SparkLocation::Child(child)) = file(&spec).spark else { panic!("{spec:?}") };
        assert_eq!(child.program, PathBuf::from("/srv/spark-submit"));
        assert_eq!((child.environment["A"].as_str(), child.properties["spark.ui.enabled"].as_str()), ("b", "true"));
    }

    const TEMPLATE: &str = "[hiveserver2]\nunconfined = true\nshared_catalog = true\n\
                            command = [\"/srv/hs2\", \"{port}\", \"{properties}\"]\n\
                            property_arguments = [\"--conf\", \"{key}={value}\"]\nproperties = { a = \"1\", b = \"1\" }\n";

    #[test]
    fn a_template_is_passed_to_the_agent_with_the_properties() {
        let spec = spec_with(TEMPLATE, "hiveserver2", &[("a", "2"), ("enginehouse.statement_timeout", "1m")]).unwrap();
        let file = file(&spec);
        assert!(file.has_metastore && spec.options.spark.is_none() && file.spark.is_none());
        let server: ServerLaunch = file.connector().unwrap();
        assert_eq!((server.pool.as_str(), server.unit.as_str()), ("rp_1", "uc_1"));
        assert_eq!(server.template.command, ["/srv/hs2", "{port}", "{properties}"]);
        let properties: Vec<_> = server.properties.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(properties, ["a=2", "b=1"]);
    }

    #[test]
    fn a_server_is_refused_without_a_template_or_if_it_cannot_have_the_properties() {
        let no_place = "[hiveserver2]\nunconfined = true\ncommand = [\"/srv/hs2\"]\n";
        for (text, properties, state, expected) in [
            ("", [].as_slice(), "55000", "Hint: Set hiveserver2.command"),
            (PODS, &[], "55000", "no command template"),
            (&TEMPLATE.replace("unconfined = true\n", ""), &[], "0A000", "hiveserver2.unconfined"),
            (no_place, &[("a", "1")], "22023", "property \"a\" of resource unit \"uc_1\""),
            (TEMPLATE, &[("db.password", "x")], "22023", "\"db.password\""),
        ] {
            let error = spec_with(text, "hiveserver2", properties).unwrap_err();
            assert_eq!(error.sqlstate(), state, "{error:?}");
            assert!(error.text().contains(expected) && error.detail.is_some() && error.hint.is_some(), "{error:?}");
        }
        // A file is readable by the engine alone.
        let in_a_file = "[hiveserver2]\nunconfined = true\ncommand = [\"/srv/hs2\", \"{properties_file}\"]\n";
        assert!(spec_with(in_a_file, "hiveserver2", &[("db.password", "x")]).is_ok());
        let pods = format!("{PODS}{}", in_a_file.replace("unconfined = true\n", ""));
        assert!(spec(&pods, "hiveserver2").is_ok(), "a pod confines its server");
    }
}
