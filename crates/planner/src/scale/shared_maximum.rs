//! The groups of one link, which share its maximum and its burst.
//!
//! Below the maximum each group scales as if the slots of the others had been there before, the group with the oldest demand
//! first. Above it, what each group removes by itself goes first; what is still above the maximum is taken from all groups in
//! the order in which one group would remove it, so that no session ends while another owner has an idle engine.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::group::{EngineCondition, Group, sum};
use super::scale;
use super::scaled::{RemovalReason, Scaled};

/// The order of removal: stalled slots, pending engines, then those with the fewest sessions, of these the longest idle.
pub(super) type Rank<'a, Id> = (u8, u64, Reverse<(bool, u64)>, &'a Id);

/// Scales the groups of a link with this maximum, those with the oldest demand first; sets the maximum and the burst of each.
pub fn scale_link<Id: Ord + Clone>(groups: &mut [Group<Id>], max: u64) -> Vec<Scaled<Id>> {
    Design.scale_link(groups, max)
}

/// The rules of the design.
pub(super) struct Design;

impl<Id: Ord + Clone> SharedMaximum<Id> for Design {}

/// The decisions. The methods that are provided are those of the design; the tests replace one at a time and show that each
/// replacement is detected.
pub(super) trait SharedMaximum<Id: Ord + Clone> {
    fn scale_link(&self, groups: &mut [Group<Id>], max: u64) -> Vec<Scaled<Id>> {
        if let [only] = groups {
            only.limits.max = max;
            return vec![scale(only)];
        }
        let slots = sum(groups.iter().map(Group::slots));
        if slots > max { self.shrink(groups, slots, max) } else { self.grow(groups, slots, max) }
    }

    fn grow(&self, groups: &mut [Group<Id>], mut slots: u64, max: u64) -> Vec<Scaled<Id>> {
        let mut started = 0;
        let scaled = groups.iter_mut().map(|group| {
            let others = slots.saturating_sub(group.slots());
            group.limits.max = self.left_by(others, max);
            group.limits.burst = self.burst_left(group.limits.burst, started);
            let scaled = scale(group);
            started += scaled.start;
            slots = slots.saturating_add(self.taken(scaled.start));
            scaled
        });
        scaled.collect()
    }

    /// The maximum of a group beside the slots of the others.
    fn left_by(&self, others: u64, max: u64) -> u64 {
        max.saturating_sub(others)
    }

    /// The burst of a group after the starts of those before it.
    fn burst_left(&self, burst: u64, started: u64) -> u64 {
        burst.saturating_sub(started)
    }

    /// The slots that the starts of a group take from those after it.
    fn taken(&self, started: u64) -> u64 {
        started
    }

    fn shrink(&self, groups: &mut [Group<Id>], slots: u64, max: u64) -> Vec<Scaled<Id>> {
        let by_themselves: Vec<BTreeSet<Id>> = groups
            .iter_mut()
            .map(|group| {
                group.limits.max = group.slots();
                let removals = scale(group).removals.into_iter();
                removals.filter(|removal| removal.reason != RemovalReason::Outdated).map(|removal| removal.id).collect()
            })
            .collect();
        let gone = sum(by_themselves.iter().map(|removed| removed.len() as u64));
        let excess = self.excess(slots, gone, max);
        let mut ranked: Vec<(Rank<'_, Id>, usize)> = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            ranked.extend(removable(group).filter(|(.., id)| !by_themselves[at].contains(*id)).map(|rank| (rank, at)));
        }
        self.sort(&mut ranked);
        let mut cut = vec![0; groups.len()];
        for (_, at) in ranked.into_iter().take(usize::try_from(excess).unwrap_or(usize::MAX)) {
            cut[at] += 1;
        }
        let each = groups.iter_mut().zip(by_themselves).zip(cut);
        each.map(|((group, removed), cut)| {
            group.limits.max = group.slots().saturating_sub(removed.len() as u64).saturating_sub(cut);
            scale(group)
        })
        .collect()
    }

    /// How many slots are still above the maximum without those that the groups remove by themselves.
    fn excess(&self, slots: u64, gone: u64, max: u64) -> u64 {
        slots.saturating_sub(gone).saturating_sub(max)
    }

    /// Sorts what may be removed, each with its group: the first ones are.
    fn sort(&self, ranked: &mut [(Rank<'_, Id>, usize)]) {
        ranked.sort();
    }
}

/// What may be removed because the link is above its maximum.
fn removable<Id: Ord + Clone>(group: &Group<Id>) -> impl Iterator<Item = Rank<'_, Id>> {
    let none = Reverse((false, 0));
    let stalled = group.stalled.iter().filter(|slot| slot.is_on_demand && !slot.has_stand_in);
    let pending = group.pending.iter().filter(|engine| engine.is_on_demand && !engine.has_stand_in);
    let serving = group.engines.iter().filter(|engine| engine.condition == EngineCondition::Serving);
    let serving = serving.filter(|engine| engine.is_on_demand).map(|engine| {
        let occupancy = engine.occupancy;
        (3, occupancy.taken(group.limits.seats), Reverse(occupancy.idle_rank()), &engine.id)
    });
    let stalled = stalled.map(move |slot| (0, 0, none, &slot.id));
    let pending = pending.map(move |engine| (1 + u8::from(engine.is_created), 0, none, &engine.id));
    stalled.chain(pending).chain(serving)
}
