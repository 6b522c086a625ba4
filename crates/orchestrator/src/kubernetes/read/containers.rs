//! The states of an engine's containers: whether they run, how they ended, and their termination messages.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};
use model::clock::utc;
use model::engine_state::Phase;

use super::millis;
use super::names::{AGENT, SPARK};
use crate::Exit;

/// The prefix of an agent's termination message: the first line has the reason, the following ones the end of its log.
/// Without it the message is the end of the log, which the kubelet stores if the container failed.
pub const LAST_WORDS_PREFIX: &str = "enginehouse: ";
/// The offset of exit codes of programs that a signal ended.
const SIGNAL_BASE: i32 = 128;
/// A program that this signal ended was asked to end.
const SIGTERM: i32 = 15;
const MAX_SIGNAL: i32 = 64;

/// The exit of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerExit {
    pub(super) container: String,
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) ended_at_ms: i64,
    /// The reason of the kubelet or the runtime: `OOMKilled`, `Error`.
    pub(super) reason: String,
    /// The reason that the agent left.
    pub(super) last_words: Option<String>,
    /// The end of the log.
    pub(super) log: String,
}

impl ContainerExit {
    pub(super) fn exit(&self) -> Exit {
        Exit { code: self.code, signal: self.signal, ended_at_ms: self.ended_at_ms }
    }
}

/// The statuses of the pod's containers, in the order of its spec: the agent first.
pub(super) fn statuses(pod: &Pod) -> Vec<&ContainerStatus> {
    let reported = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let status = |name: &str| reported.into_iter().flatten().find(|status| status.name == name);
    containers.iter().filter_map(|container| status(&container.name)).collect()
}

/// *Running* once every container has started, *starting* once one has.
pub(super) fn phase(pod: &Pod) -> Phase {
    let count = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let was_started = |status: &&&ContainerStatus| {
        status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    match statuses(pod).iter().filter(was_started).count() {
        0 => Phase::Pending,
        started if started < count => Phase::Starting,
        _ => Phase::Running,
    }
}

/// Whether the agent or Spark has ended, whatever the other containers do.
pub(super) fn has_one_ended(pod: &Pod) -> bool {
    let ours = statuses(pod).into_iter().filter(|status| [AGENT, SPARK].contains(&status.name.as_str()));
    ours.filter_map(|status| status.state.as_ref()).any(|state| state.terminated.is_some())
}

/// When the agent started.
pub(super) fn started_at_ms(pod: &Pod) -> Option<i64> {
    let state = statuses(pod).first()?.state.as_ref()?;
    let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
    running.or(state.terminated.as_ref().and_then(|ended| ended.started_at.as_ref())).map(millis)
}

/// The container exit that decides how the engine ended: the agent's, unless another container failed and the agent did not,
/// or failed only because of it.
pub(super) fn deciding_exit(pod: &Pod) -> Option<ContainerExit> {
    let terminated = |status: &ContainerStatus| {
        let terminated = status.state.as_ref()?.terminated.as_ref()?;
        Some(read(&status.name, terminated))
    };
    let exits: Vec<ContainerExit> = statuses(pod).into_iter().filter_map(terminated).collect();
    let failed = || exits.iter().filter(|exit| exit.code != Some(0));
    let cause_of = |first: &&ContainerExit| {
        let is_cause = |exit: &&ContainerExit| exit.signal != Some(SIGTERM) && exit.ended_at_ms <= first.ended_at_ms;
        // An agent that was killed did not react to the end of another container.
        failed().skip(1).find(is_cause).filter(|_| first.container == AGENT && first.signal.is_none())
    };
    let first = failed().next();
    first.and_then(|exit| cause_of(&exit)).or(first).or(exits.first()).cloned()
}

fn read(container: &str, terminated: &ContainerStateTerminated) -> ContainerExit {
    let code = terminated.exit_code;
    let by_code = (code > SIGNAL_BASE && code <= SIGNAL_BASE + MAX_SIGNAL).then_some(code - SIGNAL_BASE);
    let signal = terminated.signal.filter(|signal| *signal > 0).or(by_code);
    let message = terminated.message.clone().unwrap_or_default();
    let (last_words, log) = match message.strip_prefix(LAST_WORDS_PREFIX) {
        Some(rest) => {
            let (reason, log) = rest.split_once('\n').unwrap_or((rest, ""));
            (Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty()), log.to_owned())
        }
        None => (None, message),
    };
    ContainerExit {
        container: container.to_owned(),
        code: signal.is_none().then_some(code),
        signal,
        ended_at_ms: terminated.finished_at.as_ref().map(millis).unwrap_or_default(),
        reason: terminated.reason.clone().unwrap_or_default(),
        last_words,
        log,
    }
}

/// A line of detail for each container.
pub(super) fn details(pod: &Pod) -> Vec<(String, String)> {
    let line = |status: &ContainerStatus| {
        let state = status.state.as_ref().map_or_else(|| "unknown".to_owned(), describe);
        (status.name.clone(), format!("{state}; image {}", status.image))
    };
    statuses(pod).into_iter().map(line).collect()
}

fn describe(state: &ContainerState) -> String {
    let since = |time: &Option<_>| time.as_ref().map_or_else(String::new, |at| format!(" since {}", utc(millis(at))));
    if let Some(running) = &state.running {
        return format!("running{}", since(&running.started_at));
    }
    if let Some(terminated) = &state.terminated {
        let ended = read("", terminated);
        let reason = if ended.reason.is_empty() { String::new() } else { format!(" ({})", ended.reason) };
        return format!("ended: {}{reason}, at {}", ended.exit().describe(), utc(ended.ended_at_ms));
    }
    match state.waiting.as_ref().and_then(|waiting| waiting.reason.as_deref()) {
        Some(reason) => format!("waiting ({reason})"),
        None => "waiting".to_owned(),
    }
}
