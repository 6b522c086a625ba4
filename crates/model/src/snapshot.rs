//! Snapshots: the database read in one read-only transaction, for a master to plan from and for a proxy to route by.
//!
//! A field `…_ms` is a number of milliseconds as its row has it: a length, or a time since 1970 by the database's clock. Lengths
//! of time that are neither in rows nor on the wire are [`Duration`](std::time::Duration)s; [`crate::millis`] converts.

use serde::{Deserialize, Serialize};

use crate::alteration::AlterationRecord;
use crate::catalog::Catalog;
use crate::demand::Demand;
use crate::demand_report::UnmetDemand;
use crate::end::EndWord;
use crate::engine_name::EngineName;
use crate::ledger::Ledger;
use crate::number::{Epoch, Incarnation};
use crate::observation::{ClusterWarnings, ObservedEngine};
use crate::shared::Shared;
use crate::slot::{Slot, SlotKey};

/// A row of table `engine`: one for every name ever issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineRecord {
    pub name: EngineName,
    pub slot: SlotKey,
    pub incarnation: Incarnation,
    /// The orchestrator's id, recorded when its pod or process was created. Never changes after that.
    pub uid: Option<String>,
    /// The hash of the configuration that it was created from; empty until then.
    pub config: String,
    /// When the name was issued, in milliseconds since 1970.
    pub issued_at_ms: i64,
    /// When the uid was recorded, in milliseconds since 1970.
    pub started_at_ms: Option<i64>,
    /// The grace period for its termination; set by the transaction that condemned it.
    pub end_grace_ms: Option<i64>,
    /// Why it is condemned; set by the same transaction.
    pub end_reason: Option<String>,
    /// When it was observed to have ended or vanished, in milliseconds since 1970.
    pub ended_at_ms: Option<i64>,
    /// How it ended. Of an engine that its slot has given up, why; that is recorded before its end.
    pub ended_reason: Option<String>,
    /// Why it is to end or has ended: set by the transaction that condemned it, else by that which recorded its end.
    #[serde(default)]
    pub ended_word: Option<EndWord>,
    /// Of a start that failed, whether the same start may succeed later; set with the word.
    #[serde(default)]
    pub retryable: Option<bool>,
    /// The last lines of its log, if it failed.
    pub log_tail: Option<String>,
    /// How the previous engine in its slot ended. Read only for the current engine of a slot with consecutive
    /// failures; not a column of the row.
    #[serde(default)]
    pub failure_before: Option<String>,
}

/// The one row of table `master`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MasterRecord {
    /// The fencing token; 0 before the first master.
    pub epoch: Epoch,
    /// The lock node's path and the session id of the master that raised the epoch.
    pub holder: String,
    /// When the epoch was raised, in milliseconds since 1970.
    pub since_ms: i64,
    /// When it last finished a tick, in milliseconds since 1970.
    pub last_tick_ms: i64,
    pub waits_for: Option<String>,
    #[serde(default, rename = "surroundings")]
    pub cluster_warnings: ClusterWarnings,
}

/// One consistent reading.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The database's clock at the time of reading, in milliseconds since 1970: the only clock of a plan.
    pub now_ms: i64,
    pub catalog: Catalog,
    /// The desired state.
    pub slots: Vec<Shared<Slot>>,
    /// Every engine that has not ended, and ended ones that are the current engine of a slot.
    pub engines: Vec<Shared<EngineRecord>>,
    /// The committed alterations that are converging, and stalled ones that no newer alteration replaced.
    pub alterations: Vec<AlterationRecord>,
    pub master: MasterRecord,
    /// Every namespace that ever had an engine and was not forgotten.
    pub namespaces: Vec<String>,
    /// The pools, tenants on pools, and the users and creators of requests; the charged and the waiting reservations, and
    /// the ended ones of current engines and of engines that have not ended.
    pub ledger: Ledger,
    /// The sessions that wait for an engine, added up by key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demand: Vec<Demand>,
}

impl Snapshot {
    /// Whether the charge of an engine ended before the end of the last tick. If such an engine is still listed, its node has
    /// failed: a tick that finds an instance ended returns the charge first, and records the end of the engine before its own.
    pub fn is_uncharged(&self, engine: &str) -> bool {
        let ended = self.ledger.reservation(engine).filter(|reservation| reservation.state.is_ended());
        ended.and_then(|reservation| reservation.ended_at_ms).is_some_and(|at_ms| at_ms < self.master.last_tick_ms)
    }
}

/// The part of the database that a proxy routes by: read every `snapshot_poll`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProxySnapshot {
    /// With secret values masked.
    pub catalog: Catalog,
    /// The desired state.
    pub slots: Vec<Slot>,
    /// The rows of the master's last reports.
    pub observed: Vec<ObservedEngine>,
    pub master: MasterRecord,
    /// The demand that no engine was found for, as the master last reported it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<UnmetDemand>,
    /// The agent's clock at the time of reading, in milliseconds since 1970.
    pub now_ms: i64,
}
