//! The ledger as it is: every property holds in every state within the limits.

#![allow(clippy::unwrap_used, clippy::panic)]

use protocol_model::ledger::{Isolation, Ledger, Limits, Without, Workload};
use protocol_model::search::search;

/// One of each kind of fault.
const ONE: Limits = Limits { broken: 1, lost_replies: 1, depositions: 1 };
/// Two of each kind. Only the first two masters have jobs.
const TWO: Limits = Limits { broken: 2, lost_replies: 2, depositions: 1 };

fn hold(workload: Workload, limits: Limits) {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let title = format!("ledger, {workload:?}, {isolation:?}");
        let model = Ledger::new(workload, isolation, limits, Without::default(), None);
        let found = search(&title, &limits, &model);
        assert!(found.holds(), "{title}: {:?} {:?}", found.failed(), found.unreached);
    }
}

#[test]
fn the_last_unit_is_granted_once() {
    hold(Workload::LastOfPool, TWO);
    hold(Workload::LastOfPoolWithRelease, TWO);
    hold(Workload::Exclusive, TWO);
}

#[test]
fn a_repeated_request_has_one_reservation() {
    hold(Workload::SameKey, TWO);
}

#[test]
fn a_reservation_ends_once() {
    hold(Workload::TwoEnds, TWO);
}

#[test]
fn a_deposed_master_changes_no_reservation() {
    hold(Workload::Lineage, TWO);
    hold(Workload::EndAndAdopt, TWO);
}

#[test]
fn an_alter_of_a_guarantee_keeps_what_is_held() {
    hold(Workload::Guarantee, TWO);
    hold(Workload::GuaranteeWithRelease, TWO);
}

#[test]
fn a_new_user_has_the_limit_of_the_catalog() {
    hold(Workload::FirstOfUser, TWO);
    hold(Workload::TwoOfUser, TWO);
}

#[test]
fn the_audit_finds_nothing() {
    hold(Workload::Audit, TWO);
}

#[test]
fn a_transferred_charge_is_granted_to_no_other() {
    hold(Workload::Transfer, TWO);
}

#[test]
fn four_transactions_survive_two_faults_of_each_kind() {
    hold(Workload::Mixed, TWO);
    hold(Workload::MixedOfUser, TWO);
}

#[test]
fn six_transactions_survive_a_deposed_master() {
    hold(Workload::Everything, Limits { broken: 0, lost_replies: 0, ..ONE });
}

/// Searches that only `tests/run --long` makes.
mod long_only {
    use super::*;

    #[test]
    #[ignore = "long"]
    fn four_transactions_survive_three_faults_of_each_kind() {
        let three = Limits { broken: 3, lost_replies: 3, depositions: 1 };
        hold(Workload::Mixed, three);
        hold(Workload::MixedOfUser, three);
    }

    #[test]
    #[ignore = "long"]
    fn six_transactions_survive_two_faults_of_each_kind() {
        hold(Workload::Everything, ONE);
        hold(Workload::Everything, TWO);
    }
}
