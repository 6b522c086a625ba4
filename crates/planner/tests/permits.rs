//! Permits that are not as a master left them: nodes below one that only its engine may delete, content that nobody reads.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::engine_state::Phase;
use planner::{Action, DELETE_AFTER_GRACE_MS, Observed, Permit, Row, explain_change};
use play::{Play, slot_key};

fn with_one_engine() -> Play {
    let mut play = Play::new();
    for object in [
        Play::unit("uc_1", &BTreeMap::from([("min", "1")])),
        Play::pool("rp_1", &BTreeMap::from([("units", "uc_1")])),
        Play::tenant("t_1", &BTreeMap::from([("pools", "rp_1")])),
    ] {
        let change = play.change_to(object);
        play.commit(&change).unwrap();
        play.settle(|_, _| {});
    }
    play
}

#[test]
fn a_permit_that_can_not_be_read_is_made_anew_though_its_engine_is_registered() {
    let mut play = with_one_engine();
    let (engine, uid) = (play.engine("t_1/rp_1/uc_1/0"), play.uid(&play.engine("t_1/rp_1/uc_1/0")));
    play.world.observed.permits[0] = Permit { engine: engine.clone(), uid: None, readable: false, answered: true };
    let plan = play.world.plan();
    assert_eq!(plan.decisions().map(planner::Decision::words).collect::<Vec<_>>(), ["delete permit"]);
    play.world.apply(&plan);
    let plan = play.world.plan();
    assert_eq!(plan.decisions().map(planner::Decision::words).collect::<Vec<_>>(), ["create permit"]);
    play.world.apply(&plan);
    assert!(play.world.register(&engine));
    assert!(play.world.plan().chains.is_empty());
    assert_eq!(play.uid(&engine), uid, "it is the same engine all the while");
}

#[test]
fn an_engine_whose_permit_can_not_be_deleted_is_ended_all_the_same() {
    let mut play = with_one_engine();
    let slot = slot_key("t_1/rp_1/uc_1/0");
    let engine = play.engine("t_1/rp_1/uc_1/0");
    play.stop(&slot);
    let plan = play.world.plan();
    play.world.apply(&plan);
    // The drain could not take the permit away; it names no uid any more.
    play.world.observed.permits.push(Permit { engine: engine.clone(), uid: None, readable: true, answered: false });
    let grace_ms = play.world.observed.facts[0].grace_ms;
    play.world.pass((grace_ms + DELETE_AFTER_GRACE_MS) as u64);
    let plan = play.world.plan();
    let chain_of = |wanted: fn(&Action) -> bool| {
        plan.chains.iter().position(|chain| chain.decisions.iter().any(|decision| wanted(&decision.action))).unwrap()
    };
    let permit = chain_of(|action| matches!(action, Action::DeletePermit));
    let pod = chain_of(|action| matches!(action, Action::DeleteEngine { .. }));
    assert_ne!(permit, pod, "a chain stops at its first failure");
}

/// What EXPLAIN says of a change when it knows no more than the master's report, and what is then decided.
fn told_and_decided(play: &mut Play) -> (Vec<Row>, Vec<Row>) {
    let change = play.change_to(Play::unit("uc_1", &BTreeMap::from([("memory", "2G")])));
    let report: Vec<_> = play.world.plan().report.into_iter().map(Arc::unwrap_or_clone).collect();
    let observed = Observed::from_report(&report, &play.world.desired.snapshot);
    let told = explain_change(&play.world.desired, &change, &play.rules, &observed).unwrap();
    (told, play.explain(&change).unwrap())
}

#[test]
fn explain_knows_from_the_report_which_engine_never_registered() {
    let mut play = with_one_engine();
    play.restart(&slot_key("t_1/rp_1/uc_1/0"), false);
    let plan = play.world.plan();
    play.world.apply(&plan);
    // Its program runs, and it has not registered.
    let starting = play.engine("t_1/rp_1/uc_1/0");
    play.world.observed.pods.iter_mut().filter(|pod| pod.name == starting).for_each(|pod| pod.phase = Phase::Running);
    let (told, decided) = told_and_decided(&mut play);
    let drained = told.iter().find(|row| row.decision == "drain engine" && row.engine == starting.as_str());
    assert_eq!(drained.unwrap().because, "it was superseded before it ever answered");
    assert_eq!(told, decided);
}

#[test]
fn explain_knows_from_the_report_that_an_engine_without_its_session_stands_in() {
    let mut play = with_one_engine();
    let serving = play.engine("t_1/rp_1/uc_1/0");
    play.world.observed.lives.clear();
    play.world.observed.pods.iter_mut().for_each(|pod| pod.phase = Phase::Starting);
    let (told, decided) = told_and_decided(&mut play);
    assert!(told.iter().any(|row| row.because == format!("replaces {serving}")), "{told:?}");
    assert_eq!(told, decided);
}
