//! Variants of the alteration without one of the rules: the search finds a counterexample and prints its steps.
//!
//! The limits are the smallest that show it, and within them the full protocol holds. `docs/model.md` has the table; a test
//! compares it with the names here.

#![allow(clippy::unwrap_used, clippy::panic)]

use protocol_model::alteration::{Alteration, Limits, Without, Workload};
use protocol_model::search::{SearchResult, search};

const NONE: Limits =
    Limits { crashes: 0, agent_expiries: 0, unknown_commits: 0, depositions: 0, hand_deletions: 0, refusals: 0 };
const BY_HAND: Limits = Limits { hand_deletions: 1, ..NONE };
const DEPOSED: Limits = Limits { depositions: 1, ..NONE };

const LOST: &str = "no update is lost";
const DEPENDENCE: &str = "the dependency of a committed statement exists";
const ONE_CONVERGES: &str = "at most one alteration of an object is converging";
const WITHOUT_NODE: &str = "no alteration commits without its node";
const ABORTED: &str = "an aborted alteration changes nothing, a repeated one changes once";
const ANSWER: &str = "an answer stays true";
const MADE: &str = "a converged engine was created";
const DEPOSED_WRITE: &str = "no write of a deposed master is accepted";
const NODE_SHOWS: &str = "the node shows the object that was changed";
const NODE_LOST: &str = "the master deletes the node only of a settled alteration";
const REST: &str = "at rest engines equal metadata, with no node and nothing converging";

fn run(title: &str, workload: Workload, limits: Limits, without: Without, only: Option<&'static str>) -> SearchResult {
    search(title, &limits, &Alteration { workload, limits, without, only })
}

/// The property fails after that many steps at least; the full protocol holds within the same limits.
#[track_caller]
fn fails(title: &str, workload: Workload, limits: Limits, without: Without, property: &'static str, steps: usize) {
    let found = run(title, workload, limits, without, Some(property));
    assert_eq!(found.failed(), Some((property, steps)), "{title}");
    let sound = run(&format!("{title}: full protocol"), workload, limits, Without::default(), None);
    assert!(sound.holds(), "{title}: full protocol: {:?}", sound.failed());
}

fn without(remove: impl FnOnce(&mut Without)) -> Without {
    let mut without = Without::default();
    remove(&mut without);
    without
}

#[test]
fn without_the_catalog_lock_two_commits_do_not_see_each_other() {
    let without = without(|removed| removed.catalog_lock = true);
    fails("no catalog lock", Workload::Reference, BY_HAND, without, DEPENDENCE, 15);
}

#[test]
fn without_the_reread_a_statement_depends_on_a_dropped_object() {
    fails("no reading again", Workload::Reference, NONE, without(|removed| removed.reread = true), DEPENDENCE, 22);
}

#[test]
fn without_superseding_two_alterations_of_an_object_converge() {
    let without = without(|removed| removed.superseding = true);
    fails("no superseding", Workload::SameObject, NONE, without, ONE_CONVERGES, 23);
}

#[test]
fn without_the_base_generation_the_node_shows_another_object() {
    fails("no base generation", Workload::SameObject, NONE, without(|removed| removed.base = true), NODE_SHOWS, 23);
}

#[test]
fn without_base_generation_and_reread_an_update_is_lost() {
    let both = without(|removed| (removed.base, removed.reread) = (true, true));
    fails("neither base generation nor reading again", Workload::SameObject, NONE, both, LOST, 23);
}

/// What the mark at the base generation is about: reading again alone loses no update.
#[test]
fn without_the_base_generation_alone_no_update_is_lost() {
    let limits = Limits { crashes: 1, unknown_commits: 1, ..DEPOSED };
    let without = without(|removed| removed.base = true);
    let found = run("no base generation, updates", Workload::SameObject, limits, without, Some(LOST));
    assert!(found.holds(), "{:?}", found.failed());
}

#[test]
fn an_abort_that_overwrites_a_commit_aborts_an_applied_change() {
    fails("abort overwrites", Workload::SameObject, NONE, without(|removed| removed.abort_loses = true), ABORTED, 13);
}

#[test]
fn an_alteration_in_doubt_without_its_node_commits() {
    let limits = Limits { agent_expiries: 1, ..NONE };
    let without = without(|removed| removed.in_doubt_stays = true);
    fails("alterations in doubt lose their node", Workload::SameObject, limits, without, WITHOUT_NODE, 13);
}

#[test]
fn debris_that_is_not_deleted_stays_for_ever() {
    fails("debris is left", Workload::SameObject, BY_HAND, without(|removed| removed.debris_deleted = true), REST, 17);
}

/// What stands in brackets beside the debris: two calls would do, since the second finds out that the first is gone.
#[test]
fn a_node_created_in_two_calls_breaks_nothing_here() {
    let limits = Limits { crashes: 1, unknown_commits: 1, hand_deletions: 1, ..DEPOSED };
    for workload in [Workload::SameObject, Workload::Reference, Workload::Repeated] {
        let found = run("node in two calls", workload, limits, without(|removed| removed.atomic_node = true), None);
        assert!(found.holds(), "{:?} {:?}", found.failed(), found.unreached);
    }
}

#[test]
fn a_row_finished_only_with_its_node_converges_for_ever() {
    let without = without(|removed| removed.finish_without_node = true);
    fails("finish only with the node", Workload::SameObject, BY_HAND, without, REST, 20);
}

#[test]
fn without_order_and_generation_rule_convergence_is_too_early() {
    let both = without(|removed| (removed.order, removed.generation_rule) = (true, true));
    fails("neither order nor generation rule", Workload::SameObject, NONE, both, MADE, 14);
}

/// Each of the two alone suffices.
#[test]
fn without_the_order_the_generation_rule_suffices() {
    let limits = Limits { crashes: 1, unknown_commits: 1, hand_deletions: 1, ..DEPOSED };
    for workload in [Workload::SameObject, Workload::Reference] {
        let found = run("no order", workload, limits, without(|removed| removed.order = true), None);
        assert!(found.holds(), "{:?}", found.failed());
    }
}

/// Each of the two alone suffices.
#[test]
fn without_the_generation_rule_the_order_suffices() {
    let limits = Limits { crashes: 1, unknown_commits: 1, hand_deletions: 1, ..DEPOSED };
    for workload in [Workload::SameObject, Workload::Reference] {
        let found =
            run("no generation rule", workload, limits, without(|removed| removed.generation_rule = true), None);
        assert!(found.holds(), "{:?}", found.failed());
    }
}

#[test]
fn an_epoch_checked_in_another_statement_lets_a_deposed_master_write() {
    let without = without(|removed| removed.epoch_in_transaction = true);
    fails("epoch in a statement of its own", Workload::SameObject, DEPOSED, without, DEPOSED_WRITE, 23);
}

#[test]
fn a_node_deleted_by_path_alone_may_be_another_alterations() {
    let without = without(|removed| removed.node_by_child = true);
    fails("node deleted by path", Workload::SameObject, BY_HAND, without, NODE_LOST, 12);
}

#[test]
fn an_answer_before_the_abort_does_not_stay_true() {
    let limits = Limits { unknown_commits: 1, ..NONE };
    let without = without(|removed| removed.abort_before_answer = true);
    fails("no abort before the answer", Workload::SameObject, limits, without, ANSWER, 8);
}

/// The naive protocol: the master looks when it sees the node, and deletes it when engines equal what it read.
#[test]
fn the_naive_protocol_never_converges() {
    let naive = without(|removed| (removed.outcome, removed.level) = (true, true));
    fails("naive", Workload::SameObject, NONE, naive, REST, 18);
}

#[test]
fn the_naive_protocol_loses_an_update() {
    let naive =
        without(|removed| (removed.outcome, removed.level, removed.base, removed.reread) = (true, true, true, true));
    fails("naive", Workload::SameObject, NONE, naive, LOST, 21);
}

#[test]
fn the_naive_protocol_has_two_alterations_of_an_object_converging() {
    let naive = without(|removed| (removed.outcome, removed.level, removed.superseding) = (true, true, true));
    fails("naive", Workload::SameObject, NONE, naive, ONE_CONVERGES, 21);
}
