//! The formulas of scaling, in the order in which a round applies them.
//!
//! With S seats for each engine, K engines that serve with b taken seats, P pending ones, Q stalled slots, W waiting sessions;
//! cdiv rounds up:
//!
//! ```text
//! F          = Σ max(0, S − b) over K
//! miss       = max(0, W − F)
//! pslots     = S × |P|
//! missP      = max(0, miss − pslots)
//! want_new   = cdiv(missP, S)
//! spare_have = W ≤ F ? (F − W) / S : 0
//! lacking    = W > 0 or any b > 0 ? max(0, spare − spare_have) : 0
//! spare_new  = P empty and want_new = 0 ? lacking : 0
//! need_p     = cdiv(min(miss, pslots), S) + lacking
//! n          = |K| + |P| + |Q|
//! ```
//!
//! A removal decrements n. If a group above its maximum loses engines, the terms are computed again from what is left.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::num::NonZeroU64;

use super::group::{EngineCondition, Group, Occupancy, PendingEngine, ReadyEngine, ScalingLimits, StalledSlot, sum};
use super::scaled::{Removal, RemovalReason, Scaled, UnmetReason};

/// The formulas of the design.
pub(super) struct Design;

impl<Id: Ord + Clone> Formulas<Id> for Design {}

/// What the decisions of a round are made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// W.
    pub waiting: u64,
    /// F.
    pub free: u64,
    /// `missP`.
    pub unserved: u64,
    pub want_new: u64,
    pub spare_have: u64,
    pub is_loaded: bool,
    /// The spare engines that the group is short of.
    pub lacking: u64,
    pub spare_new: u64,
    /// `need_p`.
    pub needed_pending: u64,
}

/// What is left of the group, and what was removed.
pub(super) struct Round<'a, Id> {
    pub limits: ScalingLimits,
    pub group: &'a Group<Id>,
    /// n.
    pub count: u64,
    /// K.
    pub serving: Vec<&'a ReadyEngine<Id>>,
    /// P.
    pub pending: Vec<&'a PendingEngine<Id>>,
    /// Q.
    pub stalled: Vec<&'a StalledSlot<Id>>,
    pub removals: Vec<Removal<Id>>,
}

impl<Id: Ord + Clone> Round<'_, Id> {
    pub fn remove(&mut self, ids: &[&Id], reason: RemovalReason) {
        if ids.is_empty() {
            return;
        }
        let removed: BTreeSet<&Id> = ids.iter().copied().collect();
        self.serving.retain(|engine| !removed.contains(&engine.id));
        self.pending.retain(|engine| !removed.contains(&engine.id));
        self.stalled.retain(|slot| !removed.contains(&slot.id));
        self.removals.extend(ids.iter().map(|id| Removal { id: (*id).clone(), reason }));
        if reason != RemovalReason::Outdated {
            self.count = self.count.saturating_sub(ids.len() as u64);
        }
    }

    fn has_removed(&self, reason: RemovalReason) -> bool {
        self.removals.iter().any(|removal| removal.reason == reason)
    }

    pub fn taken(&self, engine: &ReadyEngine<Id>) -> u64 {
        engine.occupancy.taken(self.limits.seats)
    }
}

/// The decisions of scaling. The methods that are provided are the formulas.
pub(super) trait Formulas<Id: Ord + Clone> {
    fn scale(&self, group: &Group<Id>) -> Scaled<Id> {
        let mut round = self.round(group);
        let terms = loop {
            let terms = self.terms(&round);
            self.withdraw(&terms, &mut round);
            self.cancel(&terms, &mut round);
            self.release(&terms, &mut round);
            if !self.enforce_max(&mut round) {
                break terms;
            }
        };
        self.drain_outdated(&mut round);
        let (start, limited_by) = self.start(&terms, &round);
        let unmet = self.unmet(&terms, start, round.limits.seats);
        Scaled {
            start,
            declared: round.count.saturating_add(start),
            unmet,
            unmet_reason: limited_by.filter(|_| unmet > 0),
            removals: round.removals,
        }
    }

    fn round<'a>(&self, group: &'a Group<Id>) -> Round<'a, Id> {
        let serving: Vec<_> = group.engines.iter().filter(|engine| self.counts(engine.condition)).collect();
        let count = serving.len() + group.pending.len() + group.stalled.len();
        Round {
            limits: group.limits,
            group,
            count: count as u64,
            serving,
            pending: group.pending.iter().collect(),
            stalled: group.stalled.iter().collect(),
            removals: Vec::new(),
        }
    }

    /// Whether an engine is one of K.
    fn counts(&self, condition: EngineCondition) -> bool {
        condition == EngineCondition::Serving
    }

    fn terms(&self, round: &Round<'_, Id>) -> Terms {
        let (waiting, seats, spare) = (round.group.waiting, round.limits.seats, round.limits.spare);
        let free = sum(round.serving.iter().map(|engine| self.free(engine.occupancy, seats)));
        let miss = waiting.saturating_sub(free);
        let pending_seats = self.pending_seats(round.pending.len() as u64, seats);
        let unserved = miss.saturating_sub(pending_seats);
        let want_new = self.engines_for(unserved, seats);
        let spare_have = free.saturating_sub(waiting) / seats;
        let is_loaded = self.is_loaded(round);
        let lacking = if is_loaded { spare.saturating_sub(spare_have) } else { 0 };
        let spare_new = if self.may_start_spare(round, want_new) { lacking } else { 0 };
        let needed_pending = self.engines_for(miss.min(pending_seats), seats).saturating_add(lacking);
        Terms { waiting, free, unserved, want_new, spare_have, is_loaded, lacking, spare_new, needed_pending }
    }

    /// cdiv.
    fn engines_for(&self, sessions: u64, seats: NonZeroU64) -> u64 {
        sessions.div_ceil(seats.get())
    }

    /// The free seats of an engine.
    fn free(&self, occupancy: Occupancy, seats: NonZeroU64) -> u64 {
        occupancy.free(seats)
    }

    fn pending_seats(&self, engines: u64, seats: NonZeroU64) -> u64 {
        seats.get().saturating_mul(engines)
    }

    /// Whether the group is in use, so that spare engines are kept.
    fn is_loaded(&self, round: &Round<'_, Id>) -> bool {
        round.group.waiting > 0 || round.serving.iter().any(|engine| round.taken(engine) > 0)
    }

    /// Spare engines are started one round at a time: the next ones when these have registered.
    fn may_start_spare(&self, round: &Round<'_, Id>, want_new: u64) -> bool {
        round.pending.is_empty() && want_new == 0
    }

    /// How many slots can be removed without falling below the minimum.
    fn above_min(&self, round: &Round<'_, Id>, _reason: RemovalReason) -> u64 {
        round.count.saturating_sub(round.limits.min)
    }

    /// Removes queued slots, whose demand any link may serve, and those in back-off that demand has not needed for a while.
    fn withdraw(&self, terms: &Terms, round: &mut Round<'_, Id>) {
        let (failed, queued): (Vec<_>, Vec<_>) = round.stalled.iter().copied().partition(|slot| slot.is_backing_off);
        let kept = terms.want_new.saturating_add(terms.lacking);
        let surplus = if round.group.has_lapsed { (failed.len() as u64).saturating_sub(kept) } else { 0 };
        for (slots, most, reason) in
            [(queued, u64::MAX, RemovalReason::Queued), (failed, surplus, RemovalReason::Unneeded)]
        {
            let most = most.min(self.above_min(round, reason));
            let slots = slots.into_iter().filter(|slot| self.may_withdraw(slot)).map(|slot| &slot.id);
            round.remove(&first(slots, most), reason);
        }
    }

    fn may_withdraw(&self, slot: &StalledSlot<Id>) -> bool {
        slot.is_on_demand && !slot.has_stand_in
    }

    /// Removes pending engines that are no longer needed.
    fn cancel(&self, terms: &Terms, round: &mut Round<'_, Id>) {
        let surplus = (round.pending.len() as u64).saturating_sub(terms.needed_pending);
        let most = surplus.min(self.above_min(round, RemovalReason::Unneeded));
        let has_lapsed = round.group.has_lapsed;
        let engines = self.in_cancel_order(round).into_iter().filter(|engine| self.may_cancel(engine, has_lapsed));
        round.remove(&first(engines.map(|engine| &engine.id), most), RemovalReason::Unneeded);
    }

    /// What is not created yet costs nothing and is first.
    fn in_cancel_order<'a>(&self, round: &Round<'a, Id>) -> Vec<&'a PendingEngine<Id>> {
        let mut engines = round.pending.clone();
        engines.sort_by_key(|engine| (engine.is_created, &engine.id));
        engines
    }

    /// A created engine is kept for a while: a client that comes again every few seconds would otherwise never have one.
    fn may_cancel(&self, engine: &PendingEngine<Id>, has_lapsed: bool) -> bool {
        engine.is_on_demand && !engine.has_stand_in && (!engine.is_created || has_lapsed)
    }

    /// Removes idle engines that neither waiting sessions nor the spare need.
    fn release(&self, terms: &Terms, round: &mut Round<'_, Id>) {
        let idle = self.in_release_order(round);
        let most = self.releasable(terms, &idle, round).min(self.above_min(round, RemovalReason::Idle));
        let released = first(idle.into_iter().map(|engine| &engine.id), most);
        if self.may_release(round, round.count == released.len() as u64) {
            round.remove(&released, RemovalReason::Idle);
        }
    }

    /// How many engines neither waiting sessions nor the spare need. Those that retire have no free seats that would count.
    fn releasable(&self, terms: &Terms, idle: &[&ReadyEngine<Id>], round: &Round<'_, Id>) -> u64 {
        let spare = if terms.is_loaded { round.limits.spare } else { 0 };
        if terms.waiting > terms.free || terms.spare_have < spare {
            return 0;
        }
        let retiring = idle.iter().filter(|engine| engine.occupancy == Occupancy::Retiring).count();
        (terms.spare_have - spare).saturating_add(retiring as u64)
    }

    /// The engines that may be released, the longest idle first.
    fn in_release_order<'a>(&self, round: &Round<'a, Id>) -> Vec<&'a ReadyEngine<Id>> {
        let Some(timeout_ms) = round.limits.idle_timeout_ms else { return Vec::new() };
        let serving = round.serving.iter().copied();
        let mut idle: Vec<_> = serving.filter(|engine| self.is_idle(engine, round, timeout_ms)).collect();
        idle.sort_by_key(|engine| (Reverse(engine.occupancy.idle_rank()), &engine.id));
        idle
    }

    fn is_idle(&self, engine: &ReadyEngine<Id>, round: &Round<'_, Id>, timeout_ms: u64) -> bool {
        engine.is_on_demand && round.taken(engine) == 0 && engine.occupancy.idle_ms() >= timeout_ms
    }

    /// In the cooldown after a release only the last engines of the group are released.
    fn may_release(&self, round: &Round<'_, Id>, scales_to_zero: bool) -> bool {
        !round.group.is_cooling || scales_to_zero
    }

    /// Removes slots above the maximum: first what does not serve yet, then what serves the fewest sessions. Whether it removed
    /// any.
    fn enforce_max(&self, round: &mut Round<'_, Id>) -> bool {
        let most = self.above_max(round).min(self.above_min(round, RemovalReason::OverMax));
        if most == 0 {
            return false;
        }
        let stalled = round.stalled.iter().filter(|slot| self.may_withdraw(slot)).map(|slot| &slot.id);
        let pending = self.in_cancel_order(round).into_iter().filter(|engine| self.may_cancel(engine, true));
        let serving = self.in_drain_order(round).into_iter().filter(|engine| engine.is_on_demand);
        let order = stalled.chain(pending.map(|engine| &engine.id)).chain(serving.map(|engine| &engine.id));
        let removed = first(order, most);
        round.remove(&removed, RemovalReason::OverMax);
        !removed.is_empty()
    }

    fn above_max(&self, round: &Round<'_, Id>) -> u64 {
        round.count.saturating_sub(round.limits.max)
    }

    /// The fewest sessions first, of these the longest idle.
    fn in_drain_order<'a>(&self, round: &Round<'a, Id>) -> Vec<&'a ReadyEngine<Id>> {
        let mut engines = round.serving.clone();
        engines.sort_by_key(|engine| (round.taken(engine), Reverse(engine.occupancy.idle_rank()), &engine.id));
        engines
    }

    fn drain_outdated(&self, round: &mut Round<'_, Id>) {
        let outdated = round.group.engines.iter().filter(|engine| engine.condition == EngineCondition::Outdated);
        round.remove(&first(outdated.map(|engine| &engine.id), u64::MAX), RemovalReason::Outdated);
    }

    /// How many slots are added, and by which limit they are fewer than demand needs.
    fn start(&self, terms: &Terms, round: &Round<'_, Id>) -> (u64, Option<UnmetReason>) {
        if self.is_held_back(round) {
            return (0, Some(UnmetReason::BackOff));
        }
        let wanted = terms.want_new.saturating_add(terms.spare_new);
        let mut start = self.within_limits(round.count, wanted, round.limits);
        let mut limited_by = (start < wanted).then_some(UnmetReason::Max);
        let is_withdrawn = round.has_removed(RemovalReason::Queued);
        let for_min = self.within_limits(round.count, 0, round.limits);
        let postponed = if self.postpones(round) { for_min } else { u64::MAX };
        for (most, reason) in [
            (postponed, if is_withdrawn { UnmetReason::Quota } else { UnmetReason::Burst }),
            (self.admitted(round.group), UnmetReason::Quota),
            (self.burst(round.limits), UnmetReason::Burst),
        ] {
            if most < start {
                (start, limited_by) = (most, Some(reason));
            }
        }
        (start, limited_by)
    }

    /// Whether nothing is started because a start has failed.
    fn is_held_back(&self, round: &Round<'_, Id>) -> bool {
        round.group.backs_off()
    }

    /// Whether demand starts nothing in this round, because the round removes slots that were on their way or to be.
    fn postpones(&self, round: &Round<'_, Id>) -> bool {
        round.has_removed(RemovalReason::Unneeded) || round.has_removed(RemovalReason::Queued)
    }

    /// clamp(count + wanted, min, max) − count. The maximum is stronger.
    fn within_limits(&self, count: u64, wanted: u64, limits: ScalingLimits) -> u64 {
        count.saturating_add(wanted).max(limits.min).min(limits.max).saturating_sub(count)
    }

    fn admitted(&self, group: &Group<Id>) -> u64 {
        group.admitted.unwrap_or(u64::MAX)
    }

    fn burst(&self, limits: ScalingLimits) -> u64 {
        limits.burst
    }

    fn unmet(&self, terms: &Terms, start: u64, seats: NonZeroU64) -> u64 {
        terms.unserved.saturating_sub(start.saturating_mul(seats.get()))
    }
}

/// At most that many of them.
fn first<T>(items: impl Iterator<Item = T>, most: u64) -> Vec<T> {
    items.take(usize::try_from(most).unwrap_or(usize::MAX)).collect()
}
