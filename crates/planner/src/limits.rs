//! The named limits of a plan. All lengths of time are in milliseconds.

use serde::{Deserialize, Serialize};

/// The first back-off of an engine that ended or could not be created.
pub const BACK_OFF_FIRST_MS: i64 = 3_000;
/// The longest back-off.
pub const BACK_OFF_MOST_MS: i64 = 300_000;
/// An engine that lived this long has reset its slot's back-off.
pub const STEADY_LIFE_MS: i64 = 60_000;
/// How long after the end of its grace an engine that still runs is deleted: its agent counts the grace from when it
/// first saw the drain fact, which is later than the fact.
pub const DELETE_AFTER_GRACE_MS: i64 = 10_000;
/// What a running engine that is deleted gets to close its files.
pub const DELETE_GRACE_MS: i64 = 2_000;

/// What the installation's configuration says about plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How many slots of one (tenant, pool, unit) with a stand-in may have a present engine that is not ready.
    pub surge: u32,
    /// The grace of an engine that ends when nobody said another.
    pub drain_grace_ms: i64,
    /// The longest grace.
    pub drain_grace_max_ms: i64,
    /// How long a committed alteration may be *converging*, by the database's clock.
    pub alter_deadline_ms: i64,
    /// The session timeout of ZooKeeper: how long a registration may outlive its engine.
    pub session_timeout_ms: u64,
    /// How long an engine may take from its start to its first registration.
    pub start_deadline_ms: u64,
    /// How long an engine that runs may be without its registration and give no answer, before its slot is given another.
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
    /// The grace that an engine gets: what was said, else the default; always finite and never negative.
    pub fn grace_ms(&self, said: Option<i64>) -> i64 {
        said.unwrap_or(self.drain_grace_ms).clamp(0, self.drain_grace_max_ms.max(0))
    }
}
