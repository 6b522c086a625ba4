//! The contract of the store: named cases that every database must pass, each in a database of its own.
//!
//! A case that is in no table below doesn't compile into anything, so the count is a constant: a backend that ran
//! fewer cases than another fails.

#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

mod alterations;
pub mod bench;
mod concurrency;
pub mod engines;
mod examining;
mod masters;
mod pools;
mod requests;
mod schema;

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

pub use bench::Bench;
use metadata::StoreSettings;

/// How many cases there are.
pub const COUNT: usize = 74;
/// The longest time that one case may take.
const CASE_DEADLINE: Duration = Duration::from_mins(1);

type Run = fn(Bench) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// A case with its name.
pub struct Case {
    /// A sentence.
    pub name: &'static str,
    run: Run,
}

macro_rules! cases {
    ($($module:ident :: { $($case:ident),* $(,)? })*) => {
        /// Every case.
        pub const CASES: &[Case] = &[$($(
            Case { name: stringify!($case), run: |bench| Box::pin($module::$case(bench)) },
        )*)*];
    };
}

cases! {
    schema::{
        migrating_again_changes_nothing,
        two_migrations_at_once_both_succeed,
        a_database_of_a_newer_program_is_refused,
        an_empty_database_must_be_migrated_first,
        old_rows_are_deleted_and_young_ones_stay,
        long_and_foreign_texts_come_back_as_they_were,
        names_are_compared_byte_by_byte,
        a_column_that_came_later_is_added_to_rows_that_are_there,
        one_run_deletes_all_old_rows_however_many_there_are,
        secret_properties_of_older_rows_are_recorded_when_the_store_is_opened,
        a_store_that_is_open_writes_nothing_once_a_newer_program_has_migrated,
    }
    examining::{
        a_database_is_examined_with_its_clock_and_its_time_outs,
        a_database_of_any_version_is_examined_and_left_as_it_is,
        what_an_acknowledged_commit_hangs_on_is_told_as_the_database_has_it,
    }
    alterations::{
        a_tenant_gets_the_slots_that_minimum_asks_for,
        a_repeat_answers_what_the_first_one_answered,
        an_id_stands_for_one_statement,
        an_alteration_supersedes_its_objects_open_one_and_waits_for_no_other,
        a_stale_base_is_refused,
        an_invalid_statement_changes_nothing,
        a_late_commit_loses_to_abort,
        a_late_abort_loses_to_commit,
        an_abort_of_an_unreadable_node_is_recorded,
        an_alteration_after_its_deadline_changes_nothing,
        what_changes_nothing_is_recorded_and_repeated,
        a_new_configuration_renews_the_slots_and_keeps_stand_ins,
        what_changes_no_configuration_renews_nothing,
        a_link_that_goes_condemns_all_engines_of_its_slots,
        an_incarnation_is_never_used_twice,
        secrets_are_masked_for_proxies,
        an_abort_that_is_refused_for_its_content_is_made_without_it,
        an_abort_stores_a_null_character_as_a_replacement,
    }
    requests::{
        start_takes_the_lowest_free_ordinal,
        start_is_refused_above_max,
        start_says_which_link_is_missing,
        stop_is_refused_below_min,
        stop_condemns_stand_ins_too,
        stop_of_an_old_name_names_the_successor,
        restart_of_an_old_name_answers_with_the_one_in_progress,
        a_name_whose_slot_is_gone_is_no_longer_wanted,
        an_unknown_engine_is_refused,
        restart_keeps_a_stand_in_and_force_condemns_it,
        users_of_other_tenants_learn_nothing,
        a_request_after_its_deadline_changes_nothing,
        a_repeat_after_the_slot_is_gone_answers_what_the_first_one_did,
        no_statement_brings_all_engines_above_their_limit,
    }
    masters::{
        raising_again_by_the_same_holder_is_a_success,
        every_write_of_a_deposed_master_is_refused,
        a_report_that_comes_late_within_its_epoch_is_refused,
        a_complete_report_keeps_the_rows_that_came_in_parts_before_it_and_no_part_comes_late,
        a_complete_report_may_keep_more_rows_than_a_report_may_write,
        many_slots_are_renewed_at_once_and_those_that_moved_are_not,
        an_alteration_is_finished_only_by_a_plan_that_saw_it,
        a_deadline_is_counted_by_the_database,
        a_newer_alteration_supersedes_a_stalled_one,
        a_new_incarnation_needs_the_one_observed,
    }
    engines::{
        a_uid_is_recorded_once_and_never_changes,
        a_report_replaces_what_was_seen,
        an_ended_engine_stays_only_while_it_is_present,
        a_namespace_is_remembered_until_a_day_after_its_last_pod,
        a_null_character_in_one_engines_words_holds_up_no_report,
        a_batch_records_each_engine_as_a_report_of_its_own_would,
        present_engines_are_found_by_index_among_those_that_ended,
    }
    pools::{
        an_emptied_pool_keeps_what_runs_and_starts_nothing,
        where_a_pool_must_name_its_nodes_one_that_names_none_starts_nothing,
        a_node_or_a_queue_of_another_pool_is_refused_and_the_owner_is_named,
        an_overcommit_renews_the_slots_and_nodes_renew_none,
        nodes_are_what_the_last_report_that_names_them_says,
        a_database_of_the_version_before_keeps_its_pools,
        a_tenant_without_a_pool_starts_nothing,
    }
    concurrency::{
        commit_and_abort_race_for_one_row,
        two_commits_from_one_base_lose_no_update,
        concurrent_requests_take_effect_once_and_never_pass_max,
        two_masters_raise_the_epoch_and_one_wins,
    }
}

/// Records a case that passed: cargo names only the test that runs all of them, and `tests/run` checks that each test
/// that the guarantees name has passed.
pub fn record_passed(case: &str) {
    let Some(path) = std::env::var_os("EH_TEST_PASSED") else { return };
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    // One write for each line: several tests append at the same time.
    std::io::Write::write_all(&mut file, format!("{case}\n").as_bytes()).unwrap();
}

/// Runs every case, each in the database that `settings` makes for it.
pub async fn run_all<F>(backend: &str, settings: impl Fn(usize) -> F)
where
    F: Future<Output = StoreSettings>,
{
    let only = std::env::var("EH_TEST_CASE").ok();
    let mut ran = 0;
    for (at, case) in CASES.iter().enumerate() {
        if only.as_ref().is_some_and(|only| only != case.name) {
            continue;
        }
        let begun = Instant::now();
        println!("contract: backend={backend} case={}", case.name);
        let bench = Bench::open(settings(at).await).await;
        tokio::time::timeout(CASE_DEADLINE, (case.run)(bench))
            .await
            .unwrap_or_else(|_| panic!("{} took longer than {CASE_DEADLINE:?}", case.name));
        println!("contract: backend={backend} case={} ms={}", case.name, begun.elapsed().as_millis());
        record_passed(case.name);
        ran += 1;
    }
    if only.is_none() {
        assert_eq!(ran, COUNT, "the number of cases is a constant, so that no backend runs fewer");
    }
    println!("contract: backend={backend} cases={ran}");
}
