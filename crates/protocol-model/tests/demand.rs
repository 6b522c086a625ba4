//! Demand as it is: every property holds in every state within the limits.

#![allow(clippy::unwrap_used, clippy::panic)]

use protocol_model::demand::{Demand, Limits, Link, Request, Without};
use protocol_model::search::search;

use Request::{Hold, RaiseMin};

const NONE: Limits = Limits {
    depositions: 0,
    given_up: 0,
    reports: 0,
    deaths: 0,
    retries: 0,
    expiries: 0,
    silences: 0,
    unready: 0,
    cuts: 0,
    hung: 0,
};

/// Nothing runs.
const EMPTY: Link = Link { sessions: 1, running: 0, on_demand: true, max: 2, free: 2 };
/// An engine runs that follows demand.
const ONE: Link = Link { running: 1, ..EMPTY };

/// An engine runs that a statement has started.
const STARTED: Link = Link { on_demand: false, ..ONE };
/// Two engines run on one node that statements have started, and no client comes.
const TWO_STARTED: Link = Link { sessions: 0, running: 2, ..STARTED };
const TWO_SESSIONS: Link = Link { sessions: 2, ..EMPTY };

const CUT: Limits = Limits { cuts: 1, ..NONE };
/// One fault of each kind, by itself.
const SINGLE: [Limits; 9] = [
    Limits { depositions: 1, ..NONE },
    Limits { given_up: 1, ..NONE },
    Limits { reports: 1, ..NONE },
    Limits { deaths: 1, ..NONE },
    Limits { retries: 1, ..NONE },
    Limits { expiries: 1, ..NONE },
    Limits { silences: 1, ..NONE },
    Limits { unready: 1, ..NONE },
    Limits { hung: 1, ..NONE },
];

fn hold(link: Link, requests: &[Request], limits: &[Limits]) {
    for limits in limits {
        let title = format!("{link}, {requests:?}");
        let without = Without::default();
        let model = Demand { link, requests: requests.to_vec(), limits: *limits, without, only: None };
        let found = search(&title, limits, &model);
        assert!(found.holds(), "{title}: {:?} {:?}", found.failed(), found.unreached);
    }
}

#[test]
fn a_session_is_served_and_its_engine_released() {
    hold(EMPTY, &[], &[NONE]);
    hold(ONE, &[], &[NONE]);
    hold(TWO_SESSIONS, &[], &[NONE]);
}

#[test]
fn an_engine_that_starts_survives_each_fault() {
    hold(EMPTY, &[], &SINGLE);
    hold(Link { max: 1, ..EMPTY }, &[], &[CUT]);
    hold(EMPTY, &[], &[Limits { retries: 1, given_up: 1, ..NONE }]);
}

#[test]
fn an_idle_engine_survives_each_fault() {
    let faults = [
        Limits { depositions: 1, ..NONE },
        Limits { given_up: 1, ..NONE },
        Limits { silences: 1, ..NONE },
        Limits { unready: 1, ..NONE },
    ];
    hold(ONE, &[], &faults);
}

#[test]
fn an_engine_that_loses_its_session_is_neither_replaced_nor_released() {
    hold(ONE, &[], &[Limits { expiries: 1, ..NONE }]);
}

#[test]
fn a_release_races_with_an_alteration_of_the_minimum() {
    hold(ONE, &[RaiseMin], &[NONE]);
    hold(STARTED, &[], &[NONE]);
}

#[test]
fn the_last_capacity_is_taken_by_another() {
    hold(Link { free: 1, ..EMPTY }, &[Hold], &[NONE]);
}

#[test]
fn the_engines_of_a_node_that_is_cut_off_are_replaced() {
    hold(TWO_STARTED, &[], &[Limits { hung: 1, ..CUT }]);
}

/// Whether this is the long tier: `tests/run --long` sets it.
fn is_long() -> bool {
    std::env::var("EH_TEST_TIER").is_ok_and(|tier| tier == "long")
}

/// Searches that the long tier makes with larger limits.
mod long_only {
    use super::*;

    #[test]
    #[ignore = "long"]
    fn an_idle_engine_survives_the_other_faults() {
        hold(ONE, &[], &SINGLE);
        hold(Link { max: 1, ..ONE }, &[], &[CUT]);
        if is_long() {
            hold(EMPTY, &[], &[CUT]);
            hold(ONE, &[], &[CUT]);
        }
    }

    #[test]
    #[ignore = "long"]
    fn an_engine_that_starts_survives_pairs_of_faults() {
        let pairs = [
            Limits { depositions: 1, given_up: 1, ..NONE },
            Limits { depositions: 1, reports: 1, ..NONE },
            Limits { retries: 1, reports: 1, ..NONE },
            Limits { deaths: 1, reports: 1, ..NONE },
            Limits { retries: 2, ..NONE },
            Limits { depositions: 1, retries: 1, ..NONE },
        ];
        hold(EMPTY, &[], &pairs);
    }

    #[test]
    #[ignore = "long"]
    fn two_sessions_survive_each_fault() {
        let faults = [Limits { depositions: 1, ..NONE }, Limits { given_up: 1, ..NONE }];
        hold(TWO_SESSIONS, &[], if is_long() { &faults } else { &faults[..1] });
    }
}
