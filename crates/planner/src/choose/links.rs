//! What demand is assigned to: links with their groups, and pools, as they were read.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use model::engine_type::EngineType;
use model::ledger::Counter;
use model::owner::{Owner, SharedBy};
use model::quota::Limit;
use model::resource::{Amount, Component};
use model::slot::Link;
use model::type_selector::TypeSelector;

use crate::scale::{EngineCondition, Group};

/// For how long capacity that has appeared is used last: a node that has just joined may leave again.
pub const NEW_CAPACITY: Duration = Duration::from_mins(1);

/// The steps in which the remaining fractions of pools are compared.
const FRACTION_STEPS: i128 = 10;

/// A (tenant, pool, unit).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkState {
    pub link: Link,
    pub engine_type: EngineType,
    /// The version of the engine, from its image; `None` if it is unknown.
    pub version: Option<String>,
    pub shared_by: SharedBy,
    pub starts_on_demand: bool,
    /// Whether an engine fits into the limits and the nodes while nothing else runs.
    pub can_ever_fit: bool,
    /// How many slots it can have in addition, up to `MAX_ENGINES`.
    pub below_max: u64,
    /// How many more engines of the link admission would grant now if no other link had requests. `u64::MAX` if nothing is
    /// limited.
    pub admissible: u64,
    /// What an engine requests of the pool.
    pub engine: Amount,
    /// The seats of an engine.
    pub seats: NonZeroU64,
    /// The groups with engines, by owner. A group that is absent has none.
    pub groups: BTreeMap<Option<Owner>, GroupState>,
}

/// The seats of a scaling group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupState {
    /// The engines that serve.
    pub serving: u64,
    pub free_seats: u64,
    /// The engines that are on their way: those that hold a reservation and are not in back-off.
    pub pending: u64,
    pub is_backing_off: bool,
    /// Whether its last start failed for a reason that a repetition does not remove.
    pub is_refused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolCondition {
    Open,
    /// No engine can run in it.
    NoNodes,
    /// Its capacity is the one that a program registers, and none has.
    NotRegistered,
}

/// A resource pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolState {
    pub condition: PoolCondition,
    /// Its capacity and what is requested of it.
    pub counter: Counter,
    /// When its capacity last grew, by the database's clock, in milliseconds since 1970; `None` if that is long ago.
    pub grown_at_ms: Option<i64>,
}

impl<Id> From<&Group<Id>> for GroupState {
    fn from(group: &Group<Id>) -> Self {
        let serving = group.engines.iter().filter(|engine| engine.condition == EngineCondition::Serving);
        Self {
            serving: serving.count() as u64,
            free_seats: group.free_seats(),
            pending: group.pending.len() as u64,
            is_backing_off: group.backs_off(),
            is_refused: false,
        }
    }
}

impl LinkState {
    /// Whether the engine has the type, or the type and version, that a session asks for.
    pub fn has_type(&self, label: &str) -> bool {
        let selector = label.parse::<TypeSelector>();
        selector.is_ok_and(|selector| selector.selects(self.engine_type, self.version.as_deref()))
    }
}

impl PoolState {
    /// The remaining fraction in steps, from 0 to 10; 10 if nothing is limited.
    pub(super) fn fraction(&self) -> u8 {
        let fractions = Component::ALL.into_iter().map(|component| self.fraction_of(component));
        fractions.min().unwrap_or(FRACTION_STEPS as u8)
    }

    /// The remaining fraction of a component.
    pub(super) fn fraction_of(&self, component: Component) -> u8 {
        match self.counter.limit.get(component) {
            Limit::Unlimited => FRACTION_STEPS as u8,
            Limit::Of(limit) if limit <= 0 => 0,
            Limit::Of(limit) => {
                let limit = i128::from(limit);
                let left = (limit - i128::from(self.counter.held.get(component))).clamp(0, limit);
                (FRACTION_STEPS * left / limit) as u8
            }
        }
    }

    /// Whether the pool has what an engine requests.
    pub(super) fn admits(&self, engine: &Amount) -> bool {
        Component::ALL.into_iter().all(|component| self.counter.admits(component, engine.get(component)))
    }

    /// Counts engines that are to be started.
    pub(super) fn hold(&mut self, engine: &Amount, engines: u64) {
        let engines = i64::try_from(engines).unwrap_or(i64::MAX);
        let held = self.counter.held;
        self.counter.held = Amount::from_fn(|component| {
            held.get(component).saturating_add(engine.get(component).saturating_mul(engines))
        });
    }
}
