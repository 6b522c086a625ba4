//! Deliberately broken versions of the formulas: the table or a property detects each.
//!
//! A mutant replaces one method of the trait. The release has only the methods that are provided.

use std::cmp::Reverse;
use std::num::NonZeroU64;

use super::groups::fixed;
use super::properties::violated;
use super::table::differing;
use super::{Id, Scale};
use crate::scale::formulas::{Design, Formulas, Round, Terms};
use crate::scale::{
    EngineCondition, Group, Occupancy, PendingEngine, ReadyEngine, RemovalReason, Scaled, ScalingLimits, StalledSlot,
    scale,
};

struct Mutant {
    name: &'static str,
    scale: fn(&Group<Id>) -> Scaled<Id>,
}

/// The mutants of a class of mistakes: a name, and the methods that it replaces.
macro_rules! mutants {
    ($($class:literal { $($name:literal { $($methods:tt)* })* })*) => {
        fn classes() -> Vec<(&'static str, Vec<Mutant>)> {
            vec![$(($class, vec![$({
                struct Broken;
                impl Formulas<Id> for Broken {
                    $($methods)*
                }
                Mutant { name: $name, scale: |group| Broken.scale(group) }
            }),*])),*]
        }
    };
}

fn terms(round: &Round<'_, Id>) -> Terms {
    Design.terms(round)
}

mutants! {
    "rounding and limits" {
        "floor for ceiling" {
            fn engines_for(&self, sessions: u64, seats: NonZeroU64) -> u64 { sessions / seats }
        }
        "one engine more than whole ones" {
            fn engines_for(&self, sessions: u64, seats: NonZeroU64) -> u64 { sessions / seats + 1 }
        }
        "seats off by one" {
            fn pending_seats(&self, engines: u64, seats: NonZeroU64) -> u64 { (seats.get() - 1) * engines }
        }
        "start beyond max" {
            fn within_limits(&self, count: u64, wanted: u64, limits: ScalingLimits) -> u64 {
                (count + wanted).max(limits.min) - count
            }
        }
        "one beyond max" {
            fn within_limits(&self, count: u64, wanted: u64, limits: ScalingLimits) -> u64 {
                (count + wanted).max(limits.min).min(limits.max + 1).saturating_sub(count)
            }
        }
        "drain to one below max" {
            fn above_max(&self, round: &Round<'_, Id>) -> u64 {
                if round.count > round.limits.max { round.count - round.limits.max + 1 } else { 0 }
            }
        }
        "minimum stronger than maximum" {
            fn within_limits(&self, count: u64, wanted: u64, limits: ScalingLimits) -> u64 {
                (count + wanted).min(limits.max).max(limits.min).saturating_sub(count)
            }
        }
        "burst off by one" {
            fn burst(&self, limits: ScalingLimits) -> u64 { limits.burst + 1 }
        }
        "release only after the timeout, not at it" {
            fn is_idle(&self, engine: &ReadyEngine<Id>, round: &Round<'_, Id>, timeout_ms: u64) -> bool {
                Design.is_idle(engine, round, timeout_ms + 1)
            }
        }
    }
    "omitted terms, clamps and guards" {
        "ignore pending" {
            fn pending_seats(&self, _: u64, _: NonZeroU64) -> u64 { 0 }
        }
        "ignore free seats" {
            fn free(&self, _: Occupancy, _: NonZeroU64) -> u64 { 0 }
        }
        "ignore min" {
            fn within_limits(&self, count: u64, wanted: u64, limits: ScalingLimits) -> u64 {
                (count + wanted).min(limits.max).saturating_sub(count)
            }
        }
        "ignore burst" {
            fn burst(&self, _: ScalingLimits) -> u64 { u64::MAX }
        }
        "ignore the quota" {
            fn admitted(&self, _: &Group<Id>) -> u64 { u64::MAX }
        }
        "start in back-off" {
            fn is_held_back(&self, _: &Round<'_, Id>) -> bool { false }
        }
        "start while removing" {
            fn postpones(&self, _: &Round<'_, Id>) -> bool { false }
        }
        "cancel below min" {
            fn above_min(&self, round: &Round<'_, Id>, reason: RemovalReason) -> u64 {
                if reason == RemovalReason::Unneeded { round.count } else { Design.above_min(round, reason) }
            }
        }
        "release below min" {
            fn above_min(&self, round: &Round<'_, Id>, reason: RemovalReason) -> u64 {
                if reason == RemovalReason::Idle { round.count } else { Design.above_min(round, reason) }
            }
        }
        "withdraw below min" {
            fn above_min(&self, round: &Round<'_, Id>, reason: RemovalReason) -> u64 {
                if reason == RemovalReason::Queued { round.count } else { Design.above_min(round, reason) }
            }
        }
        "drain below min" {
            fn above_min(&self, round: &Round<'_, Id>, reason: RemovalReason) -> u64 {
                if reason == RemovalReason::OverMax { round.count } else { Design.above_min(round, reason) }
            }
        }
        "release what waiting sessions need" {
            fn releasable(&self, terms: &Terms, idle: &[&ReadyEngine<Id>], round: &Round<'_, Id>) -> u64 {
                let seats = round.limits.seats;
                let terms = Terms { waiting: 0, spare_have: terms.free / seats, ..*terms };
                Design.releasable(&terms, idle, round)
            }
        }
        "release the spare" {
            fn releasable(&self, terms: &Terms, idle: &[&ReadyEngine<Id>], round: &Round<'_, Id>) -> u64 {
                Design.releasable(&Terms { is_loaded: false, ..*terms }, idle, round)
            }
        }
        "release busy" {
            fn is_idle(&self, engine: &ReadyEngine<Id>, _: &Round<'_, Id>, timeout_ms: u64) -> bool {
                engine.is_on_demand && engine.occupancy.idle_ms() >= timeout_ms
            }
        }
        "release engines that were started" {
            fn is_idle(&self, engine: &ReadyEngine<Id>, round: &Round<'_, Id>, timeout_ms: u64) -> bool {
                round.taken(engine) == 0 && engine.occupancy.idle_ms() >= timeout_ms
            }
        }
        "cancel engines that were started" {
            fn may_cancel(&self, engine: &PendingEngine<Id>, has_lapsed: bool) -> bool {
                !engine.has_stand_in && (!engine.is_created || has_lapsed)
            }
        }
        "cancel with a stand-in" {
            fn may_cancel(&self, engine: &PendingEngine<Id>, has_lapsed: bool) -> bool {
                engine.is_on_demand && (!engine.is_created || has_lapsed)
            }
        }
        "withdraw with a stand-in" {
            fn may_withdraw(&self, slot: &StalledSlot<Id>) -> bool { slot.is_on_demand }
        }
        "withdraw slots that were started" {
            fn may_withdraw(&self, slot: &StalledSlot<Id>) -> bool { !slot.has_stand_in }
        }
        "ignore spare" {
            fn terms(&self, round: &Round<'_, Id>) -> Terms {
                let needed_pending = terms(round).needed_pending - terms(round).lacking;
                Terms { is_loaded: false, lacking: 0, spare_new: 0, needed_pending, ..terms(round) }
            }
        }
        "spare although nothing runs" {
            fn is_loaded(&self, _: &Round<'_, Id>) -> bool { true }
        }
        "spare although one is pending" {
            fn may_start_spare(&self, _: &Round<'_, Id>, want_new: u64) -> bool { want_new == 0 }
        }
        "spare in addition to demand" {
            fn may_start_spare(&self, round: &Round<'_, Id>, _: u64) -> bool { round.pending.is_empty() }
        }
        "spare without waiting sessions only" {
            fn is_loaded(&self, round: &Round<'_, Id>) -> bool {
                round.serving.iter().any(|engine| round.taken(engine) > 0)
            }
        }
    }
    "reversed order" {
        "shortest idle first" {
            fn in_release_order<'a>(&self, round: &Round<'a, Id>) -> Vec<&'a ReadyEngine<Id>> {
                let mut idle = Design.in_release_order(round);
                idle.sort_by_key(|engine| engine.occupancy.idle_rank());
                idle
            }
        }
        "release by name" {
            fn in_release_order<'a>(&self, round: &Round<'a, Id>) -> Vec<&'a ReadyEngine<Id>> {
                let mut idle = Design.in_release_order(round);
                idle.sort_by_key(|engine| engine.id);
                idle
            }
        }
        "busiest drained first" {
            fn in_drain_order<'a>(&self, round: &Round<'a, Id>) -> Vec<&'a ReadyEngine<Id>> {
                let mut engines = Design.in_drain_order(round);
                engines.reverse();
                engines
            }
        }
        "drain by idle time before sessions" {
            fn in_drain_order<'a>(&self, round: &Round<'a, Id>) -> Vec<&'a ReadyEngine<Id>> {
                let mut engines = Design.in_drain_order(round);
                engines.sort_by_key(|engine| Reverse(engine.occupancy.idle_rank()));
                engines
            }
        }
        "created cancelled first" {
            fn in_cancel_order<'a>(&self, round: &Round<'a, Id>) -> Vec<&'a PendingEngine<Id>> {
                let mut engines = Design.in_cancel_order(round);
                engines.sort_by_key(|engine| !engine.is_created);
                engines
            }
        }
    }
    "ignored time" {
        "ignore the idle timeout" {
            fn is_idle(&self, engine: &ReadyEngine<Id>, round: &Round<'_, Id>, _: u64) -> bool {
                Design.is_idle(engine, round, 0)
            }
        }
        "ignore the cooldown" {
            fn may_release(&self, _: &Round<'_, Id>, _: bool) -> bool { true }
        }
        "cancel created engines at once" {
            fn may_cancel(&self, engine: &PendingEngine<Id>, _: bool) -> bool { Design.may_cancel(engine, true) }
        }
        "withdraw failed slots at once" {
            fn withdraw(&self, terms: &Terms, round: &mut Round<'_, Id>) {
                let group = Group { has_lapsed: true, ..round.group.clone() };
                let mut copy = Design.round(&group);
                Design.withdraw(terms, &mut copy);
                let ids = |reason| -> Vec<Id> {
                    let removed = copy.removals.iter().filter(|removal| removal.reason == reason);
                    removed.map(|removal| removal.id).collect()
                };
                for reason in [RemovalReason::Queued, RemovalReason::Unneeded] {
                    round.remove(&ids(reason).iter().collect::<Vec<_>>(), reason);
                }
            }
        }
    }
    "omitted liveness steps" {
        "never cancel" {
            fn cancel(&self, _: &Terms, _: &mut Round<'_, Id>) {}
        }
        "never release" {
            fn release(&self, _: &Terms, _: &mut Round<'_, Id>) {}
        }
        "never start" {
            fn within_limits(&self, _: u64, _: u64, _: ScalingLimits) -> u64 { 0 }
        }
        "never drain over max" {
            fn enforce_max(&self, _: &mut Round<'_, Id>) -> bool { false }
        }
        "never drain outdated" {
            fn drain_outdated(&self, _: &mut Round<'_, Id>) {}
        }
        "never withdraw" {
            fn withdraw(&self, _: &Terms, _: &mut Round<'_, Id>) {}
        }
        "never scale to zero in the cooldown" {
            fn may_release(&self, round: &Round<'_, Id>, _: bool) -> bool { !round.group.is_cooling }
        }
        "never cancel what is created" {
            fn may_cancel(&self, engine: &PendingEngine<Id>, _: bool) -> bool { Design.may_cancel(engine, false) }
        }
        "drain only what is idle" {
            fn in_drain_order<'a>(&self, round: &Round<'a, Id>) -> Vec<&'a ReadyEngine<Id>> {
                let mut engines = Design.in_drain_order(round);
                engines.retain(|engine| round.taken(engine) == 0);
                engines
            }
        }
        "never release what retires" {
            fn is_idle(&self, engine: &ReadyEngine<Id>, round: &Round<'_, Id>, timeout_ms: u64) -> bool {
                engine.occupancy != Occupancy::Retiring && Design.is_idle(engine, round, timeout_ms)
            }
        }
    }
    "stale input" {
        "unknown engines count as empty" {
            fn free(&self, occupancy: Occupancy, seats: NonZeroU64) -> u64 {
                if occupancy == Occupancy::Unknown { seats.get() } else { occupancy.free(seats) }
            }
        }
        "unknown engines count as idle" {
            fn is_idle(&self, engine: &ReadyEngine<Id>, round: &Round<'_, Id>, timeout_ms: u64) -> bool {
                engine.occupancy == Occupancy::Unknown && engine.is_on_demand
                    || Design.is_idle(engine, round, timeout_ms)
            }
        }
        "seats of retiring engines count as free" {
            fn free(&self, occupancy: Occupancy, seats: NonZeroU64) -> u64 {
                if occupancy == Occupancy::Retiring { seats.get() } else { occupancy.free(seats) }
            }
        }
        "terms of before the drain" {
            fn scale(&self, group: &Group<Id>) -> Scaled<Id> {
                let mut round = Design.round(group);
                let terms = terms(&round);
                Design.withdraw(&terms, &mut round);
                Design.cancel(&terms, &mut round);
                Design.release(&terms, &mut round);
                Design.enforce_max(&mut round);
                Design.drain_outdated(&mut round);
                let (start, reason) = Design.start(&terms, &round);
                let unmet = Formulas::<Id>::unmet(&Design, &terms, start, round.limits.seats);
                let declared = round.count + start;
                Scaled { removals: round.removals, start, declared, unmet, unmet_reason: reason.filter(|_| unmet > 0) }
            }
        }
    }
    "double counting" {
        "pending seats twice" {
            fn pending_seats(&self, engines: u64, seats: NonZeroU64) -> u64 { 2 * seats.get() * engines }
        }
        "free seats twice" {
            fn free(&self, occupancy: Occupancy, seats: NonZeroU64) -> u64 { 2 * occupancy.free(seats) }
        }
        "outdated engines count" {
            fn counts(&self, condition: EngineCondition) -> bool { condition != EngineCondition::Draining }
        }
        "draining engines count" {
            fn counts(&self, condition: EngineCondition) -> bool { condition != EngineCondition::Outdated }
        }
    }
    "omitted components" {
        "stalled slots are not counted" {
            fn round<'a>(&self, group: &'a Group<Id>) -> Round<'a, Id> {
                let round = Design.round(group);
                Round { count: round.count - round.stalled.len() as u64, ..round }
            }
        }
        "pending engines are not counted" {
            fn round<'a>(&self, group: &'a Group<Id>) -> Round<'a, Id> {
                let round = Design.round(group);
                Round { count: round.count - round.pending.len() as u64, ..round }
            }
        }
    }
    "wrong amounts" {
        "unmet without the engines to start" {
            fn unmet(&self, terms: &Terms, _: u64, _: NonZeroU64) -> u64 { terms.unserved }
        }
        "one session per engine that starts" {
            fn unmet(&self, terms: &Terms, start: u64, _: NonZeroU64) -> u64 { terms.unserved.saturating_sub(start) }
        }
        "a whole spare for each free seat" {
            fn terms(&self, round: &Round<'_, Id>) -> Terms {
                let terms = terms(round);
                Terms { spare_have: terms.free.saturating_sub(terms.waiting), ..terms }
            }
        }
    }
}

/// The random groups that a mutant is judged by.
const GROUPS: usize = 4_000;

/// The rows or the property that detect the mutant.
fn detected_by(scale: Scale<'_>, groups: &[Group<Id>]) -> Option<String> {
    let rows = differing(scale);
    if !rows.is_empty() {
        let names: Vec<&str> = rows.iter().filter_map(|row| row.split(' ').next()).collect();
        return Some(format!("rows {}", names.join(" ")));
    }
    groups.iter().find_map(|group| violated(scale, group).first().map(|property| (*property).to_owned()))
}

#[test]
fn every_mutant_is_detected_by_the_table_or_a_property() {
    let groups = fixed(GROUPS);
    assert_eq!(detected_by(&scale, &groups), None, "the formulas themselves");
    let mut survivors = Vec::new();
    for (class, mutants) in classes() {
        assert!(mutants.len() >= 2, "{class}");
        for mutant in mutants {
            match detected_by(&mutant.scale, &groups) {
                Some(by) => println!("{class}: {}: {by}", mutant.name),
                None => survivors.push(mutant.name),
            }
        }
    }
    assert!(survivors.is_empty(), "not detected: {survivors:?}");
}
