//! The alteration as it is: every property holds in every state within the limits.

#![allow(clippy::unwrap_used, clippy::panic)]

use protocol_model::alteration::{Alteration, Limits, Without, Workload};
use protocol_model::search::search;

fn holds(title: &str, workload: Workload, limits: Limits) {
    let model = Alteration { workload, limits, without: Without::default(), only: None };
    let found = search(title, &limits, &model);
    assert!(found.holds(), "{title}: {:?}", found.failed());
}

/// The larger limits in the long tier, the smaller ones else: never nothing.
fn tier(smaller: Limits, larger: Limits) -> Limits {
    if std::env::var("EH_TEST_TIER").is_ok_and(|tier| tier == "long") { larger } else { smaller }
}

/// One of each kind of fault.
const ONE: Limits =
    Limits { crashes: 1, agent_expiries: 1, unknown_commits: 1, depositions: 1, hand_deletions: 1, refusals: 1 };

#[test]
fn two_alterations_of_one_object_lose_no_update() {
    holds("same object", Workload::SameObject, Limits { refusals: 0, ..ONE });
}

#[test]
fn the_dependency_of_a_statement_stays_true() {
    holds("reference", Workload::Reference, Limits { refusals: 0, ..ONE });
}

#[test]
fn alterations_of_two_objects_do_not_wait_for_each_other() {
    holds("two objects", Workload::TwoObjects, Limits { refusals: 0, ..ONE });
}

#[test]
fn a_repeated_request_takes_effect_once() {
    holds("repeated", Workload::Repeated, Limits { refusals: 0, ..ONE });
}

#[test]
fn a_refused_create_stalls_and_heals() {
    let limits = Limits { crashes: 0, agent_expiries: 0, unknown_commits: 0, ..ONE };
    holds("refused creates, same object", Workload::SameObject, limits);
    holds("refused creates, reference", Workload::Reference, limits);
}

/// Two masters deposed with one of each other fault; without refused creates and unknown COMMITs in shorter tiers.
fn two_deposed(workload: Workload) {
    let larger = Limits { depositions: 2, ..ONE };
    let smaller = Limits { refusals: 0, unknown_commits: 0, ..larger };
    holds(&format!("{workload:?}, two masters deposed"), workload, tier(smaller, larger));
}

#[test]
#[ignore = "long"]
fn two_alterations_of_one_object_survive_two_deposed_masters() {
    two_deposed(Workload::SameObject);
}

#[test]
#[ignore = "long"]
fn the_dependency_of_a_statement_survives_two_deposed_masters() {
    two_deposed(Workload::Reference);
}

#[test]
#[ignore = "long"]
fn two_objects_survive_two_deposed_masters() {
    two_deposed(Workload::TwoObjects);
}

#[test]
#[ignore = "long"]
fn a_repeated_request_survives_two_deposed_masters() {
    two_deposed(Workload::Repeated);
}
