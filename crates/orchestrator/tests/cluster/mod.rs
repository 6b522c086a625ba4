//! A simulated cluster: API server, scheduler and kubelet for tests of the client, behind a real `kube::Client`.
//!
//! It keeps the rules that the client relies on (versions, uids, preconditions, graceful deletion, watches from a version),
//! and faults can be injected. It proves nothing about Kubernetes; the scenarios use a real API server for that.

mod kubelet;
#[allow(dead_code, reason = "for tests of permissions, which the contract suite does not have")]
pub mod permissions;
mod reply;
mod request;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use model::clock::{Clock, ManualClock};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;

#[allow(unused_imports, reason = "for fault injection, which the contract suite does not use")]
pub use reply::status;
use reply::{Reply, error};
use request::Request;

/// The cluster. Clones share their state.
#[derive(Clone)]
pub struct Cluster {
    pub clock: Arc<ManualClock>,
    state: Arc<Mutex<State>>,
    version: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct State {
    /// By resource, namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    /// The events that watches replay: version, resource, event.
    history: Vec<(u64, String, Value)>,
    version: u64,
    uids: u64,
    calls: Vec<String>,
    faults: VecDeque<(String, Fault)>,
    denied: Vec<String>,
    /// No watch can start from a version below this one.
    compacted: u64,
    broken_watches: u64,
}

/// A fault of the next call that matches.
#[derive(Clone)]
pub enum Fault {
    /// Returns this status, without an effect.
    Status(Value),
    /// Has its effect, and returns this status.
    LostReply(Value),
    /// Never replies, without an effect.
    Silence,
}

impl Cluster {
    /// A cluster with two nodes and the namespaces `enginehouse` and `rp-1--t-1`, the latter with its service account.
    pub fn new() -> Self {
        let cluster = Self {
            clock: ManualClock::at(1_700_000_000_000),
            state: Arc::default(),
            version: Arc::new(watch::Sender::new(0)),
        };
        for node in ["node-1", "node-2"] {
            cluster.put(
                "nodes",
                "",
                json!({"metadata": {"name": node}, "spec": {}, "status": {
                "allocatable": {"cpu": "4", "memory": "16Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
            );
        }
        for namespace in ["enginehouse", "rp-1--t-1"] {
            cluster.put("namespaces", "", json!({"metadata": {"name": namespace}}));
        }
        cluster.put("serviceaccounts", "rp-1--t-1", json!({"metadata": {"name": "enginehouse-engine"}}));
        cluster
    }

    pub fn client(&self) -> kube::Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request| {
            let cluster = cluster.clone();
            async move { Ok::<_, std::io::Error>(cluster.serve(request).await) }
        });
        kube::Client::new(service, "default")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn now(&self) -> String {
        let text = model::clock::utc(self.clock.wall_ms());
        format!("{}Z", &text[..19])
    }

    /// Creates or replaces an object by hand.
    pub fn put(&self, resource: &str, namespace: &str, mut object: Value) {
        let mut state = self.lock();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let key = (resource.to_owned(), namespace.to_owned(), name);
        let kind = if state.objects.contains_key(&key) { "MODIFIED" } else { "ADDED" };
        if object["metadata"]["uid"].is_null() {
            state.uids += 1;
            object["metadata"]["uid"] = format!("uid-{}", state.uids).into();
        }
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        self.write(&mut state, key, object, kind);
    }

    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.lock().objects.get(&(resource.to_owned(), namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Changes an object by hand.
    pub fn change(&self, resource: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(resource, namespace, name).unwrap();
        change(&mut object);
        self.put(resource, namespace, object);
    }

    /// Removes an object by hand.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
        let mut state = self.lock();
        self.erase(&mut state, &(resource.to_owned(), namespace.to_owned(), name.to_owned()));
    }

    /// Names of all objects of a resource.
    pub fn names(&self, resource: &str) -> Vec<String> {
        self.lock().objects.keys().filter(|key| key.0 == resource).map(|key| key.2.clone()).collect()
    }

    /// Injects a fault into the next call whose line (`POST /api/v1/…`) begins with the given one.
    pub fn fail(&self, line: &str, fault: Fault) {
        self.lock().faults.push_back((line.to_owned(), fault));
    }

    /// Denies a permission: `create services`, `list pods in a-namespace`.
    pub fn deny(&self, permission: &str) {
        self.lock().denied.push(permission.to_owned());
    }

    /// The calls since the last call of this method, without watches and lists.
    pub fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().calls)
    }

    /// Drops the history, so that older watches have to list again, and cuts all watches.
    pub fn compact(&self) {
        {
            let mut state = self.lock();
            state.compacted = state.version + 1;
            state.broken_watches += 1;
        }
        self.version.send_modify(|version| *version += 1);
    }

    /// Moves the clock and kills the pods whose grace is over.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.kill_what_is_due();
    }

    /// Writes an object under the next version and notifies the watches.
    fn write(&self, state: &mut State, key: (String, String, String), mut object: Value, kind: &str) -> Value {
        state.version += 1;
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.history.push((state.version, key.0.clone(), json!({"type": kind, "object": object})));
        state.objects.insert(key, object.clone());
        self.version.send_replace(state.version);
        object
    }

    fn erase(&self, state: &mut State, key: &(String, String, String)) {
        if let Some(mut object) = state.objects.remove(key) {
            state.version += 1;
            object["metadata"]["resourceVersion"] = state.version.to_string().into();
            let event = json!({"type": "DELETED", "object": object});
            state.history.push((state.version, key.0.clone(), event));
            self.version.send_replace(state.version);
        }
    }

    async fn serve(&self, request: http::Request<kube::client::Body>) -> http::Response<reply::Body> {
        let request = Request::read(request).await;
        if request.is_watch() {
            return reply::watch(self.clone(), request);
        }
        let fault = {
            let mut state = self.lock();
            if !request.is_list() {
                state.calls.push(request.line());
            }
            let at = state.faults.iter().position(|(line, _)| request.line().starts_with(line.as_str()));
            at.and_then(|at| state.faults.remove(at)).map(|(_, fault)| fault)
        };
        match fault {
            Some(Fault::Status(status)) => reply::of(&Reply::failed(status)),
            Some(Fault::Silence) => std::future::pending().await,
            Some(Fault::LostReply(status)) => {
                drop(self.reply(&request));
                reply::of(&Reply::failed(status))
            }
            None => reply::of(&self.reply(&request)),
        }
    }

    fn reply(&self, request: &Request) -> Reply {
        let here = format!("{} in {}", request.permission(), request.namespace);
        if self.lock().denied.iter().any(|denied| *denied == request.permission() || *denied == here) {
            let words = format!("cannot {} in the namespace \"{}\"", request.permission(), request.namespace);
            return error(403, "Forbidden", &words);
        }
        match (request.method.as_str(), request.name.is_empty()) {
            ("GET", true) => self.list(request),
            ("GET", false) => match self.get(&request.resource, &request.namespace, &request.name) {
                Some(object) => Reply::done(object),
                None => request.not_found(),
            },
            ("POST", _) => self.create(request),
            ("PUT", _) => self.replace(request),
            ("PATCH", _) => self.patch(request),
            ("DELETE", _) => self.delete(request),
            other => error(405, "MethodNotAllowed", &format!("{other:?}")),
        }
    }

    fn list(&self, request: &Request) -> Reply {
        let state = self.lock();
        let items: Vec<&Value> = state
            .objects
            .iter()
            .filter(|(key, object)| key.0 == request.resource && request.selects(&key.1, object))
            .map(|(_, object)| object)
            .collect();
        Reply::done(json!({"kind": "List", "apiVersion": "v1", "items": items,
            "metadata": {"resourceVersion": state.version.to_string()}}))
    }

    fn create(&self, request: &Request) -> Reply {
        let mut object = request.body.clone();
        if let Some(status) = permissions::review(&self.lock().denied, request) {
            object["status"] = status;
            return Reply::done(object);
        }
        let mut state = self.lock();
        let there = |state: &State, resource: &str, namespace: &str, name: &str| {
            state.objects.contains_key(&(resource.to_owned(), namespace.to_owned(), name.to_owned()))
        };
        if !request.namespace.is_empty() && !there(&state, "namespaces", "", &request.namespace) {
            return error(404, "NotFound", &format!("namespaces \"{}\" not found", request.namespace));
        }
        let account = object["spec"]["serviceAccountName"].as_str().map(str::to_owned);
        if let Some(account) = account.filter(|name| !there(&state, "serviceaccounts", &request.namespace, name)) {
            let words = format!("error looking up service account: serviceaccount \"{account}\" not found");
            return error(403, "Forbidden", &words);
        }
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let key = (request.resource.clone(), request.namespace.clone(), name.clone());
        if state.objects.contains_key(&key) {
            return error(409, "AlreadyExists", &format!("{} \"{name}\" already exists", request.resource));
        }
        state.uids += 1;
        object["metadata"]["uid"] = format!("uid-{}", state.uids).into();
        object["metadata"]["creationTimestamp"] = self.now().into();
        if !request.namespace.is_empty() {
            object["metadata"]["namespace"] = request.namespace.clone().into();
        }
        let is_pod = request.resource == "pods";
        if is_pod {
            object["status"] = json!({"phase": "Pending"});
        }
        let answer = self.write(&mut state, key.clone(), object, "ADDED");
        if is_pod {
            self.run(&mut state, &key);
        }
        Reply::done(if request.is_of_metadata {
            let (kind, version) = ("PartialObjectMetadata", "meta.k8s.io/v1");
            json!({"kind": kind, "apiVersion": version, "metadata": answer["metadata"]})
        } else {
            answer
        })
    }

    fn replace(&self, request: &Request) -> Reply {
        let mut state = self.lock();
        let Some(known) = state.objects.get(&request.key()) else { return request.not_found() };
        if known["metadata"]["resourceVersion"] != request.body["metadata"]["resourceVersion"] {
            return error(409, "Conflict", "the object has been modified");
        }
        Reply::done(self.write(&mut state, request.key(), request.body.clone(), "MODIFIED"))
    }

    fn patch(&self, request: &Request) -> Reply {
        let mut state = self.lock();
        let Some(mut object) = state.objects.get(&request.key()).cloned() else { return request.not_found() };
        if request.body["metadata"]["uid"] != object["metadata"]["uid"] {
            return error(409, "Conflict", "the UID in the precondition does not match");
        }
        let gone = request.body["spec"]["schedulingGates"][0]["name"].clone();
        if let Some(gates) = object["spec"]["schedulingGates"].as_array_mut() {
            gates.retain(|gate| gate["name"] != gone);
        }
        let answer = self.write(&mut state, request.key(), object, "MODIFIED");
        self.run(&mut state, &request.key());
        Reply::done(answer)
    }
}
