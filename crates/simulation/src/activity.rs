//! What happened in a run, and what the judge remembers of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::alteration::{Outcome, RequestId};
use model::engine_name::EngineName;
use model::owner::Owner;
use model::slot::SlotKey;

use crate::judge::seen::Seen;

/// What a check follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Statement,
    /// A transaction that adds and removes slots.
    Scale,
    /// Another effect of a master.
    Effect,
    Other,
}

/// What happened in a run: with too little of it, the run shows nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    pub events: u64,
    pub ticks: u64,
    /// The slots at the end of each tick, added up.
    pub slots: u64,
    pub terms: u64,
    pub statements: u64,
    pub faults: u64,
    pub arrived: u64,
    pub waited: u64,
    pub opened: u64,
    pub moved: u64,
    pub gave_up: u64,
    pub created: u64,
    pub registered: u64,
    pub added: u64,
    pub cancelled: u64,
    pub released: u64,
    pub late_calls: u64,
    /// Alterations that were aborted by their agents.
    pub aborted: u64,
    /// Alterations in doubt that a master has settled.
    pub settled: u64,
    /// Metadata agents that died with an alteration.
    pub agents_died: u64,
    /// Engines that were replaced because of their machine.
    pub lost: u64,
    /// Ticks in which too many machines had failed.
    pub suspended: u64,
    /// How often the database was restored to an older state.
    pub restored: u64,
    /// Engines that the database did not know and that were drained.
    pub unknown: u64,
    /// Sessions that an engine of another owner refused.
    pub refused_owners: u64,
}

/// What the judge remembers.
#[derive(Debug, Default)]
pub struct Judge {
    /// What it has seen of the database.
    pub seen: Seen,
    /// The engines that have registered since it looked last.
    pub registering: Vec<EngineName>,
    /// The uids that have registered.
    pub registered: BTreeSet<String>,
    pub registered_at: BTreeMap<EngineName, Duration>,
    pub condemned_at: BTreeMap<EngineName, Duration>,
    /// Engines that a statement ended with FORCE.
    pub forced: BTreeSet<EngineName>,
    pub recorded: BTreeSet<EngineName>,
    /// What was reported of each alteration.
    pub outcomes: BTreeMap<RequestId, Outcome>,
    pub committed_at: BTreeMap<RequestId, Duration>,
    /// The alterations that the database knew before it was restored.
    pub lost: BTreeSet<RequestId>,
    pub uncharged: BTreeMap<EngineName, Duration>,
    /// The owners of engines.
    pub owners: BTreeMap<EngineName, Option<Owner>>,
    /// Names that a restored database has lost. They may be issued again while their engines run, even for another owner.
    pub lost_names: BTreeSet<EngineName>,
    /// The highest number of a report that each process of a proxy has had recorded.
    pub reported: BTreeMap<String, i64>,
    /// The engines that may be replaced because of their machine, when a master last observed; `None`: that is not known.
    pub evidence: Option<BTreeSet<EngineName>>,
    /// When too many machines had failed last.
    pub suspended_at: Option<Duration>,
    /// The slots with two engines that are registered.
    pub doubled: BTreeMap<SlotKey, Duration>,
    /// The uids of instances that were deleted while their machine had failed.
    pub deleted: BTreeSet<String>,
    /// Whether the call that is judged arrives late: what it creates is removed.
    pub is_late: bool,
}
