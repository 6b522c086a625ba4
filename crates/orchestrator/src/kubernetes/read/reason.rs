//! The reason why an engine is not running, or why it ended, in plain English, followed by Kubernetes' own reason in
//! parentheses.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, Pod};
use model::engine_state::Phase;
use model::observation::MAX_REASON_BYTES;
use model::spark_start;
use model::text::cut;

use super::containers::{self, ContainerExit};
use super::warnings::Warning;
use super::{is_gated, node};
use crate::Exit;
use crate::observed::terminating_reason;

/// The reason of a scheduler's warning.
const UNSCHEDULABLE: &str = "FailedScheduling";
/// The kubelet's reason for an image that it could not pull or a container that it could not create or start. The
/// container's own state also reports all of these while they last.
const CONTAINER_FAILED: &str = "Failed";

/// `None` if the engine runs normally.
pub(super) fn describe(
    pod: &Pod,
    phase: Phase,
    exit: Option<&Exit>,
    container_exit: Option<&ContainerExit>,
    warnings: &[Warning],
) -> Option<String> {
    let reason = match phase {
        Phase::Pending => Some(pending(pod, warnings)),
        Phase::Starting => Some(starting(pod, warnings)),
        Phase::Running => running(pod, container_exit),
        Phase::Terminating => Some(terminating(pod)),
        Phase::Ended => Some(ended(pod, exit, container_exit)),
    };
    reason.map(|reason| cut(&reason, MAX_REASON_BYTES).to_owned())
}

fn pending(pod: &Pod, warnings: &[Warning]) -> String {
    if is_gated(pod) {
        return "its other objects are being created".to_owned();
    }
    let Some(node) = node(pod) else {
        return match condition(pod, "PodScheduled").filter(|(status, ..)| *status == "False") {
            Some((_, _, message)) if !message.is_empty() => format!("no node can run it: {message}"),
            _ => match newest(warnings, UNSCHEDULABLE) {
                Some(warning) => format!("no node can run it: {}", warning.message),
                None => "waiting for a node".to_owned(),
            },
        };
    };
    waiting(pod, warnings).unwrap_or_else(|| format!("node {node} has not accepted it yet"))
}

fn starting(pod: &Pod, warnings: &[Warning]) -> String {
    waiting(pod, warnings).unwrap_or_else(|| "not all of its containers have started".to_owned())
}

/// What the first waiting container waits for. A state that does not resolve itself takes precedence.
fn waiting(pod: &Pod, warnings: &[Warning]) -> Option<String> {
    let statuses = containers::statuses(pod);
    let waits = |status: &&ContainerStatus| Some(status.state.as_ref()?.waiting.as_ref()?.clone());
    let all: Vec<_> = statuses.iter().filter_map(|status| Some((*status, waits(status)?))).collect();
    let stuck = all.iter().find_map(|(status, waiting)| stuck(status, waiting));
    if stuck.is_some() {
        return stuck;
    }
    let (status, waiting) = all.first()?;
    let state = waiting.reason.as_deref().unwrap_or("Waiting");
    // Containers wait for their volumes, whose failures only appear as warnings. A scheduling failure is over by now, and so
    // is a failure that the container's state would report.
    let is_over = |reason: &str| reason == UNSCHEDULABLE || reason == CONTAINER_FAILED;
    let of_kubelet = |warning: &&Warning| warning.reason.starts_with("Failed") && !is_over(&warning.reason);
    let warned = warnings.iter().filter(of_kubelet).max_by_key(|warning| warning.last_ms);
    Some(match (warned, waiting.message.as_deref().filter(|message| !message.is_empty())) {
        (Some(warning), _) => format!("could not create its containers yet: {} ({})", warning.message, warning.reason),
        (None, Some(message)) => format!("container {} is being created: {message} ({state})", status.name),
        (None, None) => "its containers are being created".to_owned(),
    })
}

fn stuck(status: &ContainerStatus, waiting: &ContainerStateWaiting) -> Option<String> {
    let state = waiting.reason.as_deref()?;
    let message = waiting.message.as_deref().filter(|message| !message.is_empty());
    let message = message.map(|message| format!(": {message}")).unwrap_or_default();
    match state {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => Some(format!("could not pull image \"{}\"{message} ({state})", status.image)),
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "PreCreateHookError"
        | "PreStartHookError"
        | "PostStartHookError" => Some(format!("could not start container {}{message} ({state})", status.name)),
        "CrashLoopBackOff" => Some(format!("container {} ends repeatedly{message} ({state})", status.name)),
        _ => None,
    }
}

fn running(pod: &Pod, container_exit: Option<&ContainerExit>) -> Option<String> {
    let status = pod.status.as_ref()?;
    if let Some(ended) = container_exit {
        return Some(format!("container {} has ended: {}", ended.container, ended.exit().describe()));
    }
    if let Some((_, reason, message)) = condition(pod, "DisruptionTarget").filter(|(status, ..)| *status == "True") {
        return Some(format!("about to be evicted: {message} ({reason})"));
    }
    let silent = status.phase.as_deref() == Some("Unknown") || status.reason.as_deref() == Some("NodeLost");
    silent.then(|| format!("node {} does not respond", node(pod).unwrap_or("unknown")))
}

fn terminating(pod: &Pod) -> String {
    let grace_s = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    terminating_reason(Duration::from_secs(grace_s.max(0).unsigned_abs()))
}

fn ended(pod: &Pod, exit: Option<&Exit>, container_exit: Option<&ContainerExit>) -> String {
    let how = exit.map_or_else(|| "ended".to_owned(), Exit::describe);
    let status = pod.status.as_ref();
    // The pod's own reason comes from the kubelet or the scheduler: evicted, out of CPU, node shut down.
    if let Some(reason) = status.and_then(|status| status.reason.as_deref()).filter(|reason| !reason.is_empty()) {
        let message = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
        return match reason {
            "Evicted" | "Preempting" => format!("evicted: {message} ({reason})"),
            "Terminated" | "NodeShutdown" | "Shutdown" => format!("its node was shut down: {message} ({reason})"),
            _ => format!("its node rejected or lost it: {message} ({reason})"),
        };
    }
    if let Some((_, reason, message)) = condition(pod, "DisruptionTarget").filter(|(status, ..)| *status == "True") {
        return format!("evicted: {message} ({reason}); {how}");
    }
    let Some(ended) = container_exit else { return how };
    let is_agent = ended.container == super::names::AGENT;
    let how = if is_agent { how } else { format!("container {}: {how}", ended.container) };
    match (ended.reason.as_str(), &ended.last_words) {
        ("OOMKilled", _) => format!("{how}: out of memory; it used more than its unit allows (OOMKilled)"),
        ("ContainerCannotRun" | "StartError", _) => {
            format!("could not run container {}: {} ({})", ended.container, ended.log.trim(), ended.reason)
        }
        (_, Some(last_words)) if ended.code == Some(0) => last_words.clone(),
        (_, Some(last_words)) => format!("{last_words} ({how})"),
        _ if ended.container == super::names::SPARK => how + &cause_of_spark(ended),
        _ => how,
    }
}

/// What the log of Spark names as the cause of its end, and what removes it, as far as they are known.
fn cause_of_spark(ended: &ContainerExit) -> String {
    let cause = spark_start::cause(&ended.log).map(|cause| format!(": {cause}"));
    let hopeless = spark_start::hopeless(ended.code, ended.signal, &ended.log);
    let remedy = hopeless.map(|hopeless| format!("; {}", hopeless.remedy));
    cause.unwrap_or_default() + &remedy.unwrap_or_default()
}

/// Status, reason and message of a condition.
pub(super) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
    Some((found.status.as_str(), text(&found.reason), text(&found.message)))
}

fn newest<'a>(warnings: &'a [Warning], reason: &str) -> Option<&'a Warning> {
    warnings.iter().filter(|warning| warning.reason == reason).max_by_key(|warning| warning.last_ms)
}
