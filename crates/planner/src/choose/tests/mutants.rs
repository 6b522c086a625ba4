//! Deliberately broken rules: the tables or a property detect each.
//!
//! A mutant replaces one method of the trait. The release has only the methods that are provided.

use std::cmp::Reverse;

use model::demand::Demand;
use model::resource::Component;

use super::properties::{fixed, violated};
use super::state::State;
use super::{keys, pools};
use crate::choose::AssignedKey;
use crate::choose::links::{LinkState, PoolState};
use crate::choose::rules::{Candidate, Design, Rank, Rules};

struct Mutant {
    name: &'static str,
    rules: Box<dyn Rules>,
}

/// The mutants of a class of mistakes: a name, and the methods that it replaces.
macro_rules! mutants {
    ($($class:literal { $($name:literal { $($methods:tt)* })* })*) => {
        fn classes() -> Vec<(&'static str, Vec<Mutant>)> {
            vec![$(($class, vec![$({
                struct Broken;
                impl Rules for Broken {
                    $($methods)*
                }
                Mutant { name: $name, rules: Box::new(Broken) }
            }),*])),*]
        }
    };
}

fn rank(candidate: &Candidate<'_>, now_ms: i64) -> Rank {
    Design.rank(candidate, now_ms)
}

mutants! {
    "rounding and limits" {
        "floor for ceiling" {
            fn engines_for(&self, sessions: u64, link: &LinkState) -> u64 { sessions / link.seats.get() }
        }
        "a seat too many is taken" {
            fn take(&self, seats: &mut u64, wanted: u64) -> u64 {
                let taken = wanted.min(*seats + 1);
                *seats = seats.saturating_sub(taken);
                taken
            }
        }
        "assign more than is waiting" {
            fn take(&self, seats: &mut u64, _: u64) -> u64 { std::mem::take(seats) }
        }
        "capacity is new for longer than a minute" {
            fn is_new(&self, pool: &PoolState, now_ms: i64) -> bool { Design.is_new(pool, now_ms - 1) }
        }
        "fractions are exact, not in steps" {
            fn rank(&self, candidate: &Candidate<'_>, now_ms: i64) -> Rank {
                let held = candidate.pool.counter.held.cpu_m.clamp(0, 100_000) / 1_000;
                let (blocked, queued, _, pending, new, position) = rank(candidate, now_ms);
                (blocked, queued, Reverse(100 - held as u8), pending, new, position)
            }
        }
    }
    "omitted terms, clamps and guards" {
        "ignore pending" {
            fn pending_seats(&self, _: &LinkState, _: u64) -> u64 { 0 }
        }
        "seats of the first link only" {
            fn looks_at(&self, links: usize) -> usize { links.min(1) }
        }
        "ignore the maximum" {
            fn is_blocked(&self, candidate: &Candidate<'_>) -> bool { candidate.is_backing_off }
        }
        "ignore the back-off" {
            fn is_blocked(&self, candidate: &Candidate<'_>) -> bool { candidate.below_max == 0 }
        }
        "ignore admission" {
            fn is_admitted(&self, candidate: &Candidate<'_>) -> bool { candidate.pool.admits(&candidate.link.engine) }
        }
        "ignore the pool's capacity" {
            fn is_admitted(&self, candidate: &Candidate<'_>) -> bool { candidate.admissible > 0 }
        }
        "start what is not to start on demand" {
            fn starts_on_demand(&self, _: &LinkState) -> bool { true }
        }
        "start what never fits" {
            fn can_ever_fit(&self, _: &LinkState) -> bool { true }
        }
        "ignore new capacity" {
            fn is_new(&self, _: &PoolState, _: i64) -> bool { false }
        }
        "ignore pending engines of the tenant" {
            fn rank(&self, candidate: &Candidate<'_>, now_ms: i64) -> Rank {
                let (blocked, queued, fraction, _, new, position) = rank(candidate, now_ms);
                (blocked, queued, fraction, 0, new, position)
            }
        }
        "ignore fractions" {
            fn rank(&self, candidate: &Candidate<'_>, now_ms: i64) -> Rank {
                let (blocked, queued, _, pending, new, position) = rank(candidate, now_ms);
                (blocked, queued, Reverse(0), pending, new, position)
            }
        }
    }
    "reversed order" {
        "less specified keys first" {
            fn order(&self, keys: &mut [AssignedKey]) {
                Design.order(keys);
                keys.sort_by_key(|key| key.key.specified());
            }
        }
        "younger keys first" {
            fn order(&self, keys: &mut [AssignedKey]) {
                Design.order(keys);
                keys.sort_by_key(|key| (Reverse(key.key.specified()), Reverse(key.since_ms)));
            }
        }
        "queued before admitted" {
            fn is_admitted(&self, candidate: &Candidate<'_>) -> bool { !Design.is_admitted(candidate) }
        }
        "smaller fraction first" {
            fn rank(&self, candidate: &Candidate<'_>, now_ms: i64) -> Rank {
                let (blocked, queued, fraction, pending, new, position) = rank(candidate, now_ms);
                (blocked, queued, Reverse(10 - fraction.0), pending, new, position)
            }
        }
        "more pending engines first" {
            fn rank(&self, candidate: &Candidate<'_>, now_ms: i64) -> Rank {
                let (blocked, queued, fraction, pending, new, position) = rank(candidate, now_ms);
                (blocked, queued, fraction, u64::MAX - pending, new, position)
            }
        }
        "new capacity first" {
            fn is_new(&self, pool: &PoolState, now_ms: i64) -> bool { !Design.is_new(pool, now_ms) }
        }
        "list order backwards" {
            fn rank(&self, candidate: &Candidate<'_>, now_ms: i64) -> Rank {
                let (blocked, queued, fraction, pending, new, position) = rank(candidate, now_ms);
                (blocked, queued, fraction, pending, new, usize::MAX - position)
            }
        }
        "queued only after the fraction" {
            fn rank(&self, candidate: &Candidate<'_>, now_ms: i64) -> Rank {
                let (blocked, queued, fraction, pending, new, position) = rank(candidate, now_ms);
                let last = u64::from(queued) * 1_000;
                (blocked, false, fraction, pending + last, new, position)
            }
        }
    }
    "ignored time" {
        "expired demand counts" {
            fn is_current(&self, demand: &Demand, _: i64) -> bool { demand.waiting > 0 }
        }
        "capacity is always new" {
            fn is_new(&self, pool: &PoolState, _: i64) -> bool { pool.grown_at_ms.is_some() }
        }
    }
    "omitted liveness steps" {
        "no link is ever startable" {
            fn can_ever_fit(&self, _: &LinkState) -> bool { false }
        }
        "ignore all demand" {
            fn is_current(&self, _: &Demand, _: i64) -> bool { false }
        }
        "take no seats" {
            fn take(&self, _: &mut u64, _: u64) -> u64 { 0 }
        }
    }
    "double counting" {
        "seats are taken again" {
            fn take(&self, seats: &mut u64, wanted: u64) -> u64 { wanted.min(*seats) }
        }
        "pending seats twice" {
            fn pending_seats(&self, link: &LinkState, pending: u64) -> u64 { 2 * link.seats.get() * pending }
        }
        "an engine for each key" {
            fn left_by_starts(&self, _: u64, _: u64, _: &LinkState) -> u64 { 0 }
        }
        "engines that start are not counted" {
            fn engines_for(&self, _: u64, _: &LinkState) -> u64 { 0 }
        }
    }
    "omitted components" {
        "the fraction of CPU only" {
            fn rank(&self, candidate: &Candidate<'_>, now_ms: i64) -> Rank {
                let (blocked, queued, _, pending, new, position) = rank(candidate, now_ms);
                (blocked, queued, Reverse(candidate.pool.fraction_of(Component::Cpu)), pending, new, position)
            }
        }
        "the largest fraction of all components" {
            fn rank(&self, candidate: &Candidate<'_>, now_ms: i64) -> Rank {
                let (blocked, queued, _, pending, new, position) = rank(candidate, now_ms);
                let fraction = Component::ALL.map(|component| candidate.pool.fraction_of(component)).into_iter().max();
                (blocked, queued, Reverse(fraction.unwrap_or(0)), pending, new, position)
            }
        }
    }
    "wrong amounts" {
        "a seat for each engine" {
            fn pending_seats(&self, _: &LinkState, pending: u64) -> u64 { pending }
        }
        "all seats of new engines are left" {
            fn left_by_starts(&self, engines: u64, _: u64, link: &LinkState) -> u64 { engines * link.seats.get() }
        }
    }
}

/// The random states that a mutant is judged by.
const STATES: usize = 3_000;

/// The rows, cases or the property that detect the rules.
fn detected_by(rules: &dyn Rules, states: &[State]) -> Option<String> {
    if let Some(row) = pools::differing(rules).first() {
        return Some(format!("row {row}"));
    }
    if let Some(case) = keys::differing(rules).first() {
        return Some(format!("case {case}"));
    }
    states.iter().find_map(|state| violated(rules, state).first().map(|property| (*property).to_owned()))
}

#[test]
fn every_mutant_is_detected_by_the_tables_or_a_property() {
    let states = fixed(STATES);
    assert_eq!(detected_by(&Design, &states), None, "the rules themselves");
    let mut survivors = Vec::new();
    for (class, mutants) in classes() {
        assert!(mutants.len() >= 2, "{class}");
        for mutant in mutants {
            match detected_by(mutant.rules.as_ref(), &states) {
                Some(by) => println!("{class}: {}: {by}", mutant.name),
                None => survivors.push(mutant.name),
            }
        }
    }
    assert!(survivors.is_empty(), "not detected: {survivors:?}");
}
