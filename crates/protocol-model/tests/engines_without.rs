//! Variants of slots, permits and drains without one of the rules: the search finds a counterexample and prints its steps.
//!
//! The limits are the smallest that show it, and within them the full protocol holds. `docs/model.md` has the table; a test
//! compares it with the names here.

#![allow(clippy::unwrap_used, clippy::panic)]

use protocol_model::engines::{Engines, Limits, Request, Without};
use protocol_model::search::{SearchResult, search};

use Request::{Alter, AlterBroken, AlterBrokenInPlace, AlterInPlace, Drop, Force, InPlace, Restart, Start, Stop};

const NONE: Limits =
    Limits { depositions: 0, expiries: 0, deaths: 0, vanishings: 0, hand_deletions: 0, losses: 0, relabelings: 0 };
const DEPOSED: Limits = Limits { depositions: 1, ..NONE };
const EXPIRED: Limits = Limits { expiries: 1, ..NONE };
const DEAD: Limits = Limits { deaths: 1, ..NONE };

const EARLY: &str = "a stand-in is never drained before its replacement is ready";
const WITHDRAWN: &str = "an engine with a drain order is not registered";
const DESIRED: &str = "a desired engine is never drained";
const KILLED: &str = "a running engine is deleted only after its drain order";
const DEPOSED_WRITE: &str = "no write of a deposed master is accepted";
const NAME_AGAIN: &str = "an acting master never reuses a name";
const CONVERGED: &str = "a converged engine was created or ordered to drain, or a stand-in serves";
const REST: &str = "at rest engines equal metadata, with no drain order and nothing left over";
const TWICE: &str = "in place, an engine is created when nothing is left of the older one";
const DOWN: &str = "in place, one slot at a time is taken down";
const RECORDED: &str = "only the recorded engine registers";
const ABSENCE: &str = "an engine that ever registered is never drained before its replacement is ready";

type Setup<'a> = (usize, &'a [Request], Limits);

fn run(
    title: &str,
    (slots, requests, limits): Setup<'_>,
    without: Without,
    only: Option<&'static str>,
) -> SearchResult {
    search(title, &limits, &Engines { slots, requests: requests.to_vec(), limits, without, only })
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
fn a_drain_without_lock_and_mark_ends_a_serving_engine() {
    let by_hand = Limits { hand_deletions: 1, ..DEPOSED };
    let both = without(|removed| (removed.drain_lock, removed.mark) = (true, true));
    fails("neither lock nor mark", (0, &[Start, Restart(0)], by_hand), both, EARLY, 32);
    let lost = Limits { losses: 1, ..DEPOSED };
    fails("neither lock nor mark", (0, &[Start, Restart(0)], lost), both, EARLY, 34);
}

/// With the mark, no late drain is found that does harm: what it was planned for is what it meets, or it is refused.
#[test]
fn without_the_lock_in_the_drain_the_mark_suffices() {
    let without = without(|removed| removed.drain_lock = true);
    let other = [EXPIRED, DEAD, Limits { hand_deletions: 1, ..NONE }, Limits { losses: 1, ..NONE }];
    for limits in other.map(|limits| Limits { depositions: 1, ..limits }) {
        for setup in [(1, &[Restart(0)][..], limits), (1, &[Force(0)], limits), (1, &[Drop], limits)] {
            let found = run("no lock in the drain", setup, without, None);
            assert!(found.holds(), "{:?} {:?}", found.failed(), found.unreached);
        }
    }
    let found =
        run("no lock in the drain", (0, &[Start, Restart(0)], Limits { hand_deletions: 1, ..DEPOSED }), without, None);
    assert!(found.holds(), "{:?} {:?}", found.failed(), found.unreached);
}

#[test]
fn a_drain_without_the_check_of_the_newer_engine_leaves_none() {
    let without = without(|removed| removed.newer_registration = true);
    fails("no newer registration in the drain", (1, &[Restart(0)], EXPIRED), without, EARLY, 19);
}

#[test]
fn a_drain_that_deletes_unread_nodes_ends_a_serving_engine() {
    let without = without(|removed| removed.as_seen = true);
    fails("deleted whether seen or not", (0, &[Start, Restart(0)], NONE), without, EARLY, 23);
}

#[test]
fn a_drain_in_several_calls_ends_a_serving_engine() {
    let without = without(|removed| removed.one_multi = true);
    fails("drain in several calls", (0, &[Start, Restart(0)], NONE), without, EARLY, 23);
}

#[test]
fn an_epoch_checked_in_another_statement_lets_a_deposed_master_draw() {
    let without = without(|removed| removed.epoch_in_transaction = true);
    fails("epoch in a statement of its own", (1, &[Restart(0)], DEPOSED), without, DEPOSED_WRITE, 14);
}

#[test]
fn absence_taken_for_an_end_drains_an_engine_without_a_session() {
    let without = without(|removed| removed.absence_ends_nothing = true);
    fails("absence ends", (1, &[Restart(0)], EXPIRED), without, ABSENCE, 13);
}

#[test]
fn a_reused_name_is_created_again() {
    let without = without(|removed| removed.names_once = true);
    fails("names used again", (1, &[Restart(0)], DEAD), without, NAME_AGAIN, 19);
}

#[test]
fn a_short_registration_without_a_mark_is_drained() {
    let without = without(|removed| removed.mark = true);
    fails("came and went", (0, &[Start, Restart(0)], EXPIRED), without, ABSENCE, 24);
}

#[test]
fn a_drain_taken_for_an_expired_session_is_registered_again() {
    let without = without(|removed| removed.order_before_session = true);
    fails("registers again", (1, &[Stop(0)], NONE), without, WITHDRAWN, 10);
}

#[test]
fn an_expired_session_taken_for_a_drain_ends_a_desired_engine() {
    let without = without(|removed| removed.order_only = true);
    fails("drains by itself", (1, &[Restart(0)], EXPIRED), without, DESIRED, 2);
}

#[test]
fn a_master_without_a_timer_misses_a_request() {
    let without = without(|removed| removed.timer = true);
    fails("no timer", (1, &[Start], NONE), without, REST, 5);
}

/// What no mark is at, and what the search does not miss: with the epoch's lock and one master after the other.
#[test]
fn without_order_and_staleness_rules_nothing_is_found() {
    let limits = [DEPOSED, EXPIRED, Limits { hand_deletions: 1, ..NONE }];
    let taken = [
        ("snapshot first", without(|removed| removed.order = true)),
        (
            "snapshot first, newer pods not left alone",
            without(|removed| (removed.order, removed.newer_is_stale) = (true, true)),
        ),
        ("observed incarnation not compared", without(|removed| removed.observed_incarnation = true)),
    ];
    for (title, without) in taken {
        for limits in limits {
            for requests in [&[Restart(0), Stop(0)][..], &[Restart(0), Alter][..1], &[Start][..]] {
                let found = run(title, (1, requests, limits), without, None);
                assert!(found.holds(), "{title}: {:?} {:?}", found.failed(), found.unreached);
            }
        }
    }
}

#[test]
fn converged_that_waits_for_readiness_blocks_all_alterations() {
    let without = without(|removed| removed.no_readiness = true);
    fails("converged waits for readiness", (1, &[AlterBroken], NONE), without, REST, 11);
}

#[test]
fn converged_too_early_includes_engines_without_a_drain_order() {
    let without = without(|removed| removed.converged_means = true);
    fails("converged at once", (1, &[Drop], EXPIRED), without, CONVERGED, 10);
}

#[test]
fn a_condemned_engine_deleted_at_once_has_no_drain_order() {
    let without = without(|removed| removed.drain_order_before_delete = true);
    fails("no drain order before the delete", (1, &[Stop(0)], NONE), without, KILLED, 8);
}

#[test]
fn a_permit_that_admits_any_uid_registers_a_late_create() {
    let without = without(|removed| removed.permit_uid = true);
    fails("permit of any uid", (1, &[Start], NONE), without, RECORDED, 12);
}

#[test]
fn a_successor_in_place_that_does_not_wait_runs_while_the_older_engine_does() {
    let without = without(|removed| removed.older_is_gone = true);
    fails("created while the older engine exists", (1, &[InPlace(0)], NONE), without, TWICE, 9);
}

#[test]
fn slots_in_place_without_turns_are_drained_at_once() {
    let without = without(|removed| removed.turns = true);
    fails("no turns", (2, &[AlterInPlace], NONE), without, DOWN, 9);
}

#[test]
fn a_failed_successor_that_is_not_in_place_takes_down_the_next_slot() {
    let without = without(|removed| removed.stays_in_place = true);
    fails("not in place again", (2, &[AlterBrokenInPlace], DEAD), without, DOWN, 41);
}
