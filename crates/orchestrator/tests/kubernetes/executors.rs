//! The executors of Spark engines: they take a part of their node, and are never engines.

use k8s_openapi::api::core::v1::Secret;
use model::engine_state::Phase;
use orchestrator::kubernetes::Kubernetes;
use orchestrator::{Orchestrator, Spec};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::requests;
use super::support::{EPOCH, NAMESPACE, all, eventually, open, spark};

/// CPU in thousandths of a core, and memory in bytes.
type Amount = (u64, u64);

const NOTHING: Amount = (0, 0);
/// Half a core of each, because the pool overcommits, and Spark's overhead.
const DRIVER: Amount = (600, 1_664 << 20);
const EXECUTOR: Amount = (1_000, 2_432 << 20);

fn sum(amounts: &[Amount]) -> Amount {
    amounts.iter().fold(NOTHING, |sum, amount| (sum.0 + amount.0, sum.1 + amount.1))
}

/// Creates an executor of the engine from its Secret and config map, as its driver does.
fn create_executor(cluster: &Cluster, spec: &Spec, number: u64, node: Option<&str>) -> String {
    let get = |resource| cluster.get(resource, NAMESPACE, spec.name.as_str()).unwrap();
    let secret: Secret = serde_json::from_value(get("secrets")).unwrap();
    let properties = String::from_utf8(secret.data.unwrap()["spark.properties"].0.clone()).unwrap();
    let template = get("configmaps")["data"]["executor-template.json"].as_str().unwrap().to_owned();
    let (_, pod) = requests::executors(&properties, &template);
    let name = format!("{}-exec-{number}", spec.name);
    let mut pod = serde_json::to_value(&pod).unwrap();
    pod["metadata"]["name"] = name.as_str().into();
    pod["spec"]["nodeName"] = node.map_or(Value::Null, Value::from);
    pod["status"] = json!({"phase": if node.is_some() { "Running" } else { "Pending" }});
    cluster.put("pods", NAMESPACE, pod);
    name
}

async fn used(kubernetes: &Kubernetes) -> Vec<Amount> {
    // Until the nodes are listed there are none.
    let nodes = Orchestrator::nodes(kubernetes).await.unwrap_or_default();
    nodes.into_iter().map(|node| (node.cpu_used_millis, node.memory_used_bytes)).collect()
}

/// Waits until the nodes are used like this.
async fn eventually_used(kubernetes: &Kubernetes, what: &str, expected: &[Amount]) {
    let mut wake_ups = kubernetes.watch();
    let waiting = async {
        while used(kubernetes).await != expected {
            wake_ups.wait().await;
        }
    };
    let is_late = tokio::time::timeout(std::time::Duration::from_secs(20), waiting).await.is_err();
    assert!(!is_late, "{what}: {:?}, expected {expected:?}", used(kubernetes).await);
}

/// A Spark engine that runs, and what each of the two nodes is used by.
async fn running(cluster: &Cluster) -> (Kubernetes, Spec, [Amount; 2]) {
    let kubernetes = open(cluster);
    let spec = spark(1);
    kubernetes.ensure(&spec, EPOCH).await.unwrap();
    let listing = eventually(&kubernetes, "it runs", |listing| listing.engines[0].phase == Phase::Running).await;
    let on_first = listing.engines[0].node.as_deref() == Some("node-1");
    (kubernetes, spec, if on_first { [DRIVER, NOTHING] } else { [NOTHING, DRIVER] })
}

#[tokio::test]
async fn executors_count_on_their_node_while_they_are_there() {
    let cluster = Cluster::new();
    let (kubernetes, spec, driver) = running(&cluster).await;
    assert_eq!(used(&kubernetes).await, driver);
    let first = create_executor(&cluster, &spec, 1, Some("node-1"));
    let second = create_executor(&cluster, &spec, 2, Some("node-2"));
    create_executor(&cluster, &spec, 3, None);
    let both = [sum(&[driver[0], EXECUTOR]), sum(&[driver[1], EXECUTOR])];
    eventually_used(&kubernetes, "two executors are on nodes", &both).await;
    cluster
        .change("pods", NAMESPACE, &first, |pod| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    cluster.change("pods", NAMESPACE, &second, |pod| pod["status"]["phase"] = "Failed".into());
    eventually_used(&kubernetes, "one terminates, one has ended", &[both[0], driver[1]]).await;
    cluster.remove("pods", NAMESPACE, &first);
    eventually_used(&kubernetes, "none is left", &driver).await;
}

#[tokio::test]
async fn an_executor_is_no_engine_and_costs_no_call() {
    let cluster = Cluster::new();
    let (kubernetes, spec, driver) = running(&cluster).await;
    drop(cluster.calls());
    let name = create_executor(&cluster, &spec, 1, Some("node-1"));
    let used_by_both = [sum(&[driver[0], EXECUTOR]), driver[1]];
    eventually_used(&kubernetes, "an executor is on a node", &used_by_both).await;
    let listing = all(&kubernetes).await;
    assert_eq!(listing.engines.iter().map(|engine| &engine.name).collect::<Vec<_>>(), [&spec.name]);
    assert_eq!((listing.foreign, listing.unreadable), (Vec::new(), Vec::new()));
    assert_eq!(cluster.calls(), Vec::<String>::new());
    let executor = model::EngineName::new(name.as_str()).unwrap();
    assert_eq!(kubernetes.get(&executor, Some(NAMESPACE)).await, Ok(None));
    let deleted = kubernetes.delete(&executor, "uid", std::time::Duration::ZERO, EPOCH).await;
    assert!(cluster.get("pods", NAMESPACE, &name).is_some(), "{deleted:?}");
}

#[tokio::test]
async fn a_resync_forgets_executors_that_are_gone() {
    let cluster = Cluster::new();
    let (kubernetes, spec, driver) = running(&cluster).await;
    let first = create_executor(&cluster, &spec, 1, Some("node-1"));
    create_executor(&cluster, &spec, 2, Some("node-2"));
    let both = [sum(&[driver[0], EXECUTOR]), sum(&[driver[1], EXECUTOR])];
    eventually_used(&kubernetes, "two executors are on nodes", &both).await;
    cluster.compact();
    cluster.remove("pods", NAMESPACE, &first);
    eventually_used(&kubernetes, "one is left", &[driver[0], both[1]]).await;
    // Another instance observes the same.
    eventually_used(&open(&cluster), "another instance", &[driver[0], both[1]]).await;
}

#[tokio::test]
async fn an_engine_lists_its_pods_with_their_executors() {
    let cluster = Cluster::new();
    let (kubernetes, spec, _) = running(&cluster).await;
    let pods_of = |engine: &orchestrator::ObservedInstance| engine.pods.clone().unwrap();
    let alone = pods_of(&all(&kubernetes).await.engines[0]);
    assert_eq!((alone.driver.cpu_millis, alone.executors.count), (1_100, 0));
    assert_eq!((alone.requests().cpu_millis, alone.requests().memory_bytes), DRIVER);
    create_executor(&cluster, &spec, 1, Some("node-1"));
    create_executor(&cluster, &spec, 2, Some("node-2"));
    let has_two = |listing: &orchestrator::Listing| pods_of(&listing.engines[0]).executors.count == 2;
    let listing = eventually(&kubernetes, "its executors are listed", has_two).await;
    let pods = pods_of(&listing.engines[0]);
    let requests = pods.requests();
    assert_eq!((requests.cpu_millis, requests.memory_bytes), sum(&[DRIVER, EXECUTOR, EXECUTOR]));
    assert_eq!((pods.executors.largest.cpu_millis, pods.executors.total.cpu_millis), (2_000, 4_000));
    assert_eq!(pods.on_nodes.keys().collect::<Vec<_>>(), ["node-1", "node-2"]);
    assert_eq!(
        kubernetes.get(&spec.name, None).await.unwrap().as_ref(),
        listing.engines.first().map(AsRef::as_ref),
        "get agrees"
    );
}
