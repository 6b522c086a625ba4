//! The named limits of a plan, in milliseconds.

use serde::{Deserialize, Serialize};

/// The first back-off of an engine that ended or could not be created.
pub const BACK_OFF_FIRST_MS: i64 = 3_000;
/// The longest back-off.
pub const BACK_OFF_MOST_MS: i64 = 300_000;
/// An engine that ran this long resets its slot's back-off.
pub const STEADY_LIFE_MS: i64 = 60_000;
/// How long after its grace a running engine is deleted. Its agent counts the grace from when it first read the drain
/// order, which is later than the write.
pub const DELETE_AFTER_GRACE_MS: i64 = 10_000;
/// The time that a deleted engine has to close its files.
pub const DELETE_GRACE_MS: i64 = 2_000;

/// The configurable limits of plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How many slots of one (tenant, pool, unit) with a stand-in may have a current engine that is not ready.
    pub surge: u32,
    /// The grace of a terminated engine when the statement sets none.
    pub drain_grace_ms: i64,
    /// The longest grace.
    pub drain_grace_max_ms: i64,
    /// How long a committed alteration may be *converging*, by the database's clock.
    pub alter_deadline_ms: i64,
    /// ZooKeeper's session timeout: how long a registration may outlive its engine.
    pub session_timeout_ms: u64,
    /// The time from an engine's start to its first registration.
    pub start_deadline_ms: u64,
    /// How long a running engine may be unregistered and silent before its slot is given another engine.
    pub replace_after_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            surge: 1,
            drain_grace_ms: 30 * 60_000,
            drain_grace_max_ms: 24 * 3_600_000,
            alter_deadline_ms: 60_000,
            session_timeout_ms: 10_000,
            start_deadline_ms: 300_000,
            replace_after_ms: 60_000,
        }
    }
}

impl Limits {
    /// The grace of an engine: the requested one, else the default; always finite and never negative.
    pub fn grace_ms(&self, requested: Option<i64>) -> i64 {
        requested.unwrap_or(self.drain_grace_ms).clamp(0, self.drain_grace_max_ms.max(0))
    }
}
