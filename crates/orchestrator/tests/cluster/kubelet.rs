//! The scheduler and the kubelets: pods run at once, and end as their command line says.
//!
//! `/bin/engine obedient` ends when it is asked to, `/bin/engine stubborn` has to be killed, `/bin/engine fails` ends with
//! code 3 after two lines, and `/bin/engine waits` is never assigned a node.

use model::clock::Clock;
use serde_json::{Value, json};

use super::reply::{Reply, error};
use super::request::Request;
use super::{Cluster, State};

type Key = (String, String, String);

impl Cluster {
    /// Assigns the pod a node and starts it, unless a gate or its command prevents that.
    pub(super) fn run(&self, state: &mut State, key: &Key) {
        let Some(mut pod) = state.objects.get(key).cloned() else { return };
        let is_gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
        let program = pod["spec"]["containers"][0]["command"][1].as_str().unwrap_or_default().to_owned();
        if is_gated || program == "waits" || !pod["spec"]["nodeName"].is_null() {
            return;
        }
        let Some(node) = choose(state, &pod) else { return };
        pod["spec"]["nodeName"] = node.into();
        let now = self.now();
        let names: Vec<Value> =
            pod["spec"]["containers"].as_array().unwrap().iter().map(|container| container["name"].clone()).collect();
        let of = |run: Value| -> Vec<Value> {
            let one = |name: &Value| json!({"name": name, "state": run, "image": "i", "imageID": "", "ready": true, "restartCount": 0});
            names.iter().map(one).collect()
        };
        let running = of(json!({"running": {"startedAt": now}}));
        pod["status"] = json!({"phase": "Running", "podIP": "127.0.0.2", "containerStatuses": running});
        let pod = self.write(state, key.clone(), pod, "MODIFIED");
        if program == "fails" {
            let mut pod = pod;
            let ended = json!({"terminated": {"exitCode": 3, "reason": "Error", "startedAt": now, "finishedAt": now,
                "message": "a line\nwent wrong\n"}});
            pod["status"] = json!({"phase": "Failed", "podIP": "127.0.0.2", "containerStatuses": of(ended)});
            self.write(state, key.clone(), pod, "MODIFIED");
        }
    }

    /// Ends a pod from outside.
    pub fn kill(&self, namespace: &str, name: &str) {
        let now = self.now();
        self.change("pods", namespace, name, |pod| {
            pod["status"]["phase"] = "Failed".into();
            for status in pod["status"]["containerStatuses"].as_array_mut().unwrap() {
                let started = status["state"]["running"]["startedAt"].clone();
                status["state"] = json!({"terminated":
                    {"exitCode": 137, "reason": "Error", "startedAt": started, "finishedAt": now}});
            }
        });
    }

    /// Removes the pods whose grace is over.
    pub(super) fn kill_what_is_due(&self) {
        let mut state = self.lock();
        let now = self.clock.wall_ms();
        let is_due = |object: &Value| object["kubelet"]["deadline"].as_i64().is_some_and(|deadline| now >= deadline);
        let due: Vec<Key> =
            state.objects.iter().filter(|(_, object)| is_due(object)).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.erase(&mut state, &key);
        }
    }

    /// As the API server deletes: a pod without a node at once, others by the kubelet.
    pub(super) fn delete(&self, request: &Request) -> Reply {
        let mut state = self.lock();
        let key = request.key();
        let Some(mut object) = state.objects.get(&key).cloned() else { return request.not_found() };
        let wanted = &request.body["preconditions"]["uid"];
        if !wanted.is_null() && *wanted != object["metadata"]["uid"] {
            return error(409, "Conflict", "Precondition failed: UID in precondition does not match");
        }
        let ended = matches!(object["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
        let asked = request.body["gracePeriodSeconds"].as_i64().unwrap_or(30);
        let grace = if ended || object["spec"]["nodeName"].is_null() { 0 } else { asked };
        if grace == 0 {
            self.erase(&mut state, &key);
            object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            return Reply::done(object);
        }
        let first = object["kubelet"]["first"].as_i64();
        if first.is_some() && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap() <= grace {
            return Reply::done(object);
        }
        let first = first.unwrap_or_else(|| self.clock.wall_ms());
        let deadline = first + grace * 1_000;
        object["kubelet"] = json!({"first": first, "deadline": deadline});
        object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        object["metadata"]["deletionTimestamp"] = format!("{}Z", &model::clock::utc(deadline)[..19]).into();
        let answer = self.write(&mut state, key.clone(), object.clone(), "MODIFIED");
        let obeys = object["spec"]["containers"][0]["command"][1] != "stubborn";
        // A second is the time of a kill; no test waits for it.
        if obeys || asked <= 1 || self.clock.wall_ms() >= deadline {
            self.erase(&mut state, &key);
        }
        Reply::done(answer)
    }
}

/// The least loaded of the nodes that the pod's affinity allows.
fn choose(state: &State, pod: &Value) -> Option<String> {
    let terms =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let allowed = |node: &str| match terms.as_array() {
        None => true,
        Some(terms) => terms.iter().any(|term| term["matchFields"][0]["values"][0] == node),
    };
    let load = |node: &str| state.objects.values().filter(|object| object["spec"]["nodeName"] == node).count();
    let nodes = state.objects.keys().filter(|key| key.0 == "nodes").map(|key| key.2.as_str());
    nodes.filter(|node| allowed(node)).min_by_key(|node| load(node)).map(str::to_owned)
}
