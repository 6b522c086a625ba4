//! Properties of scaling for random groups. Each takes the function under test, so that the mutants are judged by the same.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::groups::{applied, groups, later};
use super::{Id, Scale};
use crate::scale::{
    EngineCondition, Group, Occupancy, PendingEngine, ReadyEngine, RemovalReason, Scaled, UnmetReason, scale,
};

use RemovalReason::{Idle, Outdated, OverMax, Queued, Unneeded};

/// Whether the property holds for a group.
type Property = fn(Scale<'_>, &Group<Id>) -> bool;

pub(super) const PROPERTIES: &[(&str, Property)] = &[
    ("never above max by its own starts", |scale, group| {
        let scaled = scale(group);
        scaled.start == 0 || scaled.declared <= group.limits.max
    }),
    ("never below min by its own removals", |scale, group| {
        let mut left = count(group);
        scale(group).removals.iter().filter(|removal| removal.reason != Outdated).all(|_| {
            left -= 1;
            left >= group.limits.min
        })
    }),
    ("no start and cancel in one round above min", |scale, group| {
        let scaled = scale(group);
        scaled.start == 0 || scaled.declared <= group.limits.min || !any(&scaled, &[Unneeded, Queued])
    }),
    ("no start and idle release in one round", |scale, group| {
        let scaled = scale(group);
        scaled.start == 0 || !any(&scaled, &[Idle])
    }),
    ("a busy engine drains only over max or outdated", |scale, group| {
        let scaled = scale(group);
        let mut removals = scaled.removals.iter();
        removals.all(|removal| match engine(group, removal.id) {
            Some(engine) if taken(group, engine) > 0 => matches!(removal.reason, OverMax | Outdated),
            Some(_) => matches!(removal.reason, Idle | OverMax | Outdated),
            None => matches!(removal.reason, Unneeded | Queued | OverMax),
        })
    }),
    ("only slots that were started on demand end", |scale, group| {
        let ending = |id: Id| {
            let engines = group.engines.iter().map(|engine| (engine.id, engine.is_on_demand, false));
            let pending = group.pending.iter().map(|engine| (engine.id, engine.is_on_demand, engine.has_stand_in));
            let stalled = group.stalled.iter().map(|slot| (slot.id, slot.is_on_demand, slot.has_stand_in));
            let mut all = engines.chain(pending).chain(stalled);
            all.any(|(of, is_on_demand, has_stand_in)| of == id && is_on_demand && !has_stand_in)
        };
        scale(group).removals.iter().filter(|removal| removal.reason != Outdated).all(|removal| ending(removal.id))
    }),
    ("what is created or failed is cancelled only after a while", |scale, group| {
        let scaled = scale(group);
        let is_early = |id: &Id| group.pending.iter().all(|engine| engine.id != *id || engine.is_created);
        group.has_lapsed || !scaled.removed(Unneeded).any(is_early)
    }),
    ("only queued slots are withdrawn as queued", |scale, group| {
        let is_queued = |id: &Id| group.stalled.iter().any(|slot| slot.id == *id && !slot.is_backing_off);
        scale(group).removed(Queued).all(is_queued)
    }),
    ("an engine is released only after the idle timeout", |scale, group| {
        scale(group).removed(Idle).all(|id| {
            engine(group, *id).is_some_and(|engine| match engine.occupancy {
                Occupancy::Unknown => false,
                Occupancy::Retiring => group.limits.idle_timeout_ms.is_some(),
                Occupancy::Sessions { idle_ms, .. } => {
                    group.limits.idle_timeout_ms.is_some_and(|least| idle_ms >= least)
                }
            })
        })
    }),
    ("a release leaves seats for waiting sessions and the spare", |scale, group| {
        let scaled = scale(group);
        let left = Left::new(group, &scaled);
        !any(&scaled, &[Idle]) || any(&scaled, &[OverMax]) || (left.free >= group.waiting && left.lacking() == 0)
    }),
    ("a cancel leaves the engines that demand needs", |scale, group| {
        let scaled = scale(group);
        let (before, left) = (Left::new(group, &nothing()), Left::new(group, &scaled));
        let needed = before.miss().min(before.pending_seats());
        any(&scaled, &[OverMax]) || before.pending == left.pending || {
            let for_spare = before.lacking().saturating_mul(before.seats);
            left.pending_seats() >= needed && left.pending_seats() + before.seats > needed + for_spare
        }
    }),
    ("in the cooldown only the last engines are released", |scale, group| {
        let scaled = scale(group);
        !group.is_cooling || !any(&scaled, &[Idle]) || scaled.declared == 0
    }),
    ("starts stay within back-off, admission and burst", |scale, group| {
        let scaled = scale(group);
        let most = if group.backs_off() { 0 } else { group.admitted.unwrap_or(u64::MAX) };
        scaled.start <= most.min(group.limits.burst)
    }),
    ("nothing is started that is not needed", |scale, group| {
        let scaled = scale(group);
        let left = Left::new(group, &scaled);
        let for_demand = left.unserved().div_ceil(left.seats);
        let for_spare = if for_demand == 0 && left.pending == 0 { left.lacking() } else { 0 };
        let for_min = group.limits.min.saturating_sub(scaled.declared - scaled.start);
        scaled.start <= for_demand.max(for_spare).max(for_min)
    }),
    ("the declared number is that of the slots", |scale, group| {
        let scaled = scale(group);
        let removed = scaled.removals.iter().filter(|removal| removal.reason != Outdated).count() as u64;
        scaled.declared == count(group) - removed + scaled.start
    }),
    ("unmet sessions are those without a seat", |scale, group| {
        let scaled = scale(group);
        let left = Left::new(group, &scaled);
        scaled.unmet == left.unserved().saturating_sub(scaled.start * left.seats)
    }),
    ("sessions are unmet only at a limit, which is named", |scale, group| {
        let scaled = scale(group);
        match scaled.unmet_reason {
            None => scaled.unmet == 0,
            Some(_) if scaled.unmet == 0 => false,
            Some(UnmetReason::Max) => scaled.declared >= group.limits.max,
            Some(UnmetReason::Quota) => group.admitted == Some(scaled.start) || any(&scaled, &[Queued]),
            Some(UnmetReason::BackOff) => group.backs_off(),
            Some(UnmetReason::Burst) => scaled.start == group.limits.burst || any(&scaled, &[Unneeded]),
        }
    }),
    ("a slot ends once, and only one that exists", |scale, group| {
        let scaled = scale(group);
        let removed: BTreeSet<Id> = scaled.removals.iter().map(|removal| removal.id).collect();
        let is_known = |id: &Id| {
            engine(group, *id).is_some()
                || group.pending.iter().any(|engine| engine.id == *id)
                || group.stalled.iter().any(|slot| slot.id == *id)
        };
        removed.len() == scaled.removals.len() && removed.iter().all(is_known)
    }),
    ("outdated engines drain, and draining ones are left alone", |scale, group| {
        let scaled = scale(group);
        let reason = |id: Id| scaled.removals.iter().find(|removal| removal.id == id).map(|removal| removal.reason);
        group.engines.iter().all(|engine| match engine.condition {
            EngineCondition::Serving => reason(engine.id) != Some(Outdated),
            EngineCondition::Outdated => reason(engine.id) == Some(Outdated),
            EngineCondition::Draining => reason(engine.id).is_none(),
        })
    }),
    ("the longest idle engines are released", |scale, group| {
        let scaled = scale(group);
        let idle = |id: &Id| engine(group, *id).map(|engine| engine.occupancy.idle_rank());
        let released: Vec<_> = scaled.removed(Idle).filter_map(idle).collect();
        let least = released.iter().min();
        let mut left = Left::new(group, &scaled).engines.into_iter();
        released.is_sorted_by(|one, other| one >= other)
            && left.all(|engine| {
                !is_releasable(group, engine) || least.is_none_or(|least| engine.occupancy.idle_rank() <= *least)
            })
    }),
    ("the least busy engines drain over max, after what does not serve", |scale, group| {
        let scaled = scale(group);
        let drained: Vec<_> = scaled.removed(OverMax).filter_map(|id| engine(group, *id)).collect();
        let left = Left::new(group, &scaled);
        let most = drained.iter().map(|engine| taken(group, engine)).max();
        let is_fair =
            |engine: &ReadyEngine<Id>| !engine.is_on_demand || most.is_none_or(|most| taken(group, engine) >= most);
        let of_engine = |id: &Id| engine(group, *id).is_some();
        let others = scaled.removed(OverMax).skip_while(|id| !of_engine(id)).all(of_engine);
        let keeps_pending =
            group.pending.iter().any(|pending| is_cancellable(pending) && !is_removed(&scaled, pending.id));
        others && left.engines.into_iter().all(is_fair) && (drained.is_empty() || !keeps_pending)
    }),
    ("what is not created is cancelled first", |scale, group| {
        let scaled = scale(group);
        let cancelled = |is_created| {
            let mut pending = group.pending.iter().filter(|engine| engine.is_created == is_created);
            pending.any(|engine| is_removed(&scaled, engine.id))
        };
        let keeps_other = group
            .pending
            .iter()
            .any(|engine| is_cancellable(engine) && !engine.is_created && !is_removed(&scaled, engine.id));
        !cancelled(true) || !keeps_other
    }),
    ("only slots above max end as such", |scale, group| {
        let mut left = count(group);
        scale(group).removals.iter().filter(|removal| removal.reason != Outdated).all(|removal| {
            left -= 1;
            removal.reason != OverMax || left >= group.limits.max
        })
    }),
    ("nothing above max is left that may end", |scale, group| {
        let scaled = scale(group);
        let left = scaled.declared - scaled.start;
        let mut pending = group.pending.iter().filter(|engine| is_cancellable(engine)).map(|engine| engine.id);
        let mut engines = Left::new(group, &scaled).engines.into_iter();
        left <= group.limits.max.max(group.limits.min)
            || (pending.all(|id| is_removed(&scaled, id)) && engines.all(|engine| !engine.is_on_demand))
    }),
    ("no surplus is left that may be released", |scale, group| {
        let scaled = scale(group);
        let left = Left::new(group, &scaled);
        let idle: Vec<_> = left.engines.iter().copied().filter(|engine| is_releasable(group, engine)).collect();
        let retiring = idle.iter().filter(|engine| engine.occupancy == Occupancy::Retiring).count() as u64;
        let spare = if left.is_loaded { group.limits.spare } else { 0 };
        let is_served = left.free >= group.waiting && left.spare_have() >= spare;
        let surplus = if is_served { left.spare_have() - spare + retiring } else { 0 };
        let surplus = surplus.min(idle.len() as u64).min(left.count.saturating_sub(group.limits.min));
        surplus == 0 || (group.is_cooling && surplus < left.count)
    }),
    ("no surplus is left that may be cancelled", |scale, group| {
        let scaled = scale(group);
        let left = Left::new(group, &scaled);
        let needed = left.miss().min(left.pending_seats()).div_ceil(left.seats) + left.lacking();
        let may_end = |engine: &PendingEngine<Id>| is_cancellable(engine) && (group.has_lapsed || !engine.is_created);
        let mut others = group.pending.iter().filter(|engine| may_end(engine) && !is_removed(&scaled, engine.id));
        left.pending <= needed || left.count <= group.limits.min || others.next().is_none()
    }),
    ("no queued slot is left that may be withdrawn", |scale, group| {
        let scaled = scale(group);
        let mut queued = group.stalled.iter().filter(|slot| {
            slot.is_on_demand && !slot.has_stand_in && !slot.is_backing_off && !is_removed(&scaled, slot.id)
        });
        scaled.declared - scaled.start <= group.limits.min || queued.next().is_none()
    }),
    ("a failed slot ends when demand has lapsed", |scale, group| {
        let scaled = scale(group);
        let left = Left::new(group, &scaled);
        let (mut failed, mut may_end) = (0, false);
        for slot in group.stalled.iter().filter(|slot| slot.is_backing_off && !is_removed(&scaled, slot.id)) {
            failed += 1;
            may_end |= slot.is_on_demand && !slot.has_stand_in;
        }
        let kept = left.unserved().div_ceil(left.seats) + left.lacking();
        !group.has_lapsed || !may_end || left.count <= group.limits.min || failed <= kept
    }),
    ("a round that is applied leaves nothing to decide", |scale, group| {
        let first = scale(group);
        let is_postponed = first.start == group.limits.burst || any(&first, &[Unneeded, Queued]);
        let second = scale(&applied(group, &first));
        // What it started may stand for a queued slot that was kept for the minimum.
        let is_exchanged = first.start > 0 && second.start == 0 && second.removals.iter().all(|of| of.reason == Queued);
        // A postponed round may start, and removes nothing. Outdated engines have drain orders by then.
        is_exchanged || if is_postponed { second.removals.is_empty() } else { second.is_noop() }
    }),
    ("it converges to the fewest engines that serve demand and the spare", |scale, group| {
        settled(scale, group).is_some_and(|group| is_minimal(&group))
    }),
];

/// What a round leaves, and the terms of it.
struct Left<'a> {
    engines: Vec<&'a ReadyEngine<Id>>,
    count: u64,
    pending: u64,
    waiting: u64,
    seats: u64,
    spare: u64,
    free: u64,
    is_loaded: bool,
}

impl<'a> Left<'a> {
    fn new(group: &'a Group<Id>, scaled: &Scaled<Id>) -> Self {
        let engines: Vec<_> = serving(group).filter(|engine| !is_removed(scaled, engine.id)).collect();
        let pending = group.pending.iter().filter(|engine| !is_removed(scaled, engine.id)).count() as u64;
        let stalled = group.stalled.iter().filter(|slot| !is_removed(scaled, slot.id)).count() as u64;
        Self {
            count: engines.len() as u64 + pending + stalled,
            pending,
            waiting: group.waiting,
            seats: group.limits.seats.get(),
            spare: group.limits.spare,
            free: engines.iter().map(|engine| engine.occupancy.free(group.limits.seats)).sum(),
            is_loaded: group.waiting > 0 || engines.iter().any(|engine| taken(group, engine) > 0),
            engines,
        }
    }

    fn pending_seats(&self) -> u64 {
        self.pending * self.seats
    }

    fn miss(&self) -> u64 {
        self.waiting.saturating_sub(self.free)
    }

    fn unserved(&self) -> u64 {
        self.miss().saturating_sub(self.pending_seats())
    }

    fn spare_have(&self) -> u64 {
        self.free.saturating_sub(self.waiting) / self.seats
    }

    fn lacking(&self) -> u64 {
        if self.is_loaded { self.spare.saturating_sub(self.spare_have()) } else { 0 }
    }
}

fn nothing() -> Scaled<Id> {
    Scaled { removals: Vec::new(), start: 0, declared: 0, unmet: 0, unmet_reason: None }
}

fn any(scaled: &Scaled<Id>, reasons: &[RemovalReason]) -> bool {
    reasons.iter().any(|reason| scaled.removed(*reason).next().is_some())
}

fn is_removed(scaled: &Scaled<Id>, id: Id) -> bool {
    scaled.removals.iter().any(|removal| removal.id == id)
}

fn serving(group: &Group<Id>) -> impl Iterator<Item = &ReadyEngine<Id>> {
    group.engines.iter().filter(|engine| engine.condition == EngineCondition::Serving)
}

fn engine(group: &Group<Id>, id: Id) -> Option<&ReadyEngine<Id>> {
    group.engines.iter().find(|engine| engine.id == id)
}

fn taken(group: &Group<Id>, engine: &ReadyEngine<Id>) -> u64 {
    engine.occupancy.taken(group.limits.seats)
}

fn is_cancellable(engine: &PendingEngine<Id>) -> bool {
    engine.is_on_demand && !engine.has_stand_in
}

fn is_releasable(group: &Group<Id>, engine: &ReadyEngine<Id>) -> bool {
    let is_due = |least| engine.occupancy.idle_rank().1 >= least;
    engine.is_on_demand && taken(group, engine) == 0 && group.limits.idle_timeout_ms.is_some_and(is_due)
}

/// The number of slots that count.
fn count(group: &Group<Id>) -> u64 {
    (serving(group).count() + group.pending.len() + group.stalled.len()) as u64
}

/// More rounds than any of the groups takes.
const MAX_ROUNDS: usize = 100;

/// The group after as many rounds as it takes, with time passing between them. `None` if there is no end.
fn settled(scale: Scale<'_>, group: &Group<Id>) -> Option<Group<Id>> {
    let mut group = group.clone();
    for _ in 0..MAX_ROUNDS {
        let scaled = scale(&group);
        let after = applied(&group, &scaled);
        let is_settled = scaled.is_noop() && after.pending.is_empty() && after.stalled.is_empty();
        let next = later(&after);
        // With the flags of `later`: the first round may still have had others.
        if is_settled && scale(&next).is_noop() {
            return Some(next);
        }
        group = next;
    }
    None
}

/// Whether a group in which nothing changes any more has the fewest engines.
fn is_minimal(group: &Group<Id>) -> bool {
    let limits = group.limits;
    let seats = limits.seats.get();
    let (busy, empty): (Vec<_>, Vec<_>) = serving(group).partition(|engine| taken(group, engine) > 0);
    let free: u64 = busy.iter().map(|engine| engine.occupancy.free(limits.seats)).sum();
    let spare = if group.waiting > 0 || !busy.is_empty() { limits.spare } else { 0 };
    let in_addition = (group.waiting + spare * seats).saturating_sub(free).div_ceil(seats);
    let needed = (busy.len() as u64 + in_addition).max(limits.min).min(limits.max);
    let kept = (busy.len() + empty.iter().filter(|engine| !engine.is_on_demand).count()) as u64;
    let (number, fewest) = (count(group), needed.max(kept));
    // Between a maximum and a higher minimum nothing is started and nothing ends.
    let is_contradictory = limits.min > limits.max && (limits.max..=limits.min).contains(&number);
    if limits.idle_timeout_ms.is_none() {
        return number >= fewest;
    }
    number == fewest || is_contradictory
}

/// The properties that the function violates for the group.
pub(super) fn violated(scale: Scale<'_>, group: &Group<Id>) -> Vec<&'static str> {
    PROPERTIES.iter().filter(|(_, holds)| !holds(scale, group)).map(|(name, _)| *name).collect()
}

/// The number of random groups; `PROPTEST_CASES` can raise it.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(3_000), ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_property_holds_for_random_groups(group in groups()) {
        prop_assert_eq!(violated(&scale, &group), Vec::<&str>::new(), "{:#?}", scale(&group));
    }
}
