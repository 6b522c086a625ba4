//! Test support: specs, instances, waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::charge::Charge;
use model::configuration::{Configuration, Defaults};
use model::engine_labels::EngineLabels;
use model::engine_type::EngineType;
use model::instance::InstanceKind;
use model::labels::LabelMap;
use model::{Epoch, Generation, Incarnation, PoolName, SlotKey, TenantName, UnitName};
use orchestrator::kubernetes::signature::Signer;
use orchestrator::kubernetes::{Config, Kubernetes, PodKey};
use orchestrator::{InstanceOptions, Listing, Orchestrator as _, SparkOptions, Spec, SpecFile};

use super::cluster::Cluster;

pub const EPOCH: Epoch = Epoch(7);
pub const NAMESPACE: &str = "rp-1--t-1";
pub const LONG: Duration = Duration::from_hours(1);
/// The limit of every wait of a test.
const DEADLINE: Duration = Duration::from_secs(20);

/// Marks the pods of one installation.
struct KeyOf(String);

impl PodKey for KeyOf {
    fn sign(&self, pod: &str) -> String {
        format!("{} {pod}", self.0)
    }

    fn verifies(&self, pod: &str, signature: &str) -> bool {
        self.sign(pod) == signature
    }
}

/// The key of the installation of that name. Several share an API server, so each needs its own.
pub fn pod_key(cluster: &str) -> Arc<dyn PodKey> {
    Arc::new(KeyOf(cluster.to_owned()))
}

pub fn signer() -> Signer {
    Signer::new(pod_key("eh"))
}

pub fn config() -> Config {
    Config::new("eh", "enginehouse", "registry.example/enginehouse:1")
}

pub fn open(cluster: &Cluster) -> Kubernetes {
    open_with(cluster, config())
}

pub fn open_with(cluster: &Cluster, config: Config) -> Kubernetes {
    let key = pod_key(&config.cluster);
    Kubernetes::open(cluster.client(), config, key, cluster.clock.clone()).unwrap()
}

fn slot() -> SlotKey {
    SlotKey {
        tenant: TenantName::new("t_1").unwrap(),
        pool: PoolName::new("rp_1").unwrap(),
        unit: UnitName::new("uc_1").unwrap(),
        ordinal: 0,
    }
}

/// In a pool without overcommit.
pub fn configuration(engine_type: EngineType) -> Configuration {
    let unit = serde_json::from_value(serde_json::json!({
        "engine_type": engine_type, "driver_cpu": "1", "driver_memory": "1G", "executor_cpu": "2",
        "executor_memory": "2G", "min_executors": 0, "max_executors": 4, "min_engines": 0, "max_engines": 3,
        "properties": {"spark.sql.shuffle.partitions": "8"}, "comment": null}))
    .unwrap();
    let pool = serde_json::from_value(serde_json::json!({"units": ["uc_1"], "namespace": null,
        "nodes": ["node-1", "node-2"], "image": "registry.example/engine:3", "comment": null}))
    .unwrap();
    let slot = slot();
    Configuration::new(&slot.tenant, &slot.pool, &pool, &unit, &Defaults::default())
}

/// The charge of the engine's pods in a pool with overcommit.
fn overcommitted(configuration: &Configuration) -> Charge {
    Charge::new(&Configuration { cpu_overcommit: Some(200), ..configuration.clone() }, InstanceKind::Pod)
}

/// An engine without executors.
pub fn datafusion(incarnation: i64) -> Spec {
    let configuration = configuration(EngineType::Datafusion);
    Spec { charge: overcommitted(&configuration), ..spec(&configuration, incarnation) }
}

/// A Spark engine.
pub fn spark(incarnation: i64) -> Spec {
    let configuration = configuration(EngineType::Spark);
    let mut spec = Spec { charge: overcommitted(&configuration), ..spec(&configuration, incarnation) };
    spec.options.node_labels = BTreeMap::from([("disk".to_owned(), "fast".to_owned())]);
    spec
}

fn spark_options(configuration: &Configuration) -> SparkOptions {
    let argv = [
        "/opt/spark/bin/spark-submit",
        "--properties-file",
        "/etc/enginehouse-spark/spark.properties",
        "--class",
        "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2",
    ];
    SparkOptions {
        version: "4.0.1".to_owned(),
        argv: argv.map(str::to_owned).to_vec(),
        environment: BTreeMap::new(),
        properties: configuration.properties.clone(),
        min_executors: configuration.min_executors,
        max_executors: configuration.max_executors,
    }
}

/// The spec of an engine with this configuration.
pub fn spec(configuration: &Configuration, incarnation: i64) -> Spec {
    let labels = EngineLabels::new("eh", &slot(), Incarnation(incarnation), configuration);
    let argv = ["/bin/engine", "obedient", "--config", "engine.toml"].map(str::to_owned).to_vec();
    let spark = (configuration.engine_type == EngineType::Spark).then(|| Box::new(spark_options(configuration)));
    Spec {
        labels: labels.encode(),
        generation: Generation(12),
        locality: configuration.namespace.clone(),
        image: configuration.image.clone(),
        files: vec![SpecFile {
            path: "engine.toml".to_owned(),
            content: b"key = \"opens this one engine\"\n".to_vec(),
            mode: 0o600,
        }],
        environment: BTreeMap::from([("ENGINEHOUSE_LOG".to_owned(), "info,$(HOME)".to_owned())]),
        charge: Charge::new(configuration, InstanceKind::Pod),
        nodes: Some(vec!["node-1".to_owned(), "node-2".to_owned()]),
        grace: Duration::from_mins(30),
        options: InstanceOptions { spark, ..InstanceOptions::default() },
        ..Spec::new(labels.name, argv)
    }
}

pub async fn all(kubernetes: &Kubernetes) -> Listing {
    kubernetes.list(&LabelMap::new()).await.unwrap()
}

/// Lists after every wake-up until the condition holds.
pub async fn eventually(kubernetes: &Kubernetes, what: &str, holds: impl Fn(&Listing) -> bool) -> Listing {
    let mut wake_ups = kubernetes.watch();
    let polling = async {
        loop {
            let listing = all(kubernetes).await;
            if holds(&listing) {
                return listing;
            }
            wake_ups.wait().await;
        }
    };
    match tokio::time::timeout(DEADLINE, polling).await {
        Ok(listing) => listing,
        Err(late) => panic!("{late}: {what}; listed: {:?}", all(kubernetes).await),
    }
}
