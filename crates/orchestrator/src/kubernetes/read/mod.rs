//! From a pod, with what was warned of it, to what is observed: pure, and without a clock.
//!
//! Only a pod with our signature is an engine. Phases go forward only, as the kubelet tells them: a container that ran
//! once counts as running until the engine ends. An engine of two containers ends with the first of them: without its agent
//! nobody can reach Spark, and without Spark, be it that its properties are wrong, nobody is answered; the other one may go on
//! until the pod is deleted.

mod containers;
mod reason;
mod warnings;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use model::EngineName;
use model::clock::utc;
use model::engine_state::Phase;
use model::observation::{MAX_DETAIL_BYTES, MAX_LOG_TAIL_BYTES, cut, tail};

use super::signature::Signer;
use super::{marks, names};
use crate::{Exit, Foreign, Observed, Unreadable};

use containers::Ending;
pub use containers::LAST_WORDS_MARK;
pub use warnings::{MAX_WARNINGS, Warning, Warnings};

/// The detail that names an engine's pod: `<namespace>/<name>`.
pub const DETAIL_POD: &str = "pod";
/// The detail that says how an engine's pod is reached.
pub const DETAIL_ADDRESS: &str = "pod address";
/// Why a pod whose other objects were never made is listed as ended.
pub const NEVER_COMPLETED: &str = "it was never completed: what belongs to its pod could not be made in time";

/// A pod, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// An engine of ours.
    Engine(Box<Seen>),
    /// Not ours, whatever its labels say.
    Foreign(Foreign),
    /// Ours by its signature, and it can't be read.
    Unreadable(Unreadable),
}

/// An engine with what only this module needs to know of its pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What is told.
    pub observed: Observed,
    /// Where the pod is.
    pub namespace: String,
    /// By when it must be gone and what grace it was given, in milliseconds since 1970 and in seconds.
    pub deletion: Option<(i64, i64)>,
}

impl Seen {
    /// As it is listed: a pod that has stood behind its gate for too long counts as ended, at the given time in milliseconds
    /// since 1970.
    pub fn listed(&self, never_completed_at_ms: Option<i64>) -> Observed {
        let mut observed = self.observed.clone();
        if let Some(ended_at_ms) = never_completed_at_ms.filter(|_| observed.incomplete) {
            (observed.phase, observed.incomplete) = (Phase::Ended, false);
            observed.reason = Some(NEVER_COMPLETED.to_owned());
            observed.exit = Some(Exit { code: None, signal: None, ended_at_ms });
        }
        observed
    }
}

/// Reads a pod.
pub fn pod(pod: &Pod, warnings: &[Warning], signer: &Signer) -> Found {
    let metadata = &pod.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name, uid) = (text(&metadata.namespace), text(&metadata.name), text(&metadata.uid));
    let none = BTreeMap::new();
    let annotations = metadata.annotations.as_ref().unwrap_or(&none);
    if let Some(objection) = signer.objection(&namespace, &name, annotations) {
        return Found::Foreign(Foreign { namespace, name, uid, reason: objection.to_owned() });
    }
    let Ok(engine) = EngineName::new(name.as_str()) else {
        let reason = format!("pod {namespace}/{name}: its name is no engine's");
        return Found::Unreadable(Unreadable { name, reason });
    };
    if uid.is_empty() {
        return Found::Unreadable(Unreadable { name, reason: "its pod has no uid".to_owned() });
    }
    let phase = phase(pod);
    let gated = is_gated(pod);
    let ending = containers::ending(pod);
    let exit = (phase == Phase::Ended).then(|| exit(pod, ending.as_ref()));
    let failed = exit.as_ref().is_some_and(|exit| exit.code != Some(0));
    let log_tail = ending.as_ref().filter(|_| failed).map(|it| tail(it.log.trim_end(), MAX_LOG_TAIL_BYTES).to_owned());
    let observed = Observed {
        name: engine,
        uid,
        labels: metadata.labels.clone().unwrap_or_default().into(),
        annotations: marks::told(annotations).into(),
        phase,
        incomplete: gated && phase < Phase::Terminating,
        reason: reason::of(pod, phase, exit.as_ref(), ending.as_ref(), warnings),
        node: node(pod).map(str::to_owned),
        started_at_ms: containers::started_at_ms(pod),
        exit,
        log_tail: log_tail.filter(|text| !text.is_empty()),
        details: details(pod, warnings).into(),
    };
    Found::Engine(Box::new(Seen {
        observed,
        namespace,
        deletion: metadata
            .deletion_timestamp
            .as_ref()
            .map(|at| (millis(at), metadata.deletion_grace_period_seconds.unwrap_or(0))),
    }))
}

/// A moment of the API server's clock or a kubelet's, in milliseconds since 1970.
pub fn millis(time: &Time) -> i64 {
    time.0.as_millisecond()
}

fn phase(pod: &Pod) -> Phase {
    if pod.metadata.deletion_timestamp.is_some() {
        return Phase::Terminating;
    }
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Succeeded" | "Failed") => Phase::Ended,
        _ if containers::has_one_ended(pod) => Phase::Ended,
        _ => containers::phase(pod),
    }
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| gates.iter().any(|gate| gate.name == names::GATE))
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

/// How it ended. A pod that was ended before anything ran has no container to ask, but a condition with a time.
fn exit(pod: &Pod, ending: Option<&Ending>) -> Exit {
    if let Some(ending) = ending {
        return Exit { code: ending.code, signal: ending.signal, ended_at_ms: ending.ended_at_ms };
    }
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let changed = conditions.into_iter().flatten().filter_map(|it| it.last_transition_time.as_ref()).map(millis).max();
    let made = pod.metadata.creation_timestamp.as_ref().map(millis);
    Exit { code: None, signal: None, ended_at_ms: changed.or(made).unwrap_or(0) }
}

/// What a person may want to know besides; the words stand in DESCRIBE ENGINE.
fn details(pod: &Pod, warnings: &[Warning]) -> BTreeMap<String, String> {
    let metadata = &pod.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut details =
        BTreeMap::from([(DETAIL_POD.to_owned(), format!("{}/{}", text(&metadata.namespace), text(&metadata.name)))]);
    let mut add = |key: String, value: &str| drop(details.insert(key, cut(value, MAX_DETAIL_BYTES).to_owned()));
    if let Some(made) = &metadata.creation_timestamp {
        add("pod made at".to_owned(), &utc(millis(made)));
    }
    if let Some(status) = &pod.status {
        if let Some(address) = &status.pod_ip {
            add(DETAIL_ADDRESS.to_owned(), address);
        }
        if let Some(class) = &status.qos_class {
            add("pod quality of service".to_owned(), class);
        }
    }
    for (name, words) in containers::details(pod) {
        add(format!("container {name}"), &words);
    }
    for (index, warning) in warnings.iter().enumerate() {
        add(format!("warning {}", index + 1), &warning.describe());
    }
    details
}
