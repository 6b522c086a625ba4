//! What a master records of the ledger apart from changes of reservations: capacities that it measured, what an admission
//! round left in the queues, and the periodic expiry and audit.
//!
//! Each is one call under the epoch of the master; a deposed master records nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::audit::Drift;
use super::reservation::Reservation;
use crate::name::PoolName;
use crate::quota::Limit;
use crate::resource::Triple;

/// What to record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerRecord {
    /// The requests that an admission round left in the queue of each pool whose engines it has counted.
    Admission(BTreeMap<PoolName, i64>),
    /// The capacities of pools with `CAPACITY NODES`, in requests.
    Capacity(BTreeMap<PoolName, Triple<Limit>>),
    /// Ends overdue external reservations and waits, a bounded number of them.
    Expiry,
    /// Recomputes what scopes hold and corrects differences.
    Audit,
}

/// What recording did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerRecorded {
    Done,
    /// The reservations that have ended; more may be due unless there is none.
    Expired(Vec<Arc<Reservation>>),
    /// The differences that were corrected; none is expected.
    Audited(Vec<Drift>),
}
