//! The judge of scaling: what a round may add and remove.

use std::collections::BTreeSet;

use model::demand::ScalingGroup;
use model::number::Incarnation;
use model::owner::Owner;
use model::slot::{Slot, SlotKey};
use planner::Scaling;

use crate::state::State;

impl State {
    /// Checks slots that are to be added and removed: no start together with a removal, and no more engines than the sessions
    /// that waited when the master read the demand.
    pub fn judge_scaling(&mut self, scaling: &Scaling) {
        let link = &scaling.slots.link;
        let Some(unit) = self.database.state().catalog.unit(&link.unit) else { return };
        let add = scaling.slots.added() as usize;
        let count = self.database.slots_of(link).count();
        let removed = scaling.slots.remove.len() + scaling.release.len();
        let left = (count + add).saturating_sub(removed);
        let unneeded = scaling.slots.remove.iter().filter(|removal| removal.reason == "no longer needed");
        let ending = unneeded.chain(scaling.release.iter().map(|release| &release.slot));
        // A slot that was added since may have the key of one that was removed: then the call is late.
        let ending: BTreeSet<(&SlotKey, Incarnation)> =
            ending.map(|removal| (&removal.slot, removal.incarnation)).collect();
        let added_for: BTreeSet<&Option<Owner>> = scaling.slots.add.iter().map(|addition| &addition.owner).collect();
        let is_both = |slot: &Slot| ending.contains(&(&slot.key, slot.incarnation)) && added_for.contains(&slot.owner);
        if self.database.slots_of(link).any(is_both) && left > unit.min_engines as usize {
            return self.violated(format!("{link:?} is scaled by {add} and -{removed} in one round"));
        }
        let Some(waiting) = self.waiting_when_read.as_ref() else { return };
        let seats = unit.sessions_per_engine.map_or(u64::from(u32::MAX), u64::from);
        let is_for_minimum = left <= unit.min_engines as usize;
        for addition in scaling.slots.add.iter().filter(|_| !is_for_minimum) {
            let group = ScalingGroup { link: link.clone(), owner: addition.owner.clone() };
            let waiting = waiting.get(&group).copied().unwrap_or(0);
            let pending = self.database.slots_of(link).filter(|slot| {
                let is_registered = self.agents.get(&slot.engine()).is_some_and(|agent| agent.has_registered);
                let has_stand_in = self.database.state().engines.iter().any(|older| {
                    let agent = self.agents.get(&older.name).filter(|agent| agent.has_registered && !agent.has_ended);
                    older.slot == slot.key && agent.is_some()
                });
                slot.owner == group.owner
                    && slot.failures == 0
                    && !is_registered
                    && !has_stand_in
                    && self.database.is_charged(&slot.engine())
            });
            let on_their_way = pending.count() as u64 + u64::from(addition.count);
            let allowed = waiting + u64::from(unit.spare_engines) * seats;
            if addition.count > 0 && (on_their_way - 1).saturating_mul(seats) >= allowed {
                let owner = group.owner.map(|owner| format!(" of {owner}")).unwrap_or_default();
                return self.violated(format!(
                    "{on_their_way} engines{owner} of {link:?} are on their way with {seats} seats each, and {waiting} \
                     sessions wait"
                ));
            }
        }
    }
}
