//! Properties of plans over random worlds: every sequence of statements, accidents and dying masters.
//!
//! Each case prints its moves when it fails; proptest prints the seed and shrinks it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::collections::BTreeSet;

use model::engine_name::EngineName;
use model::engine_state::Phase;
use planner::{Action, Memo, Plan, Status, World, questions};
use play::moves::{alter, happen, moves, pick, prepared, slots};
use play::witness::{Witness, judge_surge};
use play::{Play, Step};
use proptest::prelude::*;

/// Some agents tell their load, and the lists come in another order.
fn speak(play: &mut Play, seed: u16) {
    let World { desired, observed, .. } = &mut play.world;
    let load = Status { sessions: u32::from(seed % 3), running: 0 };
    if let Some(pod) = pick(&observed.pods, usize::from(seed)) {
        observed.status.insert(pod.name, load);
    }
    if seed.is_multiple_of(7) {
        observed.status.pop_first();
    }
    if seed.is_multiple_of(5) {
        observed.pods.reverse();
        observed.permits.reverse();
        desired.snapshot.engines.reverse();
        desired.snapshot.slots.reverse();
    }
}

/// Pods that are being deleted by somebody go in the end.
fn finish_terminating(play: &mut Play) {
    play.world.observed.pods.retain(|pod| pod.phase != Phase::Terminating);
    let uids: Vec<String> = play.world.observed.pods.iter().map(|pod| pod.uid.clone()).collect();
    // Their sessions end with them.
    play.world.observed.lives.retain(|live| live.uid.as_ref().is_some_and(|uid| uids.contains(uid)));
}

fn assert_as_desired(play: &mut Play) {
    let wanted: BTreeSet<EngineName> =
        play.world.desired.snapshot.slots.iter().map(model::slot::Slot::engine).collect();
    let observed = &play.world.observed;
    let running: BTreeSet<EngineName> = observed.pods.iter().map(|pod| pod.name.clone()).collect();
    assert_eq!(running, wanted, "engines equal slots");
    assert_eq!(observed.pods.len(), wanted.len());
    let permits: BTreeSet<EngineName> = observed.permits.iter().map(|permit| permit.engine.clone()).collect();
    assert_eq!(permits, wanted, "a permit for each engine and no other");
    let lives: BTreeSet<EngineName> = observed.lives.iter().map(|live| live.engine.clone()).collect();
    assert_eq!(lives, wanted, "each is registered");
    assert!(observed.facts.is_empty(), "no fact is left");
    assert!(play.world.desired.snapshot.alterations.is_empty(), "every alteration has converged");
    for pod in &observed.pods {
        let labels = model::labels::EngineLabels::decode(&pod.labels).unwrap();
        assert!(labels.agrees_with(&play.world.desired.configuration(&labels.slot).unwrap()));
    }
    let plan = play.world.plan();
    assert!(plan.chains.is_empty() && plan.waits.is_empty(), "a steady state plans nothing: {plan:#?}");
}

/// How many worlds each property is tried in; `PROPTEST_CASES` says otherwise.
fn cases() -> u32 {
    std::env::var_os("PROPTEST_CASES").map_or(400, |_| ProptestConfig::default().cases)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn from_any_world_engines_become_equal_to_slots_and_no_rule_is_broken_on_the_way(moves in moves()) {
        let mut play = prepared();
        let mut witness = Witness::default();
        for what in &moves {
            happen(&mut play, &mut witness, what);
        }
        finish_terminating(&mut play);
        play.settle(|play, step| if let Step::Plan(plan) = step { witness.look(play); witness.judge(play, plan) });
        assert_as_desired(&mut play);
    }

    #[test]
    fn explain_says_what_is_then_decided(moves in moves()) {
        let mut play = prepared();
        let mut witness = Witness::default();
        for what in &moves {
            happen(&mut play, &mut witness, what);
        }
        finish_terminating(&mut play);
        let told = play.explain_now();
        let mut decided = Vec::new();
        play.settle(|_, step| if let Step::Plan(plan) = step {
            for decision in plan.decisions() {
                decided.push(decision.row(decided.len() as u32 + 1));
            }
        });
        prop_assert_eq!(told, decided);
    }

    #[test]
    fn a_plan_is_the_same_whatever_the_order_of_the_observation(moves in moves()) {
        let mut play = prepared();
        let mut witness = Witness::default();
        for what in &moves {
            happen(&mut play, &mut witness, what);
        }
        let plan = play.world.plan();
        let names: BTreeSet<&EngineName> = play.world.observed.pods.iter().map(|pod| &pod.name).collect();
        if names.len() == play.world.observed.pods.len() {
            let mut turned = play.clone();
            turned.world.observed.pods.reverse();
            turned.world.observed.permits.reverse();
            turned.world.observed.lives.reverse();
            turned.world.observed.facts.reverse();
            turned.world.desired.snapshot.engines.reverse();
            turned.world.desired.snapshot.slots.reverse();
            prop_assert_eq!(plan, turned.world.plan());
        }
    }

    #[test]
    fn a_plan_that_starts_from_the_last_one_is_the_plan(moves in moves(), seeds in proptest::collection::vec(any::<u16>(), 40)) {
        let mut play = prepared();
        play.settle(|_, _| {});
        let mut witness = Witness::default();
        let mut memo = Memo::default();
        for (what, seed) in moves.iter().zip(seeds) {
            happen(&mut play, &mut witness, what);
            speak(&mut play, seed);
            let mut compared = memo.compare(play.world.desired.clone(), play.world.observed.clone());
            prop_assert_eq!(compared.questions(), questions(&play.world.desired, &play.world.observed));
            let whole = play.world.plan();
            if play.world.observed != *compared.observed() {
                // Something was asked and answered.
                compared = memo.compare(play.world.desired.clone(), play.world.observed.clone());
            }
            prop_assert_eq!(memo.plan(&mut compared), whole);
            if seed % 4 > 0 {
                memo.keep(compared);
            }
        }
    }

    #[test]
    fn the_trouble_of_one_tenant_changes_no_decision_about_another(moves in moves()) {
        let mut play = prepared();
        let mut witness = Witness::default();
        for what in &moves {
            happen(&mut play, &mut witness, what);
        }
        let about = |plan: &Plan, tenant: &str| -> Vec<planner::Decision> {
            plan.decisions().filter(|it| it.slot.as_ref().is_some_and(|it| it.tenant.as_str() == tenant)).cloned().collect()
        };
        let mut troubled = play.clone();
        for slot in play.world.desired.snapshot.slots.iter().filter(|slot| slot.key.tenant.as_str() == "t_2") {
            let trouble = planner::Trouble { reason: "no quota".to_owned(), failures: 9, age_ms: 0 };
            troubled.world.observed.troubles.insert(slot.engine(), trouble);
        }
        prop_assert_eq!(about(&play.world.plan(), "t_1"), about(&troubled.world.plan(), "t_1"));
    }
}

/// A world with one engine that serves and was superseded, and the witness of its life.
fn superseded() -> (Play, Witness, EngineName) {
    let mut play = prepared();
    let mut witness = Witness::default();
    play.settle(|play, _| witness.look(play));
    let key = slots(&play)[0].clone();
    let served = play.world.desired.snapshot.slots[0].engine();
    play.restart(&key, false);
    (play, witness, served)
}

fn plan_of(engine: &EngineName, action: Action) -> Plan {
    let decision = planner::Decision { engine: Some(engine.clone()), slot: None, because: String::new(), action };
    let chain = planner::Chain { stage: planner::Stage::Drain, decisions: vec![decision] };
    Plan { chains: vec![chain], ..Plan::default() }
}

#[test]
#[should_panic(expected = "before its replacement is registered")]
fn the_witness_sees_a_stand_in_that_is_drained_too_early() {
    let (play, witness, served) = superseded();
    let uid = play.uid(&served);
    let drain = Action::Drain { uid, grace_ms: 0, withdraw: true, newer: None, namespace: None };
    witness.judge(&play, &plan_of(&served, drain));
}

#[test]
#[should_panic(expected = "is told to drain twice")]
fn the_witness_sees_two_drains_of_one_name() {
    let (mut play, witness, served) = superseded();
    let uid = play.uid(&served);
    play.stop(&slots(&play)[0].clone());
    let drain =
        |uid: &str| Action::Drain { uid: uid.to_owned(), grace_ms: 0, withdraw: true, newer: None, namespace: None };
    let mut plan = plan_of(&served, drain(&uid));
    plan.chains.extend(plan_of(&served, drain("another")).chains);
    witness.judge(&play, &plan);
}

#[test]
#[should_panic(expected = "is deleted without its fact")]
fn the_witness_sees_a_running_engine_that_is_deleted_without_its_fact() {
    let (play, witness, served) = superseded();
    let uid = play.uid(&served);
    witness.judge(&play, &plan_of(&served, Action::DeleteEngine { uid, grace_ms: 0 }));
}

#[test]
#[should_panic(expected = "is made a second time")]
fn the_witness_sees_a_name_that_is_made_again() {
    let (mut play, witness, served) = superseded();
    let plan = play.world.plan();
    let create = plan.decisions().find(|it| matches!(it.action, Action::CreateEngine(_))).unwrap();
    witness.judge(&play, &plan_of(&served, create.action.clone()));
}

#[test]
#[should_panic(expected = "are replaced at once")]
fn the_judge_sees_more_replacements_than_surge_allows() {
    let mut play = prepared();
    let mut witness = Witness::default();
    play.settle(|_, _| {});
    let change = play.change_to(Play::unit("uc_1", &[("min", "3")].into()));
    alter(&mut play, &change);
    play.settle(|play, _| witness.look(play));
    let before = play.clone();
    let change = play.change_to(Play::unit("uc_1", &[("memory", "2G")].into()));
    alter(&mut play, &change);
    play.world.desired.limits.surge = 3;
    let plan = play.world.plan();
    play.world.apply(&plan);
    play.world.desired.limits.surge = 1;
    judge_surge(&witness, &play, &before);
}
