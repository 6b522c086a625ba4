//! Properties of groups that share a maximum, and deliberately broken rules that they detect.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::Id;
use super::groups::{applied, groups};
use crate::scale::shared_maximum::{Design, Rank, SharedMaximum};
use crate::scale::{EngineCondition, Group, Occupancy, RemovalReason, Scaled, scale, scale_link};

/// The groups of a link with its maximum.
type Groups = (Vec<Group<Id>>, u64);
/// The function under test: the one of the design, or a mutant.
type ScaleLink = fn(&mut [Group<Id>], u64) -> Vec<Scaled<Id>>;

/// Groups of owners with the options of one unit, and a maximum.
fn links() -> impl Strategy<Value = Groups> {
    (prop::collection::vec(groups(), 1..5), 0_u64..30).prop_map(|(mut groups, max)| {
        let mut limits = groups[0].limits;
        // An owner has no minimum and no spare engine.
        (limits.min, limits.spare) = (0, 0);
        for group in &mut groups {
            group.limits = limits;
        }
        (groups, max)
    })
}

fn slots(groups: &[Group<Id>]) -> u64 {
    groups.iter().map(Group::slots).sum()
}

/// The engines that may be removed, each with its sessions and whether it was.
fn serving<'a>(
    group: &'a Group<Id>,
    scaled: &'a Scaled<Id>,
) -> impl Iterator<Item = (Occupancy, Option<RemovalReason>)> + 'a {
    let of_group =
        group.engines.iter().filter(|engine| engine.condition == EngineCondition::Serving && engine.is_on_demand);
    of_group.map(|engine| {
        let removal = scaled.removals.iter().find(|removal| removal.id == engine.id);
        (engine.occupancy, removal.map(|removal| removal.reason))
    })
}

fn without_what_ends(groups: &[Group<Id>], scaled: &[Scaled<Id>]) -> Vec<Group<Id>> {
    groups.iter().zip(scaled).map(|(group, scaled)| applied(group, scaled)).collect()
}

/// How many slots end because the maximum is exceeded.
fn over_max(scaled: &[Scaled<Id>]) -> u64 {
    let removals = scaled.iter().flat_map(|scaled| &scaled.removals);
    removals.filter(|removal| removal.reason == RemovalReason::OverMax).count() as u64
}

fn maximum_and_burst_are_shared(scale_link: ScaleLink, (groups, max): &Groups) -> bool {
    let mut groups = groups.clone();
    let (before, burst) = (slots(&groups), groups[0].limits.burst);
    let started: u64 = scale_link(&mut groups, *max).iter().map(|scaled| scaled.start).sum();
    (started == 0 || before + started <= *max) && started <= burst
}

/// What exceeds the maximum ends as far as it follows demand, and no more than that. An idle engine may end in addition.
fn what_exceeds_the_maximum_ends(scale_link: ScaleLink, (groups, max): &Groups) -> bool {
    let mut groups = groups.clone();
    let before = slots(&groups);
    let scaled = scale_link(&mut groups, *max);
    let over = over_max(&scaled);
    let after = without_what_ends(&groups, &scaled);
    let removable = after.iter().map(|group| {
        let is_serving = |engine: &&_| {
            let engine: &crate::scale::ReadyEngine<Id> = engine;
            engine.condition == EngineCondition::Serving && engine.is_on_demand
        };
        let serving = group.engines.iter().filter(is_serving).count();
        let pending = group.pending.iter().filter(|engine| engine.is_on_demand && !engine.has_stand_in).count();
        serving + pending + group.stalled.iter().filter(|slot| slot.is_on_demand && !slot.has_stand_in).count()
    });
    (over == 0 || before - over >= *max) && (slots(&after) <= *max || removable.sum::<usize>() == 0)
}

/// No more engines with sessions end than exceed the maximum once each group has removed what it does by itself.
fn nothing_ends_that_the_others_make_room_for(scale_link: ScaleLink, (groups, max): &Groups) -> bool {
    let mut groups = groups.clone();
    let gone = groups.iter_mut().map(|group| {
        group.limits.max = group.slots();
        let scaled = scale(group);
        scaled.removals.iter().filter(|removal| removal.reason != RemovalReason::Outdated).count() as u64
    });
    let gone: u64 = gone.sum();
    let excess = slots(&groups).saturating_sub(gone).saturating_sub(*max);
    let scaled = scale_link(&mut groups, *max);
    let seats = groups[0].limits.seats;
    let ended = groups.iter().zip(&scaled).flat_map(|(group, scaled)| serving(group, scaled));
    let is_busy = |(occupancy, removal): &(Occupancy, Option<RemovalReason>)| {
        *removal == Some(RemovalReason::OverMax) && occupancy.taken(seats) > 0
    };
    ended.filter(is_busy).count() as u64 <= excess
}

fn sessions_end_last(scale_link: ScaleLink, (groups, max): &Groups) -> bool {
    let mut groups = groups.clone();
    let scaled = scale_link(&mut groups, *max);
    let seats = groups[0].limits.seats;
    let all: Vec<_> = groups.iter().zip(&scaled).flat_map(|(group, scaled)| serving(group, scaled)).collect();
    let ended = all.iter().filter(|(_, removal)| *removal == Some(RemovalReason::OverMax));
    let most = ended.map(|(occupancy, _)| occupancy.taken(seats)).max();
    let stay = all.iter().filter(|(_, removal)| removal.is_none());
    let least = stay.map(|(occupancy, _)| occupancy.taken(seats)).min();
    most.zip(least).is_none_or(|(most, least)| most <= least)
}

/// A group whose demand is older starts as if those after it did not exist.
fn the_oldest_demand_is_first(scale_link: ScaleLink, (groups, max): &Groups) -> bool {
    let before = slots(groups);
    if before > *max {
        return true;
    }
    let mut first = groups[0].clone();
    first.limits.max = max - (before - first.slots());
    scale_link(&mut groups.clone(), *max)[0].start == scale(&first).start
}

fn applied_starts_are_not_repeated(scale_link: ScaleLink, (groups, max): &Groups) -> bool {
    let mut groups = groups.clone();
    for group in &mut groups {
        (group.admitted, group.limits.burst) = (None, 1_000);
    }
    let scaled = scale_link(&mut groups, *max);
    if scaled.iter().any(|scaled| !scaled.removals.is_empty()) {
        return true;
    }
    let mut after = without_what_ends(&groups, &scaled);
    for group in &mut after {
        group.limits.burst = 1_000;
    }
    scale_link(&mut after, *max).iter().all(|scaled| scaled.start == 0)
}

/// The name of a property, and whether it holds.
type Property = (&'static str, fn(ScaleLink, &Groups) -> bool);

const PROPERTIES: [Property; 6] = [
    ("maximum and burst are shared", maximum_and_burst_are_shared),
    ("what exceeds the maximum ends", what_exceeds_the_maximum_ends),
    ("nothing ends that the others make room for", nothing_ends_that_the_others_make_room_for),
    ("sessions end last", sessions_end_last),
    ("the oldest demand is first", the_oldest_demand_is_first),
    ("applied starts are not repeated", applied_starts_are_not_repeated),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn owners_share_maximum_and_burst(groups in links()) {
        for (name, holds) in PROPERTIES {
            prop_assert!(holds(scale_link, &groups), "{name}");
        }
    }

    #[test]
    fn one_group_scales_as_without_others(group in groups(), max in 0_u64..30) {
        let mut alone = group.clone();
        alone.limits.max = max;
        prop_assert_eq!(scale_link(&mut [group], max), vec![scale(&alone)]);
    }
}

struct Mutant {
    name: &'static str,
    scale_link: ScaleLink,
}

/// The mutants: a name, and the methods that it replaces.
macro_rules! mutants {
    ($($name:literal { $($methods:tt)* })*) => {
        fn mutants() -> Vec<Mutant> {
            vec![$({
                struct Broken;
                impl SharedMaximum<Id> for Broken {
                    $($methods)*
                }
                Mutant { name: $name, scale_link: |groups, max| Broken.scale_link(groups, max) }
            }),*]
        }
    };
}

mutants! {
    "the whole maximum for each owner" {
        fn left_by(&self, _: u64, max: u64) -> u64 { max }
    }
    "one beyond the maximum" {
        fn left_by(&self, others: u64, max: u64) -> u64 {
            SharedMaximum::<Id>::left_by(&Design, others, max + 1)
        }
    }
    "the whole burst for each owner" {
        fn burst_left(&self, burst: u64, _: u64) -> u64 { burst }
    }
    "no burst after the first start" {
        fn burst_left(&self, burst: u64, started: u64) -> u64 { if started > 0 { 0 } else { burst } }
    }
    "starts of earlier owners not counted" {
        fn taken(&self, _: u64) -> u64 { 0 }
    }
    "starts of earlier owners counted twice" {
        fn taken(&self, started: u64) -> u64 { 2 * started }
    }
    "what groups remove by themselves ends once more" {
        fn excess(&self, slots: u64, _: u64, max: u64) -> u64 {
            SharedMaximum::<Id>::excess(&Design, slots, 0, max)
        }
    }
    "one above the maximum stays" {
        fn excess(&self, slots: u64, gone: u64, max: u64) -> u64 {
            SharedMaximum::<Id>::excess(&Design, slots, gone, max + 1)
        }
    }
    "the busiest engines end first" {
        fn sort(&self, ranked: &mut [(Rank<'_, Id>, usize)]) {
            ranked.sort();
            ranked.reverse();
        }
    }
    "one owner's engines end before the next one's" {
        fn sort(&self, ranked: &mut [(Rank<'_, Id>, usize)]) { ranked.sort_by_key(|(_, group)| *group) }
    }
    "each owner is cut to the maximum" {
        fn shrink(&self, groups: &mut [Group<Id>], _: u64, max: u64) -> Vec<Scaled<Id>> {
            let cut = |group: &mut Group<Id>| {
                group.limits.max = max;
                scale(group)
            };
            groups.iter_mut().map(cut).collect()
        }
    }
    "the youngest demand first" {
        fn grow(&self, groups: &mut [Group<Id>], slots: u64, max: u64) -> Vec<Scaled<Id>> {
            groups.reverse();
            let mut scaled = Design.grow(groups, slots, max);
            groups.reverse();
            scaled.reverse();
            scaled
        }
    }
}

/// The random links that a mutant is judged by.
const LINKS: usize = 4_000;

fn detected_by(scale_link: ScaleLink, links: &[Groups]) -> Option<&'static str> {
    let violated = |(_, holds): &&Property| links.iter().any(|groups| !holds(scale_link, groups));
    PROPERTIES.iter().find(violated).map(|(name, _)| *name)
}

#[test]
fn every_mutant_of_the_shared_maximum_is_detected_by_a_property() {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = links();
    let links: Vec<Groups> = (0..LINKS).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
    assert_eq!(detected_by(scale_link, &links), None, "the rules themselves");
    let mut survivors = Vec::new();
    for Mutant { name, scale_link } in mutants() {
        match detected_by(scale_link, &links) {
            Some(by) => println!("{name}: {by}"),
            None => survivors.push(name),
        }
    }
    assert!(survivors.is_empty(), "not detected: {survivors:?}");
}
