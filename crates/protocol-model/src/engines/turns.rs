//! The turns of slots: `surge` is one. And which slots wait, in place, for the end of an older engine.

use super::Engines;
use super::state::{Replacement, Snapshot};
use super::view::{EngineView, Role};

/// The turns of both slots.
#[derive(Clone, Copy)]
pub(super) struct Turns {
    /// With a stand-in, they wait before their engine is created.
    pub waiting: [bool; 2],
    /// In place, their older engine is drained.
    pub taken: [bool; 2],
}

/// Whether an older engine of the slot has an instance, or may have one.
pub(super) fn has_older(known: &[EngineView], engine: usize) -> bool {
    let current = &known[engine];
    let mut older = known.iter().filter(|view| view.slot == current.slot && view.incarnation != current.incarnation);
    older.any(EngineView::may_exist)
}

/// Whether the engine is created when nothing is left of the older ones, and something is.
pub(super) fn waits_in_place(known: &[EngineView], engine: usize, snap: &Snapshot) -> bool {
    let slot = snap.slots[known[engine].slot];
    slot.is_some_and(|slot| slot.replacement == Replacement::InPlace) && has_older(known, engine)
}

impl Engines {
    /// The turns, one at a time. Slots that have begun are first, then those with a stand-in, then those in place, of which one
    /// whose older engine is not registered comes first. A slot in place that has no engine is down until one is registered:
    /// here no slot waits for capacity.
    pub(super) fn turns(&self, known: &[EngineView], roles: &[Role], snap: &Snapshot) -> Turns {
        let mut turns = Turns { waiting: [false; 2], taken: [false; 2] };
        let (mut left, mut with_stand_in, mut in_place) = (1_u8, Vec::new(), Vec::new());
        for (ordinal, slot) in snap.slots.iter().enumerate() {
            let Some(slot) = slot else { continue };
            let stand_in =
                known.iter().zip(roles).find(|(view, role)| view.slot == ordinal && matches!(role, Role::StandIn));
            let is_in_place = slot.replacement == Replacement::InPlace;
            let Some(present) = known.iter().find(|view| view.slot == ordinal && view.incarnation == slot.incarnation)
            else {
                continue;
            };
            let is_replaced = stand_in.is_some() || is_in_place;
            if slot.replacement == Replacement::Force || !is_replaced || present.is_ready() {
                continue;
            }
            let has_begun = present.uid().is_some() || present.nodes.permit.is_some();
            match stand_in {
                Some(_) if has_begun => left = left.saturating_sub(1),
                Some((stand_in, _)) if is_in_place => in_place.push((stand_in.is_registered(), ordinal)),
                Some(_) => with_stand_in.push(ordinal),
                None if !present.confirmed => left = left.saturating_sub(1),
                None => {}
            }
        }
        for ordinal in with_stand_in {
            if left > 0 { left -= 1 } else { turns.waiting[ordinal] = true }
        }
        in_place.sort_unstable();
        for (_, ordinal) in in_place {
            turns.taken[ordinal] = left > 0 || self.without.turns;
            left = left.saturating_sub(1);
        }
        turns
    }
}
