//! Properties of plans over random worlds: every sequence of statements, accidents and dying masters.
//!
//! Each case prints its moves when it fails; proptest prints the seed and shrinks it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::collections::{BTreeMap, BTreeSet};

use model::catalog::Link;
use model::change::Change;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::slot::SlotKey;
use planner::{Action, Plan};
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

/// What a run has to remember to see whether a plan may be.
#[derive(Debug, Default)]
struct Witness {
    recorded: BTreeSet<EngineName>,
    registered: BTreeSet<String>,
}

impl Witness {
    fn look(&mut self, play: &Play) {
        let with_uid = play.world.desired.snapshot.engines.iter().filter(|record| record.uid.is_some());
        self.recorded.extend(with_uid.map(|record| record.name.clone()));
        self.registered.extend(play.world.observed.lives.iter().filter_map(|live| live.uid.clone()));
    }

    /// Checks every decision of a plan against the world that it was made for.
    fn judge(&self, play: &Play, plan: &Plan) {
        let observed = &play.world.observed;
        for decision in plan.decisions() {
            let Some(engine) = &decision.engine else { continue };
            match &decision.action {
                Action::CreateEngine(_) => {
                    assert!(!self.recorded.contains(engine), "{engine} is made a second time");
                }
                Action::DeleteEngine { uid, .. } => {
                    let pod = observed.pods.iter().find(|pod| pod.uid == *uid).unwrap();
                    let fact = observed.facts.iter().any(|fact| fact.uid.as_ref() == Some(uid));
                    assert!(pod.phase == Phase::Ended || fact, "{engine} runs and is deleted without its fact");
                    assert!(pod.phase != Phase::Terminating, "{engine} is deleted twice");
                }
                Action::Drain { uid, .. } => self.judge_drain(play, engine, uid),
                _ => {}
            }
        }
    }

    /// An engine that ever served and whose slot lives on may only be drained when a newer one is registered.
    fn judge_drain(&self, play: &Play, engine: &EngineName, uid: &str) {
        let snapshot = &play.world.desired.snapshot;
        let Some(record) = snapshot.engines.iter().find(|it| it.name == *engine && it.uid.as_deref() == Some(uid))
        else {
            return;
        };
        let Some(slot) = snapshot.slots.iter().find(|slot| slot.key == record.slot) else { return };
        let there = play.world.observed.pods.iter().any(|pod| pod.uid == uid);
        let served = self.registered.contains(uid);
        if record.end_reason.is_some() || slot.forced || !served || !there {
            return;
        }
        let newer_is_registered = snapshot.engines.iter().any(|other| {
            let live = play.world.observed.lives.iter().find(|live| live.engine == other.name);
            other.slot == record.slot
                && other.incarnation > record.incarnation
                && other.end_reason.is_none()
                && live.is_some_and(|live| live.uid.is_some() && live.uid == other.uid)
        });
        assert!(newer_is_registered, "{engine} is drained before its replacement is registered");
    }
}

/// At most `surge` slots of a link have an engine that serves in place of one that was begun and is not ready.
fn judge_surge(play: &Play, before: &Play) {
    let slots_in_replacement = |play: &Play| {
        let mut counts: BTreeMap<Link, u32> = BTreeMap::new();
        for slot in play.world.desired.snapshot.slots.iter().filter(|slot| !slot.forced) {
            let present = slot.engine();
            let begun = play.world.observed.permits.iter().any(|it| it.engine == present);
            let ready = play.world.observed.lives.iter().any(|live| live.engine == present);
            let serves = |name: &EngineName| {
                play.world.observed.lives.iter().any(|live| live.engine == *name)
                    && play.world.observed.facts.iter().all(|fact| fact.engine != *name)
            };
            let records = &play.world.desired.snapshot.engines;
            let stand_in = records
                .iter()
                .any(|it| it.slot == slot.key && it.name != present && it.end_reason.is_none() && serves(&it.name));
            if begun && !ready && stand_in {
                *counts.entry(slot.key.link()).or_default() += 1;
            }
        }
        counts
    };
    let (was, is) = (slots_in_replacement(before), slots_in_replacement(play));
    for (link, count) in is {
        let before = was.get(&link).copied().unwrap_or_default();
        assert!(count <= play.world.desired.limits.surge.max(before), "{count} slots of {link:?} are replaced at once");
    }
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
            let change = play.change_to(Play::pool(POOLS[*pool], &[("nodes", nodes[*choice as usize].as_str())].into()));
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
                    pod.labels.insert("enginehouse.io/config".to_owned(), "0".to_owned());
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
        labels: labels.encode(),
        phase: Phase::Running,
        generation: None,
        node: None,
        reason: None,
        started_at_ms: None,
        log_tail: None,
        was_ready: None,
    });
}

fn tick(play: &mut Play, witness: &mut Witness, first: usize) {
    let before = play.clone();
    let plan = play.world.plan();
    witness.judge(play, &plan);
    play.apply_first(&plan, first);
    judge_surge(play, &before);
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

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
