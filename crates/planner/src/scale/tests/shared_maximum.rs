//! Properties of groups that share a maximum.

use proptest::prelude::*;

use super::Id;
use super::groups::{applied, groups};
use crate::scale::{EngineCondition, Group, Occupancy, RemovalReason, Scaled, scale, scale_link};

/// Groups of owners with the options of one unit, and a maximum.
fn links() -> impl Strategy<Value = (Vec<Group<Id>>, u64)> {
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn owners_share_maximum_and_burst((mut groups, max) in links()) {
        let (before, burst) = (slots(&groups), groups[0].limits.burst);
        let scaled = scale_link(&mut groups, max);
        let started: u64 = scaled.iter().map(|scaled| scaled.start).sum();
        prop_assert!(started == 0 || before + started <= max, "{started} above {max}");
        prop_assert!(started <= burst);
        // What exceeds the maximum ends as far as it follows demand, and no more than that. An idle engine may end in addition.
        let over: u64 = scaled.iter().flat_map(|scaled| &scaled.removals).filter(|it| it.reason == RemovalReason::OverMax).count() as u64;
        prop_assert!(over == 0 || before - over >= max, "{over} of {before} ended, and {max} may stay");
        let after: Vec<Group<Id>> = groups.iter().zip(&scaled).map(|(group, scaled)| applied(group, scaled)).collect();
        let removable = after.iter().flat_map(|group| {
            let serving = group.engines.iter().filter(|it| it.condition == EngineCondition::Serving && it.is_on_demand).count();
            let pending = group.pending.iter().filter(|it| it.is_on_demand && !it.has_stand_in).count();
            let stalled = group.stalled.iter().filter(|it| it.is_on_demand && !it.has_stand_in).count();
            [serving, pending, stalled]
        });
        prop_assert!(slots(&after) <= max || removable.sum::<usize>() == 0);
    }

    #[test]
    fn no_session_ends_while_another_owner_has_an_idle_engine((mut groups, max) in links()) {
        let scaled = scale_link(&mut groups, max);
        let seats = groups[0].limits.seats;
        let all: Vec<_> = groups.iter().zip(&scaled).flat_map(|(group, scaled)| serving(group, scaled)).collect();
        let ended = all.iter().filter(|(_, removal)| *removal == Some(RemovalReason::OverMax));
        let most = ended.map(|(occupancy, _)| occupancy.taken(seats)).max();
        let stay = all.iter().filter(|(_, removal)| removal.is_none());
        let least = stay.map(|(occupancy, _)| occupancy.taken(seats)).min();
        prop_assert!(most.zip(least).is_none_or(|(most, least)| most <= least), "{most:?} {least:?}");
    }

    #[test]
    fn one_group_scales_as_without_others(group in groups(), max in 0_u64..30) {
        let mut alone = group.clone();
        alone.limits.max = max;
        prop_assert_eq!(scale_link(&mut [group], max), vec![scale(&alone)]);
    }

    #[test]
    fn applied_starts_of_all_owners_are_not_repeated((mut groups, max) in links()) {
        for group in &mut groups {
            (group.admitted, group.limits.burst) = (None, 1_000);
        }
        let scaled = scale_link(&mut groups, max);
        if scaled.iter().any(|scaled| !scaled.removals.is_empty()) {
            return Ok(());
        }
        let mut after: Vec<Group<Id>> = groups.iter().zip(&scaled).map(|(group, scaled)| applied(group, scaled)).collect();
        for group in &mut after {
            group.limits.burst = 1_000;
        }
        let again = scale_link(&mut after, max);
        prop_assert!(again.iter().all(|scaled| scaled.start == 0), "{again:?}");
    }
}
