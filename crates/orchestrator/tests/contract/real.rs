//! The suite's view of pods at a real API server, which `EH_TEST_KUBECONFIG` leads to. It has neither scheduler nor kubelets:
//! a task of this file plays both. Each case has a namespace and a home of its own.
//!
//! Pods live by the case's clock. The server's is another one, so a grace is counted from where the case's clock stood when
//! the case began: none moves it before its first delete.

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
use orchestrator::{Observed, Orchestrator};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, block_in_place};

use super::harness::{Harness, Program, pod_program, pods};

const NODES: [&str; 2] = ["node-1", "node-2"];
/// How often the pods are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

struct RealPods {
    client: kube::Client,
    clock: Arc<ManualClock>,
    namespace: String,
    player: JoinHandle<()>,
}

pub fn make() -> Arc<dyn Harness> {
    wait(async {
        let path = std::env::var("EH_TEST_KUBECONFIG").expect("EH_TEST_KUBECONFIG is the path of a kubeconfig");
        let admin = Kubeconfig::read_from(path).unwrap();
        let config = kube::Config::from_custom_kubeconfig(admin, &KubeConfigOptions::default()).await.unwrap();
        let client = client_of(config).unwrap();
        make_nodes(&client).await;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let namespace = format!("contract-{}", &id[..12]);
        let clock = ManualClock::at(SystemClock::shared().wall_ms() / 1_000 * 1_000);
        let player = tokio::spawn(play(client.clone(), namespace.clone(), Arc::clone(&clock)));
        let pods = RealPods { client, clock, namespace, player };
        let home: Namespace = from(json!({"metadata": {"name": pods.home()}}));
        Api::<Namespace>::all(pods.client.clone()).create(&PostParams::default(), &home).await.unwrap();
        Arc::new(pods) as Arc<dyn Harness>
    })
}

/// For what the suite wants at once.
fn wait<T>(future: impl Future<Output = T>) -> T {
    block_in_place(|| Handle::current().block_on(future))
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The nodes, unless another case has made them.
async fn make_nodes(client: &kube::Client) {
    for name in NODES {
        let node: Node = from(json!({"metadata": {"name": name}, "status": {
            "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "1000"},
            "conditions": [{"type": "Ready", "status": "True"}]}}));
        match Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => drop(made.unwrap()),
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
        self.player.abort();
    }
}

#[async_trait]
impl Harness for RealPods {
    fn namespace(&self) -> String {
        self.namespace.clone()
    }

    fn instance(&self) -> Arc<dyn Orchestrator> {
        pods(&self.home(), Some(&self.namespace), self.client.clone(), self.clock.clone())
    }

    fn program(&self, _: &EngineName, program: Program) -> (Vec<String>, BTreeMap<String, String>) {
        pod_program(program)
    }

    async fn behaves(&self, _: &EngineName) {}

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn now_ms(&self) -> i64 {
        self.clock.wall_ms()
    }

    fn kill(&self, engine: &Observed) {
        let started = moment(engine.started_at_ms.unwrap());
        let ended = json!({"exitCode": 137, "reason": "Error", "startedAt": started, "finishedAt": self.now()});
        wait(tell(&self.pods(), engine.name.as_str(), "Failed", json!({"terminated": ended, "running": null})))
            .unwrap();
    }

    fn edit_label(&self, name: &EngineName, label: &str, value: &str) {
        let labels = Patch::Merge(json!({"metadata": {"labels": {label: value}}}));
        wait(self.pods().patch(name.as_str(), &PatchParams::default(), &labels)).unwrap();
    }

    fn remove_by_hand(&self, engine: &Observed) {
        wait(end(&self.pods(), engine.name.as_str(), &engine.uid)).unwrap();
    }
}

impl RealPods {
    fn now(&self) -> String {
        moment(self.clock.wall_ms())
    }
}

/// As a kubelet writes it, in whole seconds.
fn moment(wall_ms: i64) -> String {
    format!("{}Z", &utc(wall_ms)[..19])
}

/// Scheduler and kubelets of a namespace: pods run at once, and end as their command line says. What fails is tried again.
async fn play(client: kube::Client, namespace: String, clock: Arc<ManualClock>) {
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
                // A second is what a kill takes; nobody is made to wait for it.
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
                let now = moment(clock.wall_ms());
                let ended = json!({"exitCode": 3, "reason": "Error", "message": "a line\nwent wrong\n", "startedAt": now,
                    "finishedAt": now});
                let told = match program.as_str() {
                    "fails" => tell(&pods, &name, "Failed", json!({"terminated": ended})).await,
                    _ => tell(&pods, &name, "Running", json!({"running": {"startedAt": now}})).await,
                };
                drop(told);
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
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

async fn tell(pods: &Api<Pod>, name: &str, phase: &str, state: Value) -> kube::Result<Pod> {
    let status = json!({"status": {"phase": phase, "podIP": "127.0.0.2", "podIPs": [{"ip": "127.0.0.2"}],
        "containerStatuses": [{"name": "engine-agent", "state": state, "image": "i", "imageID": "i",
            "ready": phase == "Running", "restartCount": 0}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await
}

/// Takes the object away, as the kubelet does of a pod of which nothing runs any more.
async fn end(pods: &Api<Pod>, name: &str, uid: &str) -> kube::Result<()> {
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    pods.delete(name, &now).await.map(drop)
}
