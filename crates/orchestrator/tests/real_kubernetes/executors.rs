//! Executors on a node, as the API server reports them.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, PostParams};
use model::EngineName;
use model::engine_state::Phase;
use model::observation::ObservedNode;
use orchestrator::Orchestrator as _;
use orchestrator::kubernetes::Kubernetes;
use serde_json::json;

use super::specs::{EPOCH, eventually, spark};
use super::support::TestNamespace;

/// Waits until the node is used by this much CPU and memory.
async fn eventually_used(kubernetes: &Kubernetes, name: &str, expected: (u64, u64)) {
    let mut wake_ups = kubernetes.watch();
    let used = |nodes: Vec<ObservedNode>| {
        let node = nodes.into_iter().find(|node| node.name == name);
        node.map(|node| (node.cpu_used_millis, node.memory_used_bytes))
    };
    let waiting = async {
        while used(kubernetes.nodes().await.unwrap_or_default()) != Some(expected) {
            wake_ups.wait().await;
        }
    };
    let late = tokio::time::timeout(std::time::Duration::from_secs(20), waiting).await.is_err();
    assert!(!late, "{:?}, expected {expected:?}", used(kubernetes.nodes().await.unwrap()));
}

#[tokio::test]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn executors_are_counted_on_their_node_and_are_no_engines() {
    let test = TestNamespace::create("executors").await;
    let nodes = Api::<Node>::all(test.client.clone());
    let node = json!({"metadata": {"name": test.namespace}, "status": {
        "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "100"}}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let kubernetes = test.open();
    let spec = test.own(spark(1));
    kubernetes.ensure(&spec, EPOCH).await.unwrap();
    test.create_executors(&spec).await;
    eventually_used(&kubernetes, &test.namespace, (0, 0)).await;
    let executor = spec.charge.executors.unwrap().container;
    let of_executors = |count: u64| (executor.cpu_request_millis * count, executor.memory_request_bytes() * count);
    for number in 1..=2 {
        let name = EngineName::new(format!("{}-exec-{number}", spec.name)).unwrap();
        test.start_on(&test.namespace, &name).await;
        eventually_used(&kubernetes, &test.namespace, of_executors(number)).await;
    }
    test.start_on(&test.namespace, &spec.name).await;
    let total = spec.charge.requests();
    let missing = of_executors(u64::from(spec.charge.executors.unwrap().count) - 2);
    let all = (total.cpu_millis - missing.0, total.memory_bytes - missing.1);
    eventually_used(&kubernetes, &test.namespace, all).await;
    let listing = eventually(&kubernetes, "it is on a node", |listing| listing.engines[0].phase > Phase::Pending).await;
    assert_eq!((listing.engines.len(), listing.foreign.len()), (1, 0));
    let pods = listing.engines[0].pods.clone().unwrap();
    assert_eq!((pods.executors.count, (pods.requests().cpu_millis, pods.requests().memory_bytes)), (2, all));
    let ended = EngineName::new(format!("{}-exec-1", spec.name)).unwrap();
    test.confirm_end(&ended).await;
    let left = of_executors(1);
    eventually_used(&kubernetes, &test.namespace, (all.0 - left.0, all.1 - left.1)).await;
    nodes.delete(&test.namespace, &DeleteParams::default()).await.unwrap();
}
