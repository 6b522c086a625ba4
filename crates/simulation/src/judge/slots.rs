//! The judge of slots: within which limits and for what reason they are added and removed.

use std::collections::BTreeSet;

use model::engine_name::EngineName;
use model::slot::{Link, Replacement, SlotKey};

use super::differing::{differing_within, touched};
use super::seen::{SeenRow, SeenSlot, Slots};
use crate::activity::Cause;
use crate::state::State;

impl State {
    /// Checks the slots that have changed since the judge looked last.
    pub(super) fn judge_slots(&mut self, cause: Cause) {
        let slots = &self.database.state().slots;
        let seen = &mut self.judge.seen;
        let (was, is) = touched(&mut seen.read.slots, slots);
        let (was, is) = differing_within(&seen.slots, was, slots, is, |seen, slot| seen.is(slot));
        if was.is_empty() && is.is_empty() {
            return;
        }
        let new: Vec<SeenSlot> = slots[is].iter().map(|slot| SeenSlot::new(slot)).collect();
        let old: Vec<SeenSlot> = self.judge.seen.slots.splice(was, new.iter().cloned()).collect();
        let current = &mut self.judge.seen.current;
        for slot in &old {
            current.remove(&slot.incarnation);
        }
        current.extend(new.iter().map(|slot| slot.incarnation));
        let links: BTreeSet<Link> = old.iter().chain(&new).map(|slot| slot.key.link()).collect();
        for link in links {
            let before = self.judge.seen.links.remove(&link).unwrap_or_default();
            let after = self.judge.seen.slots_of(&link);
            self.judge_link(&link, (&before, &after), cause);
            if after.count() > 0 {
                self.judge.seen.links.insert(link, after);
            }
        }
        self.remember_forced(&new);
        self.judge_owners(&new);
    }

    fn judge_link(&mut self, link: &Link, (was, is): (&Slots, &Slots), cause: Cause) {
        if let Some(what) = self.violation_of_slots(link, (was, is), cause) {
            self.violated(what);
        }
        if cause != Cause::Scale {
            return;
        }
        let added: BTreeSet<SlotKey> = is.on_demand.difference(&was.on_demand).cloned().collect();
        let mut current = self.judge.seen.slots.iter().filter(|slot| added.contains(&slot.key));
        if !current.all(|slot| self.database.is_charged(&slot.engine)) {
            self.violated(format!("a slot is added to {link:?} without a reservation"));
        }
        self.activity.added += added.len() as u64;
        self.judge_added_owners(&added);
    }

    fn violation_of_slots(&self, link: &Link, (was, is): (&Slots, &Slots), cause: Cause) -> Option<String> {
        let spec = self.database.state().catalog.unit(&link.unit);
        let (min, max) = spec.map_or((0, 0), |unit| (unit.min_engines as usize, unit.max_engines as usize));
        if is.count() > was.count() && is.count() > max {
            return Some(format!("{link:?} has {} slots, and MAX_ENGINES is {max}", is.count()));
        }
        if cause == Cause::Scale && is.count() < was.count() && is.count() < min {
            return Some(format!("{link:?} is scaled to {} slots, and MIN_ENGINES is {min}", is.count()));
        }
        if cause == Cause::Scale && was.others != is.others {
            return Some(format!("a slot of {link:?} that does not follow demand is scaled"));
        }
        (cause == Cause::Effect && was != is).then(|| format!("the slots of {link:?} changed by another effect"))
    }

    /// Remembers the engines that a statement ended with FORCE.
    fn remember_forced(&mut self, slots: &[SeenSlot]) {
        let engines = &self.database.state().engines;
        let forced = slots.iter().filter(|slot| slot.replacement == Replacement::Force);
        let older = forced
            .flat_map(|slot| engines.iter().filter(|one| one.incarnation < slot.incarnation && one.slot == slot.key));
        let older: Vec<EngineName> = older.map(|record| record.name.clone()).collect();
        self.judge.forced.extend(older);
    }

    /// Remembers which engines have a uid, and since when others are to end.
    pub(super) fn remember_rows(&mut self) {
        let now = self.now;
        let engines = &self.database.state().engines;
        let seen = &mut self.judge.seen;
        let (was, is) = touched(&mut seen.read.rows, engines);
        let (was, is) = differing_within(&seen.rows, was, engines, is, |seen, record| seen.is(record));
        let new: Vec<SeenRow> = engines[is].iter().map(|record| SeenRow::new(record)).collect();
        for row in &new {
            if row.has_uid {
                self.judge.recorded.insert(row.name.clone());
            }
            if row.is_condemned {
                self.judge.condemned_at.entry(row.name.clone()).or_insert(now);
            }
        }
        self.judge.seen.rows.splice(was, new);
    }
}
