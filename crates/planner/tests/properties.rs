//! Properties of plans over random worlds: every sequence of statements, accidents and dying masters.
//!
//! Each case prints its moves when it fails; proptest prints the seed and shrinks it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::collections::BTreeSet;

use model::catalog::Link;
use model::change::Change;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::slot::SlotKey;
use planner::{Action, Plan};
use play::witness::{Witness, judge_surge};
use play::{Play, Step};
use proptest::prelude::*;

const UNITS: [&str; 2] = ["uc_1", "uc_2"];
const POOLS: [&str; 2] = ["rp_1", "rp_2"];
const TENANTS: [&str; 2] = ["t_1", "t_2"];

/// One thing that happens. Numbers choose among what is there.
#[derive(Debug, Clone)]
enum Move {
    Memory(usize, u32),
    Min(usize, u32),
    Units(usize, u8),
    Pools(usize, u8),
    Nodes(usize, u8),
    DropTenant(usize),
    Start(usize),
    Stop(usize),
    Restart(usize, bool),
    Tick,
    DiesAfter(usize),
    Register(usize),
    End(usize),
    Vanish(usize),
    Terminate(usize),
    ExitDrained,
    LoseSession(usize),
    LoseZookeeper,
    Label(usize),
    LateCreate(usize),
    Pass(u64),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (0..2_usize, 1..4_u32).prop_map(|(unit, gib)| Move::Memory(unit, gib)),
        2 => (0..2_usize, 0..4_u32).prop_map(|(unit, min)| Move::Min(unit, min)),
        2 => (0..2_usize, 0..4_u8).prop_map(|(pool, units)| Move::Units(pool, units)),
        2 => (0..2_usize, 0..4_u8).prop_map(|(tenant, pools)| Move::Pools(tenant, pools)),
        1 => (0..2_usize, 0..3_u8).prop_map(|(pool, nodes)| Move::Nodes(pool, nodes)),
        1 => (0..2_usize).prop_map(Move::DropTenant),
        3 => any::<usize>().prop_map(Move::Start),
        2 => any::<usize>().prop_map(Move::Stop),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(slot, force)| Move::Restart(slot, force)),
        8 => Just(Move::Tick),
        6 => (0..20_usize).prop_map(Move::DiesAfter),
        6 => any::<usize>().prop_map(Move::Register),
        3 => any::<usize>().prop_map(Move::End),
        2 => any::<usize>().prop_map(Move::Vanish),
        1 => any::<usize>().prop_map(Move::Terminate),
        3 => Just(Move::ExitDrained),
        2 => any::<usize>().prop_map(Move::LoseSession),
        1 => Just(Move::LoseZookeeper),
        1 => any::<usize>().prop_map(Move::Label),
        1 => any::<usize>().prop_map(Move::LateCreate),
        3 => prop_oneof![Just(1_000_u64), Just(10_000), Just(60_000), Just(2_000_000)].prop_map(Move::Pass),
    ];
    proptest::collection::vec(one, 1..40)
}

fn pick<T: Clone>(all: &[T], at: usize) -> Option<T> {
    (!all.is_empty()).then(|| all[at % all.len()].clone())
}

fn slots(play: &Play) -> Vec<SlotKey> {
    play.world.desired.snapshot.slots.iter().map(|slot| slot.key.clone()).collect()
}

fn alive_uids(play: &Play) -> Vec<String> {
    play.world.observed.pods.iter().filter(|pod| pod.is_alive()).map(|pod| pod.uid.clone()).collect()
}

fn subset(names: [&str; 2], bits: u8) -> String {
    let chosen: Vec<&str> = names.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0).map(|(_, n)| *n).collect();
    chosen.join(",")
}

fn prepared() -> Play {
    let mut play = Play::new();
    for unit in UNITS {
        let change = play.change_to(Play::unit(unit, &[("min", "1")].into()));
        alter(&mut play, &change);
    }
    for pool in POOLS {
        let change = play.change_to(Play::pool(pool, &[("units", "uc_1,uc_2")].into()));
        alter(&mut play, &change);
    }
    let change = play.change_to(Play::tenant("t_1", &[("pools", "rp_1")].into()));
    alter(&mut play, &change);
    play
}

/// An alteration, if none is converging: the database refuses it otherwise. Refused ones change nothing.
fn alter(play: &mut Play, change: &Change) {
    let mut tried = play.clone();
    if tried.commit(change).is_ok() {
        *play = tried;
        finish_unreached(play);
    }
}

/// Alterations that reach nothing are finished at once, so that the next one is accepted.
fn finish_unreached(play: &mut Play) {
    let plan = play.world.plan();
    for decision in plan.decisions().filter(|it| matches!(it.action, Action::Finish { .. })) {
        play.world.apply_one(decision, &mut None);
    }
}

fn happen(play: &mut Play, witness: &mut Witness, what: &Move) {
    match what {
        Move::Memory(unit, gib) => {
            let memory = format!("{gib}G");
            let change = play.change_to(Play::unit(UNITS[*unit], &[("memory", memory.as_str())].into()));
            alter(play, &change);
        }
        Move::Min(unit, min) => {
            let min = min.to_string();
            let change = play.change_to(Play::unit(UNITS[*unit], &[("min", min.as_str())].into()));
            alter(play, &change);
        }
        Move::Units(pool, bits) => {
            let units = subset(UNITS, *bits);
            let change = play.change_to(Play::pool(POOLS[*pool], &[("units", units.as_str())].into()));
            alter(play, &change);
        }
        Move::Nodes(pool, choice) => {
            let nodes = [format!("node-{pool}"), format!("node-{pool},spare-{pool}"), "any".to_owned()];
            let change =
                play.change_to(Play::pool(POOLS[*pool], &[("nodes", nodes[*choice as usize].as_str())].into()));
            alter(play, &change);
        }
        Move::Pools(tenant, bits) => {
            let pools = subset(POOLS, *bits);
            let change = play.change_to(Play::tenant(TENANTS[*tenant], &[("pools", pools.as_str())].into()));
            alter(play, &change);
        }
        Move::DropTenant(tenant) => alter(play, &Play::drop_change("tenant", TENANTS[*tenant])),
        Move::Start(at) => {
            let links: Vec<Link> = play.world.desired.snapshot.catalog.links().into_iter().collect();
            if let Some(link) = pick(&links, *at) {
                play.start(&format!("{}/{}/{}", link.tenant, link.pool, link.unit));
            }
        }
        Move::Stop(at) => {
            if let Some(key) = pick(&slots(play), *at) {
                play.stop(&key);
            }
        }
        Move::Restart(at, force) => {
            if let Some(key) = pick(&slots(play), *at) {
                play.restart(&key, *force);
            }
        }
        Move::Tick => tick(play, witness, usize::MAX),
        Move::DiesAfter(count) => tick(play, witness, *count),
        Move::Register(at) => {
            if let Some(engine) = pick(&play.world.about_to_register(), *at) {
                play.world.register(&engine);
            }
        }
        Move::End(at) => {
            if let Some(uid) = pick(&alive_uids(play), *at) {
                play.world.end(&uid, "killed");
            }
        }
        Move::Vanish(at) => {
            if let Some(uid) = pick(&alive_uids(play), *at) {
                play.world.observed.pods.retain(|pod| pod.uid != uid);
            }
        }
        Move::Terminate(at) => {
            if let Some(uid) = pick(&alive_uids(play), *at) {
                play.world.observed.pods.iter_mut().filter(|pod| pod.uid == uid).for_each(|pod| {
                    pod.phase = Phase::Terminating;
                });
            }
        }
        Move::ExitDrained => drop(play.world.exit_drained()),
        Move::LoseSession(at) => {
            let lives: Vec<EngineName> = play.world.observed.lives.iter().map(|live| live.engine.clone()).collect();
            if let Some(engine) = pick(&lives, *at) {
                play.world.observed.lives.retain(|live| live.engine != engine);
            }
        }
        Move::LoseZookeeper => play.lose_zookeeper(),
        Move::Label(at) => {
            if let Some(uid) = pick(&alive_uids(play), *at) {
                play.world.observed.pods.iter_mut().filter(|pod| pod.uid == uid).for_each(|pod| {
                    std::sync::Arc::make_mut(&mut pod.labels)
                        .insert("enginehouse.io/config".to_owned(), "0".to_owned());
                });
            }
        }
        Move::LateCreate(at) => late_create(play, *at),
        Move::Pass(ms) => play.world.pass(*ms),
    }
    witness.look(play);
}

/// A copy of some pod's create arrives once more, after the first one's pod is gone.
fn late_create(play: &mut Play, at: usize) {
    let names: Vec<EngineName> = play.world.desired.snapshot.engines.iter().map(|it| it.name.clone()).collect();
    let Some(name) = pick(&names, at) else { return };
    if play.world.observed.pods.iter().any(|pod| pod.name == name) {
        return;
    }
    let record = play.world.desired.snapshot.engines.iter().find(|it| it.name == name).unwrap().clone();
    let Some(configuration) = play.world.desired.configuration(&record.slot) else { return };
    play.world.made += 1;
    let labels = model::labels::EngineLabels::new("eh", &record.slot, record.incarnation, &configuration);
    play.world.observed.pods.push(planner::Pod {
        name: name.clone(),
        uid: format!("{name}/late-{}", play.world.made),
        labels: labels.encode().into(),
        phase: Phase::Running,
        generation: None,
        node: None,
        reason: None,
        started_at_ms: None,
        log_tail: None,
        details: std::sync::Arc::default(),
    });
}

fn tick(play: &mut Play, witness: &mut Witness, first: usize) {
    let before = play.clone();
    let plan = play.world.plan();
    witness.judge(play, &plan);
    play.apply_first(&plan, first);
    judge_surge(witness, play, &before);
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
    let drain = Action::Drain { uid, grace_ms: 0, withdraw: true, newer: None };
    witness.judge(&play, &plan_of(&served, drain));
}

#[test]
#[should_panic(expected = "is told to drain twice")]
fn the_witness_sees_two_drains_of_one_name() {
    let (mut play, witness, served) = superseded();
    let uid = play.uid(&served);
    play.stop(&slots(&play)[0].clone());
    let drain = |uid: &str| Action::Drain { uid: uid.to_owned(), grace_ms: 0, withdraw: true, newer: None };
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
