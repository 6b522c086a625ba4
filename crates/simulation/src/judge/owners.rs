//! The judge of owners: an engine has one owner from the start to the end, and serves no session of another. This does not hold
//! for names that a restored database has lost.

use std::collections::BTreeSet;

use model::engine_name::EngineName;
use model::sharing::Sharer;
use model::slot::SlotKey;

use super::seen::SeenSlot;
use crate::state::State;

impl State {
    /// Remembers the owners of the slots' engines, which never change.
    pub(super) fn judge_owners(&mut self, slots: &[SeenSlot]) {
        let mut changed = None;
        for slot in slots.iter().filter(|slot| !self.judge.lost_names.contains(&slot.engine)) {
            let known = self.judge.owners.entry(slot.engine.clone()).or_insert_with(|| slot.owner.clone());
            if *known != slot.owner {
                changed = Some(format!("engine {} is given another owner: {:?}", slot.engine, slot.owner));
            }
        }
        if let Some(changed) = changed {
            self.violated(changed);
        }
    }

    /// Checks that slots that a master added have an owner of the kind by which their unit is shared.
    pub(super) fn judge_added_owners(&mut self, added: &BTreeSet<SlotKey>) {
        let state = self.database.state();
        let wrong = state.slots.iter().filter(|slot| added.contains(&slot.key)).find_map(|slot| {
            let shared_by = state.catalog.unit(&slot.key.unit)?.shared_by;
            let is_of_kind = shared_by.is_kind_of(slot.owner.as_ref());
            (!is_of_kind).then(|| format!("{} is added for {:?} and shared by {shared_by}", slot.key, slot.owner))
        });
        if let Some(wrong) = wrong {
            self.violated(wrong);
        }
    }

    /// Checks a session that an engine has opened.
    pub fn judge_owner(&mut self, engine: &EngineName, sharer: &Sharer) {
        if self.judge.lost_names.contains(engine) {
            return;
        }
        let owner = self.judge.owners.get(engine).cloned().flatten();
        if !sharer.is_owner(owner.as_ref()) {
            self.violated(format!("engine {engine} of {owner:?} serves a session of {}", sharer.user));
        }
    }
}
