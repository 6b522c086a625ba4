//! The one transaction in which a master adds and removes slots: the checks of `metadata::scale`.

use master::Failure;
use model::number::Epoch;
use model::scaling::{LinkScale, SlotsSeen};
use model::slot::{Link, Origin, Slot};
use planner::{Action, Decision, Scaling};

use super::Database;
use crate::mutant::Mutant;

impl Database {
    /// The slots of a link.
    pub fn slots_of<'a>(&'a self, link: &'a Link) -> impl Iterator<Item = &'a Slot> {
        self.state().slots.iter().map(AsRef::as_ref).filter(|slot: &&Slot| slot.key.is_of(link))
    }

    /// Adds and removes slots of a link; returns how many were added.
    pub fn scale(&mut self, epoch: Epoch, scale: &LinkScale) -> Result<usize, Failure> {
        self.check(epoch)?;
        let most = self.addable(scale)?;
        let mut slots = scale.clone();
        let mut left = most;
        for addition in &mut slots.add {
            addition.count = addition.count.min(left);
            left -= addition.count;
        }
        if self.mutant == Some(Mutant::AddedWithoutOwner) {
            slots.add.iter_mut().for_each(|addition| addition.owner = None);
        }
        slots.seen = SlotsSeen::of(self.slots_of(&scale.link));
        let before = self.slots_of(&scale.link).count() - scale.remove.len();
        let generation = self.state().catalog.generation;
        let add = slots.added();
        if self.mutant == Some(Mutant::SlotWithoutReservation) {
            slots.add = Vec::new();
        }
        let scaling = Scaling { slots, release: Vec::new() };
        let action = Action::Scale(Box::new(scaling));
        let decision = Decision { engine: None, slot: None, reason: String::new(), action };
        self.simulation_mut().apply_one(&decision, &mut None);
        if self.mutant == Some(Mutant::SlotWithoutReservation) {
            (0..add).for_each(|_| self.add_without_reservation(&scale.link));
        }
        self.use_numbers_again(generation);
        self.end_charges_of_missing_slots();
        let added = self.slots_of(&scale.link).count() - before;
        if added == 0 && scale.added() > 0 && scale.remove.is_empty() {
            return Err(Failure::Moved("short of capacity".to_owned()));
        }
        Ok(added)
    }

    /// How many slots may be added, or why nothing is changed.
    fn addable(&self, scale: &LinkScale) -> Result<u32, Failure> {
        let (link, catalog) = (&scale.link, &self.state().catalog);
        let refused = |reason: &str| Err(Failure::Moved(format!("{reason} ({link:?})")));
        let has_unit = catalog.pool(&link.pool).is_some_and(|pool| pool.units.contains(&link.unit));
        let is_linked = catalog.tenant(&link.tenant).is_some_and(|tenant| tenant.pools.contains(&link.pool));
        let Some(unit) = catalog.unit(&link.unit).filter(|_| has_unit && is_linked) else {
            return refused("tenant, pool and unit are no longer linked");
        };
        let seen = SlotsSeen::of(self.slots_of(link));
        let read_at = scale.seen.read_at.get();
        let mut engines = self.state().engines.iter();
        let is_outdated = scale.added() > 0
            && read_at > 0
            && engines.any(|record| record.incarnation.get() > read_at && record.slot.is_of(link));
        if (!seen.are_those_of(&scale.seen) || is_outdated) && self.mutant != Some(Mutant::ScaleWithoutExpectation) {
            return refused("the slots are not those of the plan");
        }
        if scale.added() > 0 && !unit.starts_on_demand(&self.rules.defaults) {
            return refused("the unit does not start engines on demand");
        }
        let shared_by = unit.shared_by;
        let is_checked = self.mutant != Some(Mutant::KindUnchecked);
        if is_checked && scale.add.iter().any(|addition| !shared_by.is_kind_of(addition.owner.as_ref())) {
            return refused("the unit is shared by owners of another kind");
        }
        if is_checked && scale.add.iter().any(|addition| shared_by.charges_users() != addition.started_for.is_some()) {
            return refused("the engines are charged to others");
        }
        for removal in &scale.remove {
            let is_removable = |slot: &Slot| {
                slot.key == removal.slot && slot.incarnation == removal.incarnation && slot.origin == Origin::Demand
            };
            if !self.slots_of(link).any(is_removable) {
                return refused("a slot has changed");
            }
        }
        let left = self.slots_of(link).count() - scale.remove.len();
        let is_checked = self.mutant != Some(Mutant::RemovalBelowMinimum);
        if is_checked && !scale.remove.is_empty() && left < unit.min_engines as usize {
            return refused("MIN_ENGINES would not be met");
        }
        if self.mutant == Some(Mutant::AddedAboveMaximum) {
            return Ok(u32::MAX);
        }
        Ok(unit.max_engines.saturating_sub(left as u32))
    }

    fn add_without_reservation(&mut self, link: &Link) {
        let slot = self.simulation.new_slot(link, Origin::Demand, (None, None));
        self.simulation_mut().insert_slot(slot);
    }
}
