//! The observed state of engines, and the results of the verbs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::end::StartFault;
use model::engine_state::Phase;
use model::labels::LabelMap;
use model::observed_pods::ObservedPods;
use model::shared::Shared;
use model::{EngineName, Epoch, Generation};

use crate::{EPOCH_ANNOTATION, GENERATION_ANNOTATION};

/// The detail with the pid of an engine's process.
pub const DETAIL_PID: &str = "process pid";
/// The detail with the directory of an engine. For administrators: it is a path of the machine.
pub const DETAIL_DIRECTORY: &str = "directory";
/// The detail with the log file of an engine. For administrators: it is a path of the machine.
pub const DETAIL_LOG: &str = "log file";

/// One engine as it was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedInstance {
    pub name: EngineName,
    /// Identifies this run; random, never reused.
    pub uid: String,
    /// As stored, including foreign and broken ones.
    pub labels: Arc<LabelMap>,
    /// Generation, epoch, and the annotations of the spec.
    pub annotations: Arc<BTreeMap<String, String>>,
    pub phase: Phase,
    /// Whether objects that belong to it are missing because the `ensure` that created it failed half-way: it does not start
    /// until another `ensure` completes it.
    pub incomplete: bool,
    /// Why it is not running, or why it ended.
    pub reason: Option<String>,
    /// What prevents it from running or ended it, if that is known.
    pub fault: Option<StartFault>,
    /// The node that it was assigned.
    pub node: Option<String>,
    /// When its program was started, in milliseconds since 1970.
    pub started_at_ms: Option<i64>,
    /// Present if it has ended.
    pub exit: Option<Exit>,
    /// The last lines of its log; present if it ended other than with exit code 0.
    pub log_tail: Option<String>,
    /// What its pods request and where they are; `None` if it has no pods.
    pub pods: Option<Arc<ObservedPods>>,
    /// Informational details for DESCRIBE; no decision depends on them.
    pub details: Arc<BTreeMap<String, String>>,
}

impl ObservedInstance {
    /// The generation of the snapshot from which it was planned, if its annotation is valid.
    pub fn generation(&self) -> Option<Generation> {
        self.annotations.get(GENERATION_ANNOTATION)?.parse().ok().map(Generation)
    }

    /// The epoch of the master that created it, if its annotation is valid.
    pub fn epoch(&self) -> Option<Epoch> {
        self.annotations.get(EPOCH_ANNOTATION)?.parse().ok().map(Epoch)
    }

    /// Whether it has all labels of the selector.
    pub fn matches(&self, selector: &LabelMap) -> bool {
        has_labels(&self.labels, selector)
    }
}

/// Whether the labels contain all labels of the selector with the same values.
pub(crate) fn has_labels(labels: &LabelMap, selector: &LabelMap) -> bool {
    differing_label(labels, selector).is_none()
}

/// The first label of the spec that is missing or has another value.
pub(crate) fn differing_label<'a>(labels: &LabelMap, desired: &'a LabelMap) -> Option<&'a str> {
    desired.iter().find(|(label, value)| labels.get(*label) != Some(*value)).map(|(label, _)| label.as_str())
}

/// The annotations of a new engine: those of the spec, the generation, the epoch.
pub(crate) fn annotations(spec: &crate::Spec, epoch: Epoch) -> BTreeMap<String, String> {
    let mut annotations = spec.annotations.clone();
    annotations.insert(GENERATION_ANNOTATION.to_owned(), spec.generation.to_string());
    annotations.insert(EPOCH_ANNOTATION.to_owned(), epoch.to_string());
    annotations
}

/// The reason of an engine that is terminating.
pub(crate) fn terminating_reason(grace: Duration) -> String {
    format!("terminating with a grace of {}", model::span::print(grace))
}

/// How an engine ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The exit code; `None` if a signal ended it, or if its exit was not observed.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When it ended, or was first found ended, in milliseconds since 1970.
    pub ended_at_ms: i64,
}

impl Exit {
    /// What ended it, as far as its code or signal says that.
    pub const fn fault(&self) -> Option<StartFault> {
        StartFault::of_exit(self.code, self.signal)
    }

    /// For display: `exit code 3`, `killed by signal 9`.
    pub fn describe(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "exit status unknown".to_owned(),
        }
    }
}

/// The result of `list`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The engines with the selector's labels, by name. There may be thousands: listings share what has not changed.
    pub engines: Vec<Shared<ObservedInstance>>,
    /// Unreadable entries. An engine whose name is listed here must not be treated as vanished.
    pub unreadable: Vec<Unreadable>,
    /// Objects with an engine's labels that this installation did not create; informational. Their names are unrelated to
    /// engines of the same name.
    pub foreign: Vec<ForeignObject>,
    /// Permissions that the orchestrator needs and lacks, for the administrator who can grant them.
    pub missing_permissions: Vec<String>,
}

impl Listing {
    pub fn find(&self, name: &EngineName) -> Option<&ObservedInstance> {
        self.engines.iter().find(|engine| &engine.name == name).map(AsRef::as_ref)
    }
}

/// An entry that exists and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The name of the entry.
    pub name: String,
    pub reason: String,
}

/// An object with an engine's labels that is not ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignObject {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Why it counts as foreign.
    pub reason: String,
}

/// The result of `ensure`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ensured {
    /// The uid of the existing or new engine.
    pub uid: String,
    /// Whether this call created it.
    pub created: bool,
}

/// The result of `delete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It no longer exists.
    Gone,
    /// It was asked to end. It leaves the list when it has ended, at the latest when its grace is over.
    Terminating,
}
