//! Variants of the ledger without one of the rules: the search finds a counterexample and prints its steps.
//!
//! The limits are the smallest that show it, and within them the full protocol holds. `docs/model.md` has the table; a test
//! compares it with the names here.

#![allow(clippy::unwrap_used, clippy::panic)]

use protocol_model::ledger::{Isolation, Ledger, Limits, Without, Workload};
use protocol_model::search::{SearchResult, search};

use Isolation::{ReadCommitted, RepeatableRead};

const NONE: Limits = Limits { broken: 0, lost_replies: 0, depositions: 0 };
const BROKEN: Limits = Limits { broken: 1, ..NONE };
const LOST: Limits = Limits { lost_replies: 1, ..NONE };
const DEPOSED: Limits = Limits { depositions: 1, ..NONE };

const OVER: &str = "nothing is granted beyond a limit";
const DRIFT: &str = "scopes hold what is charged";
const AUDIT: &str = "the audit finds no difference";
const CIRCLE: &str = "no transactions wait for each other";
const TWICE: &str = "a request has at most one reservation";
const CATALOG: &str = "the limits of scopes are those of the catalog";
const DEPOSED_WRITE: &str = "no write of a deposed master is accepted";
const TRANSFERRED: &str = "a successor of the same size receives its predecessor's charge";

type Setup = (Workload, Isolation, Limits);

fn run(
    title: &str,
    (workload, isolation, limits): Setup,
    without: Without,
    only: Option<&'static str>,
) -> SearchResult {
    let title = format!("ledger, {title}, {workload:?}, {isolation:?}");
    search(&title, &limits, &Ledger::new(workload, isolation, limits, without, only))
}

/// The property fails after that many steps at least; the full protocol holds within the same limits.
#[track_caller]
fn fails(title: &str, setup: Setup, without: Without, property: &'static str, steps: usize) {
    let found = run(title, setup, without, Some(property));
    assert_eq!(found.failed(), Some((property, steps)), "{title}");
    let sound = run(&format!("{title}: full protocol"), setup, Without::default(), None);
    assert!(sound.holds(), "{title}: full protocol: {:?} {:?}", sound.failed(), sound.unreached);
}

/// The same under both isolation levels.
#[track_caller]
fn fails_on_each(title: &str, workload: Workload, limits: Limits, without: Without, failed: (&'static str, usize)) {
    for isolation in [ReadCommitted, RepeatableRead] {
        fails(title, (workload, isolation, limits), without, failed.0, failed.1);
    }
}

#[track_caller]
fn holds(title: &str, setup: Setup, without: Without) {
    let found = run(title, setup, without, None);
    assert!(found.holds(), "{title}: {:?} {:?}", found.failed(), found.unreached);
}

fn without(remove: impl FnOnce(&mut Without)) -> Without {
    let mut without = Without::default();
    remove(&mut without);
    without
}

#[test]
fn a_request_judged_before_its_locks_is_granted_beyond_the_limit() {
    let without = without(|removed| removed.judged_under_lock = true);
    fails_on_each("judged before the locks", Workload::LastOfPool, NONE, without, (OVER, 10));
}

#[test]
fn amounts_read_before_their_locks_lose_a_charge() {
    let without = without(|removed| removed.read_under_lock = true);
    fails_on_each("read before the locks", Workload::LastOfPoolWithRelease, NONE, without, (DRIFT, 10));
    fails_on_each("read before the locks", Workload::LastOfPool, NONE, without, (OVER, 10));
}

#[test]
fn scopes_and_reservation_in_two_transactions_leak_a_charge() {
    let without = without(|removed| removed.one_transaction = true);
    fails_on_each("two transactions", Workload::LastOfPool, BROKEN, without, (DRIFT, 6));
}

#[test]
fn mixed_lock_order_deadlocks() {
    let without = without(|removed| removed.lock_order = true);
    fails_on_each("pool before tenant", Workload::Guarantee, NONE, without, (CIRCLE, 4));
}

#[test]
fn without_a_request_key_a_request_has_two_reservations() {
    let without = without(|removed| removed.request_key = true);
    fails_on_each("no request key, two agents", Workload::SameKey, NONE, without, (TWICE, 10));
    fails_on_each("no request key, lost reply", Workload::Audit, LOST, without, (TWICE, 11));
}

#[test]
fn an_epoch_checked_before_the_transaction_lets_a_deposed_master_end() {
    let without = without(|removed| removed.epoch_in_transaction = true);
    fails_on_each("epoch in a statement of its own", Workload::EndAndAdopt, DEPOSED, without, (DEPOSED_WRITE, 7));
}

/// Two masters' changes of a lineage: each of the two rules is enough for what the scopes hold.
#[test]
fn without_epoch_lock_and_early_locks_a_lineage_is_charged_wrong() {
    let setup = (Workload::Lineage, RepeatableRead, DEPOSED);
    let both = without(|removed| (removed.epoch_in_transaction, removed.locks_before_select) = (true, true));
    fails("neither", setup, both, DRIFT, 15);
    for one in
        [without(|removed| removed.epoch_in_transaction = true), without(|removed| removed.locks_before_select = true)]
    {
        let found = run("one of two", setup, one, Some(DRIFT));
        assert!(found.holds(), "{:?}", found.failed());
    }
}

#[test]
fn a_lock_that_changes_no_column_reads_an_old_row() {
    let without = without(|removed| removed.version = true);
    fails("no version", (Workload::Guarantee, RepeatableRead, NONE), without, DRIFT, 12);
    fails("no version", (Workload::FirstOfUser, RepeatableRead, NONE), without, DRIFT, 20);
    holds("no version", (Workload::Guarantee, ReadCommitted, NONE), without);
    // A change whose locks precede its first SELECT does not need it.
    for workload in [Workload::LastOfPoolWithRelease, Workload::TwoEnds, Workload::Audit, Workload::Exclusive] {
        holds("no version", (workload, RepeatableRead, NONE), without);
    }
}

#[test]
fn a_select_before_the_locks_reads_old_reservations() {
    let without = without(|removed| removed.locks_before_select = true);
    fails("SELECT first", (Workload::TwoEnds, RepeatableRead, NONE), without, DRIFT, 13);
    fails("SELECT first", (Workload::Audit, RepeatableRead, NONE), without, AUDIT, 10);
    for workload in [Workload::TwoEnds, Workload::Audit] {
        holds("SELECT first", (workload, ReadCommitted, NONE), without);
    }
}

#[test]
fn a_shared_part_not_from_the_locked_tenant_is_wrong() {
    let without = without(|removed| removed.shared_from_lock = true);
    fails_on_each("shared part from an older row", Workload::Exclusive, NONE, without, (DRIFT, 12));
}

#[test]
fn a_user_inserted_without_the_catalog_lock_keeps_an_old_limit() {
    let without = without(|removed| removed.catalog_lock = true);
    fails_on_each("user without the catalog lock", Workload::FirstOfUser, NONE, without, (CATALOG, 13));
}

#[test]
fn a_release_of_the_new_size_returns_too_much() {
    let without = without(|removed| removed.row_amounts = true);
    fails_on_each("release of the new size", Workload::TwoEnds, NONE, without, (DRIFT, 5));
}

#[test]
fn an_end_that_compares_no_state_returns_a_charge_twice() {
    let without = without(|removed| removed.state_compared = true);
    fails_on_each("state not compared", Workload::TwoEnds, NONE, without, (DRIFT, 11));
}

#[test]
fn a_scope_inserted_after_the_locks_is_locked_out_of_order() {
    let without = without(|removed| removed.only_locked_rows = true);
    fails_on_each("scope not locked", Workload::TwoOfUser, NONE, without, (CIRCLE, 14));
}

#[test]
fn a_charge_ended_before_its_successor_is_taken_by_another() {
    let without = without(|removed| removed.transfer = true);
    fails_on_each("transfer in two transactions", Workload::Transfer, NONE, without, (TRANSFERRED, 15));
}
