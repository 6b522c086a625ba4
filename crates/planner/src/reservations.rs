//! The reservations of engines that exist or existed: which are adopted, confirmed and ended, and when time runs out.
//!
//! | decision | when |
//! | --- | --- |
//! | adopt | an instance is listed under a name of table `engine` that has not ended, and its reservation is missing or has ended; not while its node is not ready after the end |
//! | confirm | the engine is registered and its reservation is `locked`, whatever the deadline |
//! | end | nothing is listed under the name, the instance is known to be gone or was never created, or it has ended and none of its pods occupies a node; and no successor takes the charge over. Also of an [unreachable](crate::unreachable) engine that no slot wants |
//!
//! An engine that drains or is being deleted occupies its node, so it keeps its charge. One that has ended occupies nothing: its
//! charge ends in the plan that finds it so, and what it held is granted by the same plan. An orphan, which has no row that has
//! not ended, is not charged.
//!
//! A stale decision does no harm: the ledger refuses a change that the state of the reservation does not allow, and repeats
//! change nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::end::EndWord;
use model::engine_state::Phase;
use model::ledger::{Change, Claim, Confirmation, End, Request, Reservation, ScopedChange, State};
use model::millis;
use model::span;

use crate::builder::{PlanBuilder, decide};
use crate::decision::{Action, Decision, Stage};
use crate::engine_request;
use crate::inventory::{Engine, Inventory};
use crate::observed::Instance;
use crate::succession::{self, ENDED};

/// Plans the changes of all reservations. Returns the pools in which engines are adopted: what is left there is not known
/// before the next plan.
pub(crate) fn plan(builder: &mut PlanBuilder<'_>, inventory: &Inventory<'_>) -> BTreeSet<String> {
    let mut adopting = BTreeSet::new();
    let mut others = Vec::new();
    for engine in &inventory.engines {
        if let Some(decision) = adopt(builder, inventory, engine) {
            if let Action::Ledger(change) = &decision.action {
                adopting.insert(change.scopes.pool_name().to_owned());
            }
            builder.push(Stage::Ledger, vec![decision]);
        } else if let Some(reservation) = engine.charged() {
            others.extend(confirm(engine, reservation).or_else(|| end(builder, engine, reservation)));
        }
    }
    // Last: a master that dies in between has not returned the charge of a slot whose engine is adopted.
    for decision in others {
        builder.push(Stage::Ledger, vec![decision]);
    }
    adopting
}

/// Why the slot's current engine, which was never created, needs another name: a name is reserved once.
pub(crate) fn used_up(builder: &PlanBuilder<'_>, engine: &Engine<'_>) -> Option<(EndWord, String)> {
    let reservation = engine.reservation?;
    if reservation.state.is_ended() {
        let reason = format!("the reservation of the current engine has ended: it is {}", reservation.state);
        return Some((EndWord::LostReservation, reason));
    }
    let is_overdue = reservation.state == State::Locked && reservation.is_overdue(builder.desired.snapshot.now_ms);
    is_overdue.then(|| (EndWord::StartTimeout, format!("not created within {}", time_to_register(reservation))))
}

/// Why a running engine is replaced that did not register before the deadline of its reservation. While registrations may be
/// missing from the observation it is left alone.
pub(crate) fn unregistered_too_long(
    builder: &PlanBuilder<'_>,
    engine: &Engine<'_>,
    instance: &Instance,
) -> Option<String> {
    let reservation = engine.locked().filter(|reservation| reservation.is_overdue(builder.desired.snapshot.now_ms))?;
    if engine.is_registered() || !builder.observed.registry_complete {
        return None;
    }
    let within = format!("not registered within {}", time_to_register(reservation));
    Some(match (&instance.reason, instance.phase) {
        (Some(reason), _) => format!("{within}: {reason}"),
        (None, Phase::Pending) => format!("{within}: waits to be scheduled"),
        (None, _) => within,
    })
}

/// When an engine that has not registered is replaced, by the database's clock.
pub(crate) fn deadline_ms(engine: &Engine<'_>) -> Option<i64> {
    engine.locked().and_then(|reservation| reservation.deadline_ms)
}

fn time_to_register(reservation: &Reservation) -> String {
    span::print(millis::to_duration(reservation.request.ttl_ms.unwrap_or_default()))
}

/// Charges an engine that runs without a reservation. `None` if it has one, if it is not ours to charge, or if the ledger has
/// no row of one of its scopes.
fn adopt(builder: &mut PlanBuilder<'_>, inventory: &Inventory<'_>, engine: &Engine<'_>) -> Option<Decision> {
    let record = engine.record.filter(|record| record.ended_at_ms.is_none() && engine.charged().is_none())?;
    let instance = engine.instances().find(|instance| instance.phase != Phase::Ended)?;
    if builder.failed_nodes.stays_uncharged(engine) {
        return None;
    }
    let slot = inventory.slot(&record.slot);
    let pods = instance.pods.as_deref();
    let mut request = engine_request::of_running(builder.desired, &record.slot, record.incarnation, slot, pods)?;
    if let Some(ended) = engine.reservation {
        // Its slot may be gone; the engine stays in the lineage and the scopes that it was charged to.
        request = Arc::new(Request { amounts: request.amounts, ..(*ended.request).clone() });
    } else if slot.is_none_or(|slot| !slot.owns(record.incarnation))
        && let Some(of_same) = reservation_of_lineage(builder, &request)
    {
        // Nor is its reservation there, which had the user and the creator of its slot.
        request = Arc::new(Request { scopes: of_same.request.scopes.clone(), ..(*request).clone() });
    }
    if let Some(key) = builder.desired.snapshot.ledger.missing(&request.scopes) {
        builder.wait(engine, format!("is not charged: the ledger has no row of {key}"), None);
        return None;
    }
    let because = match engine.reservation {
        Some(reservation) => format!("it runs, and its reservation is {}", reservation.state),
        None => "it runs without a reservation".to_owned(),
    };
    let (scopes, uid) = (request.scopes.clone(), instance.uid.as_str().into());
    let change = ScopedChange { scopes, change: Change::Adopt { request, uid } };
    Some(decide(engine, Action::Ledger(Box::new(change)), because))
}

/// A reservation of the same lineage, all of which have the same scopes.
fn reservation_of_lineage<'a>(builder: &PlanBuilder<'a>, request: &Request) -> Option<&'a Arc<Reservation>> {
    builder.desired.snapshot.ledger.reservations().find(|other| other.request.lineage == request.lineage)
}

fn confirm(engine: &Engine<'_>, reservation: &Reservation) -> Option<Decision> {
    let instance = engine.alive().filter(|_| reservation.state == State::Locked && engine.is_registered())?;
    let scopes = &reservation.request.scopes;
    let claim = Claim {
        id: reservation.id().clone(),
        user: scopes.user_name().unwrap_or_default().to_owned(),
        pool: scopes.pool_name().to_owned(),
        uid: instance.uid.clone(),
    };
    let change = Change::Confirm(Confirmation { claim, actual: None, lease_ms: None });
    Some(decide(engine, ledger(reservation, change), "it is registered"))
}

/// Returns the charge of an engine whose instance is gone, or will never exist.
fn end(builder: &PlanBuilder<'_>, engine: &Engine<'_>, reservation: &Reservation) -> Option<Decision> {
    let ending = succession::ending(builder.observed, engine, &builder.failed_nodes);
    let (state, because) = ending.or_else(|| has_left_nodes(engine).then_some((State::Released, ENDED)))?;
    if builder.successions.keeps_charge_of(engine) {
        return None;
    }
    let end = End { id: reservation.id().clone(), state, reason: because.into() };
    Some(decide(engine, ledger(reservation, Change::End(end)), because))
}

/// Whether the engine's instance has ended, so that it never runs again, and no executor of it is left on a node.
fn has_left_nodes(engine: &Engine<'_>) -> bool {
    let is_free = |instance: &Instance| {
        let is_on_node = instance.pods.as_ref().is_some_and(|pods| !pods.on_nodes.is_empty());
        instance.phase == Phase::Ended && !is_on_node
    };
    engine.instance.is_some() && engine.instances().all(is_free)
}

fn ledger(reservation: &Reservation, change: Change) -> Action {
    Action::Ledger(Box::new(ScopedChange { scopes: reservation.request.scopes.clone(), change }))
}
