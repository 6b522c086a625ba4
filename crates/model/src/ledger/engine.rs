//! The requests of engines: one reservation for each incarnation of a slot, under the name of its engine.
//!
//! The engines of a slot are one lineage from the insertion of its row on, so that a replacement is charged once to its
//! user, creator and tenant. An engine of an earlier row with the same key is a lineage of its own, and is charged to no
//! user: that row is gone.

use std::sync::Arc;
use std::time::Duration;

use super::reservation::{Amounts, Holder, Request};
use super::scope::Scopes;
use crate::charge::Charge;
use crate::name::TenantName;
use crate::number::Incarnation;
use crate::slot::{Slot, SlotKey};

/// How long a reservation may stay unconfirmed, by default: longer than an engine may take to start.
pub const RESERVATION_TTL: Duration = Duration::from_mins(6);

/// The lineage of an engine. `slot` is the row that has its key, if there is one.
pub fn lineage_of(key: &SlotKey, incarnation: Incarnation, slot: Option<&Slot>) -> Arc<str> {
    let first = slot.filter(|slot| slot.owns(incarnation)).map_or(incarnation, |slot| slot.born);
    format!("{key}#{first}").into()
}

/// The scopes that an engine is charged to. `slot` is the row that has its key, if there is one.
pub fn engine_scopes(key: &SlotKey, incarnation: Incarnation, slot: Option<&Slot>) -> Scopes {
    let started_for = slot.filter(|slot| slot.owns(incarnation)).and_then(|slot| slot.started_for.as_ref());
    let user = started_for.map(|started_for| started_for.user.as_str());
    let creator = started_for.map(|started_for| started_for.creator.as_str());
    Scopes::new(&key.tenant, &key.pool, user, creator)
}

/// Why an engine is condemned that was reclaimed for a tenant: the reason of its row, which a later plan reads.
pub fn reclaim_reason(tenant: &TenantName) -> String {
    format!("reclaimed for tenant \"{tenant}\"")
}

/// The tenant of a [`reclaim_reason`]; `None` for any other reason.
pub fn reclaimed_for(reason: &str) -> Option<TenantName> {
    let name = reason.strip_prefix("reclaimed for tenant \"")?.strip_suffix('"')?;
    TenantName::new(name).ok()
}

impl Request {
    /// The request of an engine. `None` if a component of the charge is more than
    /// [`MAX_AMOUNT`](crate::resource::MAX_AMOUNT).
    pub fn of_engine(
        key: &SlotKey,
        incarnation: Incarnation,
        slot: Option<&Slot>,
        charge: &Charge,
        ttl_ms: Option<i64>,
    ) -> Option<Self> {
        Some(Self {
            id: key.engine(incarnation).into(),
            holder: Holder::Engine { unit: key.unit.clone(), incarnation },
            lineage: lineage_of(key, incarnation, slot),
            scopes: engine_scopes(key, incarnation, slot),
            amounts: Amounts::of_engine(charge)?,
            asked: None,
            ttl_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::name::{PoolName, UnitName};
    use crate::slot::{Origin, Replacement, StartedFor};

    fn slot() -> Slot {
        let key = SlotKey {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            unit: UnitName::new("uc_1").unwrap(),
            ordinal: 0,
        };
        Slot {
            key,
            incarnation: Incarnation(9),
            origin: Origin::Start,
            failures: 0,
            replacement: Replacement::StandIn,
            born: Incarnation(5),
            started_for: Some(StartedFor { user: "alice".to_owned(), creator: "IDE".to_owned() }),
            owner: None,
            asked_at_ms: 0,
        }
    }

    #[test]
    fn engines_of_a_row_are_one_lineage_and_those_of_an_earlier_row_are_not() {
        let slot = slot();
        let lineage = |incarnation| lineage_of(&slot.key, Incarnation(incarnation), Some(&slot)).to_string();
        assert_eq!(lineage(5), "t_1/rp_1/uc_1/0#5");
        assert_eq!(lineage(9), lineage(5));
        assert_eq!(lineage(4), "t_1/rp_1/uc_1/0#4");
        assert_eq!(&*lineage_of(&slot.key, Incarnation(9), None), "t_1/rp_1/uc_1/0#9");
    }

    #[test]
    fn only_engines_of_the_row_are_charged_to_its_user() {
        let slot = slot();
        let user = |incarnation| {
            let scopes = engine_scopes(&slot.key, Incarnation(incarnation), Some(&slot));
            (scopes.user_name().map(str::to_owned), scopes.creator_name().map(str::to_owned))
        };
        assert_eq!(user(9), (Some("alice".to_owned()), Some("IDE".to_owned())));
        assert_eq!(user(4), (None, None));
    }

    #[test]
    fn the_tenant_of_a_reclaim_is_read_back_from_its_reason() {
        let tenant = TenantName::new("t_b").unwrap();
        assert_eq!(reclaim_reason(&tenant), "reclaimed for tenant \"t_b\"");
        assert_eq!(reclaimed_for(&reclaim_reason(&tenant)), Some(tenant));
        for other in ["", "stopped by alice", "reclaimed for tenant \"", "reclaimed for tenant \"a b\""] {
            assert_eq!(reclaimed_for(other), None, "{other}");
        }
    }
}
