//! Reservations as they are: every property holds in every state within the limits.

#![allow(clippy::unwrap_used, clippy::panic)]

use protocol_model::reservations::{Limits, Pool, Request, Reservations, Without};
use protocol_model::search::search;

use Request::{Hold, InPlace, Restart, Start, Stop};

const NONE: Limits = Limits { depositions: 0, given_up: 0, vanishings: 0, deadlines: 0 };
/// One fault of each kind.
const ONE: Limits = Limits { depositions: 1, given_up: 1, vanishings: 1, deadlines: 1 };
/// One fault of each kind, by itself.
const SINGLE: [Limits; 4] = [
    Limits { depositions: 1, ..NONE },
    Limits { given_up: 1, ..NONE },
    Limits { vanishings: 1, ..NONE },
    Limits { deadlines: 1, ..NONE },
];

const EMPTY: Pool = Pool { capacity: 1, running: 0, reserved: true };
const FULL: Pool = Pool { running: 1, ..EMPTY };
/// Room for one engine in addition to the running one.
const HALF: Pool = Pool { capacity: 2, ..FULL };
const FULL_OF_TWO: Pool = Pool { capacity: 2, running: 2, reserved: true };
/// After an upgrade from a version that had no reservations.
const UPGRADED: Pool = Pool { reserved: false, ..FULL };

fn hold(pool: Pool, requests: &[Request], limits: &[Limits]) {
    for limits in limits {
        let title = format!("{pool}, {requests:?}");
        let without = Without::default();
        let model = Reservations { pool, requests: requests.to_vec(), limits: *limits, without, only: None };
        let found = search(&title, limits, &model);
        assert!(found.holds(), "{title}: {:?} {:?}", found.failed(), found.unreached);
    }
}

#[test]
fn each_single_request_survives_one_fault_of_each_kind() {
    hold(EMPTY, &[Start], &[ONE]);
    hold(FULL, &[Stop(0)], &[ONE]);
    hold(FULL, &[Restart(0)], &[ONE]);
    hold(HALF, &[Restart(0)], &SINGLE);
}

#[test]
fn an_engine_that_is_starting_is_stopped() {
    hold(EMPTY, &[Start, Stop(0)], &[ONE]);
}

#[test]
fn the_last_unit_is_granted_when_the_instance_is_gone() {
    hold(FULL, &[Stop(0), Start], &SINGLE);
    hold(FULL, &[Restart(0), Stop(0)], &SINGLE);
}

#[test]
fn one_of_two_engines_is_queued() {
    hold(EMPTY, &[Start, Start], &[ONE]);
}

#[test]
fn an_external_holder_shares_the_pool() {
    hold(EMPTY, &[Hold], &[ONE]);
    hold(EMPTY, &[Hold, Start], &[ONE]);
    hold(FULL, &[Hold, Stop(0)], &SINGLE);
}

#[test]
fn an_engine_is_replaced_in_place_in_a_full_pool() {
    hold(FULL, &[InPlace(0)], &[ONE]);
    hold(FULL, &[InPlace(0), Hold], &SINGLE);
    hold(FULL, &[InPlace(0), Start], &SINGLE[..1]);
}

#[test]
fn a_replacement_in_place_races_with_a_stop_and_a_restart() {
    hold(FULL, &[InPlace(0), Stop(0)], &SINGLE);
    hold(FULL, &[InPlace(0), InPlace(0)], &SINGLE[..1]);
    hold(FULL, &[InPlace(0), Restart(0)], &SINGLE[..1]);
}

#[test]
fn two_slots_are_replaced_in_place_one_after_the_other() {
    hold(FULL_OF_TWO, &[InPlace(0), InPlace(1)], &[NONE, SINGLE[0], SINGLE[2]]);
}

#[test]
fn an_upgrade_counts_before_it_grants() {
    hold(UPGRADED, &[Hold], &[ONE]);
    hold(UPGRADED, &[Start], &[ONE]);
    hold(UPGRADED, &[Stop(0), Start], &SINGLE);
    hold(Pool { capacity: 2, running: 2, ..UPGRADED }, &[Restart(0), Hold], &SINGLE);
}

/// Searches that only `tests/run --long` makes.
mod long_only {
    use super::*;

    /// Two masters deposed, two calls given up, and one of each other fault.
    const TWO: Limits = Limits { depositions: 2, given_up: 2, ..ONE };

    #[test]
    #[ignore = "long"]
    fn each_single_request_survives_two_late_calls() {
        hold(EMPTY, &[Start], &[TWO]);
        hold(FULL, &[Stop(0)], &[TWO]);
        hold(FULL, &[Restart(0)], &[TWO]);
        hold(HALF, &[Restart(0)], &[TWO]);
        hold(UPGRADED, &[Hold], &[TWO]);
        hold(UPGRADED, &[Start], &[TWO]);
    }

    #[test]
    #[ignore = "long"]
    fn two_requests_survive_one_fault_of_each_kind() {
        hold(FULL, &[Stop(0), Start], &[ONE]);
        hold(FULL, &[Restart(0), Stop(0)], &[ONE]);
        hold(HALF, &[Restart(0), Start], &[ONE]);
        hold(UPGRADED, &[Stop(0), Start], &[ONE]);
    }

    #[test]
    #[ignore = "long"]
    fn three_requests_survive_each_fault() {
        hold(HALF, &[Hold, Restart(0), Start], &SINGLE);
        hold(FULL, &[Hold, Stop(0), Start], &SINGLE);
    }
}
