//! The result of assigning demand.

use std::collections::BTreeMap;

use model::demand::{DemandKey, ScalingGroup};

/// What every group is scaled for, and what becomes of every key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assignment {
    /// The groups that are assigned sessions.
    pub groups: BTreeMap<ScalingGroup, GroupDemand>,
    /// In the order in which they were assigned.
    pub keys: Vec<AssignedKey>,
}

/// The waiting sessions that a group is scaled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupDemand {
    pub waiting: u64,
    /// Since when the oldest of its keys has been waiting, by the database's clock, in milliseconds since 1970.
    pub since_ms: i64,
}

/// A key with the sessions of all proxies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignedKey {
    pub key: DemandKey,
    pub waiting: u64,
    /// By the database's clock, in milliseconds since 1970.
    pub since_ms: i64,
    /// The sessions for which there are seats: free, pending, or left by engines that an earlier key starts.
    pub seated: Vec<Seated>,
    /// The others; `None` if there are none.
    pub rest: Option<Rest>,
}

/// Sessions that take seats of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seated {
    pub group: ScalingGroup,
    pub sessions: u64,
}

/// The sessions of a key without a seat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    pub sessions: u64,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The group starts engines for them.
    Starts(ScalingGroup),
    /// They are assigned to the group, which starts no engine now. Every other link has an obstacle too.
    Waits(ScalingGroup, Obstacle),
    /// No engine can be started for them. They wait for a seat of an engine that exists or is on its way.
    WaitsForSeat(Futility),
    /// No engine can be started for them, and none exists: they wait in vain.
    Futile(Futility),
    /// The key does not name the owner by which all matching units are shared: its proxy has read an older catalog.
    OutdatedKey,
}

/// Why a group starts no engine now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obstacle {
    /// A start of the group has failed and waits for its next attempt.
    BackOff,
    /// The link has `MAX_ENGINES`.
    AtMaximum,
    /// A quota, the pool or its nodes are short.
    ShortOfCapacity,
}

/// Why no engine can be started for a key, whatever capacity becomes free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Futility {
    /// No link matches: of those that match everything before this label, none has its value.
    NoMatch(Label),
    /// No matching pool is open; the reason of the first.
    PoolHasNoNodes(ScalingGroup),
    /// No matching pool is open; the reason of the first.
    PoolIsNotRegistered(ScalingGroup),
    /// `START_ON_DEMAND` is FALSE for all units that match; the first.
    NotOnDemand(ScalingGroup),
    /// An engine is larger than what any matching link can ever have; the first.
    NeverFits(ScalingGroup),
    /// The last start of every group that matches failed for a reason that a repetition does not remove; the first.
    StartFails(ScalingGroup),
}

/// A label of a session that selects links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// The tenant has no pool with a unit.
    Tenant,
    Pool,
    Unit,
    EngineType,
}

impl Assignment {
    /// The keys for which waiting is futile.
    pub fn futile(&self) -> impl Iterator<Item = (&AssignedKey, &Futility)> {
        self.keys.iter().filter_map(|key| match &key.rest.as_ref()?.outcome {
            Outcome::Futile(reason) => Some((key, reason)),
            _ => None,
        })
    }
}
