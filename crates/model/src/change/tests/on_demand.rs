//! The options for engines on demand, and the slots on demand that follow from a catalog.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::collection::btree_map;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::configuration::Configuration;
use crate::on_demand::{IdleTimeout, MAX_SESSIONS_PER_ENGINE};
use crate::owner::SharedBy;
use crate::run_as::RunAs;

fn options() -> UnitPatch {
    UnitPatch {
        start_on_demand: Setting::Set(true),
        sessions_per_engine: Setting::Set(10),
        spare_engines: Some(1),
        idle_timeout: Setting::Set(IdleTimeout::After(Duration::from_mins(1))),
        ..UnitPatch::default()
    }
}

fn uc_1(catalog: &Catalog) -> UnitSpec {
    catalog.unit(&unit_name("uc_1")).unwrap().clone()
}

fn refused(patch: UnitPatch) -> UserError {
    let before = founding();
    let create = create(unit("uc_2", patch.clone())).apply(&before, &Rules::default()).unwrap_err();
    let alter = alter(unit("uc_1", patch)).apply(&before, &Rules::default()).unwrap_err();
    assert_eq!(create.sqlstate(), alter.sqlstate(), "{create} {alter}");
    alter
}

#[test]
fn options_on_demand_are_set_kept_and_reset() {
    let before = founding();
    let set = applied(&before, &alter(unit("uc_1", options())));
    let spec = uc_1(&set);
    assert_eq!((spec.start_on_demand, spec.sessions_per_engine, spec.spare_engines), (Some(true), Some(10), 1));
    assert_eq!(spec.idle_timeout, Some(IdleTimeout::After(Duration::from_mins(1))));
    let kept = applied(&set, &alter(unit("uc_1", minimum(2, 4))));
    assert_eq!(uc_1(&kept), UnitSpec { min_engines: 2, ..spec });
    let none = UnitPatch {
        start_on_demand: Setting::Reset,
        sessions_per_engine: Setting::Reset,
        spare_engines: Some(0),
        idle_timeout: Setting::Reset,
        ..UnitPatch::default()
    };
    assert_eq!(uc_1(&applied(&set, &alter(unit("uc_1", none)))), uc_1(&before), "a reset option equals an absent one");
}

#[test]
fn no_option_on_demand_is_part_of_a_configuration() {
    let before = founding();
    let after = applied(&before, &alter(unit("uc_1", options())));
    let slots = rows(&[(0, Origin::Minimum), (1, Origin::Demand)]);
    assert_eq!(changed(&before, &after, &slots), (vec![], vec![], vec![]));
    let mut defaults = Defaults::default();
    let configuration = |defaults: &Defaults| Configuration::from_slot(&after, &slots[0].key, defaults).unwrap();
    let hash = configuration(&defaults).hash();
    defaults.on_demand.start_on_demand = false;
    defaults.on_demand.idle_timeout = IdleTimeout::Never;
    assert_eq!(configuration(&defaults).hash(), hash);
}

#[test]
fn impossible_options_on_demand_are_refused_with_a_remedy() {
    let sessions = |n| UnitPatch { sessions_per_engine: Setting::Set(n), ..UnitPatch::default() };
    assert_eq!(refused(sessions(0)).sqlstate(), "22023");
    for valid in [1, MAX_SESSIONS_PER_ENGINE] {
        applied(&founding(), &alter(unit("uc_1", sessions(valid))));
    }
    for high in [MAX_SESSIONS_PER_ENGINE + 1, u32::MAX] {
        let error = refused(sessions(high));
        assert_eq!(error.sqlstate(), "54000");
        assert_eq!(error.detail.unwrap(), format!("It is {high}; the limit is 2000."));
    }
    let spare = |spare_engines, max_engines| UnitPatch { max_engines, spare_engines, ..UnitPatch::default() };
    let error = refused(spare(Some(6), Some(5)));
    assert_eq!(error.sqlstate(), "22023");
    assert_eq!(error.detail.as_deref(), Some("SPARE_ENGINES is 6, MAX_ENGINES is 5."));
    let before = applied(&founding(), &alter(unit("uc_1", spare(Some(3), Some(3)))));
    let lowered = alter(unit("uc_1", spare(None, Some(2)))).apply(&before, &Rules::default()).unwrap_err();
    assert_eq!(lowered.sqlstate(), "22023", "also if only the maximum changes");
    let error = refused(UnitPatch { start_on_demand: Setting::Set(false), ..options() });
    assert_eq!(error.sqlstate(), "22023");
    assert!(error.hint.unwrap().contains("SPARE_ENGINES 0"));
    // Whether the installation starts on demand may change: a unit that follows it is valid either way.
    applied(&founding(), &alter(unit("uc_1", UnitPatch { start_on_demand: Setting::Reset, ..options() })));
}

#[test]
fn sharing_is_set_and_kept_and_replaces_engines() {
    let before = founding();
    let shared = |shared_by| UnitPatch { shared_by: Some(shared_by), min_engines: Some(0), ..UnitPatch::default() };
    let after = applied(&before, &alter(unit("uc_1", shared(SharedBy::User))));
    assert_eq!(uc_1(&after).shared_by, SharedBy::User);
    let kept = applied(&after, &alter(unit("uc_1", UnitPatch { max_engines: Some(7), ..UnitPatch::default() })));
    assert_eq!(uc_1(&kept), UnitSpec { max_engines: 7, ..uc_1(&after) });
    let slots = rows(&[(0, Origin::Start)]);
    let hash =
        |catalog: &Catalog| Configuration::from_slot(catalog, &slots[0].key, &Defaults::default()).unwrap().hash();
    assert_ne!(hash(&before), hash(&after), "a running engine cannot be dedicated to an owner");
    let again = applied(&after, &alter(unit("uc_1", shared(SharedBy::Tenant))));
    assert_eq!(hash(&again), hash(&before));
}

#[test]
fn run_as_is_set_and_kept_and_replaces_engines() {
    let user =
        |run_as| UnitPatch { shared_by: Some(SharedBy::User), run_as, min_engines: Some(0), ..UnitPatch::default() };
    let before = applied(&founding(), &alter(unit("uc_1", user(None))));
    let after = applied(&before, &alter(unit("uc_1", user(Some(RunAs::Owner)))));
    assert_eq!((uc_1(&before).run_as, uc_1(&after).run_as), (RunAs::Service, RunAs::Owner));
    let kept = applied(&after, &alter(unit("uc_1", UnitPatch { max_engines: Some(7), ..UnitPatch::default() })));
    assert_eq!(uc_1(&kept), UnitSpec { max_engines: 7, ..uc_1(&after) });
    let mut slots = rows(&[(0, Origin::Start), (1, Origin::Demand)]);
    for slot in &mut slots {
        slot.owner = Some(crate::owner::Owner::User("ann".to_owned()));
    }
    assert_eq!(
        changed(&before, &after, &slots),
        (vec![], vec![], vec![0, 1]),
        "no engine changes its user while it runs"
    );
    let again = applied(&after, &alter(unit("uc_1", user(Some(RunAs::Service)))));
    assert_eq!(uc_1(&again), uc_1(&before));
}

#[test]
fn an_engine_runs_as_its_owner_only_if_one_user_has_it() {
    let patch = |shared_by, run_as| UnitPatch { shared_by, run_as, min_engines: Some(0), ..UnitPatch::default() };
    let owner = Some(RunAs::Owner);
    for shared_by in [None, Some(SharedBy::Tenant), Some(SharedBy::Group)] {
        let error = refused(patch(shared_by, owner));
        assert_eq!(error.sqlstate(), "22023");
        assert!(error.hint.unwrap().contains("SHARED_BY 'user', RUN_AS 'owner'"));
    }
    for shared_by in [SharedBy::User, SharedBy::Session] {
        let before = applied(&founding(), &alter(unit("uc_1", patch(Some(shared_by), owner))));
        let shared = alter(unit("uc_1", patch(Some(SharedBy::Group), None)));
        let error = shared.apply(&before, &Rules::default()).unwrap_err();
        assert_eq!(error.sqlstate(), "22023", "also if only the other option changes");
        applied(&before, &alter(unit("uc_1", patch(Some(SharedBy::Group), Some(RunAs::Service)))));
    }
}

#[test]
fn no_engine_runs_as_its_owner_where_names_are_not_proven() {
    let rules = Rules { names_are_proven: false, ..Rules::default() };
    let patch =
        |run_as| UnitPatch { shared_by: Some(SharedBy::User), run_as, min_engines: Some(0), ..UnitPatch::default() };
    let before = applied(&founding(), &alter(unit("uc_1", patch(Some(RunAs::Owner)))));
    for change in [create(unit("uc_2", patch(Some(RunAs::Owner)))), alter(unit("uc_1", patch(Some(RunAs::Owner))))] {
        let error = change.apply(&before, &rules).unwrap_err();
        assert_eq!(error.sqlstate(), "0A000");
        assert!(error.detail.unwrap().contains("access.authentication") && error.hint.is_some());
    }
    // The way out, and options that have nothing to do with it.
    for patch in [patch(Some(RunAs::Service)), UnitPatch { max_engines: Some(7), ..UnitPatch::default() }] {
        alter(unit("uc_1", patch)).apply(&before, &rules).unwrap();
    }
}

#[test]
fn an_engine_with_an_owner_is_never_kept_for_the_minimum_or_as_a_spare() {
    for shared_by in [SharedBy::Group, SharedBy::User, SharedBy::Session] {
        for (min_engines, spare_engines) in [(1, 0), (0, 1), (2, 2)] {
            let error = refused(UnitPatch {
                shared_by: Some(shared_by),
                min_engines: Some(min_engines),
                spare_engines: Some(spare_engines),
                ..UnitPatch::default()
            });
            assert_eq!(error.sqlstate(), "22023");
            let detail = error.detail.unwrap();
            assert!(
                detail.contains(&format!("MIN_ENGINES is {min_engines}, SPARE_ENGINES is {spare_engines}")),
                "{detail}"
            );
            let hint = error.hint.unwrap();
            assert_eq!(hint, format!("Set all three: SHARED_BY '{shared_by}', MIN_ENGINES 0, SPARE_ENGINES 0."));
        }
    }
    let user = UnitPatch { shared_by: Some(SharedBy::User), min_engines: Some(0), ..UnitPatch::default() };
    let before = applied(&founding(), &alter(unit("uc_1", user)));
    for patch in [
        minimum(1, 4),
        UnitPatch { start_on_demand: Setting::Set(true), spare_engines: Some(1), ..UnitPatch::default() },
    ] {
        let error = alter(unit("uc_1", patch)).apply(&before, &Rules::default()).unwrap_err();
        assert_eq!(error.sqlstate(), "22023", "also if only the other option changes");
    }
}

#[test]
fn a_new_unit_has_a_maximum_of_at_least_its_spare_engines() {
    let max = |min_engines, spare_engines| {
        let patch = UnitPatch { min_engines, spare_engines, ..UnitPatch::default() };
        patch.create(&Defaults::default()).unwrap().max_engines
    };
    assert_eq!((max(None, None), max(None, Some(12)), max(Some(20), Some(12))), (10, 12, 20));
}

#[test]
fn a_slot_on_demand_counts_for_the_minimum() {
    let before = founding();
    let after = applied(&before, &alter(unit("uc_1", minimum(3, 4))));
    let slots = rows(&[(0, Origin::Demand), (2, Origin::Demand)]);
    assert_eq!(changed(&before, &after, &slots), (vec![], vec![1], vec![]));
}

#[test]
fn a_lowered_maximum_leaves_slots_on_demand_to_the_master() {
    let before = founding();
    let after = applied(&before, &alter(unit("uc_1", minimum(1, 2))));
    let slots = rows(&[(0, Origin::Demand), (1, Origin::Minimum), (2, Origin::Start), (3, Origin::Demand)]);
    assert_eq!(changed(&before, &after, &slots), (vec![], vec![], vec![]), "two others are not above the maximum");
    let slots = rows(&[(0, Origin::Demand), (1, Origin::Minimum), (2, Origin::Start), (3, Origin::Start)]);
    assert_eq!(changed(&before, &after, &slots), (vec![3], vec![], vec![]), "as far as started ones alone exceed it");
}

#[test]
fn a_unit_that_no_longer_starts_on_demand_keeps_its_slots() {
    let before = applied(&founding(), &alter(unit("uc_1", options())));
    let off = UnitPatch { start_on_demand: Setting::Set(false), spare_engines: Some(0), ..UnitPatch::default() };
    let after = applied(&before, &alter(unit("uc_1", off)));
    let slots = rows(&[(0, Origin::Minimum), (1, Origin::Demand)]);
    assert_eq!(changed(&before, &after, &slots), (vec![], vec![], vec![]));
}

#[test]
fn a_removed_link_deletes_its_slots_on_demand_too() {
    let before = founding();
    let after = applied(&before, &alter(tenant("t_1", &[])));
    assert_eq!(changed(&before, &after, &rows(&[(0, Origin::Start), (1, Origin::Demand)])).0, [0, 1]);
}

/// The slots after the changes.
fn with(slots: &[Slot], changes: &crate::desired::SlotChanges) -> Vec<Slot> {
    let deleted: BTreeSet<&SlotKey> = changes.delete.iter().map(|(key, _)| key).collect();
    let added: Vec<(u32, Origin)> = changes.add.iter().map(|key| (key.ordinal, Origin::Minimum)).collect();
    let stay = slots.iter().filter(|slot| !deleted.contains(&slot.key)).cloned();
    stay.chain(rows(&added)).collect()
}

fn count(slots: &[Slot], of: impl Fn(Origin) -> bool) -> usize {
    slots.iter().filter(|slot| of(slot.origin)).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn derived_slots_keep_the_limits_and_all_slots_on_demand(
        of in btree_map(0..14_u32, select(vec![Origin::Minimum, Origin::Start, Origin::Demand]), 0..12),
        before in (0..6_u32, 0..6_u32),
        after in (0..6_u32, 0..6_u32),
        is_renewed in any::<bool>(),
    ) {
        let slots = rows(&of.into_iter().collect::<Vec<_>>());
        let limits = |(min, more): (u32, u32)| minimum(min, min + more);
        let before = applied(&founding(), &alter(unit("uc_1", limits(before))));
        let memory = is_renewed.then(|| "2G".parse().unwrap());
        let patch = UnitPatch { driver_memory: memory, ..limits(after) };
        let after = applied(&before, &alter(unit("uc_1", patch)));
        let (min, max) = (uc_1(&after).min_engines as usize, uc_1(&after).max_engines as usize);

        let changes = derive(&before, &after, &slots, &Defaults::default());
        let new = with(&slots, &changes);
        let is_on_demand = |origin| origin == Origin::Demand;
        prop_assert_eq!(count(&new, is_on_demand), count(&slots, is_on_demand), "none is deleted");
        prop_assert!(count(&new, |origin| !is_on_demand(origin)) <= max, "the others alone are within the maximum");
        prop_assert!(new.len() >= min, "rows of any origin count for the minimum");
        prop_assert!(changes.add.is_empty() || new.len() == min, "no more are added than the minimum needs");
        prop_assert!(count(&new, |origin| origin == Origin::Minimum) <= min);
        let started = |slots: &[Slot]| count(slots, |origin| origin == Origin::Start);
        let others = count(&slots, |origin| origin == Origin::Minimum).min(min);
        prop_assert_eq!(started(&new), started(&slots).min(max - others), "no more are deleted than the maximum needs");
        let ordinals: BTreeSet<u32> = new.iter().map(|slot| slot.key.ordinal).collect();
        prop_assert_eq!(ordinals.len(), new.len());
        prop_assert_eq!(changes.renew.len(), if is_renewed { new.len() - changes.add.len() } else { 0 });

        let again = derive(&after, &after, &new, &Defaults::default());
        prop_assert_eq!(again, crate::desired::SlotChanges::default(), "idempotent");
    }
}
