//! What an orchestrator tells: observation only, nothing here is a wish.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::engine_state::Phase;
use model::labels::LabelMap;
use model::{EngineName, Epoch, Generation};

use crate::{EPOCH_ANNOTATION, GENERATION_ANNOTATION};

/// The detail that names an engine's process.
pub const DETAIL_PID: &str = "process pid";
/// The detail that says where an engine's files are. For admins: it is a path of the machine.
pub const DETAIL_DIRECTORY: &str = "directory";
/// The detail that says where an engine's log is. For admins: it is a path of the machine.
pub const DETAIL_LOG: &str = "log file";

/// One engine as it is now. There may be thousands, and each listing copies them: what is large is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Its name.
    pub name: EngineName,
    /// Names this very run; random, never used twice.
    pub uid: String,
    /// Its labels as they are kept, foreign and broken ones included.
    pub labels: Arc<LabelMap>,
    /// Its annotations: generation, epoch, and what the spec added.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// How far it is in its life.
    pub phase: Phase,
    /// Whether objects that belong to it are missing because the `ensure` that made it failed in between: it does not start
    /// until another `ensure` completes it.
    pub incomplete: bool,
    /// Why it is not running, or why it ended.
    pub reason: Option<String>,
    /// The node that it was given.
    pub node: Option<String>,
    /// When its program was started, in milliseconds since 1970.
    pub started_at_ms: Option<i64>,
    /// How it ended; only when it has.
    pub exit: Option<Exit>,
    /// The last lines of its log; only when it ended otherwise than with code 0.
    pub log_tail: Option<String>,
    /// What else a person may want to know of it (DESCRIBE). Never decided upon.
    pub details: Arc<BTreeMap<String, String>>,
}

impl Observed {
    /// The generation of the snapshot from which it was made, if its annotation can be read.
    pub fn generation(&self) -> Option<Generation> {
        self.annotations.get(GENERATION_ANNOTATION)?.parse().ok().map(Generation)
    }

    /// The epoch of the master that made it, if its annotation can be read.
    pub fn epoch(&self) -> Option<Epoch> {
        self.annotations.get(EPOCH_ANNOTATION)?.parse().ok().map(Epoch)
    }

    /// Whether it bears all labels of the selector with these values.
    pub fn matches(&self, selector: &LabelMap) -> bool {
        bears(&self.labels, selector)
    }
}

/// Whether the labels contain all of the wanted ones with the same values.
pub(crate) fn bears(labels: &LabelMap, wanted: &LabelMap) -> bool {
    wanted.iter().all(|(label, value)| labels.get(label) == Some(value))
}

/// The annotations of a new engine: what the spec adds, the generation, the epoch.
pub(crate) fn annotations(spec: &crate::Spec, epoch: Epoch) -> BTreeMap<String, String> {
    let mut annotations = spec.annotations.clone();
    annotations.insert(GENERATION_ANNOTATION.to_owned(), spec.generation.to_string());
    annotations.insert(EPOCH_ANNOTATION.to_owned(), epoch.to_string());
    annotations
}

/// Why an engine that was told to end is still there, as people read it.
pub(crate) fn has_to_end(grace: Duration) -> String {
    format!("it was told to end and has {} for it", model::span::print(grace))
}

/// How an engine ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The code that its program returned; `None` if a signal ended it, or if nobody saw it end.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When it ended, or was first found ended, in milliseconds since 1970.
    pub ended_at_ms: i64,
}

impl Exit {
    /// As a person reads it: `exit code 3`, `killed by signal 9`.
    pub fn describe(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "ended when nobody watched".to_owned(),
        }
    }
}

/// What is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The engines that bear the selector's labels, by name.
    pub engines: Vec<Observed>,
    /// What can't be read. An engine whose name stands here must not be taken for vanished.
    pub unreadable: Vec<Unreadable>,
    /// What has an engine's labels and was not made by this installation: for people. Its name says nothing about an
    /// engine of that name.
    pub foreign: Vec<Foreign>,
    /// What the orchestrator may not do though it has to: for people, who can grant it.
    pub missing: Vec<String>,
}

impl Listing {
    /// The engine of that name.
    pub fn find(&self, name: &EngineName) -> Option<&Observed> {
        self.engines.iter().find(|it| &it.name == name)
    }
}

/// Something that is there and can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Under which name it stands.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Something that looks like an engine and is not ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// Where it stands.
    pub namespace: String,
    /// What it is called there.
    pub name: String,
    /// Which one.
    pub uid: String,
    /// What shows that it is foreign.
    pub reason: String,
}

/// The answer of `ensure`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ensured {
    /// The uid of the engine that is there now.
    pub uid: String,
    /// Whether this call made it.
    pub created: bool,
}

/// The answer of `delete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It is not there any more.
    Gone,
    /// It was told to end; it leaves the list when it has, at the latest when its grace is over.
    Terminating,
}

/// How much fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// Engines at most, ended ones that were not deleted included; `None` if there is no limit of its own.
    pub engines: Option<usize>,
    /// The nodes that a spec may name.
    pub nodes: Vec<String>,
}
