//! The copy of the ledger in a snapshot, which a master plans from: thousands of reservations in every tick, so each is a
//! short JSON array.
//!
//! What no plan reads is left out: what was asked for before it became amounts, what a holder confirmed, and the times of
//! states. A copy decides nothing: the database judges each change by its own rows.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::book::Ledger;
use super::reservation::{Amounts, Holder, Request, Reservation, State};
use super::scope::{Scope, ScopeKey, Scopes};
use crate::name::{PoolName, TenantName, UnitName};
use crate::number::{Epoch, Incarnation};
use crate::resource::Amount;

/// Unit and incarnation of an engine, or key and instance of an external holder.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum HolderRow {
    Engine(UnitName, Incarnation),
    External(Arc<str>, Arc<str>),
}

/// Tenant, pool, user, creator.
type ScopesRow = (String, String, Option<String>, Option<String>);
/// CPU, memory, engines; requested CPU and memory.
type AmountsRow = (i64, i64, i64, i64, i64);
/// Asked, used, ended, deadline.
type TimesRow = (i64, Option<i64>, Option<i64>, Option<i64>);
type ReservationRow =
    (Arc<str>, HolderRow, Arc<str>, ScopesRow, AmountsRow, Option<i64>, State, Option<Arc<str>>, TimesRow);

#[derive(Serialize, Deserialize)]
struct LedgerRows {
    scopes: Vec<(ScopeKey, Scope)>,
    reservations: Vec<ReservationRow>,
}

fn row(reservation: &Reservation) -> ReservationRow {
    let request = &reservation.request;
    let holder = match &request.holder {
        Holder::Engine { unit, incarnation } => HolderRow::Engine(unit.clone(), *incarnation),
        Holder::External { key, instance } => HolderRow::External(Arc::clone(key), Arc::clone(instance)),
    };
    let scopes = &request.scopes;
    let (nominal, requests) = (reservation.amounts.nominal(), reservation.amounts.requests());
    (
        Arc::clone(&request.id),
        holder,
        Arc::clone(&request.lineage),
        (
            scopes.tenant_name().to_owned(),
            scopes.pool_name().to_owned(),
            scopes.user_name().map(str::to_owned),
            scopes.creator_name().map(str::to_owned),
        ),
        (nominal.cpu_m, nominal.memory, nominal.engines, requests.cpu_m, requests.memory),
        request.ttl_ms,
        reservation.state,
        reservation.uid.clone(),
        (reservation.asked_at_ms, reservation.used_at_ms, reservation.ended_at_ms, reservation.deadline_ms),
    )
}

fn reservation(row: ReservationRow) -> Result<Reservation, String> {
    let (id, holder, lineage, (tenant, pool, user, creator), amounts, ttl_ms, state, uid, times) = row;
    let (cpu_m, memory, engines, request_cpu_m, request_memory) = amounts;
    let amounts = Amounts::new(Amount { cpu_m, memory, engines }, request_cpu_m, request_memory)
        .ok_or_else(|| format!("reservation {id} has amounts out of range"))?;
    let tenant = TenantName::new(&tenant).map_err(|error| error.text())?;
    let pool = PoolName::new(&pool).map_err(|error| error.text())?;
    let scopes = Scopes::new(&tenant, &pool, user.as_deref(), creator.as_deref());
    let holder = match holder {
        HolderRow::Engine(unit, incarnation) => Holder::Engine { unit, incarnation },
        HolderRow::External(key, instance) => Holder::External { key, instance },
    };
    let (asked_at_ms, used_at_ms, ended_at_ms, deadline_ms) = times;
    Ok(Reservation {
        request: Arc::new(Request { id, holder, lineage, scopes, amounts, asked: None, ttl_ms }),
        state,
        amounts,
        actual: None,
        uid,
        epoch: Epoch::default(),
        asked_at_ms,
        locked_at_ms: None,
        used_at_ms,
        ended_at_ms,
        deadline_ms,
        reason: None,
    })
}

impl Serialize for Ledger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = LedgerRows {
            scopes: self.scopes().map(|(key, scope)| (key.clone(), *scope)).collect(),
            reservations: self.reservations().map(|reservation| row(reservation)).collect(),
        };
        rows.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Ledger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = LedgerRows::deserialize(deserializer)?;
        let reservations: Result<Vec<Reservation>, String> = rows.reservations.into_iter().map(reservation).collect();
        Ok(Self::new(rows.scopes, reservations.map_err(serde::de::Error::custom)?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ledger::{Change, Moment};
    use crate::quota::Limit;
    use crate::resource::Triple;

    #[test]
    fn a_copy_has_all_that_a_plan_reads() {
        let (tenant, pool) = (TenantName::new("t_1").unwrap(), PoolName::new("rp_1").unwrap());
        let scopes = Scopes::new(&tenant, &pool, Some("alice"), Some("IDE"));
        let limit = Triple { engines: Limit::Of(3), ..Triple::all(Limit::Unlimited) };
        let mut rows: Vec<(ScopeKey, Scope)> =
            scopes.policy().map(|key| (key.clone(), Scope::principal(limit))).collect();
        let part = crate::quota::PoolComponent {
            unguaranteed: Limit::Unlimited,
            unguaranteed_held: 0,
            shared: Limit::Of(9),
            shared_held: 0,
        };
        rows.retain(|(key, _)| key != scopes.tenant());
        rows.push((scopes.tenant().clone(), Scope::tenant(&Triple::all(None))));
        rows.push((scopes.pool().clone(), Scope::pool(limit, &Triple::all(part))));
        let mut ledger = Ledger::new(rows, []);
        let request = |id: &str, holder: Holder| {
            let amounts = Amounts::new(Amount { cpu_m: 2, memory: 3, engines: 1 }, 1, 3).unwrap();
            let (id, lineage, scopes) = (id.into(), id.into(), scopes.clone());
            Arc::new(Request { id, holder, lineage, scopes, amounts, asked: None, ttl_ms: Some(7) })
        };
        let at = Moment { now_ms: 5, epoch: Epoch::default() };
        let unit = UnitName::new("uc_1").unwrap();
        let engine = request("e-1", Holder::Engine { unit, incarnation: Incarnation(4) });
        let external = request("x-1", Holder::External { key: "alice k".into(), instance: "i-1".into() });
        ledger.apply(&Change::Reserve(engine), at).unwrap();
        ledger.apply(&Change::Enqueue { request: external, wait_ms: 10 }, at).unwrap();
        let read: Ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
        assert!(read.scopes().eq(ledger.scopes()));
        let of = |ledger: &Ledger| {
            ledger
                .reservations()
                .map(|reservation| Reservation { locked_at_ms: None, ..(**reservation).clone() })
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&read), of(&ledger));
        assert_eq!(read.charged_to_lineage("e-1"), ledger.charged_to_lineage("e-1"));
    }
}
