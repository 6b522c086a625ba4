//! The slot: the wish for one engine. The set of slot rows is the desired state, and nothing else is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::engine_name::EngineName;
use crate::name::{PoolName, TenantName, UnitName};
use crate::number::Incarnation;

/// One (tenant, pool, unit) that belongs together: the tenant lists the pool, the pool lists the unit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Link {
    /// The tenant.
    pub tenant: TenantName,
    /// The pool.
    pub pool: PoolName,
    /// The unit.
    pub unit: UnitName,
}

/// Identifies a slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotKey {
    /// The tenant.
    pub tenant: TenantName,
    /// The pool.
    pub pool: PoolName,
    /// The unit.
    pub unit: UnitName,
    /// Counts the slots of one (tenant, pool, unit) from 0; the lowest free one is taken first.
    pub ordinal: u32,
}

impl SlotKey {
    /// The (tenant, pool, unit) of the slot.
    pub fn link(&self) -> Link {
        Link { tenant: self.tenant.clone(), pool: self.pool.clone(), unit: self.unit.clone() }
    }

    /// The name of the slot's engine under the given incarnation.
    pub fn engine(&self, incarnation: Incarnation) -> EngineName {
        EngineName::from_slot(self, incarnation)
    }
}

impl fmt::Display for SlotKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.tenant, self.pool, self.unit, self.ordinal)
    }
}

/// Why a slot is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `MIN_ENGINES` asks for it.
    Minimum,
    /// START ENGINE asked for it.
    Start,
}

impl Origin {
    /// The word of the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minimum => "minimum",
            Self::Start => "start",
        }
    }

    /// Reads the word of the database.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Minimum, Self::Start].into_iter().find(|it| it.as_str() == word)
    }
}

/// A row of table `slot`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Which slot.
    pub key: SlotKey,
    /// The engine that is wanted in it now.
    pub incarnation: Incarnation,
    /// Why it is there.
    pub origin: Origin,
    /// How many engines of the slot in a row ended or failed before they had lived for a minute: sets the back-off.
    pub failures: u32,
    /// Whether the present incarnation was asked for with FORCE: it skips the stand-in and the turn.
    pub forced: bool,
}

impl Slot {
    /// The name of the slot's present engine.
    pub fn engine(&self) -> EngineName {
        self.key.engine(self.incarnation)
    }
}

/// A master's wish that a slot get a new incarnation, with the one that it observed: refused if that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// Which slot.
    pub slot: SlotKey,
    /// The incarnation that the decision was derived from.
    pub observed: Incarnation,
    /// The slot's [`Slot::failures`] from now on.
    pub failures: u32,
}
