//! Slots, permits and drains without one of their sentences: each time the search finds what then goes wrong, and
//! prints the way.
//!
//! The limits are the smallest that show it, and within them everything holds as it is. `docs/model.md` has the
//! table; a test compares it with the names here.

#![allow(clippy::unwrap_used, clippy::panic)]

use protocol_model::engines::{Engines, Limits, Request, Without};
use protocol_model::search::{Found, search};

use Request::{Alter, AlterBroken, Drop, Force, Restart, Start, Stop};

const NONE: Limits =
    Limits { depositions: 0, expiries: 0, deaths: 0, vanishings: 0, hand_deletions: 0, losses: 0, relabelings: 0 };
const DEPOSED: Limits = Limits { depositions: 1, ..NONE };
const EXPIRED: Limits = Limits { expiries: 1, ..NONE };
const DEAD: Limits = Limits { deaths: 1, ..NONE };

const EARLY: &str = "a stand-in is never drained before its replacement is ready";
const TOLD: &str = "who was told to drain is not registered";
const WANTED: &str = "an engine that is wanted is never drained";
const KILLED: &str = "a running engine is deleted only after its drain fact";
const DEPOSED_WRITE: &str = "no write of a deposed master is accepted";
const NAME_AGAIN: &str = "an acting master never makes a name again";
const CONVERGED: &str = "what is converged was made or told, or a stand-in serves";
const REST: &str = "at rest engines equal metadata, with no fact and nothing left over";
const RECORDED: &str = "who registers is the engine that is recorded";
const ABSENCE: &str = "an engine that ever registered is never drained before its replacement is ready";

type World<'a> = (usize, &'a [Request], Limits);

fn run(title: &str, (slots, requests, limits): World<'_>, without: Without, only: Option<&'static str>) -> Found {
    search(title, &limits, &Engines { slots, requests: requests.to_vec(), limits, without, only })
}

/// The property fails, after so many steps at least; as it is, the whole protocol holds within the same limits.
#[track_caller]
fn fails(title: &str, world: World<'_>, without: Without, property: &'static str, steps: usize) {
    let found = run(title, world, without, Some(property));
    assert_eq!(found.failed(), Some((property, steps)), "{title}");
    let sound = run(&format!("{title}: as it is"), world, Without::default(), None);
    assert!(sound.holds(), "{title}: as it is, {:?} {:?}", sound.failed(), sound.unreached);
}

fn without(take: impl FnOnce(&mut Without)) -> Without {
    let mut without = Without::default();
    take(&mut without);
    without
}

#[test]
fn a_drain_without_lock_and_mark_ends_an_engine_that_serves() {
    let by_hand = Limits { hand_deletions: 1, ..DEPOSED };
    let both = without(|it| (it.drain_lock, it.mark) = (true, true));
    fails("neither lock nor mark", (0, &[Start, Restart(0)], by_hand), both, EARLY, 32);
    let lost = Limits { losses: 1, ..DEPOSED };
    fails("neither lock nor mark", (0, &[Start, Restart(0)], lost), both, EARLY, 34);
}

/// With the mark, no late drain is found that does harm: what it was planned for is what it meets, or it is refused.
#[test]
fn without_the_lock_in_the_drain_the_mark_suffices() {
    let without = without(|it| it.drain_lock = true);
    let other = [EXPIRED, DEAD, Limits { hand_deletions: 1, ..NONE }, Limits { losses: 1, ..NONE }];
    for limits in other.map(|it| Limits { depositions: 1, ..it }) {
        for world in [(1, &[Restart(0)][..], limits), (1, &[Force(0)], limits), (1, &[Drop], limits)] {
            let found = run("no lock in the drain", world, without, None);
            assert!(found.holds(), "{:?} {:?}", found.failed(), found.unreached);
        }
    }
    let found =
        run("no lock in the drain", (0, &[Start, Restart(0)], Limits { hand_deletions: 1, ..DEPOSED }), without, None);
    assert!(found.holds(), "{:?} {:?}", found.failed(), found.unreached);
}

#[test]
fn a_drain_that_does_not_check_the_newer_registration_leaves_nobody() {
    let without = without(|it| it.newer_live = true);
    fails("no newer registration in the drain", (1, &[Restart(0)], EXPIRED), without, EARLY, 19);
}

#[test]
fn a_drain_that_deletes_what_it_did_not_see_ends_an_engine_that_serves() {
    let without = without(|it| it.as_seen = true);
    fails("deleted whether seen or not", (0, &[Start, Restart(0)], NONE), without, EARLY, 23);
}

#[test]
fn a_drain_in_several_calls_ends_an_engine_that_serves() {
    let without = without(|it| it.one_multi = true);
    fails("drain in several calls", (0, &[Start, Restart(0)], NONE), without, EARLY, 23);
}

#[test]
fn an_epoch_checked_in_another_statement_lets_a_deposed_master_draw() {
    let without = without(|it| it.epoch_in_transaction = true);
    fails("epoch in a statement of its own", (1, &[Restart(0)], DEPOSED), without, DEPOSED_WRITE, 14);
}

#[test]
fn absence_taken_for_an_end_drains_what_only_lost_its_session() {
    let without = without(|it| it.absence_ends_nothing = true);
    fails("absence ends", (1, &[Restart(0)], EXPIRED), without, ABSENCE, 13);
}

#[test]
fn a_name_that_is_used_again_is_made_again() {
    let without = without(|it| it.names_once = true);
    fails("names used again", (1, &[Restart(0)], DEAD), without, NAME_AGAIN, 19);
}

#[test]
fn a_registration_without_a_mark_that_came_and_went_within_one_tick_is_drained() {
    let without = without(|it| it.mark = true);
    fails("came and went", (0, &[Start, Restart(0)], EXPIRED), without, ABSENCE, 24);
}

#[test]
fn a_drain_taken_for_an_expired_session_is_registered_again() {
    let without = without(|it| it.order_before_session = true);
    fails("registers again", (1, &[Stop(0)], NONE), without, TOLD, 10);
}

#[test]
fn an_expired_session_taken_for_a_drain_ends_what_is_wanted() {
    let without = without(|it| it.order_only = true);
    fails("drains by itself", (1, &[Restart(0)], EXPIRED), without, WANTED, 2);
}

#[test]
fn a_master_that_looks_only_when_it_is_woken_misses_what_was_said() {
    let without = without(|it| it.timer = true);
    fails("no timer", (1, &[Start], NONE), without, REST, 5);
}

/// What no mark is at, and what the search does not miss: with the epoch's lock and one master after the other.
#[test]
fn without_order_newer_snapshots_and_observed_incarnations_nothing_is_found_here() {
    let limits = [DEPOSED, EXPIRED, Limits { hand_deletions: 1, ..NONE }];
    let taken = [
        ("snapshot first", without(|it| it.order = true)),
        ("snapshot first, newer pods not left alone", without(|it| (it.order, it.newer_left_alone) = (true, true))),
        ("observed incarnation not compared", without(|it| it.observed_incarnation = true)),
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
fn converged_that_waits_for_readiness_blocks_everybody() {
    let without = without(|it| it.no_readiness = true);
    fails("converged waits for readiness", (1, &[AlterBroken], NONE), without, REST, 11);
}

#[test]
fn converged_said_too_early_is_said_of_what_was_never_told() {
    let without = without(|it| it.converged_means = true);
    fails("converged at once", (1, &[Drop], EXPIRED), without, CONVERGED, 10);
}

#[test]
fn a_condemned_engine_that_is_deleted_at_once_was_not_told() {
    let without = without(|it| it.fact_before_delete = true);
    fails("no fact before the delete", (1, &[Stop(0)], NONE), without, KILLED, 8);
}

#[test]
fn a_permit_that_admits_any_uid_registers_a_late_create() {
    let without = without(|it| it.permit_uid = true);
    fails("permit of any uid", (1, &[Start], NONE), without, RECORDED, 12);
}
