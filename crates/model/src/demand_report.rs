//! The call with which a proxy records its waiting sessions, and its answer.
//!
//! A report is the whole demand of a proxy: it replaces what the proxy recorded before. Reports are numbered, so one that
//! arrives late changes nothing.

use serde::{Deserialize, Serialize};

use crate::catalog::Catalog;
use crate::demand::DemandKey;
use crate::number::Generation;

/// The waiting sessions of one proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemandReport {
    /// The id of the proxy's process, at most 64 bytes: a proxy that is started again has another one.
    pub proxy: String,
    /// Higher with each report of the process, from 1.
    pub seq: i64,
    /// How long the report is valid, in milliseconds from its transaction on.
    pub lease_ms: i64,
    /// Each key once, at most [`MAX_DEMAND_KEYS`](crate::demand::MAX_DEMAND_KEYS).
    pub demand: Vec<WaitingSessions>,
}

/// Sessions that wait under one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingSessions {
    pub key: DemandKey,
    /// How many of them wait; at least 1.
    pub sessions: u64,
    /// How long the first of them has been waiting, in milliseconds.
    pub waited_ms: i64,
}

/// Demand that no engine was found for, as a master reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmetDemand {
    pub key: DemandKey,
    /// How many of its sessions have neither a seat nor an engine on its way.
    pub sessions: u64,
    /// What they wait for: lower case, no full stop.
    pub reason: String,
    /// Their place in the queue of the resource pool, from 1, if they are short of capacity.
    pub position: Option<usize>,
    /// Whether no engine can ever serve them with the current catalog and limits.
    #[serde(default)]
    pub is_futile: bool,
    /// [`Catalog::newest_change`](crate::catalog::Catalog::newest_change) for the tenant in the plan that found it: 0 in older
    /// reports.
    #[serde(default)]
    pub generation: Generation,
}

impl UnmetDemand {
    /// Whether its sessions wait in vain: not if the catalog that the caller has read is newer than the report's, because what
    /// has changed since may have removed the reason.
    pub fn is_in_vain(&self, catalog: &Catalog) -> bool {
        self.is_futile && self.generation >= catalog.newest_change(&self.key.tenant)
    }
}

/// What a report changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DemandRecorded {
    /// The demand is recorded; more sessions than before wait under one of the keys.
    Increased,
    /// The demand is recorded, and under no key do more sessions wait than before.
    Recorded,
    /// A later report was recorded before; this one has no effect.
    Superseded,
}
