//! Variants of demand without one of the rules: the search finds a counterexample and prints its steps.
//!
//! The limits are the smallest that show it, and within them the full protocol holds. `docs/model.md` has the table; a test
//! compares it with the names here.

#![allow(clippy::unwrap_used, clippy::panic)]

use protocol_model::demand::{Demand, Limits, Link, Request, Without};
use protocol_model::search::{SearchResult, search};

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
const GIVEN_UP: Limits = Limits { given_up: 1, ..NONE };
const EXPIRED: Limits = Limits { expiries: 1, ..NONE };
const RETRIED: Limits = Limits { retries: 1, ..NONE };
const CUT: Limits = Limits { cuts: 1, ..NONE };

/// Nothing runs.
const EMPTY: Link = Link { sessions: 1, running: 0, on_demand: true, max: 2, free: 2 };
/// An engine runs that follows demand.
const ONE: Link = Link { running: 1, ..EMPTY };
/// Two engines run on one node that statements have started.
const TWO_STARTED: Link = Link { sessions: 0, running: 2, on_demand: false, ..EMPTY };

const NO_SESSION: &str = "no engine is started without a session";
const BUSY: &str = "no slot of a busy engine is removed";
const RELEASED: &str = "no session opens on a released engine";
const MINIMUM: &str = "no removal falls below the minimum";
const STARTED: &str = "what a statement started no master ends";
const QUEUED: &str = "no slot on demand is queued";
const SOUGHT: &str = "no created engine is cancelled while its client comes again";
const EVIDENCE: &str = "no engine is replaced that is registered or on a ready node";
const WASTED: &str = "no tick creates an engine that it cancels";
const REST: &str = "at rest no session waits without a reason, and no engine runs without one";

type Setup<'a> = (Link, &'a [Request], Limits);

fn run(title: &str, (link, requests, limits): Setup<'_>, without: Without, only: Option<&'static str>) -> SearchResult {
    let title = format!("{title}, {link}, {requests:?}");
    search(&title, &limits, &Demand { link, requests: requests.to_vec(), limits, without, only })
}

/// The property fails after that many steps at least. The full protocol holds within the same limits: `demand.rs` searches them.
#[track_caller]
fn fails(title: &str, setup: Setup<'_>, without: Without, property: &'static str, steps: usize) {
    let found = run(title, setup, without, Some(property));
    assert_eq!(found.failed(), Some((property, steps)), "{title}");
}

fn without(remove: impl FnOnce(&mut Without)) -> Without {
    let mut without = Without::default();
    remove(&mut without);
    without
}

#[test]
fn waiting_sessions_that_ignore_pending_seats_start_an_engine_in_each_tick() {
    let without = without(|removed| removed.pending_seats = true);
    fails("pending seats do not count", (EMPTY, &[], NONE), without, NO_SESSION, 14);
}

#[test]
fn demand_without_a_lease_keeps_the_engine_of_a_proxy_that_died() {
    let without = without(|removed| removed.lease = true);
    fails("no lease", (EMPTY, &[], Limits { deaths: 1, ..NONE }), without, NO_SESSION, 10);
}

#[test]
fn a_session_that_is_counted_until_it_is_open_starts_a_second_engine() {
    let without = without(|removed| removed.left_before_open = true);
    fails("left after open", (EMPTY, &[], NONE), without, NO_SESSION, 21);
}

#[test]
fn demand_that_is_read_before_the_loads_starts_a_second_engine() {
    let without = without(|removed| removed.demand_after_loads = true);
    fails("demand, then loads", (EMPTY, &[], NONE), without, NO_SESSION, 22);
}

#[test]
fn a_late_report_without_a_number_starts_an_engine_without_a_session() {
    let without = without(|removed| removed.numbered = true);
    fails("no number", (EMPTY, &[], Limits { reports: 1, ..NONE }), without, NO_SESSION, 24);
}

#[test]
fn an_engine_that_lost_its_session_and_counts_as_pending_is_cancelled_with_its_sessions() {
    let without = without(|removed| removed.unregistered_is_busy = true);
    fails("not registered is pending", (ONE, &[], EXPIRED), without, BUSY, 10);
}

#[test]
fn a_silent_engine_that_counts_as_idle_and_is_not_asked_is_released_with_its_sessions() {
    let limits = Limits { silences: 1, ..NONE };
    let both = without(|removed| (removed.silent_is_busy, removed.retire) = (true, true));
    fails("silent is idle, not asked", (ONE, &[], limits), both, BUSY, 9);
    // Each of the two rules is enough: an agent that is silent does not consent.
    let one = run("silent is idle", (ONE, &[], limits), without(|removed| removed.silent_is_busy = true), None);
    assert!(one.holds(), "{:?} {:?}", one.failed(), one.unreached);
}

#[test]
fn a_repeated_call_that_compares_no_slots_adds_them_twice() {
    let without = without(|removed| removed.expected = true);
    fails("slots not compared", (EMPTY, &[], GIVEN_UP), without, NO_SESSION, 14);
}

#[test]
fn a_late_call_to_a_link_that_is_empty_again_starts_an_engine_without_a_session() {
    let without = without(|removed| removed.issued = true);
    fails("only present slots compared", (EMPTY, &[], Limits { retries: 1, ..GIVEN_UP }), without, NO_SESSION, 20);
}

#[test]
fn a_slot_that_is_reserved_for_later_is_queued() {
    let without = without(|removed| removed.one_commit = true);
    fails("reserved later", (Link { free: 1, ..EMPTY }, &[Hold], NONE), without, QUEUED, 14);
}

#[test]
fn a_release_that_does_not_compare_the_minimum_falls_below_it() {
    let without = without(|removed| removed.minimum = true);
    fails("minimum not compared", (ONE, &[RaiseMin], NONE), without, MINIMUM, 8);
}

#[test]
fn an_engine_that_a_statement_started_is_released_when_idle() {
    let without = without(|removed| removed.on_demand_only = true);
    fails("every origin", (Link { on_demand: false, ..ONE }, &[], NONE), without, STARTED, 7);
}

#[test]
fn an_idle_engine_that_is_not_asked_is_released_with_a_session() {
    let without = without(|removed| removed.retire = true);
    fails("not asked", (ONE, &[], NONE), without, BUSY, 9);
}

#[test]
fn a_consent_that_is_withdrawn_releases_a_busy_engine() {
    let without = without(|removed| removed.consent_ends_by_time = true);
    fails("withdrawn", (ONE, &[], GIVEN_UP), without, RELEASED, 12);
    fails("withdrawn", (ONE, &[], GIVEN_UP), without, BUSY, 12);
}

#[test]
fn a_slot_that_is_removed_after_the_consent_has_ended_may_be_in_use() {
    let without = without(|removed| removed.scale_in_time = true);
    fails("removed late", (ONE, &[], NONE), without, BUSY, 11);
}

#[test]
fn an_engine_that_is_cancelled_at_once_never_serves_a_client_that_comes_again() {
    let without = without(|removed| removed.delayed_cancel = true);
    fails("cancelled at once", (EMPTY, &[], RETRIED), without, SOUGHT, 19);
}

#[test]
fn a_plan_that_creates_what_it_cancels_wastes_an_engine() {
    let without = without(|removed| removed.cancelled_is_not_created = true);
    fails("created and cancelled", (EMPTY, &[], RETRIED), without, WASTED, 15);
}

#[test]
fn a_missing_registration_alone_replaces_an_engine_that_serves() {
    let without = without(|removed| removed.node_is_evidence = true);
    fails("registration alone", (ONE, &[], EXPIRED), without, EVIDENCE, 6);
}

#[test]
fn a_node_alone_replaces_an_engine_that_serves() {
    let without = without(|removed| removed.registration_is_evidence = true);
    fails("node alone", (ONE, &[], Limits { unready: 1, ..NONE }), without, EVIDENCE, 6);
}

#[test]
fn unreachable_engines_that_take_turns_are_replaced_one_after_the_other() {
    let without = without(|removed| removed.unreachable_takes_no_turn = true);
    fails("takes a turn", (TWO_STARTED, &[], Limits { hung: 1, ..CUT }), without, REST, 16);
}

#[test]
fn a_slot_of_an_unreachable_engine_that_counts_as_full_starts_a_second_engine() {
    let without = without(|removed| removed.replaced_is_pending = true);
    fails("counts as full", (ONE, &[], CUT), without, NO_SESSION, 11);
}
