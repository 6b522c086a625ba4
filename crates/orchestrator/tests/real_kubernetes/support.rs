//! Test support: a namespace of the real cluster for one test, and a simulated scheduler and kubelet.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use model::EngineName;
use model::clock::SystemClock;
use model::labels::{CLUSTER, NAMESPACE as NAMESPACE_LABEL};
use orchestrator::Spec;
use orchestrator::kubernetes::{Config, Kubernetes, Permission, client_of};
use serde_json::{Value, json};

use super::specs::{config, pod_key};

/// The client configuration of the administrator.
async fn admin() -> kube::Config {
    let path = std::env::var("EH_TEST_KUBECONFIG").expect("EH_TEST_KUBECONFIG is the path of a kubeconfig");
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

/// Waits for a permission: the server's authorizer applies a binding a moment after it is created.
async fn granted(client: &kube::Client, permission: &Permission) {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"group": permission.group, "resource": permission.resource,
            "verb": permission.verb, "namespace": permission.namespace}}});
    loop {
        let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header("content-type", "application/json");
        let body = serde_json::to_vec(&review).unwrap();
        let reviewed: Value = client.request(request.body(body).unwrap()).await.unwrap();
        if reviewed["status"]["allowed"] == true {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The namespaces and the installation of one test.
pub struct TestNamespace {
    pub client: kube::Client,
    pub config: Config,
    pub namespace: String,
}

impl TestNamespace {
    /// The names are unique for each run, because the server may outlive a run.
    pub async fn create(test: &str) -> Self {
        let client = client_of(admin().await).unwrap();
        let name = format!("{test}-{}", uuid::Uuid::new_v4().simple());
        let name = &name[..40.min(name.len())];
        let home = format!("home-{name}");
        let namespace = json!({"metadata": {"name": home}});
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
        Self { client, config: Config::new(name, home, config().agent_image), namespace: name.to_owned() }
    }

    pub fn open(&self) -> Kubernetes {
        Kubernetes::open(self.client.clone(), self.config.clone(), pod_key(&self.config.cluster), SystemClock::shared())
            .unwrap()
    }

    /// The spec, moved into this namespace.
    pub fn own(&self, mut spec: Spec) -> Spec {
        spec.locality.clone_from(&self.namespace);
        spec.nodes = None;
        spec.labels.insert(CLUSTER.to_owned(), self.config.cluster.clone());
        spec.labels.insert(NAMESPACE_LABEL.to_owned(), self.namespace.clone());
        spec
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates the object as a dry run with strict validation of its fields.
    pub async fn try_out(&self, path: &str, object: &impl serde::Serialize) -> Result<Value, kube::Error> {
        let uri = format!("{path}?dryRun=All&fieldValidation=Strict");
        let request = http::Request::post(uri).header("content-type", "application/json");
        self.client.request(request.body(serde_json::to_vec(object).unwrap()).unwrap()).await
    }

    /// As scheduler and kubelet: assigns the pod a node and reports that it runs.
    pub async fn start(&self, name: &EngineName) {
        self.start_on("node-1", name).await;
    }

    pub async fn start_on(&self, node: &str, name: &EngineName) {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let path = format!("/api/v1/namespaces/{}/pods/{name}/binding", self.namespace);
        let request = http::Request::post(path).header("content-type", "application/json");
        let body = serde_json::to_vec(&binding).unwrap();
        self.client.request::<Value>(request.body(body).unwrap()).await.unwrap();
        self.set_status(name, "Running", &json!({"running": {"startedAt": "2026-01-01T00:00:05Z"}})).await;
    }

    pub async fn set_status(&self, name: &EngineName, phase: &str, state: &Value) {
        let status = json!({"status": {"phase": phase, "podIP": "127.0.0.2", "podIPs": [{"ip": "127.0.0.2"}],
            "containerStatuses": [{"name": "engine-agent", "state": state, "image": "i", "imageID": "i",
                "ready": phase == "Running", "restartCount": 0}]}});
        let merge = Patch::Merge(&status);
        self.pods().patch_status(name.as_str(), &PatchParams::default(), &merge).await.unwrap();
    }

    /// Confirms the end of a pod, as the kubelet does.
    pub async fn confirm_end(&self, name: &EngineName) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods().delete(name.as_str(), &now).await.unwrap();
    }
}

impl TestNamespace {
    /// A user with exactly these permissions.
    pub async fn user_with(&self, permissions: &[Permission]) -> kube::Client {
        let user = format!("master-{}", self.namespace);
        let mut namespaces: Vec<Option<&String>> =
            permissions.iter().map(|permission| permission.namespace.as_ref()).collect();
        namespaces.sort();
        namespaces.dedup();
        for namespace in &namespaces {
            let namespace = *namespace;
            let rules: Vec<Value> = permissions
                .iter()
                .filter(|permission| permission.namespace.as_ref() == namespace)
                .map(|permission| json!({"apiGroups": [permission.group], "resources": [permission.resource], "verbs": [permission.verb]}))
                .collect();
            let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
            let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                "metadata": {"name": user}, "rules": rules});
            let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
                "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": user},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
            let parent = namespace.map_or_else(String::new, |name| format!("/namespaces/{name}"));
            for (resource, object) in [(kind, role), (&format!("{kind}Binding"), binding)] {
                let resource = format!("{}s", resource.to_lowercase());
                let path = format!("/apis/rbac.authorization.k8s.io/v1{parent}/{resource}");
                let request = http::Request::post(path).header("content-type", "application/json");
                let body = serde_json::to_vec(&object).unwrap();
                self.client.request::<Value>(request.body(body).unwrap()).await.unwrap();
            }
        }
        let mut config = admin().await;
        config.auth_info.impersonate = Some(user);
        let client = client_of(config).unwrap();
        for namespace in namespaces {
            let one = permissions.iter().find(|permission| permission.namespace.as_ref() == namespace).unwrap();
            tokio::time::timeout(Duration::from_mins(1), granted(&client, one)).await.expect("it is granted in time");
        }
        client
    }

    pub fn open_as(&self, client: kube::Client) -> Kubernetes {
        Kubernetes::open(client, self.config.clone(), pod_key(&self.config.cluster), SystemClock::shared()).unwrap()
    }
}
