//! What scaling decides for one scaling group.

/// The decisions of one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scaled<Id> {
    /// The slots that end, in this order. Each is named once.
    pub removals: Vec<Removal<Id>>,
    /// The number of slots to add.
    pub start: u64,
    /// The number of slots after that.
    pub declared: u64,
    /// The waiting sessions that neither free seats, nor pending engines, nor those to start will serve.
    pub unmet: u64,
    /// What limits the start while sessions are unmet; `None` if none is.
    pub unmet_reason: Option<UnmetReason>,
}

/// A slot that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal<Id> {
    pub id: Id,
    pub reason: RemovalReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemovalReason {
    /// The slot is queued: its demand is assigned again, to any link.
    Queued,
    /// No session needs the engine, which is not registered yet.
    Unneeded,
    /// The engine has been idle for the timeout. It is removed only with the consent of its agent.
    Idle,
    /// The group has more engines than its maximum: the engine drains.
    OverMax,
    /// The engine drains because it is outdated. Its slot is not counted.
    Outdated,
}

/// Why waiting sessions are unmet: the limit that allows the fewest engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnmetReason {
    /// The group has its maximum.
    Max,
    /// No more engines are admitted: a quota, the pool or its nodes are short.
    Quota,
    /// A start has failed and waits.
    BackOff,
    /// The next round starts more.
    Burst,
}

impl RemovalReason {
    /// The word in outputs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Unneeded => "unneeded",
            Self::Idle => "idle",
            Self::OverMax => "over-max",
            Self::Outdated => "outdated",
        }
    }
}

impl UnmetReason {
    /// The word in outputs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Quota => "quota",
            Self::BackOff => "back-off",
            Self::Burst => "burst",
        }
    }
}

impl<Id> Scaled<Id> {
    /// Whether the round changes nothing.
    pub fn is_noop(&self) -> bool {
        self.removals.is_empty() && self.start == 0
    }

    /// The slots that end for this reason, in order.
    pub fn removed(&self, reason: RemovalReason) -> impl Iterator<Item = &Id> {
        self.removals.iter().filter(move |removal| removal.reason == reason).map(|removal| &removal.id)
    }
}
