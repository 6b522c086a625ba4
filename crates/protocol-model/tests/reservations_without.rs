//! Variants of reservations without one of the rules: the search finds a counterexample and prints its steps.
//!
//! The limits are the smallest that show it, and within them the full protocol holds. `docs/model.md` has the table; a test
//! compares it with the names here.

#![allow(clippy::unwrap_used, clippy::panic)]

use protocol_model::reservations::{Limits, Pool, Request, Reservations, Without};
use protocol_model::search::{SearchResult, search};

use Request::{Hold, InPlace, Restart, Start, Stop};

const NONE: Limits = Limits { depositions: 0, given_up: 0, vanishings: 0, deadlines: 0 };
const DEPOSED: Limits = Limits { depositions: 1, ..NONE };
const GIVEN_UP: Limits = Limits { given_up: 1, ..NONE };
const OVERDUE: Limits = Limits { deadlines: 1, ..NONE };

const EMPTY: Pool = Pool { capacity: 1, running: 0, reserved: true };
const FULL: Pool = Pool { running: 1, ..EMPTY };
/// After an upgrade from a version that had no reservations.
const UPGRADED: Pool = Pool { reserved: false, ..FULL };

const FULL_OF_TWO: Pool = Pool { capacity: 2, running: 2, reserved: true };
const VANISHED: Limits = Limits { vanishings: 1, ..NONE };

const FITS: &str = "what runs fits its pool";
const CHARGED: &str = "what runs is charged";
const STAYS: &str = "a slot that was taken down stays charged";
const ONE_DOWN: &str = "one slot at a time is taken down";
const ONE_PROGRAM: &str = "one program runs under a reservation";
const REST: &str = "at rest every slot has a charged engine or waits for capacity, and nothing else is charged";

type Setup<'a> = (Pool, &'a [Request], Limits);

fn run(title: &str, (pool, requests, limits): Setup<'_>, without: Without, only: Option<&'static str>) -> SearchResult {
    let title = format!("{title}, {pool}, {requests:?}");
    search(&title, &limits, &Reservations { pool, requests: requests.to_vec(), limits, without, only })
}

/// The property fails after that many steps at least; the full protocol holds within the same limits.
#[track_caller]
fn fails(title: &str, setup: Setup<'_>, without: Without, property: &'static str, steps: usize) {
    let found = run(title, setup, without, Some(property));
    assert_eq!(found.failed(), Some((property, steps)), "{title}");
    let sound = run(&format!("{title}: full protocol"), setup, Without::default(), None);
    assert!(sound.holds(), "{title}: full protocol: {:?} {:?}", sound.failed(), sound.unreached);
}

fn without(remove: impl FnOnce(&mut Without)) -> Without {
    let mut without = Without::default();
    remove(&mut without);
    without
}

#[test]
fn an_engine_created_before_its_reservation_is_not_charged() {
    let without = without(|removed| removed.reserved_first = true);
    fails("reserved after the create", (EMPTY, &[Start], NONE), without, CHARGED, 5);
    fails("reserved after the create", (EMPTY, &[Hold, Start], NONE), without, FITS, 11);
}

#[test]
fn a_charge_returned_before_the_instance_is_gone_is_granted_again() {
    let without = without(|removed| removed.charge_until_gone = true);
    fails("returned when condemned", (FULL, &[Stop(0)], NONE), without, CHARGED, 5);
    fails("returned when condemned", (FULL, &[Stop(0), Hold], NONE), without, FITS, 10);
    fails("returned at the deadline", (EMPTY, &[Start], OVERDUE), without, CHARGED, 12);
}

#[test]
fn a_terminating_instance_that_is_not_charged_is_granted_again() {
    let without = without(|removed| removed.terminating_is_charged = true);
    fails("terminating is gone", (FULL, &[Stop(0), Start], NONE), without, FITS, 15);
}

#[test]
fn a_reservation_that_the_plan_does_not_see_is_charged_for_ever() {
    let without = without(|removed| removed.all_charged_are_planned = true);
    fails("ended rows are not planned for", (EMPTY, &[Start, Stop(0)], GIVEN_UP), without, REST, 11);
}

#[test]
fn a_reservation_that_committed_late_and_is_not_ended_is_charged_for_ever() {
    let without = without(|removed| removed.end_is_repeated = true);
    fails("ended once", (EMPTY, &[Start, Stop(0)], GIVEN_UP), without, REST, 11);
    fails("ended once, and deposed before", (FULL, &[Stop(0)], DEPOSED), without, REST, 15);
}

#[test]
fn an_ended_reservation_that_renews_no_slot_leaves_it_without_an_engine() {
    let setup = (EMPTY, &[Start][..], Limits { depositions: 2, ..OVERDUE });
    let both = without(|removed| (removed.renewed_before_end, removed.ended_renews) = (true, true));
    fails("neither", setup, both, REST, 17);
    // Each of the two rules is enough.
    for one in [without(|removed| removed.renewed_before_end = true), without(|removed| removed.ended_renews = true)] {
        let found = run("one of two", setup, one, None);
        assert!(found.holds(), "{:?} {:?}", found.failed(), found.unreached);
    }
}

#[test]
fn a_tick_that_admits_before_it_adopts_grants_what_runs() {
    let without = without(|removed| removed.adopt_before_admit = true);
    fails("admits, then adopts", (UPGRADED, &[Start], NONE), without, FITS, 7);
}

#[test]
fn a_tick_that_admits_although_it_adopts_grants_what_runs() {
    let without = without(|removed| removed.adopting_admits_nothing = true);
    fails("adopts and admits", (UPGRADED, &[Start], GIVEN_UP), without, FITS, 7);
}

#[test]
fn a_grant_before_the_engines_are_counted_grants_what_runs() {
    let without = without(|removed| removed.counted_before_grants = true);
    fails("not counted", (UPGRADED, &[Hold], NONE), without, FITS, 3);
}

#[test]
fn a_confirmation_without_the_uid_runs_two_programs() {
    let without = without(|removed| removed.confirm_uid = true);
    fails("uid not compared", (EMPTY, &[Hold], NONE), without, ONE_PROGRAM, 4);
}

#[test]
fn a_confirmation_without_the_state_runs_without_a_charge() {
    let without = without(|removed| removed.confirm_state = true);
    fails("state not compared", (EMPTY, &[Hold], OVERDUE), without, CHARGED, 5);
}

#[test]
fn a_pool_charged_once_for_a_replacement_runs_both() {
    let without = without(|removed| removed.pool_for_both = true);
    fails("pool charged once", (FULL, &[Restart(0)], NONE), without, FITS, 6);
}

#[test]
fn a_charge_that_is_returned_in_between_is_taken_by_another() {
    let without = without(|removed| removed.transferred = true);
    fails("returned, then reserved", (FULL, &[InPlace(0), Hold], NONE), without, STAYS, 13);
}

#[test]
fn a_successor_of_a_terminating_engine_does_not_fit() {
    let without = without(|removed| removed.older_is_gone = true);
    fails("created beside", (FULL, &[InPlace(0)], NONE), without, FITS, 13);
}

#[test]
fn a_configuration_that_fails_takes_down_one_slot_after_the_other() {
    let without = without(|removed| removed.in_place_is_kept = true);
    fails("not in place after a failure", (FULL_OF_TWO, &[InPlace(0), InPlace(1)], VANISHED), without, ONE_DOWN, 28);
}

#[test]
fn slots_without_turns_are_all_down_at_once() {
    let without = without(|removed| removed.turns = true);
    fails("no turns", (FULL_OF_TWO, &[InPlace(0), InPlace(1)], NONE), without, ONE_DOWN, 7);
}
