//! The request of an engine: its reservation, and the pods that it needs nodes for.
//!
//! A function of the slot's key and of the catalog. A running engine is adopted with what its pods request, because it may have
//! been created from an older catalog; without observed pods, as a local process, with the amounts of the current one.

use std::sync::Arc;

use model::charge::Charge;
use model::ledger::{self, Amounts, Scopes, engine_scopes};
use model::millis;
use model::name::{PoolName, UnitName};
use model::number::Incarnation;
use model::observed_pods::{ObservedPods, PodSize};
use model::resource::Amount;
use model::slot::{Slot, SlotKey};

use crate::desired::DesiredState;
use model::fit::Pods;

/// What is charged for an engine whose unit or pool the catalog no longer has: its size is unknown.
const UNKNOWN_SIZE: Amount = Amount { cpu_m: 0, memory: 0, engines: 1 };

/// What an engine of the unit in the pool is charged; `None` if the catalog has no such unit or pool.
pub(crate) fn charge(desired: &DesiredState, pool: &PoolName, unit: &UnitName) -> Option<Charge> {
    let catalog = &desired.snapshot.catalog;
    Some(Charge::in_pool(catalog.unit(unit)?, catalog.pool(pool)?, desired.defaults.instances))
}

/// The request of an engine. `slot` is the row that has its key, if there is one. `None` if the catalog has no such unit or
/// pool, or if the charge is larger than any reservation.
pub(crate) fn of_engine(
    desired: &DesiredState,
    key: &SlotKey,
    incarnation: Incarnation,
    slot: Option<&Slot>,
) -> Option<(Arc<ledger::Request>, Pods)> {
    let charge = charge(desired, &key.pool, &key.unit)?;
    let mut request = ledger::Request::of_engine(key, incarnation, slot, &charge, None)?;
    request.ttl_ms = ttl_ms(desired, &request.scopes);
    Some((Arc::new(request), Pods::from(&charge)))
}

/// The request under which a running engine is adopted. Without pods it is charged as one engine of no size if the catalog has no
/// such unit or pool.
pub(crate) fn of_running(
    desired: &DesiredState,
    key: &SlotKey,
    incarnation: Incarnation,
    slot: Option<&Slot>,
    pods: Option<&ObservedPods>,
) -> Option<Arc<ledger::Request>> {
    let observed = pods.and_then(|pods| observed_amounts(pods, charge(desired, &key.pool, &key.unit).as_ref()));
    match of_engine(desired, key, incarnation, slot) {
        Some((request, _)) => Some(match observed {
            Some(amounts) => Arc::new(ledger::Request { amounts, ..(*request).clone() }),
            None => request,
        }),
        None => Some(Arc::new(ledger::Request {
            id: key.engine(incarnation).as_str().into(),
            holder: ledger::Holder::Engine { unit: key.unit.clone(), incarnation },
            lineage: ledger::lineage_of(key, incarnation, slot),
            scopes: engine_scopes(key, incarnation, slot),
            amounts: observed.or_else(|| Amounts::same(UNKNOWN_SIZE))?,
            asked: None,
            ttl_ms: None,
        })),
    }
}

/// What the pods are charged. How many executors an engine may have is not observed: as many are charged as exist, and at least
/// as many as the current configuration has, of the size of those that exist. `None` if it is more than any reservation.
fn observed_amounts(pods: &ObservedPods, current: Option<&Charge>) -> Option<Amounts> {
    let charged = current.and_then(|charge| charge.executors);
    let of_one = match charged {
        Some(executors) if pods.executors.count == 0 => PodSize::from(&executors.container),
        _ => pods.executors.largest,
    };
    let missing = charged.map_or(0, |executors| executors.count).saturating_sub(pods.executors.count);
    let PodSize { cpu_millis, requests } =
        pods.driver.plus(pods.executors.total).plus(of_one.times(u64::from(missing)));
    let amount = |amount: u64| i64::try_from(amount).ok();
    let nominal = Amount { cpu_m: amount(cpu_millis)?, memory: amount(requests.memory_bytes)?, engines: 1 };
    Amounts::new(nominal, amount(requests.cpu_millis)?, amount(requests.memory_bytes)?)
}

/// How long the reservation may stay unconfirmed. Where nothing is limited, an engine that never registers stays.
pub(crate) fn ttl_ms(desired: &DesiredState, scopes: &Scopes) -> Option<i64> {
    let is_limited = desired.snapshot.ledger.is_limited(scopes);
    is_limited.then(|| millis::from_duration(desired.limits.reservation_ttl))
}
