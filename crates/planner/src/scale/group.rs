//! What scaling decides from: one scaling group, as it was read.
//!
//! A slot is in exactly one of the three lists. `Id` names it in the decisions.

use std::num::NonZeroU64;

/// A scaling group with its demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group<Id> {
    pub limits: ScalingLimits,
    /// The sessions that wait and are assigned to the group.
    pub waiting: u64,
    /// How many engines admission grants now. `None` before it was asked: then the result is what the group wants.
    pub admitted: Option<u64>,
    /// Whether a start of the group has failed and waits for its next attempt. Implied by a stalled slot in back-off; a slot whose
    /// older engine still runs may be in back-off too.
    pub is_backing_off: bool,
    /// Whether demand has been this low for `master.cancel_after`.
    pub has_lapsed: bool,
    /// Whether an idle engine of the link was released less than `master.cooldown` ago.
    pub is_cooling: bool,
    /// The slots with a registered engine, or with one that was registered and is not now.
    pub engines: Vec<ReadyEngine<Id>>,
    /// The slots whose engine holds a reservation, is not registered yet and is not in back-off.
    pub pending: Vec<PendingEngine<Id>>,
    /// The other slots: nothing of them is on its way.
    pub stalled: Vec<StalledSlot<Id>>,
}

/// The options of the unit and of the installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalingLimits {
    /// The seats of an engine. Where `SESSIONS_PER_ENGINE` is UNLIMITED, what an agent accepts.
    pub seats: NonZeroU64,
    /// `MIN_ENGINES`; 0 for a group with an owner.
    pub min: u64,
    /// `MAX_ENGINES` without the slots of the link's other groups. If it is below `min`, nothing is started above `max` and
    /// nothing is removed below `min`.
    pub max: u64,
    /// The idle engines that are kept while the group is in use.
    pub spare: u64,
    /// In milliseconds; `None` is NEVER.
    pub idle_timeout_ms: Option<u64>,
    /// The most engines that one round starts.
    pub burst: u64,
}

/// A slot with an engine that accepts sessions, or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyEngine<Id> {
    pub id: Id,
    /// Whether the slot was started on demand. Others end by statements only.
    pub is_on_demand: bool,
    pub condition: EngineCondition,
    pub occupancy: Occupancy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineCondition {
    Serving,
    /// It is to be replaced and cannot be within its slot.
    Outdated,
    /// It has a drain order: it serves no new session and counts for nothing.
    Draining,
}

/// What the agent of an engine reports of its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupancy {
    /// The engine is not registered, or its agent has not responded: it counts as full and busy.
    Unknown,
    /// It has no session and has agreed to retire: its seats are not free until the consent ends.
    Retiring,
    Sessions {
        taken: u64,
        /// Since the last session closed, in milliseconds; of no effect while a seat is taken.
        idle_ms: u64,
    },
}

/// A slot whose engine is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingEngine<Id> {
    pub id: Id,
    /// Whether the slot was started on demand.
    pub is_on_demand: bool,
    /// Whether an older engine of the slot still runs.
    pub has_stand_in: bool,
    /// Whether its instance exists.
    pub is_created: bool,
}

/// A slot without an engine that is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalledSlot<Id> {
    pub id: Id,
    /// Whether the slot was started on demand.
    pub is_on_demand: bool,
    /// Whether an older engine of the slot still runs.
    pub has_stand_in: bool,
    /// Whether its last start has failed and waits for the next attempt. Otherwise it is queued.
    pub is_backing_off: bool,
}

impl Occupancy {
    /// The taken seats, of an engine that has `seats`.
    pub fn taken(self, seats: NonZeroU64) -> u64 {
        match self {
            Self::Unknown => seats.get(),
            Self::Retiring => 0,
            Self::Sessions { taken, .. } => taken,
        }
    }

    /// The free seats, of an engine that has `seats`. It may have more sessions than that after an ALTER.
    pub fn free(self, seats: NonZeroU64) -> u64 {
        match self {
            Self::Unknown | Self::Retiring => 0,
            Self::Sessions { taken, .. } => seats.get().saturating_sub(taken),
        }
    }

    /// For how long it has been idle. An engine that retires has been so for long enough.
    pub(super) const fn idle_ms(self) -> u64 {
        match self {
            Self::Unknown => 0,
            Self::Retiring => u64::MAX,
            Self::Sessions { idle_ms, .. } => idle_ms,
        }
    }

    /// Orders engines by how long they have been idle, those that retire last.
    pub(super) fn idle_rank(self) -> (bool, u64) {
        (self == Self::Retiring, self.idle_ms())
    }
}

impl<Id> Group<Id> {
    /// How many slots count for the limits.
    pub fn slots(&self) -> u64 {
        let serving = self.engines.iter().filter(|engine| engine.condition == EngineCondition::Serving);
        (serving.count() + self.pending.len() + self.stalled.len()) as u64
    }

    /// Whether a start has failed and waits for its next attempt.
    pub fn backs_off(&self) -> bool {
        self.is_backing_off || self.stalled.iter().any(|slot| slot.is_backing_off)
    }

    /// The free seats of the engines that serve.
    pub fn free_seats(&self) -> u64 {
        let serving = self.engines.iter().filter(|engine| engine.condition == EngineCondition::Serving);
        sum(serving.map(|engine| engine.occupancy.free(self.limits.seats)))
    }

    /// The seats of the engines that are on their way.
    pub fn pending_seats(&self) -> u64 {
        self.limits.seats.get().saturating_mul(self.pending.len() as u64)
    }
}

/// A sum that stops at the largest number.
pub(super) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}
