//! The contract of the store: named cases that every database must pass, each in a database of its own.
//!
//! A case that is in no table below is never run, so the count is a constant: a backend that ran
//! fewer cases than another fails.

#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

mod alterations;
mod auditing;
mod batches;
pub mod bench;
mod concurrency;
mod demand;
mod diagnosing;
pub mod engines;
mod history;
pub mod ledgers;
mod limits;
mod masters;
mod owners;
mod pools;
mod quotas;
mod random_ledgers;
mod registrations;
mod requests;
mod scaling;
mod schema;
mod sealing;
mod snapshots;
mod starting;

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

pub use bench::Bench;
use metadata::StoreSettings;
use tokio::task::{JoinError, JoinSet};

/// The number of cases.
pub const COUNT: usize = 175;
/// The number of cases that run concurrently.
const AT_ONCE: usize = 4;
/// The deadline of a case.
const CASE_DEADLINE: Duration = Duration::from_mins(1);

type Run = fn(Bench) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// A case with its name.
pub struct Case {
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
        old_rows_are_deleted_and_recent_ones_stay,
        long_and_foreign_texts_are_stored_unchanged,
        names_are_compared_byte_by_byte,
        a_new_column_is_added_to_existing_rows,
        one_run_deletes_all_old_rows,
        opening_a_store_records_secret_properties_of_old_rows,
        an_open_store_stops_writing_after_a_newer_migration,
    }
    diagnosing::{
        a_diagnosis_shows_clock_and_timeouts,
        a_diagnosis_changes_no_database_of_any_version,
        a_diagnosis_shows_the_effective_durability_settings,
    }
    alterations::{
        a_tenant_is_given_the_minimum_of_slots,
        a_repeat_returns_the_first_answer,
        an_id_is_valid_for_one_statement,
        an_alteration_supersedes_only_the_open_one_of_its_object,
        a_stale_base_is_refused,
        an_invalid_statement_changes_nothing,
        a_late_commit_loses_to_abort,
        a_late_abort_loses_to_commit,
        an_abort_of_an_unreadable_node_is_recorded,
        an_alteration_after_its_deadline_changes_nothing,
        a_statement_that_changes_nothing_is_recorded,
        a_new_configuration_renews_the_slots_and_keeps_stand_ins,
        an_alteration_in_place_marks_the_slots_that_it_renews,
        an_unchanged_configuration_renews_no_slot,
        an_alteration_leaves_slots_on_demand_to_the_master,
        a_removed_link_condemns_all_engines_of_its_slots,
        an_incarnation_is_never_used_twice,
        secrets_are_masked_for_proxies,
        an_abort_refused_for_its_content_is_repeated_without_it,
        an_abort_stores_a_null_character_as_a_replacement,
    }
    requests::{
        start_takes_the_lowest_free_ordinal,
        start_is_refused_above_max,
        start_names_the_missing_link,
        stop_is_refused_below_min,
        stop_condemns_stand_ins_too,
        stop_of_an_old_name_names_the_successor,
        restart_of_an_old_name_returns_the_successor,
        an_engine_without_a_slot_is_no_longer_desired,
        an_unknown_engine_is_refused,
        restart_keeps_a_stand_in_and_force_condemns_it,
        restart_in_place_condemns_nothing,
        users_of_other_tenants_learn_nothing,
        a_request_after_its_deadline_changes_nothing,
        a_repeat_after_the_slot_is_gone_returns_the_first_answer,
        no_statement_exceeds_the_limit_of_all_engines,
    }
    auditing::{
        each_statement_that_takes_effect_has_one_row,
        a_row_names_the_caller_and_its_source,
        a_repeated_request_is_audited_once,
        statements_without_an_effect_are_audited_as_unchanged,
        a_refused_transaction_leaves_no_row,
        an_abort_is_audited_once_and_never_with_an_effect,
        a_refusal_is_recorded_unless_its_statement_has_a_row,
        each_statement_that_is_refused_under_a_used_id_has_a_row,
        the_audit_is_read_by_user_tenant_and_age,
        old_rows_of_the_audit_are_deleted,
        the_audit_is_never_updated,
    }
    masters::{
        raising_again_by_the_same_holder_is_a_success,
        a_new_master_has_the_scopes_that_an_earlier_agent_left_out,
        every_write_of_a_deposed_master_is_refused,
        a_late_report_within_its_epoch_is_refused,
        a_complete_report_keeps_its_parts_and_refuses_late_ones,
        a_complete_report_may_keep_more_rows_than_a_report_may_write,
        stale_renewals_fail_without_affecting_the_batch,
        an_older_plan_finishes_no_alteration,
        a_deadline_is_counted_by_the_database,
        a_newer_alteration_supersedes_a_stalled_one,
        a_new_incarnation_needs_the_one_observed,
    }
    engines::{
        a_uid_is_recorded_once_and_never_changes,
        a_report_replaces_observed_rows,
        an_ended_engine_stays_only_while_it_is_current,
        a_namespace_is_kept_for_a_day_after_its_last_pod,
        a_null_character_of_an_engine_blocks_no_report,
        a_batch_records_each_engine_like_a_single_report,
        current_engines_are_found_by_index_among_ended_ones,
    }
    history::{
        an_engine_that_ended_is_history_with_its_times_and_word,
        the_word_of_an_end_is_that_of_its_order,
        a_busy_engine_ends_as_replaced_although_its_successor_was_idle,
        a_start_that_was_given_up_keeps_its_reason,
        the_history_is_read_newest_first_by_its_scope,
    }
    pools::{
        an_emptied_pool_keeps_its_engines_and_starts_none,
        a_pool_without_required_nodes_starts_no_engine,
        a_node_or_queue_of_another_pool_is_refused_with_its_owner,
        an_overcommit_renews_the_slots_and_nodes_renew_none,
        nodes_are_those_of_the_last_report_with_nodes,
        a_database_of_the_previous_version_keeps_its_pools,
        a_tenant_without_a_pool_starts_nothing,
    }
    quotas::{
        a_quota_has_the_generation_of_its_last_change,
        a_stale_change_of_a_quota_is_refused,
        of_two_quotas_of_one_subject_one_is_committed,
        a_quota_changes_no_slot_and_reaches_no_proxy,
        the_subject_of_a_quota_is_not_dropped,
        a_database_of_schema_7_receives_the_table_of_quotas,
    }
    batches::{
        concurrent_calls_for_a_pool_share_transactions,
        each_call_of_a_batch_has_its_own_result_and_row_in_the_audit,
        a_batch_that_loses_its_connection_is_run_call_by_call,
        a_pool_whose_row_is_locked_delays_no_other_pool,
    }
    random_ledgers::{
        the_store_and_the_model_agree_on_batches_of_holders,
        the_store_and_the_model_agree_on_random_operations,
    }
    ledgers::{
        concurrent_requests_never_hold_more_than_the_pool_has,
        concurrent_repeats_of_a_request_reserve_once,
        one_key_for_two_requests_is_refused,
        a_deposed_master_changes_no_reservation,
        a_batch_has_one_result_for_each_change,
        overdue_external_reservations_end_and_return_their_charge,
        overdue_reservations_end_pool_by_pool,
        an_audit_corrects_every_counter,
        a_counter_below_zero_is_refused_by_the_database,
        a_holder_reserves_only_while_the_pool_is_counted_and_has_no_queue,
        ended_reservations_and_closed_scopes_are_deleted,
    }
    limits::{
        limits_follow_every_alteration_while_reservations_change,
        a_limit_of_all_other_users_changes_every_row_at_once,
        a_measured_capacity_opens_its_pool,
        a_capacity_that_is_no_longer_measured_is_forgotten,
        a_database_of_schema_9_receives_its_scopes,
    }
    registrations::{
        a_registered_capacity_opens_its_pool_and_is_replaced_by_its_instance,
        only_one_instance_is_registered_until_its_lease_ends,
        a_late_repeat_replaces_no_newer_numbers_and_opens_no_pool,
        a_lease_is_renewed_by_its_instance_until_it_ends,
        an_end_of_a_registration_keeps_reservations_unless_forced,
        a_registration_belongs_to_one_pool_and_one_kind_of_capacity,
        concurrent_registrations_leave_one_instance_and_no_over_grant,
        a_call_waits_for_no_lock_beyond_its_deadline,
    }
    starting::{
        start_charges_its_slot_to_a_user_and_a_creator,
        start_of_an_engine_that_can_never_fit_is_refused,
        start_without_waiting_needs_nodes_for_all_pods,
        the_newest_reduction_of_each_scope_is_known,
        start_without_waiting_reserves_or_is_refused,
        a_refused_start_adds_no_user,
    }
    demand::{
        a_report_replaces_the_demand_of_its_proxy_only,
        a_late_report_brings_no_demand_back,
        demand_ends_with_its_lease_and_is_renewed_by_any_report,
        a_key_has_all_its_columns_and_any_length,
        a_report_has_a_limited_number_of_keys,
        concurrent_reports_of_a_proxy_leave_the_newest,
        demand_of_a_proxy_that_stopped_is_deleted,
        unmet_demand_is_that_of_the_last_report_with_some,
        a_database_of_schema_11_receives_the_tables_of_demand,
    }
    owners::{
        engines_of_users_are_charged_to_them,
        engines_of_groups_are_charged_to_the_tenant_only,
        a_quota_of_one_user_leaves_others_their_engines,
        only_owners_by_which_the_unit_is_shared_now_are_added,
        one_call_adds_the_engines_of_all_owners,
        an_alter_of_shared_by_deletes_what_follows_demand,
        a_started_engine_is_owned_by_the_user_who_starts_it,
        a_plan_knows_what_waiting_users_hold,
    }
    scaling::{
        an_added_slot_is_charged_in_the_same_transaction,
        a_slot_that_is_short_of_capacity_is_not_added,
        a_repeated_call_adds_nothing_twice,
        a_late_call_adds_nothing_to_a_link_that_is_empty_again,
        only_an_idle_slot_on_demand_above_the_minimum_is_removed,
        a_slot_with_another_incarnation_is_not_removed,
        slots_on_demand_keep_every_limit,
        the_links_of_a_call_have_results_of_their_own,
        a_deposed_master_scales_nothing,
    }
    sealing::{
        a_secret_value_is_sealed_in_its_row_and_opened_for_the_master,
        a_secret_that_does_not_change_replaces_no_engine,
        opening_a_store_seals_values_in_clear_and_replaces_nothing,
        a_row_of_an_earlier_version_keeps_its_sealed_value,
        a_new_generation_seals_again_while_statements_go_on,
        a_value_that_cannot_be_opened_affects_its_unit_only,
        a_statement_cannot_set_a_sealed_value,
        no_row_of_the_database_has_a_secret_value,
        no_file_keeps_what_was_in_clear,
        opening_a_store_to_read_records_and_seals_nothing,
    }
    snapshots::{
        a_snapshot_has_the_ledger_that_a_plan_needs,
        scopes_and_reservations_are_shown,
        a_full_queue_refuses_requests,
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

/// Runs every case, each in the database that `settings` makes for it, [`AT_ONCE`] at a time: a case mostly waits for its
/// server.
pub async fn run_all<F>(backend: &'static str, settings: impl Fn(usize) -> F)
where
    F: Future<Output = StoreSettings>,
{
    let only = std::env::var("EH_TEST_CASE").ok();
    let mut ran = 0;
    let mut running = JoinSet::new();
    for (at, case) in CASES.iter().enumerate() {
        if only.as_ref().is_some_and(|only| only != case.name) {
            continue;
        }
        if running.len() == AT_ONCE {
            ended(running.join_next().await);
        }
        let settings = settings(at).await;
        running.spawn(run(backend, case, settings));
        ran += 1;
    }
    while !running.is_empty() {
        ended(running.join_next().await);
    }
    if only.is_none() {
        assert_eq!(ran, COUNT, "the number of cases is a constant, so that no backend runs fewer");
    }
    println!("contract: backend={backend} cases={ran}");
}

async fn run(backend: &str, case: &Case, settings: StoreSettings) {
    let begun = Instant::now();
    println!("contract: backend={backend} case={}", case.name);
    let bench = Bench::open(settings).await;
    tokio::time::timeout(CASE_DEADLINE, (case.run)(bench))
        .await
        .unwrap_or_else(|_| panic!("{} took longer than {CASE_DEADLINE:?}", case.name));
    println!("contract: backend={backend} case={} ms={}", case.name, begun.elapsed().as_millis());
    record_passed(case.name);
}

/// A case that fails ends the test, with its own message.
fn ended(case: Option<Result<(), JoinError>>) {
    if let Some(Err(error)) = case {
        std::panic::resume_unwind(error.into_panic());
    }
}
