//! Everything that the database knows, read in one read-only transaction: what a master plans from.

use serde::{Deserialize, Serialize};

use crate::alteration::AlterationRecord;
use crate::catalog::Catalog;
use crate::engine_name::EngineName;
use crate::number::{Epoch, Incarnation};
use crate::observation::{ClusterWarnings, ObservedEngine};
use crate::slot::{Slot, SlotKey};

/// A row of table `engine`: every name ever issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineRecord {
    /// Its name.
    pub name: EngineName,
    /// Its slot.
    pub slot: SlotKey,
    /// Which of the slot's engines.
    pub incarnation: Incarnation,
    /// The orchestrator's id, once its pod or process was made. Never changes after that.
    pub uid: Option<String>,
    /// The hash of the configuration that it was made from; empty until then.
    pub config: String,
    /// When the name was issued, in milliseconds since 1970.
    pub issued_at_ms: i64,
    /// When the uid was recorded.
    pub started_at_ms: Option<i64>,
    /// How long it may go on when it is condemned; set by the transaction that took the wish away.
    pub end_grace_ms: Option<i64>,
    /// Why it is condemned; set by the same transaction.
    pub end_reason: Option<String>,
    /// When it was seen to have ended or vanished.
    pub ended_at_ms: Option<i64>,
    /// How it ended.
    pub ended_reason: Option<String>,
    /// The last lines of its log, kept when it failed.
    pub log_tail: Option<String>,
    /// How the engine before it in its slot ended. Read only for the present engine of a slot whose engines have failed
    /// one after another; no column of the row.
    #[serde(default)]
    pub failure_before: Option<String>,
}

/// The one row of table `master`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MasterRecord {
    /// The fencing token; 0 before the first master.
    pub epoch: Epoch,
    /// The lock node's path and session id of the master that raised it.
    pub holder: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
    /// When it last finished a tick.
    pub last_tick_ms: i64,
    /// What it waits for, if anything.
    pub waits_for: Option<String>,
    /// What it saw around the engines.
    #[serde(default, rename = "surroundings")]
    pub cluster_warnings: ClusterWarnings,
}

/// One consistent reading.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The database's clock at the time of reading, in milliseconds since 1970: the only clock that a plan knows.
    pub now_ms: i64,
    /// Tenants, pools, units and the generation.
    pub catalog: Catalog,
    /// The desired state.
    pub slots: Vec<Slot>,
    /// Every engine that has not ended, and those ended ones that are the present engine of a slot.
    pub engines: Vec<EngineRecord>,
    /// The committed alterations that are converging, and the stalled ones that no newer alteration replaced.
    pub alterations: Vec<AlterationRecord>,
    /// The master row.
    pub master: MasterRecord,
    /// Every namespace that an engine ever had and that is not forgotten.
    pub namespaces: Vec<String>,
}

/// What a proxy needs to know of the catalog: asked for every `snapshot_poll`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProxySnapshot {
    /// Tenants, pools, units and the generation; secret values masked.
    pub catalog: Catalog,
    /// The desired state.
    pub slots: Vec<Slot>,
    /// What the master last observed.
    pub observed: Vec<ObservedEngine>,
    /// The master row.
    pub master: MasterRecord,
    /// The agent's clock at the time of reading, in milliseconds since 1970.
    pub now_ms: i64,
}
