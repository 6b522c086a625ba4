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

/// What a master writes at the end of a tick, in one transaction under its epoch. It holds what changed; a master's
/// first report is complete. Where that is much, parts with other rows of the same tick come before it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Engines as they are seen now: their rows are replaced.
    pub engines: Vec<ObservedEngine>,
    /// Engines that are no longer seen: their rows go.
    pub gone: Vec<EngineName>,
    /// Whether `engines` and `kept` are all there is, so that every other row goes.
    pub complete: bool,
    /// Engines whose rows came in parts before a complete report.
    #[serde(default)]
    pub kept: Vec<EngineName>,
    /// Pods that were made or adopted: their uid is recorded once and never changes.
    pub made: Vec<MadeEngine>,
    /// Engines that ended or vanished, and names that will never get a pod.
    pub ended: Vec<EndedEngine>,
    /// What the master waits for, if anything.
    pub waits_for: Option<String>,
    /// Written in the middle of a tick: neither its end nor what it waits for.
    #[serde(default)]
    pub part: bool,
    /// When the tick before ended, as the snapshot of this one had it: the report is refused if another tick's was
    /// written since. `None`: it is written in any case.
    #[serde(default)]
    pub after_tick_ms: Option<i64>,
    /// Every namespace that has a pod of ours now; `None` if the orchestrator was not asked.
    pub namespaces_in_use: Option<Vec<String>>,
    /// Every node that the orchestrator knows, if that is not what was reported before; empty where it knows none.
    #[serde(default)]
    pub nodes: Option<Vec<ObservedNode>>,
    /// What is around the engines, if that has changed.
    #[serde(default, rename = "surroundings")]
    pub cluster_warnings: Option<ClusterWarnings>,
}

/// An engine whose pod or process exists from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeEngine {
    /// Its name.
    pub name: EngineName,
    /// The orchestrator's id.
    pub uid: String,
    /// The hash of the configuration that it was made from.
    pub config: String,
}

/// An engine that will not run any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedEngine {
    /// Its name.
    pub name: EngineName,
    /// How it ended.
    pub reason: String,
    /// The last lines of its log, when it failed.
    pub log_tail: Option<String>,
}

/// What became of a [`Report`]: everything in it was written, except what stands here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// Names of [`Report::made`] whose recorded uid is another, with that uid: the pod just made is not the engine.
    pub other_uid: Vec<(EngineName, String)>,
    /// Names of [`Report::made`] and [`Report::ended`] that were never issued.
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
