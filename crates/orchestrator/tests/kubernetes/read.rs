//! The classification of pods: every state that a kubelet, a scheduler or an administrator can leave one in, in one golden
//! file.

use std::fmt::Write as _;

use orchestrator::kubernetes::read::{self, Classified, EnginePod, NEVER_COMPLETED, Warning};
use orchestrator::kubernetes::signature::SIGNATURE_ANNOTATION;
use serde_json::{Value, json};

use super::golden;
use super::support::signer;

/// The end of Spark's log.
const UNKNOWN_CLASS: &str = "\tat a.b(C)\nCaused by: java.lang.ClassNotFoundException: no.such.Listener\n\t... 20 more\n26/01/01 \
                             00:00:59 INFO ShutdownHookManager: Shutdown hook called\n";
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
        ("just created", pod(json!({}))),
        ("behind its gate", pod(json!({"spec": {"schedulingGates": [{"name": "enginehouse.io/incomplete"}]}}))),
        (
            "no node can run it",
            pod(json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."}]}})),
        ),
        ("has a node", pod(json!({"spec": {"nodeName": "node-1"}}))),
        (
            "containers are being created",
            on_node("Pending", containers(waiting("ContainerCreating", ""), waiting("ContainerCreating", ""))),
        ),
        (
            "its image cannot be pulled",
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
            "Spark has ended for good, the agent runs",
            on_node("Running", containers(running(), ended(1, "Error", UNKNOWN_CLASS))),
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
        ("its node does not respond", on_node("Unknown", containers(running(), running()))),
        (
            "terminating",
            pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:30:00Z",
            "deletionGracePeriodSeconds": 60}, "spec": {"nodeName": "node-1"},
            "status": {"phase": "Running", "containerStatuses": containers(running(), running())}})),
        ),
        (
            "terminating and ended",
            pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:30:00Z",
            "deletionGracePeriodSeconds": 60}, "status": {"phase": "Succeeded",
            "containerStatuses": containers(ended(0, "Completed", ""), ended(0, "Completed", ""))}})),
        ),
        (
            "ended with code 0 and last words",
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
            "the agent failed without last words",
            on_node("Failed", containers(ended(3, "Error", "a line\nwent wrong\n"), ended(0, "Completed", ""))),
        ),
        (
            "Spark failed and the agent ended with code 0",
            on_node(
                "Failed",
                containers(ended(0, "Completed", ""), ended(1, "Error", "Exception in thread \"main\"\n")),
            ),
        ),
        (
            "Spark ran out of memory and the agent noticed",
            on_node(
                "Failed",
                containers(
                    ended(1, "Error", "enginehouse: the engine ended: Spark accepts no connections any longer\n"),
                    ended(137, "OOMKilled", ""),
                ),
            ),
        ),
        ("out of memory", on_node("Failed", containers(ended(0, "Completed", ""), ended(137, "OOMKilled", "")))),
        ("killed", on_node("Failed", containers(ended(137, "Error", ""), ended(137, "Error", "")))),
        (
            "cannot be run",
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
        ("rejected by its kubelet", pod(gone("OutOfcpu", "Node didn't have enough resource: cpu"))),
        ("not signed", pod(json!({"metadata": {"annotations": {SIGNATURE_ANNOTATION: null}}}))),
        ("signed for another namespace", pod(json!({"metadata": {"namespace": "rp-1--t-2"}}))),
        ("without status", pod(json!({"status": null}))),
    ]
}

fn read_with(value: &Value, warnings: &[Warning]) -> Classified {
    // A null removes the annotation.
    let mut value = value.clone();
    if let Some(annotations) = value["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|_, value| !value.is_null());
    }
    read::classify(&serde_json::from_value(value).unwrap(), warnings, &signer())
}

fn engine(value: &Value) -> EnginePod {
    match read_with(value, &[]) {
        Classified::Engine(engine) => *engine,
        other => panic!("{other:?}"),
    }
}

fn describe(found: &Classified) -> String {
    let engine = match found {
        Classified::Engine(engine) => engine,
        other => return format!("  {other:?}\n"),
    };
    let observed = &engine.observed;
    let mut text = format!("  phase   {}\n", observed.phase);
    let mut line = |head: &str, words: Option<String>| {
        if let Some(words) = words {
            writeln!(text, "  {head:<7} {words}").unwrap();
        }
    };
    line("reason", observed.reason.clone());
    line("node", observed.node.clone());
    line(
        "exit",
        observed.exit.as_ref().map(|exit| format!("{} at {}", exit.describe(), model::clock::utc(exit.ended_at_ms))),
    );
    line("log", observed.log_tail.as_ref().map(|log| format!("{log:?}")));
    line("started", observed.started_at_ms.map(model::clock::utc));
    for (key, value) in observed.details.iter() {
        line("detail", Some(format!("{key}: {value}")));
    }
    text
}

#[test]
fn every_state_of_a_pod_has_a_phase_and_a_reason() {
    let one = |(name, pod): &(&str, Value)| format!("{name}\n{}\n", describe(&read_with(pod, &[])));
    let text = cases().iter().map(one).collect::<Vec<_>>().concat();
    golden::text("read.txt", &text);
}

#[test]
fn a_warning_explains_a_waiting_container() {
    let creating = || waiting("ContainerCreating", "");
    let pod = on_node("Pending", containers(creating(), creating()));
    let warning = Warning {
        reason: "FailedMount".to_owned(),
        message: "MountVolume.SetUp failed: configmap \"x\" not found".to_owned(),
        count: 4,
        last_ms: 1_767_225_600_000,
    };
    let Classified::Engine(engine) = read_with(&pod, &[warning]) else { panic!("no engine") };
    let reason = engine.observed.reason.clone().unwrap();
    assert!(reason.contains("configmap \"x\" not found") && reason.ends_with("(FailedMount)"), "{reason}");
    assert!(engine.observed.details["warning 1"].starts_with("FailedMount, 4 times"), "{:?}", engine.observed.details);
}

#[test]
fn a_failed_pull_is_no_reason_once_the_image_is_pulled() {
    let pod = on_node("Pending", containers(waiting("ContainerCreating", ""), waiting("ContainerCreating", "")));
    let warning = Warning {
        reason: "Failed".to_owned(),
        message: "Failed to pull image \"eh:2\": not found".to_owned(),
        count: 1,
        last_ms: 1_767_225_600_000,
    };
    let Classified::Engine(engine) = read_with(&pod, &[warning]) else { panic!("no engine") };
    assert_eq!(engine.observed.reason.as_deref(), Some("its containers are being created"));
}

#[test]
fn a_scheduling_failure_is_no_reason_once_the_pod_has_a_node() {
    let warning = Warning {
        reason: "FailedScheduling".to_owned(),
        message: "0/3 nodes are available: 3 Insufficient cpu.".to_owned(),
        count: 2,
        last_ms: 1_767_225_600_000,
    };
    let reason = |pod: &Value| match read_with(pod, std::slice::from_ref(&warning)) {
        Classified::Engine(engine) => engine.observed.reason.clone().unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(&pod(json!({}))), "no node can run it: 0/3 nodes are available: 3 Insufficient cpu.");
    let creating = || waiting("ContainerCreating", "");
    assert_eq!(reason(&on_node("Pending", containers(creating(), creating()))), "its containers are being created");
}

#[test]
fn a_pod_that_is_gated_for_too_long_is_listed_as_ended() {
    let engine = engine(&pod(json!({"spec": {"schedulingGates": [{"name": "enginehouse.io/incomplete"}]}})));
    assert!(engine.observed.incomplete);
    assert_eq!(engine.listed(None), engine.observed);
    let listed = engine.listed(Some(1_000));
    assert_eq!((listed.phase.as_str(), listed.incomplete), ("ended", false));
    assert_eq!((listed.reason.as_deref(), listed.exit.as_ref().unwrap().ended_at_ms), (Some(NEVER_COMPLETED), 1_000));
}

#[test]
fn neither_signature_nor_files_are_reported() {
    let with_file = pod(json!({"metadata": {"annotations": {"enginehouse.io/file-0": "a key"}}}));
    assert_eq!(engine(&with_file).observed.annotations.keys().collect::<Vec<_>>(), ["enginehouse.io/epoch"]);
}
