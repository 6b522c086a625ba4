//! Properties of plans over random clusters: sequences of statements, failures and dying masters.
//!
//! Each case prints its moves when it fails; proptest prints the seed and shrinks it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use model::slot::Replacement;
use std::collections::BTreeSet;
use std::time::Duration;

use cluster::judge::{Judge, judge_surge};
use cluster::ledger_judge::judge_counted;
use cluster::moves::{Move, alter, apply, limited_moves, moves, pick, prepared, slots};
use cluster::{Cluster, Step};
use model::engine_name::EngineName;
use model::engine_state::Phase;
use planner::{Action, EngineLoad, IncrementalPlanner, Plan, Simulation, probes};
use proptest::prelude::*;

/// Changes some loads and the order of the lists.
fn perturb(cluster: &mut Cluster, seed: u16) {
    let Simulation { desired, observed, .. } = &mut cluster.simulation;
    let load = EngineLoad { sessions: u32::from(seed % 3), running: 0 };
    if let Some(instance) = pick(&observed.instances, usize::from(seed)) {
        observed.loads.insert(instance.name.clone(), load);
    }
    if seed.is_multiple_of(7) {
        observed.loads.pop_first();
    }
    if seed.is_multiple_of(5) {
        observed.instances.reverse();
        observed.permits.reverse();
        desired.snapshot.engines.reverse();
        desired.snapshot.slots.reverse();
    }
}

/// Removes the instances that are being deleted externally.
fn finish_terminating(cluster: &mut Cluster) {
    cluster.simulation.observed.instances.retain(|instance| instance.phase != Phase::Terminating);
    let uids: Vec<String> = cluster.simulation.observed.instances.iter().map(|instance| instance.uid.clone()).collect();
    // Their sessions end too.
    cluster
        .simulation
        .observed
        .registrations
        .retain(|registration| registration.uid.as_ref().is_some_and(|uid| uids.contains(uid)));
}

fn assert_as_desired(cluster: &mut Cluster) {
    let desired_by: BTreeSet<EngineName> =
        cluster.simulation.desired.snapshot.slots.iter().map(|slot| slot.engine()).collect();
    let observed = &cluster.simulation.observed;
    let running: BTreeSet<EngineName> = observed.instances.iter().map(|instance| instance.name.clone()).collect();
    assert_eq!(running, desired_by, "engines equal slots");
    assert_eq!(observed.instances.len(), desired_by.len());
    let permits: BTreeSet<EngineName> = observed.permits.iter().map(|permit| permit.engine.clone()).collect();
    assert_eq!(permits, desired_by, "a permit for each engine and no other");
    let registrations: BTreeSet<EngineName> =
        observed.registrations.iter().map(|registration| registration.engine.clone()).collect();
    assert_eq!(registrations, desired_by, "each is registered");
    assert!(observed.drains.is_empty(), "no drain order is left");
    assert!(cluster.simulation.desired.snapshot.alterations.is_empty(), "every alteration has converged");
    for instance in &observed.instances {
        let labels = model::engine_labels::EngineLabels::decode(&instance.labels).unwrap();
        assert!(labels.agrees_with(&cluster.simulation.desired.configuration(&labels.slot).unwrap()));
    }
    let plan = cluster.simulation.plan();
    assert!(plan.chains.is_empty() && plan.waits.is_empty(), "a steady state plans nothing: {plan:#?}");
}

/// As desired, except for slots that wait for a reservation and those that wait for these.
fn assert_as_limited(cluster: &mut Cluster) {
    let plan = cluster.simulation.plan();
    assert!(plan.chains.is_empty(), "{plan:#?}");
    let is_queued = plan.waits.iter().any(|wait| wait.is_queued);
    if !is_queued {
        return assert_as_desired(cluster);
    }
    let Simulation { desired, observed, .. } = &cluster.simulation;
    let waiting: BTreeSet<_> = plan.waits.iter().filter_map(|wait| wait.slot.clone()).collect();
    for slot in desired.snapshot.slots.iter().filter(|slot| !waiting.contains(&slot.key)) {
        assert!(observed.instances.iter().any(|instance| instance.name == slot.engine()), "{}", slot.key);
    }
    for instance in &observed.instances {
        let slot = desired.snapshot.engines.iter().find(|row| row.name == instance.name).map(|row| &row.slot);
        assert!(desired.snapshot.slots.iter().any(|each| Some(&each.key) == slot), "{}", instance.name);
    }
    assert!(desired.snapshot.alterations.is_empty(), "a queued engine delays no alteration");
}

/// The number of clusters for each property without limits; `PROPTEST_CASES` overrides both numbers.
fn cases() -> u32 {
    std::env::var_os("PROPTEST_CASES").map_or(400, |_| ProptestConfig::default().cases)
}

/// The number of clusters for each property within limits. Their plans take several times as long, and take the same steps
/// for engines.
fn limited_cases() -> u32 {
    let is_long = std::env::var("EH_TEST_TIER").is_ok_and(|tier| tier == "long");
    std::env::var_os("PROPTEST_CASES").map_or(if is_long { 2_000 } else { 120 }, |_| ProptestConfig::default().cases)
}

/// A cluster after these moves, and its judge.
fn moved(moves: &[Move]) -> (Cluster, Judge) {
    let mut cluster = prepared();
    let mut judge = Judge::default();
    for event in moves {
        apply(&mut cluster, &mut judge, event);
    }
    (cluster, judge)
}

/// It converges, breaks no rule on the way, and its ledger counts every engine after three rounds.
fn converge(moves: &[Move]) -> Cluster {
    let (mut cluster, mut judge) = moved(moves);
    let (mut counted, mut of_counted) = (cluster.clone(), judge.clone());
    for _ in 0..3 {
        apply(&mut counted, &mut of_counted, &Move::Tick);
    }
    judge_counted(&counted);
    finish_terminating(&mut cluster);
    cluster.simulation.observed.unready.clear();
    cluster.settle(|cluster, step| {
        if let Step::Plan(plan) = step {
            judge.look(cluster);
            judge.judge(cluster, plan);
        }
    });
    cluster
}

/// The rows that EXPLAIN prints, and those of the decisions that follow.
fn explained_and_decided(moves: &[Move]) -> (Vec<planner::Row>, Vec<planner::Row>) {
    let (mut cluster, _) = moved(moves);
    finish_terminating(&mut cluster);
    cluster.simulation.observed.unready.clear();
    cluster.polls_agents = true;
    let explained = cluster.explain_now();
    let mut decided = Vec::new();
    cluster.settle(|cluster, step| {
        if let Step::Plan(plan) = step {
            for decision in cluster.shown(plan) {
                decided.push(decision.row(decided.len() as u32 + 1));
            }
        }
    });
    (explained, decided)
}

/// The order of what was read changes no plan, unless two instances have one name.
fn assert_independent_of_order(moves: &[Move]) {
    let (mut cluster, _) = moved(moves);
    let plan = cluster.simulation.plan();
    let names: BTreeSet<&EngineName> =
        cluster.simulation.observed.instances.iter().map(|instance| &instance.name).collect();
    if names.len() == cluster.simulation.observed.instances.len() {
        let mut reversed = cluster.clone();
        let Simulation { desired, observed, .. } = &mut reversed.simulation;
        observed.instances.reverse();
        observed.permits.reverse();
        observed.registrations.reverse();
        observed.drains.reverse();
        desired.snapshot.engines.reverse();
        desired.snapshot.slots.reverse();
        assert_eq!(plan, reversed.simulation.plan());
    }
}

/// After each move the incremental planner plans what the full one plans. Of four of its plans it keeps about three.
fn assert_incremental(moves: &[Move], seeds: &[u16]) {
    let mut cluster = prepared();
    cluster.settle(|_, _| {});
    let mut judge = Judge::default();
    let mut planner = IncrementalPlanner::default();
    for (event, seed) in moves.iter().zip(seeds) {
        apply(&mut cluster, &mut judge, event);
        perturb(&mut cluster, *seed);
        let Simulation { desired, observed, .. } = &cluster.simulation;
        let mut delta = planner.compare(desired.clone(), observed.clone());
        assert_eq!(delta.probes(), probes(desired, observed));
        let full = cluster.simulation.plan();
        let Simulation { desired, observed, .. } = &cluster.simulation;
        if observed != delta.observed() {
            // A probe was answered.
            delta = planner.compare(desired.clone(), observed.clone());
        }
        assert_eq!(planner.plan(&mut delta), full);
        if seed % 4 > 0 {
            planner.keep(delta);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: limited_cases(), max_shrink_iters: 20_000, ..ProptestConfig::default()
    })]

    #[test]
    fn any_cluster_with_limits_converges_and_counts_every_engine(moves in limited_moves()) {
        assert_as_limited(&mut converge(&moves));
    }

    #[test]
    fn explain_prints_the_decisions_that_follow_within_limits(moves in limited_moves()) {
        let (mut explained, decided) = explained_and_decided(&moves);
        explained.retain(|row| row.decision != "wait");
        prop_assert_eq!(explained, decided);
    }

    #[test]
    fn a_plan_within_limits_does_not_depend_on_the_order_of_the_observation(moves in limited_moves()) {
        assert_independent_of_order(&moves);
    }

    #[test]
    fn an_incremental_plan_within_limits_equals_the_full_plan(
        moves in limited_moves(), seeds in proptest::collection::vec(any::<u16>(), 60),
    ) {
        assert_incremental(&moves, &seeds);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn any_cluster_converges_to_its_slots_without_breaking_a_rule(moves in moves()) {
        assert_as_desired(&mut converge(&moves));
    }

    #[test]
    fn explain_prints_the_decisions_that_follow(moves in moves()) {
        let (explained, decided) = explained_and_decided(&moves);
        prop_assert_eq!(explained, decided);
    }

    #[test]
    fn a_plan_does_not_depend_on_the_order_of_the_observation(moves in moves()) {
        assert_independent_of_order(&moves);
    }

    #[test]
    fn an_incremental_plan_equals_the_full_plan(moves in moves(), seeds in proptest::collection::vec(any::<u16>(), 40)) {
        assert_incremental(&moves, &seeds);
    }

    #[test]
    fn failures_of_one_tenant_change_no_decision_about_another(moves in moves()) {
        let (mut cluster, _) = moved(&moves);
        let about = |plan: &Plan, tenant: &str| -> Vec<planner::Decision> {
            let is_about = |decision: &&planner::Decision| decision.slot.as_ref().is_some_and(|slot| slot.tenant.as_str() == tenant);
            plan.decisions().filter(is_about).cloned().collect()
        };
        let mut failing = cluster.clone();
        for slot in cluster.simulation.desired.snapshot.slots.iter().filter(|slot| slot.key.tenant.as_str() == "t_2") {
            let failure = planner::CreateFailure { reason: "no quota".to_owned(), failures: 9, retry_in: planner::back_off(8), is_retryable: true };
            failing.simulation.observed.create_failures.insert(slot.engine(), failure);
        }
        prop_assert_eq!(about(&cluster.simulation.plan(), "t_1"), about(&failing.simulation.plan(), "t_1"));
    }
}

/// A cluster with one serving engine that was superseded, and its judge.
fn superseded() -> (Cluster, Judge, EngineName) {
    let mut cluster = prepared();
    let mut judge = Judge::default();
    cluster.settle(|cluster, _| judge.look(cluster));
    let key = slots(&cluster)[0].clone();
    let served = cluster.simulation.desired.snapshot.slots[0].engine();
    cluster.restart(&key, Replacement::StandIn);
    (cluster, judge, served)
}

fn plan_of(engine: &EngineName, action: Action) -> Plan {
    let decision = planner::Decision { engine: Some(engine.clone()), slot: None, reason: String::new(), action };
    let chain = planner::Chain { stage: planner::Stage::Drain, decisions: vec![decision] };
    Plan { chains: vec![chain], ..Plan::default() }
}

#[test]
#[should_panic(expected = "before its replacement is registered")]
fn the_judge_sees_a_stand_in_drained_too_early() {
    let (cluster, judge, served) = superseded();
    let uid = cluster.uid(&served);
    let drain = Action::Drain { uid, grace: Duration::ZERO, withdraw: true, successor: None, namespace: None };
    judge.judge(&cluster, &plan_of(&served, drain));
}

#[test]
#[should_panic(expected = "is drained twice")]
fn the_judge_sees_two_drains_of_one_name() {
    let (mut cluster, judge, served) = superseded();
    let uid = cluster.uid(&served);
    cluster.stop(&slots(&cluster)[0].clone());
    let drain = |uid: &str| Action::Drain {
        uid: uid.to_owned(),
        grace: Duration::ZERO,
        withdraw: true,
        successor: None,
        namespace: None,
    };
    let mut plan = plan_of(&served, drain(&uid));
    plan.chains.extend(plan_of(&served, drain("another")).chains);
    judge.judge(&cluster, &plan);
}

#[test]
#[should_panic(expected = "is deleted without its drain order")]
fn the_judge_sees_a_running_engine_deleted_without_its_drain_order() {
    let (cluster, judge, served) = superseded();
    let uid = cluster.uid(&served);
    judge.judge(&cluster, &plan_of(&served, Action::DeleteEngine { uid, grace: Duration::ZERO }));
}

#[test]
#[should_panic(expected = "is created a second time")]
fn the_judge_sees_a_name_created_twice() {
    let (mut cluster, judge, served) = superseded();
    let plan = cluster.simulation.plan();
    let create = plan.decisions().find(|decision| matches!(decision.action, Action::CreateEngine(_))).unwrap();
    judge.judge(&cluster, &plan_of(&served, create.action.clone()));
}

#[test]
#[should_panic(expected = "is created without a reservation")]
fn the_judge_sees_an_engine_created_without_a_reservation() {
    let mut cluster = prepared();
    cluster.start("t_1/rp_1/uc_1");
    let mut plan = cluster.simulation.plan();
    plan.chains.iter_mut().for_each(|chain| chain.decisions.retain(|decision| decision.verb() != "reserve"));
    plan.chains.retain(|chain| !chain.decisions.is_empty());
    Judge::default().judge(&cluster, &plan);
}

#[test]
#[should_panic(expected = "is refused")]
fn the_judge_sees_a_grant_above_a_limit() {
    let mut cluster = prepared();
    cluster.start("t_1/rp_1/uc_1");
    let plan = cluster.simulation.plan();
    let change = cluster.change_to(Cluster::pool("rp_1", &[("capacity", "0")].into()));
    cluster.commit(&change).unwrap();
    Judge::default().judge(&cluster, &plan);
}

#[test]
#[should_panic(expected = "is not charged")]
fn the_judge_sees_an_engine_that_is_not_charged() {
    let mut cluster = prepared();
    let engine = cluster.start("t_1/rp_1/uc_1");
    cluster.settle(|_, _| {});
    cluster.lose_reservation(engine.as_str());
    judge_counted(&cluster);
}

#[test]
#[should_panic(expected = "is used without an instance")]
fn the_judge_sees_a_charge_without_an_instance() {
    let mut cluster = prepared();
    cluster.start("t_1/rp_1/uc_1");
    cluster.settle(|_, _| {});
    cluster.simulation.observed.instances.clear();
    judge_counted(&cluster);
}

#[test]
#[should_panic(expected = "are replaced at once")]
fn the_judge_sees_more_replacements_than_surge_allows() {
    let mut cluster = prepared();
    let mut judge = Judge::default();
    cluster.settle(|_, _| {});
    let change = cluster.change_to(Cluster::unit("uc_1", &[("min", "3")].into()));
    alter(&mut cluster, &change);
    cluster.settle(|cluster, _| judge.look(cluster));
    let before = cluster.clone();
    let change = cluster.change_to(Cluster::unit("uc_1", &[("memory", "2G")].into()));
    alter(&mut cluster, &change);
    cluster.simulation.desired.limits.surge = 3;
    let plan = cluster.simulation.plan();
    cluster.simulation.apply(&plan);
    cluster.simulation.desired.limits.surge = 1;
    judge_surge(&judge, &cluster, &before);
}
