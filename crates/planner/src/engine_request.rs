//! The request of an engine: its reservation, and the pods that it needs nodes for.
//!
//! A function of the slot's key and of the catalog: a running engine that was created from an older catalog is adopted with the
//! amounts of the current one.

use std::sync::Arc;

use model::charge::Charge;
use model::ledger::{self, Amounts, engine_scopes};
use model::millis;
use model::number::Incarnation;
use model::resource::Amount;
use model::slot::{Slot, SlotKey};

use crate::desired::DesiredState;
use crate::fit::Pods;

/// What is charged for an engine whose unit or pool the catalog no longer has: its size is unknown.
const UNKNOWN_SIZE: Amount = Amount { cpu_m: 0, memory: 0, engines: 1 };

/// What an engine of the slot is charged; `None` if the catalog has no such unit or pool.
pub(crate) fn charge(desired: &DesiredState, key: &SlotKey) -> Option<Charge> {
    let unit = desired.snapshot.catalog.unit(&key.unit)?;
    Some(Charge::new(&desired.configuration(key)?, desired.defaults.instances).charged_by(unit))
}

/// The request of an engine. `slot` is the row that has its key, if there is one. `None` if the catalog has no such unit or
/// pool, or if the charge is larger than any reservation.
pub(crate) fn of_engine(
    desired: &DesiredState,
    key: &SlotKey,
    incarnation: Incarnation,
    slot: Option<&Slot>,
) -> Option<(Arc<ledger::Request>, Pods)> {
    let charge = charge(desired, key)?;
    let request = ledger::Request::of_engine(key, incarnation, slot, &charge, ttl_ms(desired, key, incarnation, slot))?;
    Some((Arc::new(request), Pods::from(&charge)))
}

/// The request under which a running engine is adopted. It is charged as one engine of no size if the catalog has no such unit
/// or pool.
pub(crate) fn of_running(
    desired: &DesiredState,
    key: &SlotKey,
    incarnation: Incarnation,
    slot: Option<&Slot>,
) -> Option<Arc<ledger::Request>> {
    if let Some((request, _)) = of_engine(desired, key, incarnation, slot) {
        return Some(request);
    }
    Some(Arc::new(ledger::Request {
        id: key.engine(incarnation).as_str().into(),
        holder: ledger::Holder::Engine { unit: key.unit.clone(), incarnation },
        lineage: ledger::lineage_of(key, incarnation, slot),
        scopes: engine_scopes(key, incarnation, slot),
        amounts: Amounts::same(UNKNOWN_SIZE)?,
        asked: None,
        ttl_ms: None,
    }))
}

/// How long the reservation may stay unconfirmed. Where nothing is limited, an engine that never registers stays.
fn ttl_ms(desired: &DesiredState, key: &SlotKey, incarnation: Incarnation, slot: Option<&Slot>) -> Option<i64> {
    let scopes = engine_scopes(key, incarnation, slot);
    let is_limited = desired.snapshot.ledger.is_limited(&scopes);
    is_limited.then(|| millis::from_duration(desired.limits.reservation_ttl))
}
