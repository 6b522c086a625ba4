//! What pods are read as: every state that a kubelet, a scheduler or somebody's hand can leave one in, in one golden text.

use std::fmt::Write as _;

use orchestrator::kubernetes::read::{self, Found, NEVER_COMPLETED, Seen, Warning};
use orchestrator::kubernetes::signature::SIGNATURE_ANNOTATION;
use serde_json::{Value, json};

use super::golden;
use super::place::signer;

const NAME: &str = "t-1-rp-1-uc-1-0-3-abcdef";

/// A signed pod with two containers, changed by a merge.
fn pod(change: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": NAME, "namespace": "rp-1--t-1", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"name": NAME}, "annotations": {
                SIGNATURE_ANNOTATION: signer().sign("rp-1--t-1", NAME), "enginehouse.io/epoch": "7"}},
        "spec": {"containers": [{"name": "engine-agent"}, {"name": "spark"}]},
        "status": {"phase": "Pending"},
    });
    merge(&mut pod, change);
    pod
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

fn containers(agent: Value, spark: Value) -> Value {
    let status = |name: &str, state: Value| {
        json!({"name": name, "state": state, "image": format!("registry.example/{name}:1"),
        "imageID": "", "ready": false, "restartCount": 0})
    };
    json!([status("engine-agent", agent), status("spark", spark)])
}

fn running() -> Value {
    json!({"running": {"startedAt": "2026-01-01T00:00:05Z"}})
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": message}})
}

fn ended(code: i32, reason: &str, message: &str) -> Value {
    json!({"terminated": {"exitCode": code, "reason": reason, "message": message,
        "startedAt": "2026-01-01T00:00:05Z", "finishedAt": "2026-01-01T00:01:00Z"}})
}

/// On a node, in that phase, with these containers.
#[allow(clippy::needless_pass_by_value, reason = "the cases read better")]
fn on_node(phase: &str, containers: Value) -> Value {
    pod(json!({"spec": {"nodeName": "node-1"}, "status": {"phase": phase, "containerStatuses": containers}}))
}

fn cases() -> Vec<(&'static str, Value)> {
    let gone = |word: &str, message: &str| {
        json!({"spec": {"nodeName": "node-1"}, "status": {"phase": "Failed", "reason": word, "message": message,
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:02:00Z"}]}})
    };
    vec![
        ("just made", pod(json!({}))),
        ("behind its gate", pod(json!({"spec": {"schedulingGates": [{"name": "enginehouse.io/incomplete"}]}}))),
        (
            "no node takes it",
            pod(json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."}]}})),
        ),
        ("has a node", pod(json!({"spec": {"nodeName": "node-1"}}))),
        (
            "containers are being made",
            on_node("Pending", containers(waiting("ContainerCreating", ""), waiting("ContainerCreating", ""))),
        ),
        (
            "its image can't be pulled",
            on_node(
                "Pending",
                containers(
                    waiting("ContainerCreating", ""),
                    waiting("ImagePullBackOff", "Back-off pulling image \"x\""),
                ),
            ),
        ),
        (
            "its configuration is missing",
            on_node(
                "Pending",
                containers(
                    waiting("CreateContainerConfigError", "configmap \"x\" not found"),
                    waiting("ContainerCreating", ""),
                ),
            ),
        ),
        ("one of two runs", on_node("Pending", containers(running(), waiting("ContainerCreating", "")))),
        ("both run", on_node("Running", containers(running(), running()))),
        (
            "Spark has ended, the agent runs",
            on_node("Running", containers(running(), ended(1, "Error", "no memory\n"))),
        ),
        (
            "the agent has ended, Spark runs",
            on_node("Running", containers(ended(0, "Completed", "enginehouse: it was drained\n"), running())),
        ),
        (
            "about to be evicted",
            pod(json!({"spec": {"nodeName": "node-1"}, "status": {"phase": "Running",
            "containerStatuses": containers(running(), running()), "conditions": [{"type": "DisruptionTarget",
            "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}]}})),
        ),
        ("its node is silent", on_node("Unknown", containers(running(), running()))),
        (
            "told to end",
            pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:30:00Z",
            "deletionGracePeriodSeconds": 60}, "spec": {"nodeName": "node-1"},
            "status": {"phase": "Running", "containerStatuses": containers(running(), running())}})),
        ),
        (
            "told to end and ended",
            pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:30:00Z",
            "deletionGracePeriodSeconds": 60}, "status": {"phase": "Succeeded",
            "containerStatuses": containers(ended(0, "Completed", ""), ended(0, "Completed", ""))}})),
        ),
        (
            "ended well, with last words",
            on_node(
                "Succeeded",
                containers(ended(0, "Completed", "enginehouse: it was drained\nlast line"), ended(0, "Completed", "")),
            ),
        ),
        (
            "the agent failed, with last words",
            on_node(
                "Failed",
                containers(
                    ended(3, "Error", "enginehouse: the warm-up query failed\nline 1\nline 2\n"),
                    ended(143, "Error", ""),
                ),
            ),
        ),
        (
            "the agent failed without a word",
            on_node("Failed", containers(ended(3, "Error", "a line\nwent wrong\n"), ended(0, "Completed", ""))),
        ),
        (
            "Spark failed and the agent ended well",
            on_node(
                "Failed",
                containers(ended(0, "Completed", ""), ended(1, "Error", "Exception in thread \"main\"\n")),
            ),
        ),
        (
            "Spark needed too much memory and the agent noticed",
            on_node(
                "Failed",
                containers(
                    ended(1, "Error", "enginehouse: the engine ended: Spark accepts no connections any longer\n"),
                    ended(137, "OOMKilled", ""),
                ),
            ),
        ),
        ("too much memory", on_node("Failed", containers(ended(0, "Completed", ""), ended(137, "OOMKilled", "")))),
        ("killed", on_node("Failed", containers(ended(137, "Error", ""), ended(137, "Error", "")))),
        (
            "can't be run",
            on_node(
                "Failed",
                containers(ended(128, "StartError", "exec: \"/bin/x\": no such file\n"), ended(0, "Completed", "")),
            ),
        ),
        ("evicted by its kubelet", pod(gone("Evicted", "The node was low on resource: memory."))),
        (
            "its node was shut down",
            pod(gone("Terminated", "Pod was terminated in response to imminent node shutdown.")),
        ),
        ("refused by its kubelet", pod(gone("OutOfcpu", "Node didn't have enough resource: cpu"))),
        ("not signed", pod(json!({"metadata": {"annotations": {SIGNATURE_ANNOTATION: null}}}))),
        ("signed for another namespace", pod(json!({"metadata": {"namespace": "rp-1--t-2"}}))),
        ("without status", pod(json!({"status": null}))),
    ]
}

fn read_with(value: &Value, warnings: &[Warning]) -> Found {
    // A null in an annotation is none.
    let mut value = value.clone();
    if let Some(annotations) = value["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|_, value| !value.is_null());
    }
    read::pod(&serde_json::from_value(value).unwrap(), warnings, &signer())
}

fn seen(value: &Value) -> Seen {
    match read_with(value, &[]) {
        Found::Engine(seen) => *seen,
        other => panic!("{other:?}"),
    }
}

fn describe(found: &Found) -> String {
    let seen = match found {
        Found::Engine(seen) => seen,
        other => return format!("  {other:?}\n"),
    };
    let it = &seen.observed;
    let mut text = format!("  phase   {}\n", it.phase);
    let mut line = |head: &str, words: Option<String>| {
        if let Some(words) = words {
            writeln!(text, "  {head:<7} {words}").unwrap();
        }
    };
    line("reason", it.reason.clone());
    line("node", it.node.clone());
    line(
        "exit",
        it.exit.as_ref().map(|exit| format!("{} at {}", exit.describe(), model::clock::utc(exit.ended_at_ms))),
    );
    line("log", it.log_tail.as_ref().map(|log| format!("{log:?}")));
    line("started", it.started_at_ms.map(model::clock::utc));
    for (key, value) in it.details.iter() {
        line("detail", Some(format!("{key}: {value}")));
    }
    text
}

#[test]
fn every_state_of_a_pod_has_a_phase_and_a_reason_in_plain_words() {
    let one = |(name, pod): &(&str, Value)| format!("{name}\n{}\n", describe(&read_with(pod, &[])));
    let text = cases().iter().map(one).collect::<Vec<_>>().concat();
    golden::text("reading.txt", &text);
}

#[test]
fn a_warning_says_what_a_waiting_container_does_not() {
    let creating = || waiting("ContainerCreating", "");
    let pod = on_node("Pending", containers(creating(), creating()));
    let warning = Warning {
        word: "FailedMount".to_owned(),
        message: "MountVolume.SetUp failed: configmap \"x\" not found".to_owned(),
        times: 4,
        last_ms: 1_767_225_600_000,
    };
    let Found::Engine(seen) = read_with(&pod, &[warning]) else { panic!("no engine") };
    let reason = seen.observed.reason.unwrap();
    assert!(reason.contains("configmap \"x\" not found") && reason.ends_with("(FailedMount)"), "{reason}");
    assert!(seen.observed.details["warning 1"].starts_with("FailedMount, 4 times"), "{:?}", seen.observed.details);
}

#[test]
fn an_image_that_could_not_be_pulled_is_no_reason_once_it_is_there() {
    let pod = on_node("Pending", containers(waiting("ContainerCreating", ""), waiting("ContainerCreating", "")));
    let warning = Warning {
        word: "Failed".to_owned(),
        message: "Failed to pull image \"eh:2\": not found".to_owned(),
        times: 1,
        last_ms: 1_767_225_600_000,
    };
    let Found::Engine(seen) = read_with(&pod, &[warning]) else { panic!("no engine") };
    assert_eq!(seen.observed.reason.as_deref(), Some("its containers are being made"));
}

#[test]
fn that_no_node_took_it_is_no_reason_once_it_has_one() {
    let warning = Warning {
        word: "FailedScheduling".to_owned(),
        message: "0/3 nodes are available: 3 Insufficient cpu.".to_owned(),
        times: 2,
        last_ms: 1_767_225_600_000,
    };
    let reason = |pod: &Value| match read_with(pod, std::slice::from_ref(&warning)) {
        Found::Engine(seen) => seen.observed.reason.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(&pod(json!({}))), "no node takes it: 0/3 nodes are available: 3 Insufficient cpu.");
    let creating = || waiting("ContainerCreating", "");
    assert_eq!(reason(&on_node("Pending", containers(creating(), creating()))), "its containers are being made");
}

#[test]
fn a_pod_is_told_as_ended_when_it_stood_behind_its_gate_for_too_long() {
    let seen = seen(&pod(json!({"spec": {"schedulingGates": [{"name": "enginehouse.io/incomplete"}]}})));
    assert!(seen.observed.incomplete);
    assert_eq!(seen.listed(None), seen.observed);
    let listed = seen.listed(Some(1_000));
    assert_eq!((listed.phase.as_str(), listed.incomplete), ("ended", false));
    assert_eq!((listed.reason.as_deref(), listed.exit.unwrap().ended_at_ms), (Some(NEVER_COMPLETED), 1_000));
}

#[test]
fn neither_signature_nor_files_are_among_the_annotations_that_are_told() {
    let with_file = pod(json!({"metadata": {"annotations": {"enginehouse.io/file-0": "a key"}}}));
    assert_eq!(seen(&with_file).observed.annotations.keys().collect::<Vec<_>>(), ["enginehouse.io/epoch"]);
}
