//! What a master reports about the engines that it sees, and what SHOW reads: rows of table `observed_engine`.
//!
//! Written only under the master's epoch. A reader compares [`MasterRecord::last_tick_ms`](crate::snapshot::MasterRecord)
//! with its clock and says that it is stale when the master is late.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine_name::EngineName;
use crate::engine_state::Phase;

/// The longest reason that is kept, in bytes; longer ones are cut.
pub const MAX_REASON_BYTES: usize = 2_048;
/// The longest tail of an engine's log that is kept, in bytes.
pub const MAX_LOG_TAIL_BYTES: usize = 8_192;

/// The most details of one engine that are kept.
pub const MAX_DETAILS: usize = 64;
/// The longest detail that is kept, in bytes; longer ones are cut.
pub const MAX_DETAIL_BYTES: usize = 1_024;

/// The most foreign engines that are told by name.
pub const MAX_FOREIGN: usize = 100;
/// The most missing rights that are told.
pub const MAX_DENIED_PERMISSIONS: usize = 50;

/// One engine as the master saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedEngine {
    /// Its name.
    pub name: EngineName,
    /// The orchestrator's id of this very pod or process.
    pub uid: Option<String>,
    /// What the orchestrator sees.
    pub phase: Phase,
    /// Why it is not ready, or why it ended.
    pub reason: Option<String>,
    /// The machine that it runs on.
    pub node: Option<String>,
    /// Where it is registered: `host:port`.
    pub address: Option<String>,
    /// Whether it is registered.
    pub registered: bool,
    /// Whether it is registered or ever was, or nobody can know: only of one that never was it is certain that it
    /// serves nobody. True where a row or a report does not say it.
    #[serde(default = "yes")]
    pub answered: bool,
    /// Whether it has been told to drain.
    pub draining: bool,
    /// Open sessions; `None` when its agent did not answer.
    pub sessions: Option<u32>,
    /// Running statements; `None` when its agent did not answer.
    pub running: Option<u32>,
    /// When it was started, in milliseconds since 1970.
    pub started_at_ms: Option<i64>,
    /// The last lines of its log, when it failed.
    pub log_tail: Option<String>,
    /// Its labels as the orchestrator keeps them.
    pub labels: Arc<crate::labels::LabelMap>,
    /// What else the orchestrator knows of its process or its containers, in the orchestrator's words: DESCRIBE prints
    /// it, nothing is decided upon it.
    #[serde(default)]
    pub details: Arc<BTreeMap<String, String>>,
}

const fn yes() -> bool {
    true
}

/// The most nodes that are kept.
pub const MAX_NODES: usize = 5_000;

/// One machine that engines may run on, as the orchestrator saw it: a row of table `observed_node`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObservedNode {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: crate::labels::LabelMap,
    /// CPU that engines may be promised, in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory that engines may be promised, in bytes.
    pub memory_bytes: u64,
    /// CPU that was promised to what of ours runs there.
    pub cpu_used_millis: u64,
    /// Memory that was promised to what of ours runs there.
    pub memory_used_bytes: u64,
    /// Whether new engines may go there.
    pub open: bool,
}

/// What the place of engines holds besides ours, and what it keeps from us: for people, nothing is decided upon it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClusterWarnings {
    /// What looks like an engine and was not made by this installation: [`MAX_FOREIGN`] at most, by namespace and name.
    pub foreign: Vec<ForeignEngine>,
    /// How many of these there are in all.
    pub foreign_count: usize,
    /// What the orchestrator may not do though it has to, such as `create pods in the whole cluster`.
    #[serde(rename = "missing")]
    pub denied_permissions: Vec<String>,
}

/// What looks like an engine and was not made by this installation. Nobody touches it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ForeignEngine {
    /// Where it stands.
    pub namespace: String,
    /// What it is called there.
    pub name: String,
    /// Which one.
    pub uid: String,
    /// What shows that it is foreign.
    pub reason: String,
}

impl ClusterWarnings {
    /// What is told of it all: the first ones, and texts of limited length.
    pub fn new(mut foreign: Vec<ForeignEngine>, denied_permissions: &[String]) -> Self {
        foreign.sort();
        let foreign_count = foreign.len();
        foreign.truncate(MAX_FOREIGN);
        let short = |text: &str| cut(text, MAX_DETAIL_BYTES).to_owned();
        for it in &mut foreign {
            it.reason = short(&it.reason);
        }
        let denied_permissions = denied_permissions.iter().take(MAX_DENIED_PERMISSIONS).map(|it| short(it)).collect();
        Self { foreign, foreign_count, denied_permissions }
    }
}

/// Facts that later plans rely on, written in one transaction under the master's epoch while a tick executes its plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineFacts {
    /// Created or adopted instances: the uid of a name is recorded once and never changes.
    pub created: Vec<CreatedEngine>,
    /// Engines that ended or vanished, and names that will never have an instance.
    pub ended: Vec<EndedEngine>,
}

/// What a tick publishes for SHOW, written in one transaction under the master's epoch. It contains what changed; the first
/// one of a term is complete. A long one is preceded by parts with other rows of the same tick.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Publication {
    /// Engines as they are now: their rows are replaced.
    pub engines: Vec<ObservedEngine>,
    /// Engines that are no longer observed: their rows are deleted.
    pub gone: Vec<EngineName>,
    /// Whether `engines` and `kept` are all engines, so that every other row is deleted.
    pub complete: bool,
    /// Engines whose rows were in parts before a complete publication.
    pub kept: Vec<EngineName>,
    /// What the master waits for, if anything.
    pub waits_for: Option<String>,
    /// Whether it is a part: it does not end the tick.
    pub part: bool,
    /// The end of the previous tick according to the snapshot of this one: rejected if another tick has ended since.
    /// `None`: written in any case.
    pub after_tick_ms: Option<i64>,
    /// Every namespace with an instance; `None` if the orchestrator was not read.
    pub namespaces_in_use: Option<Vec<String>>,
    /// Every node that the orchestrator knows, if that has changed; empty if it knows none.
    pub nodes: Option<Vec<ObservedNode>>,
    /// The warnings of the cluster, if they have changed.
    pub cluster_warnings: Option<ClusterWarnings>,
}

/// An engine whose instance exists from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedEngine {
    pub name: EngineName,
    /// The orchestrator's id.
    pub uid: String,
    /// The hash of the configuration that it was created from.
    pub config: String,
}

/// An engine that will never run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedEngine {
    pub name: EngineName,
    /// How it ended.
    pub reason: String,
    /// The last lines of its log, if it failed.
    pub log_tail: Option<String>,
}

/// The exceptions of a recording: all other [`EngineFacts`] were written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// Created engines with another recorded uid, and that uid: the new instance is not the engine.
    pub other_uid: Vec<(EngineName, String)>,
    /// Names that were never issued.
    pub unknown: Vec<EngineName>,
}

/// Cuts a text to at most `max` bytes at a character's border, from the front.
pub fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Keeps the last `max` bytes of a text, from a character's border on.
pub fn tail(text: &str, max: usize) -> &str {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}
