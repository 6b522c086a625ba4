//! The slot: one desired engine. The set of slot rows is the desired state.

use std::fmt;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::end::GivenUp;
use crate::engine_name::EngineName;
use crate::name::{PoolName, TenantName, UnitName};
use crate::number::Incarnation;
use crate::owner::Owner;

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

    /// Whether that is its link, without copying it.
    pub fn is_of(&self, link: &Link) -> bool {
        self.tenant == link.tenant && self.pool == link.pool && self.unit == link.unit
    }

    /// Whether both are slots of one (tenant, pool, unit).
    pub fn has_link_of(&self, other: &Self) -> bool {
        // Most slots are compared with one of their own link, and units differ first.
        (&self.unit, &self.pool, &self.tenant) == (&other.unit, &other.pool, &other.tenant)
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
    /// Started by the master for sessions that waited, or as a spare; released when it is idle.
    Demand,
}

impl Origin {
    /// The word in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minimum => "minimum",
            Self::Start => "start",
            Self::Demand => "demand",
        }
    }

    /// Parses the word in the database.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Minimum, Self::Start, Self::Demand].into_iter().find(|origin| origin.as_str() == word)
    }
}

/// How the current engine of a slot takes over from the older ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replacement {
    /// The older engine serves until the current one has registered; slots take turns.
    #[default]
    StandIn,
    /// FORCE: the older engine ends at once, and the slot takes no turn.
    Force,
    /// IN PLACE: the older engine drains, in the slot's turn, and its reservation passes to the current one when its instance
    /// is gone. Kept by the incarnations that follow until an engine of the slot has registered.
    InPlace,
}

impl Replacement {
    /// The number in the database.
    pub const fn number(self) -> i64 {
        match self {
            Self::StandIn => 0,
            Self::Force => 1,
            Self::InPlace => 2,
        }
    }

    /// Parses the number in the database.
    pub fn from_number(number: i64) -> Option<Self> {
        [Self::StandIn, Self::Force, Self::InPlace].into_iter().find(|replacement| replacement.number() == number)
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
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Slot {
    pub key: SlotKey,
    /// The incarnation of the current engine.
    pub incarnation: Incarnation,
    pub origin: Origin,
    /// The number of consecutive engines of the slot that ended or failed within a minute of their start: sets the
    /// back-off.
    pub failures: u32,
    /// How the current incarnation takes over from the older engines of the slot.
    pub replacement: Replacement,
    /// The first incarnation of this row, which distinguishes its engines from those of an earlier row with the same key.
    pub born: Incarnation,
    /// `None` for a slot that is charged to no user, such as those of `MIN_ENGINES`.
    pub started_for: Option<StartedFor>,
    /// When the row was inserted, in milliseconds since 1970; 0 if that is unknown.
    pub asked_at_ms: i64,
    /// Whose sessions its current engine serves; `None` if the tenant shares it. Changes only together with the incarnation.
    #[serde(default)]
    pub owner: Option<Owner>,
}

/// Also writes `forced`, without which a master of an earlier version cannot read a snapshot. It replaces with a stand-in what is
/// to be replaced in place, so that it ends no engine too early.
impl Serialize for Slot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { key, incarnation, origin, failures, replacement, born, started_for, asked_at_ms, owner } = self;
        let mut fields = serializer.serialize_struct("Slot", 9 + usize::from(owner.is_some()))?;
        fields.serialize_field("key", key)?;
        fields.serialize_field("incarnation", incarnation)?;
        fields.serialize_field("origin", origin)?;
        fields.serialize_field("failures", failures)?;
        fields.serialize_field("replacement", replacement)?;
        fields.serialize_field("forced", &(*replacement == Replacement::Force))?;
        fields.serialize_field("born", born)?;
        fields.serialize_field("started_for", started_for)?;
        fields.serialize_field("asked_at_ms", asked_at_ms)?;
        if let Some(owner) = owner {
            fields.serialize_field("owner", owner)?;
        }
        fields.end()
    }
}

impl Slot {
    /// The name of the slot's current engine.
    pub fn engine(&self) -> EngineName {
        self.key.engine(self.incarnation)
    }

    /// How the next engine takes over that a master gives the slot: IN PLACE lasts until an engine of the slot has registered,
    /// so that a configuration that no engine starts with takes down no further slot.
    pub fn next_replacement(&self, has_registered: bool) -> Replacement {
        match self.replacement {
            Replacement::InPlace if !has_registered => Replacement::InPlace,
            _ => Replacement::StandIn,
        }
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
    /// The new value of [`Slot::replacement`].
    #[serde(default)]
    pub replacement: Replacement,
    /// Why the older engines of the slot are condemned; `None` if they stand in.
    #[serde(default)]
    pub condemn: Option<String>,
    /// How the engine of the observed incarnation ends, unless it has ended or was condemned before; `None` if it is superseded.
    #[serde(default)]
    pub ends: Option<GivenUp>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The fields of version 0.1.0.
    #[derive(Debug, PartialEq, Deserialize)]
    struct Earlier {
        key: SlotKey,
        incarnation: Incarnation,
        origin: Origin,
        failures: u32,
        forced: bool,
    }

    #[test]
    fn a_master_of_an_earlier_version_reads_a_slot() {
        for (replacement, forced) in
            [(Replacement::StandIn, false), (Replacement::Force, true), (Replacement::InPlace, false)]
        {
            let key = SlotKey {
                tenant: TenantName::new("t_1").unwrap(),
                pool: PoolName::new("rp_1").unwrap(),
                unit: UnitName::new("uc_1").unwrap(),
                ordinal: 2,
            };
            let slot = Slot {
                key: key.clone(),
                incarnation: Incarnation(9),
                origin: Origin::Start,
                failures: 1,
                replacement,
                born: Incarnation(5),
                started_for: None,
                asked_at_ms: 7,
                owner: (!forced).then(|| Owner::User("ann".to_owned())),
            };
            let written = serde_json::to_string(&slot).unwrap();
            let earlier = Earlier { key, incarnation: Incarnation(9), origin: Origin::Start, failures: 1, forced };
            assert_eq!(serde_json::from_str::<Earlier>(&written).unwrap(), earlier, "{written}");
            assert_eq!(serde_json::from_str::<Slot>(&written).unwrap(), slot, "{written}");
            assert_eq!(Replacement::from_number(replacement.number()), Some(replacement));
        }
    }
}
