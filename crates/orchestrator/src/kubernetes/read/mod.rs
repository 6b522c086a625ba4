//! Classifies pods and converts those of engines, with their warnings, to observed instances: pure, and without a clock.
//!
//! Only a pod with our signature is an engine. Phases never go back: a container that ran once counts as running until the
//! engine ends. An engine of two containers ends with the first of them: without the agent Spark is unreachable; without
//! Spark (for example because of bad properties) the agent has nothing to forward to. The other container may run until the
//! pod is deleted.

mod containers;
mod fault;
mod reason;
mod warnings;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use model::EngineName;
use model::clock::utc;
use model::engine_state::Phase;
use model::observation::{MAX_DETAIL_BYTES, MAX_LOG_TAIL_BYTES};
use model::observed_pods::ObservedPods;
use model::shared::Shared;
use model::text::{cut, tail};

use super::signature::Signer;
use super::{labels, names, nodes};
use crate::{Exit, ForeignObject, ObservedInstance, Unreadable};

use containers::ContainerExit;
pub use containers::LAST_WORDS_PREFIX;
pub use warnings::{MAX_WARNINGS, Warning, Warnings};

/// The detail with an engine's pod: `<namespace>/<name>`.
pub const DETAIL_POD: &str = "pod";
/// The detail with the address of an engine's pod.
pub const DETAIL_ADDRESS: &str = "pod address";
/// The reason of a pod that is listed as ended because its other objects were never created.
pub const NEVER_COMPLETED: &str = "never completed: the other objects of its pod were not created in time";

/// What a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Classified {
    /// An engine of ours.
    Engine(Box<EnginePod>),
    /// Not ours, whatever its labels are.
    Foreign(ForeignObject),
    /// Ours by its signature, but unreadable.
    Unreadable(Unreadable),
}

/// An engine with the facts about its pod that only the orchestrator needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnginePod {
    pub observed: Shared<ObservedInstance>,
    pub namespace: String,
    /// Present if the pod is being deleted.
    pub deletion: Option<PodDeletion>,
}

/// The deletion of a pod, as the API server records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodDeletion {
    /// When it is killed, in milliseconds since 1970.
    pub deadline_ms: i64,
    pub grace_s: i64,
}

impl EnginePod {
    /// As it is listed: a pod that stayed behind its scheduling gate for too long counts as ended, at the given time in
    /// milliseconds since 1970.
    pub fn listed(&self, never_completed_at_ms: Option<i64>) -> Shared<ObservedInstance> {
        let mut observed = self.observed.clone();
        if let Some(ended_at_ms) = never_completed_at_ms.filter(|_| observed.incomplete) {
            (observed.phase, observed.incomplete) = (Phase::Ended, false);
            observed.reason = Some(NEVER_COMPLETED.to_owned());
            observed.exit = Some(Exit { code: None, signal: None, ended_at_ms });
        }
        observed
    }
}

pub fn classify(pod: &Pod, warnings: &[Warning], signer: &Signer) -> Classified {
    let metadata = &pod.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name, uid) = (text(&metadata.namespace), text(&metadata.name), text(&metadata.uid));
    let none = BTreeMap::new();
    let annotations = metadata.annotations.as_ref().unwrap_or(&none);
    if let Some(objection) = signer.objection(&namespace, &name, annotations) {
        return Classified::Foreign(ForeignObject { namespace, name, uid, reason: objection.to_owned() });
    }
    let Ok(engine) = EngineName::new(name.as_str()) else {
        let reason = format!("pod {namespace}/{name}: invalid engine name");
        return Classified::Unreadable(Unreadable { name, reason });
    };
    if uid.is_empty() {
        return Classified::Unreadable(Unreadable { name, reason: "its pod has no uid".to_owned() });
    }
    let phase = phase(pod);
    let gated = is_gated(pod);
    let container_exit = containers::deciding_exit(pod);
    let exit = (phase == Phase::Ended).then(|| exit(pod, container_exit.as_ref()));
    let failed = exit.as_ref().is_some_and(|exit| exit.code != Some(0));
    let log_tail = container_exit.as_ref().filter(|_| failed);
    let log_tail = log_tail.map(|container| tail(container.log.trim_end(), MAX_LOG_TAIL_BYTES).to_owned());
    let fault = fault::of(pod, phase, exit.as_ref(), container_exit.as_ref());
    let observed = ObservedInstance {
        name: engine,
        uid,
        labels: metadata.labels.clone().unwrap_or_default().into(),
        annotations: labels::without_hidden(annotations).into(),
        phase,
        incomplete: gated && phase < Phase::Terminating,
        reason: reason::describe(pod, phase, exit.as_ref(), container_exit.as_ref(), warnings),
        node: node(pod).map(str::to_owned),
        started_at_ms: containers::started_at_ms(pod),
        exit,
        log_tail: log_tail.filter(|text| !text.is_empty()),
        fault,
        pods: Some(pods(pod, phase).into()),
        details: details(pod, warnings).into(),
    };
    Classified::Engine(Box::new(EnginePod {
        observed: observed.into(),
        namespace,
        deletion: metadata.deletion_timestamp.as_ref().map(|at| PodDeletion {
            deadline_ms: millis(at),
            grace_s: metadata.deletion_grace_period_seconds.unwrap_or(0),
        }),
    }))
}

/// The engine's own pod. One that has ended is on its node no longer.
fn pods(pod: &Pod, phase: Phase) -> ObservedPods {
    ObservedPods::of_driver(nodes::size_of(pod), node(pod).filter(|_| phase < Phase::Ended))
}

/// A time of the API server or a kubelet, in milliseconds since 1970.
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

/// How it ended. A pod that ended before a container ran has only the times of its conditions.
fn exit(pod: &Pod, container: Option<&ContainerExit>) -> Exit {
    if let Some(container) = container {
        return container.exit();
    }
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let times = conditions.into_iter().flatten().filter_map(|condition| condition.last_transition_time.as_ref());
    let changed = times.map(millis).max();
    let created = pod.metadata.creation_timestamp.as_ref().map(millis);
    Exit { code: None, signal: None, ended_at_ms: changed.or(created).unwrap_or(0) }
}

/// Details for DESCRIBE ENGINE.
fn details(pod: &Pod, warnings: &[Warning]) -> BTreeMap<String, String> {
    let metadata = &pod.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut details =
        BTreeMap::from([(DETAIL_POD.to_owned(), format!("{}/{}", text(&metadata.namespace), text(&metadata.name)))]);
    let mut add = |key: String, value: &str| drop(details.insert(key, cut(value, MAX_DETAIL_BYTES).to_owned()));
    if let Some(created) = &metadata.creation_timestamp {
        add("pod created at".to_owned(), &utc(millis(created)));
    }
    if let Some(status) = &pod.status {
        if let Some(address) = &status.pod_ip {
            add(DETAIL_ADDRESS.to_owned(), address);
        }
        if let Some(class) = &status.qos_class {
            add("pod quality of service".to_owned(), class);
        }
    }
    for (name, state) in containers::details(pod) {
        add(format!("container {name}"), &state);
    }
    for (index, warning) in warnings.iter().enumerate() {
        add(format!("warning {}", index + 1), &warning.describe());
    }
    details
}
