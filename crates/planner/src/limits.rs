//! The named limits of a plan.

use std::time::Duration;

use model::ledger::RESERVATION_TTL;
use model::millis;

use crate::admit::PATIENCE;

/// The first back-off of an engine that ended or could not be created.
pub const BACK_OFF_FIRST: Duration = Duration::from_secs(3);
/// The longest back-off.
pub const BACK_OFF_MOST: Duration = Duration::from_mins(5);
/// An engine that ran this long resets its slot's back-off.
pub const STEADY_LIFE: Duration = Duration::from_mins(1);
/// How long after its grace a running engine is deleted. Its agent counts the grace from when it first read the drain
/// order, which is later than the write.
pub const DELETE_AFTER_GRACE: Duration = Duration::from_secs(10);
/// The time that a deleted engine has to close its files.
pub const DELETE_GRACE: Duration = Duration::from_secs(2);

/// How long a node must have been not ready, or absent, before it alone is evidence that an engine on it is unreachable that has never
/// registered, or may not.
pub const NODE_ALONE: Duration = Duration::from_secs(30);

/// The configurable limits of plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many slots of one (tenant, pool, unit) with a stand-in may have a current engine that is not ready.
    pub surge: u32,
    /// The grace of a terminated engine when the statement sets none.
    pub drain_grace: Duration,
    /// The longest grace.
    pub drain_grace_max: Duration,
    /// How long a committed alteration may be *converging*, by the database's clock.
    pub alter_deadline: Duration,
    /// ZooKeeper's session timeout: how long a registration may outlive its engine.
    pub session_timeout: Duration,
    /// The time from an engine's start to its first registration.
    pub start_deadline: Duration,
    /// How long a running engine may be unregistered and silent before its slot is given another engine.
    pub replace_after: Duration,
    /// How long the node of an engine without a registration may be not ready, or absent, before its slot is given another engine.
    pub node_grace: Duration,
    /// How long an engine may hold a reservation before it registers. Longer than [`Self::start_deadline`].
    pub reservation_ttl: Duration,
    /// For how long smaller requests of a tenant may pass a larger one.
    pub patience: Duration,
    /// The most slots that demand adds to one link in a round.
    pub burst: u32,
    /// For how long demand must have been low before an engine that has not registered is cancelled.
    pub cancel_after: Duration,
    /// For how long no further idle engine of a link is released, unless all of them are.
    pub cooldown: Duration,
}

/// The default of [`Limits::node_grace`].
pub const NODE_GRACE: Duration = Duration::from_secs(5);
/// The default of [`Limits::burst`].
pub const BURST: u32 = 10;
/// The default of [`Limits::cancel_after`].
pub const CANCEL_AFTER: Duration = Duration::from_secs(30);
/// The default of [`Limits::cooldown`].
pub const COOLDOWN: Duration = Duration::from_secs(30);

impl Default for Limits {
    fn default() -> Self {
        Self {
            surge: 1,
            drain_grace: Duration::from_mins(30),
            drain_grace_max: Duration::from_hours(24),
            alter_deadline: Duration::from_mins(1),
            session_timeout: Duration::from_secs(10),
            start_deadline: Duration::from_mins(5),
            replace_after: Duration::from_mins(1),
            node_grace: NODE_GRACE,
            reservation_ttl: RESERVATION_TTL,
            patience: PATIENCE,
            burst: BURST,
            cancel_after: CANCEL_AFTER,
            cooldown: COOLDOWN,
        }
    }
}

impl Limits {
    /// The grace of an engine: that of its row in milliseconds, else the default; always finite.
    pub fn grace(&self, requested_ms: Option<i64>) -> Duration {
        requested_ms.map_or(self.drain_grace, millis::to_duration).min(self.drain_grace_max)
    }
}
