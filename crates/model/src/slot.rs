//! The slot: one desired engine. The set of slot rows is the desired state.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::engine_name::EngineName;
use crate::name::{PoolName, TenantName, UnitName};
use crate::number::Incarnation;

/// One (tenant, pool, unit) where the tenant lists the pool and the pool lists the unit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Link {
    pub tenant: TenantName,
    pub pool: PoolName,
    pub unit: UnitName,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotKey {
    pub tenant: TenantName,
    pub pool: PoolName,
    pub unit: UnitName,
    /// Numbers the slots of one (tenant, pool, unit) from 0; the lowest free number is taken first.
    pub ordinal: u32,
}

impl SlotKey {
    pub fn link(&self) -> Link {
        Link { tenant: self.tenant.clone(), pool: self.pool.clone(), unit: self.unit.clone() }
    }

    /// The name of the slot's engine with this incarnation.
    pub fn engine(&self, incarnation: Incarnation) -> EngineName {
        let names = [self.tenant.as_str(), self.pool.as_str(), self.unit.as_str()];
        EngineName::from_parts(names, self.ordinal, incarnation)
    }
}

impl fmt::Display for SlotKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.tenant, self.pool, self.unit, self.ordinal)
    }
}

/// Why a slot exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Required by `MIN_ENGINES`.
    Minimum,
    /// Requested by START ENGINE.
    Start,
}

impl Origin {
    /// The word in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minimum => "minimum",
            Self::Start => "start",
        }
    }

    /// Parses the word in the database.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Minimum, Self::Start].into_iter().find(|origin| origin.as_str() == word)
    }
}

/// The user and the client application that a slot was started for: its engines are charged to both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StartedFor {
    pub user: String,
    /// The client application.
    pub creator: String,
}

/// A row of table `slot`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    pub key: SlotKey,
    /// The incarnation of the current engine.
    pub incarnation: Incarnation,
    pub origin: Origin,
    /// The number of consecutive engines of the slot that ended or failed within a minute of their start: sets the
    /// back-off.
    pub failures: u32,
    /// Whether the current incarnation was requested with FORCE: it skips the stand-in and its turn.
    pub forced: bool,
    /// The first incarnation of this row, which distinguishes its engines from those of an earlier row with the same key.
    pub born: Incarnation,
    /// `None` for a slot that is charged to no user, such as those of `MIN_ENGINES`.
    pub started_for: Option<StartedFor>,
    /// When the row was inserted, in milliseconds since 1970; 0 if that is unknown.
    pub asked_at_ms: i64,
}

impl Slot {
    /// The name of the slot's current engine.
    pub fn engine(&self) -> EngineName {
        self.key.engine(self.incarnation)
    }

    /// Whether an engine of this incarnation belongs to this row, and not to an earlier one with the same key.
    pub fn owns(&self, incarnation: Incarnation) -> bool {
        self.born <= incarnation
    }
}

/// A master's request for a new incarnation of a slot, with the observed one: refused if that has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    pub slot: SlotKey,
    /// The incarnation that the decision was derived from.
    pub observed: Incarnation,
    /// The new value of [`Slot::failures`].
    pub failures: u32,
    /// Why the older engines of the slot are condemned; `None` if they stand in.
    #[serde(default)]
    pub condemn: Option<String>,
}
