//! Reservations: who holds which charge, and the states that a reservation passes through.
//!
//! | from | to | when |
//! | --- | --- | --- |
//! | none | `waiting` | an external program requests and accepts a wait |
//! | none, `waiting` | `locked` | the request is granted |
//! | `locked` | `used` | the holder confirms |
//! | none, ended | `used` | a running engine is adopted |
//! | `locked`, `used` | `released` | the holder releases; the engine has ended and has no instance; it is transferred |
//! | `locked`, `used` | `lost` | the instance vanished, its node failed, or an external lease ended |
//! | `waiting`, `locked` | `expired` | the deadline passed and no instance exists |
//! | not ended, external | `cancelled` | CANCEL RESERVATION |
//!
//! `locked` and `used` are charged, and so is an engine that drains or terminates: a charge is returned only when the
//! instance that it paid for is gone. A change that was decided from an older state is refused unless the table has its
//! transition.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::scope::Scopes;
use crate::charge::{Charge, Total};
use crate::name::{PoolName, TenantName, UnitName};
use crate::number::{Epoch, Incarnation};
use crate::resource::{Amount, MAX_AMOUNT, Resource};
use crate::slot::Link;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Waiting,
    Locked,
    Used,
    Released,
    Lost,
    Expired,
    Cancelled,
}

impl State {
    pub const ALL: [Self; 7] =
        [Self::Waiting, Self::Locked, Self::Used, Self::Released, Self::Lost, Self::Expired, Self::Cancelled];

    /// The word in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Locked => "locked",
            Self::Used => "used",
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// Parses the word in the database.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    pub const fn is_charged(self) -> bool {
        matches!(self, Self::Locked | Self::Used)
    }

    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Released | Self::Lost | Self::Expired | Self::Cancelled)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a reservation may become `to`; `from` is `None` if there is none.
pub const fn is_transition(from: Option<State>, to: State, is_external: bool) -> bool {
    use State::{Cancelled, Expired, Locked, Lost, Released, Used, Waiting};
    match (from, to) {
        (None, Waiting) | (Some(Waiting), Locked) | (Some(Waiting | Locked | Used), Cancelled) => is_external,
        (None, Used) => !is_external,
        (Some(ended), Used) if ended.is_ended() => !is_external,
        (None, Locked)
        | (Some(Locked), Used)
        | (Some(Locked | Used), Released | Lost)
        | (Some(Waiting | Locked), Expired) => true,
        _ => false,
    }
}

/// What a holder is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Amounts {
    nominal: Amount,
    requests: Amount,
}

impl Amounts {
    /// The same for users, creators and tenants as for the pool. `None` if a component is not from 0 to [`MAX_AMOUNT`].
    pub fn same(amount: Amount) -> Option<Self> {
        Self::new(amount, amount.cpu_m, amount.memory)
    }

    /// `None` if a component is not from 0 to [`MAX_AMOUNT`].
    pub fn new(nominal: Amount, request_cpu_m: i64, request_memory: i64) -> Option<Self> {
        let requests = Amount { cpu_m: request_cpu_m, memory: request_memory, engines: nominal.engines };
        let is_within = |amount: &Amount| !Amount::ZERO.any_more(amount) && !amount.any_more(&Amount::all(MAX_AMOUNT));
        (is_within(&nominal) && is_within(&requests)).then_some(Self { nominal, requests })
    }

    /// What an engine is charged. `None` if a component is more than [`MAX_AMOUNT`].
    pub fn of_engine(charge: &Charge) -> Option<Self> {
        let amount = |total: Total| {
            Some(Amount {
                cpu_m: i64::try_from(total.cpu_millis).ok()?,
                memory: i64::try_from(total.memory_bytes).ok()?,
                engines: i64::try_from(total.engines).ok()?,
            })
        };
        let requests = amount(charge.requests())?;
        Self::new(amount(charge.nominal())?, requests.cpu_m, requests.memory)
    }

    /// The larger one of each component.
    #[must_use]
    pub fn maximum(&self, other: &Self) -> Self {
        Self { nominal: self.nominal.maximum(&other.nominal), requests: self.requests.maximum(&other.requests) }
    }

    /// What users, creators and tenants are charged: sizes before `CPU_OVERCOMMIT` divides the CPU.
    pub const fn nominal(&self) -> &Amount {
        &self.nominal
    }

    /// What the pool is charged.
    pub const fn requests(&self) -> &Amount {
        &self.requests
    }
}

/// What holds a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// One incarnation of a slot. Its request key is its name, the id of the reservation.
    Engine { unit: UnitName, incarnation: Incarnation },
    /// A program that shares the pool. Its instance cannot be observed, so every state before the end has a deadline.
    External {
        /// User and idempotency key.
        key: Arc<str>,
        /// The instance of the program that requests.
        instance: Arc<str>,
    },
}

impl Holder {
    pub const fn is_external(&self) -> bool {
        matches!(self, Self::External { .. })
    }
}

/// A request for a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The engine's name, or a UUID.
    pub id: Arc<str>,
    pub holder: Holder,
    /// All engines of one slot; of an external holder its own id. All requests of a lineage have the same scopes.
    pub lineage: Arc<str>,
    pub scopes: Scopes,
    pub amounts: Amounts,
    /// What was asked for, before a policy or a configuration made it amounts.
    pub asked: Option<Resource>,
    /// How long it may stay unconfirmed; `None` for engines without a limit of it.
    pub ttl_ms: Option<i64>,
}

impl Request {
    /// Whether it is that of an engine that has no slot yet.
    pub fn is_unplaced(&self) -> bool {
        matches!(self.holder, Holder::Engine { incarnation: Incarnation::UNDRAWN, .. })
    }

    /// What identifies a repeat of the request.
    pub fn key(&self) -> &Arc<str> {
        match &self.holder {
            Holder::Engine { .. } => &self.id,
            Holder::External { key, .. } => key,
        }
    }

    /// The tenant, pool and unit of an engine; `None` for an external holder.
    pub fn link(&self) -> Option<Link> {
        let Holder::Engine { unit, .. } = &self.holder else { return None };
        let (tenant, pool) = (self.scopes.tenant_name(), self.scopes.pool_name());
        Some(Link { tenant: TenantName::new(tenant).ok()?, pool: PoolName::new(pool).ok()?, unit: unit.clone() })
    }

    /// What is requested, as in messages: `an engine of resource unit "uc_1"`.
    pub fn what(&self) -> String {
        match &self.holder {
            Holder::Engine { unit, .. } => format!("an engine of resource unit \"{unit}\""),
            Holder::External { .. } => format!("a reservation on resource pool \"{}\"", self.scopes.pool_name()),
        }
    }

    /// Whether this is a repeat of `other`, which has the same key. The id of an external holder is drawn for each
    /// attempt.
    pub fn repeats(&self, other: &Self) -> bool {
        let is_same_holder = match (&self.holder, &other.holder) {
            (Holder::External { .. }, Holder::External { .. }) => self.holder == other.holder,
            _ => self.holder == other.holder && self.id == other.id && self.lineage == other.lineage,
        };
        is_same_holder && (&self.scopes, self.amounts, &self.asked) == (&other.scopes, other.amounts, &other.asked)
    }
}

/// A reservation. A copy that is stale decides nothing: each change of it is refused unless its state allows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub request: Arc<Request>,
    pub state: State,
    /// What is charged while the state is: those of the request, or the actual ones that the holder confirmed.
    pub amounts: Amounts,
    /// What the holder confirmed to use.
    pub actual: Option<Resource>,
    /// The instance that uses it.
    pub uid: Option<Arc<str>>,
    /// The epoch of the master that changed it last; 0 without one.
    pub epoch: Epoch,
    pub asked_at_ms: i64,
    pub locked_at_ms: Option<i64>,
    pub used_at_ms: Option<i64>,
    pub ended_at_ms: Option<i64>,
    /// The end of the wait, of the time to confirm, or of an external lease.
    pub deadline_ms: Option<i64>,
    /// Why it ended.
    pub reason: Option<Arc<str>>,
}

impl Reservation {
    pub fn id(&self) -> &Arc<str> {
        &self.request.id
    }

    /// Whether its deadline has passed.
    pub fn is_overdue(&self, now_ms: i64) -> bool {
        self.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the table above, written as pairs of words.
    const TABLE: &[(&str, &str, &str)] = &[
        ("", "waiting", "external"),
        ("", "locked", "both"),
        ("waiting", "locked", "external"),
        ("locked", "used", "both"),
        ("", "used", "engine"),
        ("released", "used", "engine"),
        ("lost", "used", "engine"),
        ("expired", "used", "engine"),
        ("cancelled", "used", "engine"),
        ("locked", "released", "both"),
        ("used", "released", "both"),
        ("locked", "lost", "both"),
        ("used", "lost", "both"),
        ("waiting", "expired", "both"),
        ("locked", "expired", "both"),
        ("waiting", "cancelled", "external"),
        ("locked", "cancelled", "external"),
        ("used", "cancelled", "external"),
    ];

    #[test]
    fn only_the_transitions_of_the_table_are_allowed() {
        let froms = std::iter::once(None).chain(State::ALL.map(Some));
        for from in froms {
            for to in State::ALL {
                for is_external in [false, true] {
                    let word = from.map_or("", State::as_str);
                    let holder = if is_external { "external" } else { "engine" };
                    let expected = TABLE.iter().any(|(one, other, holders)| {
                        (*one, *other) == (word, to.as_str()) && (*holders == "both" || *holders == holder)
                    });
                    assert_eq!(is_transition(from, to, is_external), expected, "{holder}: {from:?} to {to:?}");
                }
            }
        }
    }

    #[test]
    fn words_of_states_are_read_back() {
        assert!(State::ALL.into_iter().all(|state| State::from_word(state.as_str()) == Some(state)));
        assert_eq!(State::from_word("gone"), None);
    }

    #[test]
    fn amounts_are_from_0_to_the_largest_amount_of_a_request() {
        assert!(Amounts::same(Amount::all(MAX_AMOUNT)).is_some());
        assert_eq!(Amounts::same(Amount { engines: -1, ..Amount::ZERO }), None);
        assert_eq!(Amounts::new(Amount::ZERO, MAX_AMOUNT + 1, 0), None);
        assert_eq!(Amounts::new(Amount::ZERO, 0, -1), None);
    }
}
