//! Slots, permits and drains as they are: every property holds in every state within the limits.

#![allow(clippy::unwrap_used, clippy::panic)]

use protocol_model::engines::{Engines, Limits, Request, Without};
use protocol_model::search::search;

use Request::{Alter, AlterBroken, AlterBrokenInPlace, AlterInPlace, Drop, Force, InPlace, Restart, Start, Stop};

const NONE: Limits =
    Limits { depositions: 0, expiries: 0, deaths: 0, vanishings: 0, hand_deletions: 0, losses: 0, relabelings: 0 };

/// One fault of each kind, by itself.
const SINGLE: [Limits; 7] = [
    Limits { depositions: 1, ..NONE },
    Limits { expiries: 1, ..NONE },
    Limits { deaths: 1, ..NONE },
    Limits { vanishings: 1, ..NONE },
    Limits { hand_deletions: 1, ..NONE },
    Limits { losses: 1, ..NONE },
    Limits { relabelings: 1, ..NONE },
];

/// A deposed master with one other fault.
const DEPOSED: [Limits; 7] = [
    Limits { depositions: 2, ..NONE },
    Limits { depositions: 1, expiries: 1, ..NONE },
    Limits { depositions: 1, deaths: 1, ..NONE },
    Limits { depositions: 1, vanishings: 1, ..NONE },
    Limits { depositions: 1, hand_deletions: 1, ..NONE },
    Limits { depositions: 1, losses: 1, ..NONE },
    Limits { depositions: 1, relabelings: 1, ..NONE },
];

fn hold(slots: usize, requests: &[Request], limits: &[Limits]) {
    for limits in limits {
        let title = format!("{slots} running, {requests:?}");
        let without = Without::default();
        let model = Engines { slots, requests: requests.to_vec(), limits: *limits, without, only: None };
        let found = search(&title, limits, &model);
        assert!(found.holds(), "{title}: {:?} {:?}", found.failed(), found.unreached);
    }
}

/// Whether the long tier is asked for; the tests that are ignored search smaller limits otherwise, never none.
fn is_long() -> bool {
    std::env::var("EH_TEST_TIER").is_ok_and(|tier| tier == "long")
}

#[test]
fn each_single_request_survives_each_fault() {
    for request in [Start, Stop(0), Restart(0), Force(0), Alter, Drop] {
        hold(1, &[request], &SINGLE);
    }
}

#[test]
fn each_single_request_survives_a_deposed_master_and_each_fault() {
    for request in [Start, Stop(0), Restart(0), Force(0)] {
        hold(1, &[request], &DEPOSED);
    }
}

#[test]
fn a_stop_races_with_a_restart() {
    hold(1, &[Restart(0), Stop(0)], &SINGLE);
}

#[test]
fn a_start_races_with_a_drop_of_the_same_slot() {
    hold(1, &[Drop, Start], &SINGLE);
}

#[test]
fn an_alter_races_with_a_restart() {
    hold(1, &[Restart(0), Alter], &SINGLE);
}

#[test]
fn an_alter_races_with_a_start() {
    hold(1, &[Start, Alter], &[SINGLE[0], SINGLE[1], SINGLE[4]]);
}

#[test]
fn a_restart_with_force_races_with_a_restart() {
    hold(1, &[Force(0), Restart(0)], &[SINGLE[0], SINGLE[1], SINGLE[4]]);
}

#[test]
fn an_engine_that_is_starting_is_restarted() {
    hold(0, &[Start, Restart(0)], &SINGLE);
    hold(0, &[Start, Restart(0)], &DEPOSED[4..6]);
}

#[test]
fn two_slots_take_turns() {
    hold(2, &[Alter], &[NONE, SINGLE[0], SINGLE[4]]);
}

#[test]
fn a_broken_image_ends_no_working_engine_and_blocks_no_other() {
    hold(1, &[AlterBroken], &SINGLE);
    hold(2, &[AlterBroken], &[NONE, SINGLE[0]]);
    hold(1, &[AlterBroken, Alter], &[NONE, SINGLE[0], SINGLE[1], SINGLE[4]]);
    hold(1, &[AlterBroken, Stop(0)], &[NONE, SINGLE[0]]);
}

#[test]
fn an_engine_is_replaced_in_place() {
    hold(1, &[InPlace(0)], &SINGLE);
    hold(1, &[InPlace(0), Stop(0)], &SINGLE);
    hold(1, &[InPlace(0), Restart(0)], &[SINGLE[0], SINGLE[1], SINGLE[4]]);
}

#[test]
fn two_slots_take_turns_in_place() {
    hold(2, &[AlterInPlace], &SINGLE);
    hold(2, &[AlterBrokenInPlace], &SINGLE);
}

/// A pair of requests: under a deposed master with each other fault in the long tier, with an expiry else.
fn pair(requests: [Request; 2]) {
    hold(1, &requests, if is_long() { &DEPOSED[..] } else { &DEPOSED[1..2] });
}

#[test]
#[ignore = "long"]
fn a_stop_races_with_a_restart_under_a_deposed_master() {
    pair([Restart(0), Stop(0)]);
}

#[test]
#[ignore = "long"]
fn a_start_races_with_a_drop_under_a_deposed_master() {
    pair([Drop, Start]);
}

#[test]
#[ignore = "long"]
fn an_alter_races_with_a_restart_under_a_deposed_master() {
    pair([Restart(0), Alter]);
}

#[test]
#[ignore = "long"]
fn a_forced_restart_races_with_a_restart_under_a_deposed_master() {
    pair([Force(0), Restart(0)]);
}

#[test]
#[ignore = "long"]
fn a_start_races_with_a_stop_under_a_deposed_master() {
    pair([Stop(0), Start]);
}

#[test]
#[ignore = "long"]
fn two_slots_survive_an_alter_with_a_stop() {
    hold(2, &[Alter, Stop(1)], if is_long() { &SINGLE[..] } else { &SINGLE[..1] });
}

#[test]
#[ignore = "long"]
fn two_slots_survive_an_alter_with_a_restart() {
    hold(2, &[Alter, Restart(0)], &SINGLE[..1]);
}

#[test]
#[ignore = "long"]
fn an_alter_races_with_a_start_and_each_fault() {
    // With less than the long tier's time, the pair that takes longest of those that `cargo test` leaves out.
    hold(1, &[Start, Alter], if is_long() { &SINGLE[..] } else { &SINGLE[2..3] });
}

/// Searches that only `tests/run --long` makes.
mod long_only {
    use super::*;

    #[test]
    #[ignore = "long"]
    fn three_requests_survive_a_deposed_master() {
        hold(1, &[Restart(0), Alter, Stop(0)], &SINGLE[..2]);
    }
}
