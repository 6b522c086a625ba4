//! Why an engine is not running, or why it ended, in plain words: Kubernetes' own word stands behind in brackets.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, Pod};
use model::engine_state::Phase;
use model::observation::{MAX_REASON_BYTES, cut};

use super::containers::{self, Ending};
use super::warnings::Warning;
use super::{is_gated, node};
use crate::Exit;
use crate::observed::has_to_end;

/// The word of a scheduler's warning.
const UNSCHEDULABLE: &str = "FailedScheduling";
/// The kubelet's word for an image that it could not pull and a container that it could not make or start, all of which the
/// container's own state says for as long as it is so.
const OF_CONTAINER: &str = "Failed";

/// The reason; `None` where everything is as it should be.
pub(super) fn of(
    pod: &Pod,
    phase: Phase,
    exit: Option<&Exit>,
    ending: Option<&Ending>,
    warnings: &[Warning],
) -> Option<String> {
    let reason = match phase {
        Phase::Pending => Some(pending(pod, warnings)),
        Phase::Starting => Some(starting(pod, warnings)),
        Phase::Running => running(pod, ending),
        Phase::Terminating => Some(terminating(pod)),
        Phase::Ended => Some(ended(pod, exit, ending)),
    };
    reason.map(|reason| cut(&reason, MAX_REASON_BYTES).to_owned())
}

fn pending(pod: &Pod, warnings: &[Warning]) -> String {
    if is_gated(pod) {
        return "its other objects are being made".to_owned();
    }
    let Some(node) = node(pod) else {
        return match condition(pod, "PodScheduled").filter(|(status, ..)| *status == "False") {
            Some((_, _, message)) if !message.is_empty() => format!("no node takes it: {message}"),
            _ => match newest(warnings, UNSCHEDULABLE) {
                Some(warning) => format!("no node takes it: {}", warning.message),
                None => "waits for a node".to_owned(),
            },
        };
    };
    waiting(pod, warnings).unwrap_or_else(|| format!("node {node} has not taken it up yet"))
}

fn starting(pod: &Pod, warnings: &[Warning]) -> String {
    waiting(pod, warnings).unwrap_or_else(|| "not all of its containers were started yet".to_owned())
}

/// What the first container that waits waits for; what can't be mended by waiting comes first.
fn waiting(pod: &Pod, warnings: &[Warning]) -> Option<String> {
    let statuses = containers::statuses(pod);
    let waits = |status: &&ContainerStatus| Some(status.state.as_ref()?.waiting.as_ref()?.clone());
    let all: Vec<_> = statuses.iter().filter_map(|status| Some((*status, waits(status)?))).collect();
    let stuck = all.iter().find_map(|(status, waiting)| stuck(status, waiting));
    if stuck.is_some() {
        return stuck;
    }
    let (status, waiting) = all.first()?;
    let word = waiting.reason.as_deref().unwrap_or("Waiting");
    // Nothing runs before its volumes are there, and only a warning tells of them. That no node took it is over by now, and so
    // is what the container's state would say.
    let is_over = |word: &str| word == UNSCHEDULABLE || word == OF_CONTAINER;
    let of_kubelet = |warning: &&Warning| warning.word.starts_with("Failed") && !is_over(&warning.word);
    let warned = warnings.iter().filter(of_kubelet).max_by_key(|it| it.last_ms);
    Some(match (warned, waiting.message.as_deref().filter(|message| !message.is_empty())) {
        (Some(warning), _) => format!("its containers can't be made yet: {} ({})", warning.message, warning.word),
        (None, Some(message)) => format!("container {} is being made: {message} ({word})", status.name),
        (None, None) => "its containers are being made".to_owned(),
    })
}

fn stuck(status: &ContainerStatus, waiting: &ContainerStateWaiting) -> Option<String> {
    let word = waiting.reason.as_deref()?;
    let message =
        waiting.message.as_deref().filter(|it| !it.is_empty()).map(|it| format!(": {it}")).unwrap_or_default();
    match word {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => Some(format!("image \"{}\" can't be pulled{message} ({word})", status.image)),
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "PreCreateHookError"
        | "PreStartHookError"
        | "PostStartHookError" => Some(format!("container {} can't be started{message} ({word})", status.name)),
        "CrashLoopBackOff" => Some(format!("container {} ends again and again{message} ({word})", status.name)),
        _ => None,
    }
}

fn running(pod: &Pod, ending: Option<&Ending>) -> Option<String> {
    let status = pod.status.as_ref()?;
    if let Some(ending) = ending {
        let exit = Exit { code: ending.code, signal: ending.signal, ended_at_ms: ending.ended_at_ms };
        return Some(format!("container {} has ended: {}", ending.container, exit.describe()));
    }
    if let Some((_, word, message)) = condition(pod, "DisruptionTarget").filter(|(status, ..)| *status == "True") {
        return Some(format!("is about to be evicted: {message} ({word})"));
    }
    let silent = status.phase.as_deref() == Some("Unknown") || status.reason.as_deref() == Some("NodeLost");
    silent.then(|| format!("node {} does not answer", node(pod).unwrap_or("unknown")))
}

fn terminating(pod: &Pod) -> String {
    let grace_s = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    has_to_end(Duration::from_secs(grace_s.max(0).unsigned_abs()))
}

fn ended(pod: &Pod, exit: Option<&Exit>, ending: Option<&Ending>) -> String {
    let how = exit.map_or_else(|| "ended".to_owned(), Exit::describe);
    let status = pod.status.as_ref();
    // The pod's own word comes from kubelet or scheduler: evicted, out of CPU, node shut down.
    if let Some(word) = status.and_then(|status| status.reason.as_deref()).filter(|word| !word.is_empty()) {
        let message = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
        return match word {
            "Evicted" | "Preempting" => format!("evicted: {message} ({word})"),
            "Terminated" | "NodeShutdown" | "Shutdown" => format!("its node was shut down: {message} ({word})"),
            _ => format!("its node refused it or gave it up: {message} ({word})"),
        };
    }
    if let Some((_, word, message)) = condition(pod, "DisruptionTarget").filter(|(status, ..)| *status == "True") {
        return format!("evicted: {message} ({word}); {how}");
    }
    let Some(ending) = ending else { return how };
    let of_other = ending.container != super::names::AGENT;
    let how = if of_other { format!("container {}: {how}", ending.container) } else { how };
    match (ending.word.as_str(), &ending.last_words) {
        ("OOMKilled", _) => format!("{how}: it needed more memory than its unit gives it (OOMKilled)"),
        ("ContainerCannotRun" | "StartError", _) => {
            format!("container {} can't be run: {} ({})", ending.container, ending.log.trim(), ending.word)
        }
        (_, Some(words)) if ending.code == Some(0) => words.clone(),
        (_, Some(words)) => format!("{words} ({how})"),
        _ => how,
    }
}

/// Status, word and message of a condition.
fn condition<'a>(pod: &'a Pod, wanted: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == wanted)?;
    let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
    Some((found.status.as_str(), text(&found.reason), text(&found.message)))
}

fn newest<'a>(warnings: &'a [Warning], word: &str) -> Option<&'a Warning> {
    warnings.iter().filter(|warning| warning.word == word).max_by_key(|warning| warning.last_ms)
}
