//! What the containers of an engine's pod tell: whether they run, how they ended, what they said last.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};
use model::clock::utc;
use model::engine_state::Phase;

use super::millis;
use super::names::{AGENT, SPARK};

/// An agent that ends writes this and its reason as the first line of its termination message, and the last lines of
/// its log behind it. Without it the kubelet puts the log's last lines there, if the container failed.
pub const LAST_WORDS_MARK: &str = "enginehouse: ";
/// What a container runtime adds to the number of the signal that ended a program.
const SIGNALLED: i32 = 128;
/// The signal that asks a program to end: whose end it was had been wanted.
const TERM: i32 = 15;
/// The highest number of a signal.
const LAST_SIGNAL: i32 = 64;

/// How the container ended that decides how the engine ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) container: String,
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) ended_at_ms: i64,
    /// The word of kubelet or runtime: `OOMKilled`, `Error`.
    pub(super) word: String,
    /// What the agent said of it.
    pub(super) last_words: Option<String>,
    /// The last lines of the log.
    pub(super) log: String,
}

/// The states of the pod's containers, in the order of its spec: the agent first.
pub(super) fn statuses(pod: &Pod) -> Vec<&ContainerStatus> {
    let told = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let of = |name: &str| told.into_iter().flatten().find(|status| status.name == name);
    containers.iter().filter_map(|container| of(&container.name)).collect()
}

/// *Running* when every container was started, *starting* when one was.
pub(super) fn phase(pod: &Pod) -> Phase {
    let wanted = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let was_started = |status: &&&ContainerStatus| {
        status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    match statuses(pod).iter().filter(was_started).count() {
        0 => Phase::Pending,
        started if started < wanted => Phase::Starting,
        _ => Phase::Running,
    }
}

/// Whether the agent or Spark has ended, whatever goes on beside it.
pub(super) fn has_one_ended(pod: &Pod) -> bool {
    let ours = statuses(pod).into_iter().filter(|it| [AGENT, SPARK].contains(&it.name.as_str()));
    ours.filter_map(|it| it.state.as_ref()).any(|state| state.terminated.is_some())
}

/// When the agent was started.
pub(super) fn started_at_ms(pod: &Pod) -> Option<i64> {
    let state = statuses(pod).first()?.state.as_ref()?;
    let running = state.running.as_ref().and_then(|it| it.started_at.as_ref());
    running.or(state.terminated.as_ref().and_then(|it| it.started_at.as_ref())).map(millis)
}

/// How the engine ended: as the agent did, unless another container failed and the agent did not, or only because of it.
pub(super) fn ending(pod: &Pod) -> Option<Ending> {
    let terminated = |status: &ContainerStatus| {
        let terminated = status.state.as_ref()?.terminated.as_ref()?;
        Some(read(&status.name, terminated))
    };
    let endings: Vec<Ending> = statuses(pod).into_iter().filter_map(terminated).collect();
    let failed = || endings.iter().filter(|ending| ending.code != Some(0));
    let caused = |first: &&Ending| {
        let cause = |it: &&Ending| it.signal != Some(TERM) && it.ended_at_ms <= first.ended_at_ms;
        // Who was killed noticed nothing of anybody else's end.
        failed().skip(1).find(cause).filter(|_| first.container == AGENT && first.signal.is_none())
    };
    let first = failed().next();
    first.and_then(|it| caused(&it)).or(first).or(endings.first()).cloned()
}

fn read(container: &str, terminated: &ContainerStateTerminated) -> Ending {
    let exit = terminated.exit_code;
    let by_code = (exit > SIGNALLED && exit <= SIGNALLED + LAST_SIGNAL).then_some(exit - SIGNALLED);
    let signal = terminated.signal.filter(|signal| *signal > 0).or(by_code);
    let message = terminated.message.clone().unwrap_or_default();
    let (last_words, log) = match message.strip_prefix(LAST_WORDS_MARK) {
        Some(said) => {
            let (words, log) = said.split_once('\n').unwrap_or((said, ""));
            (Some(words.trim().to_owned()).filter(|words| !words.is_empty()), log.to_owned())
        }
        None => (None, message),
    };
    Ending {
        container: container.to_owned(),
        code: signal.is_none().then_some(exit),
        signal,
        ended_at_ms: terminated.finished_at.as_ref().map(millis).unwrap_or_default(),
        word: terminated.reason.clone().unwrap_or_default(),
        last_words,
        log,
    }
}

/// A line for each container.
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
        return format!("runs{}", since(&running.started_at));
    }
    if let Some(terminated) = &state.terminated {
        let ending = read("", terminated);
        let exit = crate::Exit { code: ending.code, signal: ending.signal, ended_at_ms: ending.ended_at_ms };
        let word = if ending.word.is_empty() { String::new() } else { format!(" ({})", ending.word) };
        return format!("ended: {}{word}, at {}", exit.describe(), utc(ending.ended_at_ms));
    }
    match state.waiting.as_ref().and_then(|waiting| waiting.reason.as_deref()) {
        Some(reason) => format!("waits ({reason})"),
        None => "waits".to_owned(),
    }
}
