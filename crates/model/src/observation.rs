//! Observations: what a master reports about engines and nodes, and what SHOW reads: rows of table `observed_engine`.
//!
//! Written only under the master's epoch. A reader compares [`MasterRecord::last_tick_ms`](crate::snapshot::MasterRecord)
//! with its clock and marks its output as stale when the master is late.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::demand_report::UnmetDemand;
use crate::end::EndClass;
use crate::engine_name::EngineName;
use crate::engine_state::{EngineState, Phase};
use crate::labels::LabelMap;
use crate::text::cut;

/// The longest stored reason, in bytes; longer ones are cut.
pub const MAX_REASON_BYTES: usize = 2_048;
/// The longest stored tail of an engine's log, in bytes.
pub const MAX_LOG_TAIL_BYTES: usize = 8_192;

/// The most stored details of one engine.
pub const MAX_DETAILS: usize = 64;
/// The longest stored detail, in bytes; longer ones are cut.
pub const MAX_DETAIL_BYTES: usize = 1_024;

/// The most foreign engines that are reported by name.
pub const MAX_FOREIGN: usize = 100;
/// The most denied permissions that are reported.
pub const MAX_DENIED_PERMISSIONS: usize = 50;

/// One engine as the master observed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedEngine {
    pub name: EngineName,
    /// The orchestrator's id of the pod or process.
    pub uid: Option<String>,
    pub phase: Phase,
    /// Why it is not ready, or why it ended.
    pub reason: Option<String>,
    /// The node that it runs on.
    pub node: Option<String>,
    /// Where it is registered: `host:port`.
    pub address: Option<String>,
    pub registered: bool,
    /// Whether it is or was registered, or that is unknown. Only an engine that has never registered is known to serve no
    /// sessions. True where a row or a report does not have it.
    #[serde(default = "yes")]
    pub answered: bool,
    /// Whether a drain was ordered.
    pub draining: bool,
    /// Open sessions; `None` if its agent did not respond.
    pub sessions: Option<u32>,
    /// Running statements; `None` if its agent did not respond.
    pub running: Option<u32>,
    /// Since when no session has been open, in milliseconds since 1970, within a second or two; `None` while one is, or if its
    /// agent did not respond.
    #[serde(default)]
    pub idle_since_ms: Option<i64>,
    /// Open sessions whose state cannot be replayed at another engine; `None` if its agent did not report it.
    #[serde(default)]
    pub stateful: Option<u32>,
    /// When it was started, in milliseconds since 1970.
    pub started_at_ms: Option<i64>,
    /// The last lines of its log, if it failed.
    pub log_tail: Option<String>,
    pub labels: Arc<LabelMap>,
    /// Further facts about its process or containers, in the orchestrator's terms: printed by DESCRIBE, never the basis
    /// of a decision.
    #[serde(default)]
    pub details: Arc<BTreeMap<String, String>>,
}

const fn yes() -> bool {
    true
}

impl ObservedEngine {
    /// The state that SHOW prints.
    pub const fn state(&self) -> EngineState {
        match (self.phase, self.registered, self.draining) {
            (Phase::Ended, ..) => EngineState::Ended,
            (Phase::Terminating, ..) => EngineState::Terminating,
            (_, _, true) => EngineState::Draining,
            (Phase::Pending, ..) => EngineState::Pending,
            (_, true, false) => EngineState::Ready,
            (Phase::Running, false, false) if self.answered => EngineState::Lost,
            (_, false, false) => EngineState::Starting,
        }
    }
}

/// The most stored nodes.
pub const MAX_NODES: usize = 5_000;

/// The most keys of unmet demand that are reported, those that have waited longest.
pub const MAX_UNMET: usize = 1_000;

/// A node that engines may run on, as the orchestrator observed it: a row of table `observed_node`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObservedNode {
    pub name: String,
    pub labels: LabelMap,
    /// Allocatable CPU, in thousandths of a core.
    pub cpu_millis: u64,
    /// Allocatable memory, in bytes.
    pub memory_bytes: u64,
    /// The CPU requests of our instances there.
    pub cpu_used_millis: u64,
    /// The memory requests of our instances there.
    pub memory_used_bytes: u64,
    /// Whether it is ready, so that the engines there run. Older rows do not say.
    #[serde(default = "assumed_ready")]
    pub ready: bool,
    /// Whether new engines can be scheduled there: it is ready and not cordoned.
    pub open: bool,
}

const fn assumed_ready() -> bool {
    true
}

/// Foreign objects in our namespaces and permissions that we lack. Informational only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClusterWarnings {
    /// At most [`MAX_FOREIGN`], sorted by namespace and name.
    pub foreign: Vec<ForeignEngine>,
    /// The number of all foreign engines.
    pub foreign_count: usize,
    /// Required permissions that the orchestrator lacks, such as `create pods in the whole cluster`.
    #[serde(rename = "missing")]
    pub denied_permissions: Vec<String>,
}

/// An object that looks like an engine and was not created by this installation. It is never changed or deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ForeignEngine {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Why it counts as foreign.
    pub reason: String,
}

impl ClusterWarnings {
    /// Limits the lists and the length of their texts.
    pub fn new(mut foreign: Vec<ForeignEngine>, denied_permissions: &[String]) -> Self {
        foreign.sort();
        let foreign_count = foreign.len();
        foreign.truncate(MAX_FOREIGN);
        let short = |text: &str| cut(text, MAX_DETAIL_BYTES).to_owned();
        for engine in &mut foreign {
            engine.reason = short(&engine.reason);
        }
        let denied_permissions =
            denied_permissions.iter().take(MAX_DENIED_PERMISSIONS).map(|permission| short(permission)).collect();
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
    /// How many sessions engines that have ended had opened, as far as their agents have last reported it.
    pub served: Vec<(EngineName, u64)>,
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
    /// The demand that no engine was found for, at most [`MAX_UNMET`] keys, if it has changed.
    pub unmet: Option<Vec<UnmetDemand>>,
}

/// An engine whose instance exists from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedEngine {
    pub name: EngineName,
    pub uid: String,
    /// The hash of the configuration that it was created from.
    pub config: String,
}

/// An engine that will never run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedEngine {
    pub name: EngineName,
    pub reason: String,
    /// Has no effect on an engine that was condemned with a word. `None` in reports of older masters.
    #[serde(default)]
    pub class: Option<EndClass>,
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
