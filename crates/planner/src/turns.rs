//! Turns: which slots of a (tenant, pool, unit) are replaced first, `surge` at a time.
//!
//! A slot with a stand-in has its turn from the reservation of its current engine until that is ready. After IN PLACE it has its
//! turn from the drain order of the older engine until one of its engines has registered, however many of them fail in between:
//! all that time it is *down*. Both kinds share the turns, so at most `surge` slots are down.
//!
//! A slot whose older engine is unreachable takes no turn and is not down: the failure of a node has taken it down, and the slots of
//! one node are given their engines all at once.
//!
//! A slot that has neither an engine nor a charge since before the statement is not down: it waits for capacity, which others
//! need not release by waiting for their turn.

use std::collections::{BTreeMap, BTreeSet};

use model::engine_name::EngineName;
use model::slot::{Link, Replacement, Slot, SlotKey};

use crate::desired::DesiredState;
use crate::inventory::{Engine, Inventory};
use crate::succession::Successions;
use crate::unreachable::FailedNodes;

/// The turns of all slots in scope.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    waiting: BTreeSet<SlotKey>,
    begun: BTreeSet<SlotKey>,
    /// What the slots leave that have a turn already or take one for their stand-in.
    free: BTreeMap<Link, u32>,
}

impl Turns {
    /// `stand_ins` are the slots that have one, with its name; those that are unreachable take no turn.
    pub fn new(
        desired: &DesiredState,
        inventory: &Inventory<'_>,
        stand_ins: &BTreeMap<SlotKey, EngineName>,
        successions: &Successions<'_>,
        failed_nodes: &FailedNodes<'_>,
    ) -> Self {
        let mut turns = Self::default();
        if stand_ins.is_empty() {
            return turns;
        }
        let lost = failed_nodes.slots(inventory);
        let (mut with_stand_in, mut in_place) = (Vec::new(), Vec::new());
        for &(slot, at) in &inventory.slots {
            let (engine, has_stand_in) = (&inventory.engines[at], stand_ins.contains_key(&slot.key));
            let is_in_place = slot.replacement == Replacement::InPlace;
            if slot.replacement == Replacement::Force || !(has_stand_in || is_in_place) || engine.is_ready() {
                continue;
            }
            let left = turns.free.entry(slot.key.link()).or_insert(desired.limits.surge);
            match (has_stand_in, is_begun(engine)) {
                (true, true) => {
                    *left = left.saturating_sub(1);
                    turns.begun.insert(slot.key.clone());
                }
                (true, false) if is_in_place => in_place.push(&slot.key),
                (true, false) => with_stand_in.push(&slot.key),
                (false, _) if is_down(engine, slot, successions) && !lost.contains(&slot.key) => {
                    *left = left.saturating_sub(1);
                }
                (false, _) => {}
            }
        }
        for key in with_stand_in {
            match turns.free.get_mut(&key.link()) {
                Some(left) if *left > 0 => *left -= 1,
                _ => drop(turns.waiting.insert(key.clone())),
            }
        }
        let has_none = |key: &&&SlotKey| turns.free(&key.link()) == 0;
        let waiting: Vec<SlotKey> = in_place.iter().filter(has_none).map(|key| (*key).clone()).collect();
        turns.waiting.extend(waiting);
        turns
    }

    /// Whether the slot waits for others.
    pub fn is_waiting(&self, key: &SlotKey) -> bool {
        self.waiting.contains(key)
    }

    /// Whether the slot has its turn although its stand-in runs.
    pub fn has_begun(&self, key: &SlotKey) -> bool {
        self.begun.contains(key)
    }

    /// How many slots can take their turn IN PLACE.
    pub fn free(&self, link: &Link) -> usize {
        self.free.get(link).map_or(0, |free| *free as usize)
    }
}

/// Why a slot waits for its turn.
pub(crate) fn reason(desired: &DesiredState, key: &SlotKey) -> String {
    format!("waits for its turn: engines of unit \"{}\" are replaced {} at a time", key.unit, desired.limits.surge)
}

/// Whether any part of the engine has been created, or capacity is reserved for it.
fn is_begun(engine: &Engine<'_>) -> bool {
    engine.uid().is_some() || engine.permit.is_some() || engine.charged().is_some()
}

/// Whether IN PLACE has ended the slot's older engine, or is ending it, and none has registered since. Those of its engines that
/// fail leave their charge, so one that has none was not taken down.
fn is_down(engine: &Engine<'_>, slot: &Slot, successions: &Successions<'_>) -> bool {
    let has_older = successions
        .get(&slot.key)
        .is_some_and(|succession| succession.left.is_some() || succession.predecessor.is_some());
    !engine.has_registered() && (has_older || is_begun(engine) || slot.failures > 0)
}
