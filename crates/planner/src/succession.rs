//! Successions: slots whose current engine has no instance, or only one that has ended, and takes the place of the older ones,
//! after FORCE or IN PLACE.
//!
//! The charge of an older engine passes to the current one when nothing is left of the older ones, so that no other request
//! takes the capacity in between. Until then one charge of the slot stays, also if its engine has ended. After IN PLACE the
//! charge of a current engine that ended before it registered stays too: the slot's next engine takes it over.
//!
//! A charge that stays has a slot that needs it. If the slot is deleted, is given a stand-in, or has a charged current engine,
//! the charge ends like any other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::ledger::{Holder, Reservation, State, lineage_of};
use model::number::Incarnation;
use model::observed_pods::ObservedPods;
use model::slot::{Replacement, Slot, SlotKey};

use crate::inventory::{Engine, Inventory};
use crate::observed::ObservedState;
use crate::unreachable::FailedNodes;

/// Why the charge of an engine ends that has ended.
pub(crate) const ENDED: &str = "its engine has ended";

/// The older engines of one slot.
#[derive(Debug, Default)]
pub(crate) struct Succession<'a> {
    /// One that has an instance, or may have one, and is not unreachable.
    pub left: Option<EngineName>,
    /// The reservation that passes to the current engine.
    pub predecessor: Option<&'a Arc<Reservation>>,
    /// The pods of the predecessor's instance, if they are observed.
    pub pods: Option<&'a ObservedPods>,
}

/// The successions of all slots in scope.
#[derive(Debug, Default)]
pub(crate) struct Successions<'a> {
    by_slot: BTreeMap<&'a SlotKey, Succession<'a>>,
    /// The ids of the predecessors' reservations.
    kept: BTreeSet<&'a str>,
}

/// A charge of a slot that may pass on: one whose engine still exists is preferred, because the others can be returned.
struct Charge<'a> {
    reservation: &'a Arc<Reservation>,
    pods: Option<&'a ObservedPods>,
    is_left: bool,
    incarnation: Incarnation,
}

impl<'a> Successions<'a> {
    pub fn new(observed: &ObservedState, inventory: &Inventory<'a>, failed_nodes: &FailedNodes<'_>) -> Self {
        let mut slots: BTreeMap<&SlotKey, &Slot> = BTreeMap::new();
        let (mut by_slot, mut lineages) = (BTreeMap::new(), HashMap::new());
        for &(slot, at) in &inventory.slots {
            let engine = &inventory.engines[at];
            // One that has ended is replaced by the slot's next engine. It need not have a charge of its own: a deposed master
            // may have created it late.
            let has_instance = engine.instances().any(|instance| instance.phase != Phase::Ended);
            if slot.replacement == Replacement::StandIn || has_instance {
                continue;
            }
            slots.insert(&slot.key, slot);
            by_slot.insert(&slot.key, Succession::default());
            if engine.charged().is_none() {
                lineages.insert(lineage_of(&slot.key, slot.incarnation, Some(slot)), &slot.key);
            }
        }
        if slots.is_empty() {
            return Self::default();
        }
        let mut charges: BTreeMap<&SlotKey, Charge<'a>> = BTreeMap::new();
        for engine in inventory.engines.iter().filter(|engine| engine.current_of.is_none()) {
            let is_left = ending(observed, engine, failed_nodes).is_none();
            if is_left
                && let Some(slot) = slot_of(&slots, engine)
                && let Some(succession) = by_slot.get_mut(&slot.key)
            {
                succession.left.get_or_insert_with(|| engine.name.clone());
            }
            let Some(reservation) = engine.charged() else { continue };
            let Some(key) = lineages.get(&reservation.request.lineage).copied() else { continue };
            let Holder::Engine { incarnation, .. } = reservation.request.holder else { continue };
            let pods = engine.instance.and_then(|instance| instance.pods.as_deref());
            let charge = Charge { reservation, pods, is_left, incarnation };
            let best = charges.entry(key).or_insert_with(|| Charge { ..charge });
            if (charge.is_left, charge.incarnation) > (best.is_left, best.incarnation) {
                *best = charge;
            }
        }
        let kept = charges.values().map(|charge| &**charge.reservation.id()).collect();
        for (key, charge) in charges {
            let succession = by_slot.entry(key).or_default();
            (succession.predecessor, succession.pods) = (Some(charge.reservation), charge.pods);
        }
        Self { by_slot, kept }
    }

    /// `None` for a slot whose engine has an instance, or that has a stand-in.
    pub fn get(&self, key: &SlotKey) -> Option<&Succession<'a>> {
        self.by_slot.get(key)
    }

    /// Whether the reservation passes to a current engine.
    pub fn has_kept(&self, id: &str) -> bool {
        self.kept.contains(id)
    }

    /// Whether the engine's charge stays although the engine has ended.
    pub fn keeps_charge_of(&self, engine: &Engine<'_>) -> bool {
        let is_in_place = engine.current_of.is_some_and(|slot| slot.replacement == Replacement::InPlace);
        self.has_kept(engine.name.as_str()) || (is_in_place && !engine.has_registered())
    }

    /// The predecessors' reservations.
    pub fn predecessors(&self) -> impl Iterator<Item = &'a Arc<Reservation>> {
        self.by_slot.values().filter_map(|succession| succession.predecessor)
    }
}

/// The slot of an older engine. An earlier row with the same key was another slot.
fn slot_of<'a>(slots: &BTreeMap<&SlotKey, &'a Slot>, engine: &Engine<'_>) -> Option<&'a Slot> {
    let (key, incarnation) = (engine.slot.as_deref()?, engine.incarnation?);
    slots.get(key).copied().filter(|slot| slot.owns(incarnation))
}

/// How the charge of an engine ends, and why; `None` if the engine has an instance, or may have one, unless that is unreachable and
/// no slot wants it.
pub(crate) fn ending(
    observed: &ObservedState,
    engine: &Engine<'_>,
    failed_nodes: &FailedNodes<'_>,
) -> Option<(State, &'static str)> {
    if engine.instances().next().is_some() {
        let is_lost = engine.current_of.is_none() && failed_nodes.is_unreachable(engine);
        return is_lost.then_some((State::Lost, "its node is not ready, and it is not registered"));
    }
    match engine.record {
        None => Some((State::Released, ENDED)),
        Some(record) if record.ended_at_ms.is_some() => Some((State::Released, ENDED)),
        Some(record) => match record.uid.as_deref() {
            Some(uid) => {
                let is_gone = observed.has_vanished(&engine.name, uid);
                is_gone.then_some((State::Lost, "no instance with its uid exists"))
            }
            None if engine.current_of.is_some() => None,
            None => Some((State::Released, "its engine was never created and is no longer desired")),
        },
    }
}
