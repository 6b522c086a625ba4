//! The harness of pods at a real API server, whose kubeconfig is at `EH_TEST_KUBECONFIG`. It has neither scheduler nor
//! kubelets: a task of this file simulates both. Each case has its own namespace and its own home namespace.
//!
//! Pods follow the case's clock, which differs from the server's, so a grace is measured from the time of the case's clock at
//! the start of the case: no case moves it before its first delete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::config::{KubeConfigOptions, Kubeconfig};
use model::EngineName;
use model::clock::{Clock as _, ManualClock, SystemClock, utc};
use orchestrator::kubernetes::client_of;
use orchestrator::{ObservedInstance, Orchestrator};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, block_in_place};

use super::harness::{Harness, Program, pod_program, pods};

const NODES: [&str; 2] = ["node-1", "node-2"];
/// The interval between two lists of the pods.
const INTERVAL: Duration = Duration::from_millis(50);

struct RealPods {
    client: kube::Client,
    clock: Arc<ManualClock>,
    namespace: String,
    simulator: JoinHandle<()>,
}

pub fn make() -> Arc<dyn Harness> {
    wait(async {
        let path = std::env::var("EH_TEST_KUBECONFIG").expect("EH_TEST_KUBECONFIG is the path of a kubeconfig");
        let admin = Kubeconfig::read_from(path).unwrap();
        let config = kube::Config::from_custom_kubeconfig(admin, &KubeConfigOptions::default()).await.unwrap();
        let client = client_of(config).unwrap();
        create_nodes(&client).await;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let namespace = format!("contract-{}", &id[..12]);
        let clock = ManualClock::at(SystemClock::shared().wall_ms() / 1_000 * 1_000);
        let simulator = tokio::spawn(simulate(client.clone(), namespace.clone(), Arc::clone(&clock)));
        let pods = RealPods { client, clock, namespace, simulator };
        let home: Namespace = from(json!({"metadata": {"name": pods.home()}}));
        Api::<Namespace>::all(pods.client.clone()).create(&PostParams::default(), &home).await.unwrap();
        Arc::new(pods) as Arc<dyn Harness>
    })
}

/// Blocks on a call of a synchronous method of the harness.
fn wait<T>(future: impl Future<Output = T>) -> T {
    block_in_place(|| Handle::current().block_on(future))
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Creates the nodes unless another case has created them.
async fn create_nodes(client: &kube::Client) {
    for name in NODES {
        let node: Node = from(json!({"metadata": {"name": name}, "status": {
            "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "1000"},
            "conditions": [{"type": "Ready", "status": "True"}]}}));
        match Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.unwrap()),
        }
    }
}

impl RealPods {
    fn home(&self) -> String {
        format!("home-{}", self.namespace)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

impl Drop for RealPods {
    fn drop(&mut self) {
        self.simulator.abort();
    }
}

#[async_trait]
impl Harness for RealPods {
    fn locality(&self) -> String {
        self.namespace.clone()
    }

    fn instance(&self) -> Arc<dyn Orchestrator> {
        pods(&self.home(), Some(&self.namespace), self.client.clone(), self.clock.clone())
    }

    fn program(&self, _: &EngineName, program: Program) -> (Vec<String>, BTreeMap<String, String>) {
        pod_program(program)
    }

    async fn wait_until_ready(&self, _: &EngineName) {}

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn now_ms(&self) -> i64 {
        self.clock.wall_ms()
    }

    fn kill(&self, engine: &ObservedInstance) {
        let started = timestamp(engine.started_at_ms.unwrap());
        let ended = json!({"exitCode": 137, "reason": "Error", "startedAt": started, "finishedAt": self.now()});
        wait(set_status(&self.pods(), engine.name.as_str(), "Failed", json!({"terminated": ended, "running": null})))
            .unwrap();
    }

    fn edit_label(&self, name: &EngineName, label: &str, value: &str) {
        let labels = Patch::Merge(json!({"metadata": {"labels": {label: value}}}));
        wait(self.pods().patch(name.as_str(), &PatchParams::default(), &labels)).unwrap();
    }

    fn remove_by_hand(&self, engine: &ObservedInstance) {
        wait(end(&self.pods(), engine.name.as_str(), &engine.uid)).unwrap();
    }
}

impl RealPods {
    fn now(&self) -> String {
        timestamp(self.clock.wall_ms())
    }
}

/// In the format of a kubelet, in whole seconds.
fn timestamp(wall_ms: i64) -> String {
    format!("{}Z", &utc(wall_ms)[..19])
}

/// Scheduler and kubelets of a namespace: pods run at once, and end as their command line says. Failed calls are retried.
async fn simulate(client: kube::Client, namespace: String, clock: Arc<ManualClock>) {
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    let began_ms = clock.wall_ms();
    loop {
        let mut there = pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        for at in 0..there.len() {
            let (name, uid) = (there[at].metadata.name.clone().unwrap(), there[at].metadata.uid.clone().unwrap());
            let spec = there[at].spec.clone().unwrap();
            let program = spec.containers[0].command.clone().unwrap().remove(1);
            let phase = there[at].status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            if there[at].metadata.deletion_timestamp.is_some() {
                let grace_s = there[at].metadata.deletion_grace_period_seconds.unwrap_or(0);
                // A second is the time of a kill; no case waits for it.
                let is_over = grace_s <= 1 || clock.wall_ms() - began_ms >= grace_s * 1_000;
                if is_over || program != "stubborn" {
                    drop(end(&pods, &name, &uid).await);
                }
            } else if spec.node_name.is_none() {
                let Some(node) = choose(&there, &there[at]) else { continue };
                if bind(&client, &namespace, &name, &node).await.is_ok() {
                    there[at].spec.as_mut().unwrap().node_name = Some(node);
                }
            } else if phase == "Pending" {
                let now = timestamp(clock.wall_ms());
                let ended = json!({"exitCode": 3, "reason": "Error", "message": "a line\nwent wrong\n", "startedAt": now,
                    "finishedAt": now});
                let updated = match program.as_str() {
                    "fails" => set_status(&pods, &name, "Failed", json!({"terminated": ended})).await,
                    _ => set_status(&pods, &name, "Running", json!({"running": {"startedAt": now}})).await,
                };
                drop(updated);
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The least loaded of the nodes that the pod's affinity allows.
fn choose(pods: &[Pod], pod: &Pod) -> Option<String> {
    let spec = serde_json::to_value(&pod.spec).unwrap();
    let terms =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let allowed = |node: &str| match terms.as_array() {
        None => true,
        Some(terms) => terms.iter().any(|term| term["matchFields"][0]["values"][0] == node),
    };
    let is_on = |pod: &Pod, node: &str| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    let load = |node: &str| pods.iter().filter(|pod| is_on(pod, node)).count();
    NODES.into_iter().filter(|node| allowed(node)).min_by_key(|node| load(node)).map(str::to_owned)
}

async fn bind(client: &kube::Client, namespace: &str, name: &str, node: &str) -> kube::Result<Value> {
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request(request.body(serde_json::to_vec(&binding).unwrap()).unwrap()).await
}

async fn set_status(pods: &Api<Pod>, name: &str, phase: &str, state: Value) -> kube::Result<Pod> {
    let status = json!({"status": {"phase": phase, "podIP": "127.0.0.2", "podIPs": [{"ip": "127.0.0.2"}],
        "containerStatuses": [{"name": "engine-agent", "state": state, "image": "i", "imageID": "i",
            "ready": phase == "Running", "restartCount": 0}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await
}

/// Removes the object, as the kubelet does once no container of the pod runs.
async fn end(pods: &Api<Pod>, name: &str, uid: &str) -> kube::Result<()> {
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    pods.delete(name, &now).await.map(drop)
}
