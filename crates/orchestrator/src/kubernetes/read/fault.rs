//! What prevents a pod's engine from running, from the facts that Kubernetes states: reasons of container states, of the pod and
//! of its conditions, and exit codes.
//!
//! Two distinctions are in no field. Why an image could not be pulled: the kubelet passes on the runtime's error, whose code and
//! whose words of the registry's reply are compared. And why Spark did not start: the end of its log says that, of which a
//! container's status has 2 KiB. What is not recognized counts as retryable.

use k8s_openapi::api::core::v1::Pod;
use model::end::StartFault;
use model::engine_state::Phase;
use model::spark_start;

use super::containers::{self, ContainerExit};
use super::names::SPARK;
use super::reason::condition;
use super::{is_gated, node};
use crate::Exit;

/// The kubelet's reason for a container that exceeded its memory.
const OOM_KILLED: &str = "OOMKilled";

/// What a registry, or the container runtime, replies for an image that a repeated pull does not obtain.
const REFUSALS: [&str; 8] = [
    "code = NotFound",
    "code = Unauthenticated",
    "code = PermissionDenied",
    "code = InvalidArgument",
    "manifest unknown",
    "pull access denied",
    "401 Unauthorized",
    "403 Forbidden",
];

pub(super) fn of(
    pod: &Pod,
    phase: Phase,
    exit: Option<&Exit>,
    container_exit: Option<&ContainerExit>,
) -> Option<StartFault> {
    match phase {
        Phase::Pending if is_gated(pod) => None,
        Phase::Pending if node(pod).is_none() => is_unschedulable(pod).then_some(StartFault::Unschedulable),
        Phase::Pending | Phase::Starting => waiting(pod),
        Phase::Running => None,
        Phase::Terminating => is_disrupted(pod).then_some(StartFault::Evicted),
        Phase::Ended => ended(pod, exit, container_exit),
    }
}

fn is_unschedulable(pod: &Pod) -> bool {
    condition(pod, "PodScheduled").is_some_and(|(status, ..)| status == "False")
}

fn is_disrupted(pod: &Pod) -> bool {
    condition(pod, "DisruptionTarget").is_some_and(|(status, ..)| status == "True")
}

/// Of the first waiting container with a fault.
fn waiting(pod: &Pod) -> Option<StartFault> {
    let states = containers::statuses(pod).into_iter().filter_map(|status| status.state.as_ref()?.waiting.as_ref());
    let fault = |reason: &str, message: &str| match reason {
        "InvalidImageName" | "ErrImageNeverPull" | "SignatureValidationFailed" => Some(StartFault::Image),
        "ErrImagePull" | "ImagePullBackOff" if REFUSALS.iter().any(|refusal| message.contains(refusal)) => {
            Some(StartFault::Image)
        }
        "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" | "ImageInspectError" => Some(StartFault::Registry),
        "CreateContainerConfigError" => Some(StartFault::Configuration),
        _ => None,
    };
    let of_state = |state: &k8s_openapi::api::core::v1::ContainerStateWaiting| {
        fault(state.reason.as_deref().unwrap_or_default(), state.message.as_deref().unwrap_or_default())
    };
    states.into_iter().find_map(of_state)
}

fn ended(pod: &Pod, exit: Option<&Exit>, container_exit: Option<&ContainerExit>) -> Option<StartFault> {
    // The pod's own reason comes from the kubelet or the scheduler, and precedes those of its containers.
    let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref()).unwrap_or_default();
    if !reason.is_empty() || is_disrupted(pod) {
        return Some(StartFault::Evicted);
    }
    match container_exit.map(|ended| ended.reason.as_str()) {
        Some(OOM_KILLED) => Some(StartFault::OutOfMemory),
        // Its program does not exist or cannot be run.
        Some("ContainerCannotRun" | "StartError") => Some(StartFault::Configuration),
        _ => of_spark(container_exit).or_else(|| exit.and_then(Exit::fault)),
    }
}

/// The cause of Spark's end, if it is one of those that a repetition does not remove.
fn of_spark(exit: Option<&ContainerExit>) -> Option<StartFault> {
    let spark = exit.filter(|ended| ended.container == SPARK)?;
    spark_start::hopeless(spark.code, spark.signal, &spark.log).map(|hopeless| hopeless.fault)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The fault of a pod with these fields of its status, and a node unless the status says otherwise.
    fn fault(mut status: Value, phase: Phase) -> Option<StartFault> {
        let node = status.as_object_mut().and_then(|status| status.remove("node")).unwrap_or_else(|| json!("n-1"));
        let pod = json!({"spec": {"nodeName": node, "containers": [{"name": "agent"}]}, "status": status});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let container = containers::deciding_exit(&pod);
        let exit = (phase == Phase::Ended).then(|| super::super::exit(&pod, container.as_ref()));
        of(&pod, phase, exit.as_ref(), container.as_ref())
    }

    fn waits(reason: &str, message: &str) -> Option<StartFault> {
        let waiting = json!({"reason": reason, "message": message});
        let container = json!({"name": "agent", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": waiting}});
        fault(json!({"phase": "Pending", "containerStatuses": [container]}), Phase::Pending)
    }

    fn exits(terminated: &Value) -> Option<StartFault> {
        let container = json!({"name": "agent", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated}});
        fault(json!({"phase": "Failed", "containerStatuses": [container]}), Phase::Ended)
    }

    #[test]
    fn an_image_is_missing_or_its_registry_is_not_available() {
        // Messages of kubelets with containerd 1.7 and 2, and CRI-O.
        for (reason, message, expected) in [
            (
                "ErrImagePull",
                "rpc error: code = NotFound desc = failed to pull and unpack image \"docker.io/x/y:1\": failed to resolve \
                 reference \"docker.io/x/y:1\": docker.io/x/y:1: not found",
                StartFault::Image,
            ),
            (
                "ImagePullBackOff",
                "Back-off pulling image \"x:9\": ErrImagePull: rpc error: code = NotFound desc = failed to pull: not found",
                StartFault::Image,
            ),
            (
                "ErrImagePull",
                "failed to pull and unpack image \"r/x:1\": failed to resolve reference \"r/x:1\": pull access denied, \
                 repository does not exist or may require authorization: server message: insufficient_scope: \
                 authorization failed",
                StartFault::Image,
            ),
            (
                "ErrImagePull",
                "failed to authorize: failed to fetch anonymous token: unexpected status from GET request to \
                 https://r/token: 401 Unauthorized",
                StartFault::Image,
            ),
            ("ErrImagePull", "reading manifest 9 in r/x: manifest unknown", StartFault::Image),
            (
                "ErrImagePull",
                "unexpected status from HEAD request to https://r/v2/x/manifests/1: 503 Service Unavailable",
                StartFault::Registry,
            ),
            ("ErrImagePull", "429 Too Many Requests - Server message: toomanyrequests", StartFault::Registry),
            ("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout", StartFault::Registry),
            ("ImagePullBackOff", "Back-off pulling image \"x:9\"", StartFault::Registry),
            ("RegistryUnavailable", "", StartFault::Registry),
            ("InvalidImageName", "couldn't parse image name \"A B\"", StartFault::Image),
            ("ErrImageNeverPull", "", StartFault::Image),
        ] {
            assert_eq!(waits(reason, message), Some(expected), "{reason}: {message}");
        }
    }

    #[test]
    fn what_a_pod_names_must_exist() {
        assert_eq!(waits("CreateContainerConfigError", "secret \"tls\" not found"), Some(StartFault::Configuration));
        assert_eq!(waits("ContainerCreating", ""), None);
        assert_eq!(waits("PodInitializing", "code = NotFound"), None, "a message without a failed state says nothing");
    }

    #[test]
    fn a_pod_without_a_node_is_unschedulable_once_the_scheduler_says_so() {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"});
        let unscheduled = json!({"node": null, "phase": "Pending", "conditions": [condition]});
        assert_eq!(fault(unscheduled, Phase::Pending), Some(StartFault::Unschedulable));
        assert_eq!(fault(json!({"node": null, "phase": "Pending"}), Phase::Pending), None);
    }

    #[test]
    fn the_end_of_a_pod_is_classified_by_its_node_its_container_or_its_code() {
        for reason in ["Evicted", "Preempting", "NodeShutdown", "Terminated", "OutOfcpu", "NodeAffinity"] {
            let status = json!({"phase": "Failed", "reason": reason, "message": "m"});
            assert_eq!(fault(status, Phase::Ended), Some(StartFault::Evicted), "{reason}");
        }
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"});
        let evicted = json!({"phase": "Failed", "conditions": [condition.clone()]});
        assert_eq!(fault(evicted, Phase::Ended), Some(StartFault::Evicted));
        let deleted = json!({"phase": "Running", "conditions": [condition]});
        assert_eq!(fault(deleted, Phase::Terminating), Some(StartFault::Evicted));
        for (terminated, expected) in [
            (json!({"exitCode": 137, "reason": "OOMKilled"}), Some(StartFault::OutOfMemory)),
            (json!({"exitCode": 137, "reason": "Error"}), Some(StartFault::Killed)),
            (json!({"exitCode": 143, "reason": "Error"}), Some(StartFault::Killed)),
            (
                json!({"exitCode": 128, "reason": "StartError", "message": "exec: \"x\": not found"}),
                Some(StartFault::Configuration),
            ),
            (json!({"exitCode": 78, "reason": "Error"}), Some(StartFault::Configuration)),
            (json!({"exitCode": 1, "reason": "Error"}), Some(StartFault::Exited)),
            (json!({"exitCode": 0, "reason": "Completed"}), None),
        ] {
            assert_eq!(exits(&terminated), expected, "{terminated}");
        }
    }

    #[test]
    fn only_sparks_container_is_judged_by_the_end_of_its_log() {
        let fault_of = |container: &str, code: i32, log: &str| {
            let state = json!({"terminated": {"exitCode": code, "reason": "Error", "message": log}});
            let status = json!({"name": container, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": state});
            let pod = json!({"spec": {"nodeName": "n-1", "containers": [{"name": container}]},
                "status": {"phase": "Failed", "containerStatuses": [status]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let ended = containers::deciding_exit(&pod);
            let exit = super::super::exit(&pod, ended.as_ref());
            of(&pod, Phase::Ended, Some(&exit), ended.as_ref())
        };
        let unknown_class = "\tat a.b(C)\nCaused by: java.lang.ClassNotFoundException: no.such.X\n\t... 20 more\n";
        let in_use = "\tat a.b(C)\nCaused by: java.net.BindException: Address already in use\n\t... 23 more\n";
        for (container, code, log, expected) in [
            (SPARK, 1, unknown_class, StartFault::Configuration),
            (SPARK, 52, "", StartFault::OutOfMemory),
            (SPARK, 1, in_use, StartFault::Exited),
            (SPARK, 1, "", StartFault::Exited),
            (SPARK, 143, unknown_class, StartFault::Killed),
            (SPARK, 137, unknown_class, StartFault::Killed),
            ("engine-agent", 1, unknown_class, StartFault::Exited),
        ] {
            assert_eq!(fault_of(container, code, log), Some(expected), "{container} {code} {log}");
        }
    }
}
