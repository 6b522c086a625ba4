//! What can happen to a world, drawn by chance: statements, accidents, masters that die.

use model::change::Change;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::slot::{Link, SlotKey};
use planner::Action;
use proptest::prelude::*;

use super::Play;
use super::witness::{Witness, judge_surge};

const UNITS: [&str; 2] = ["uc_1", "uc_2"];
const POOLS: [&str; 2] = ["rp_1", "rp_2"];
const TENANTS: [&str; 2] = ["t_1", "t_2"];

/// One thing that happens. Numbers choose among what is there.
#[derive(Debug, Clone)]
pub enum Move {
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

pub fn moves() -> impl Strategy<Value = Vec<Move>> {
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

pub fn pick<T: Clone>(all: &[T], at: usize) -> Option<T> {
    (!all.is_empty()).then(|| all[at % all.len()].clone())
}

pub fn slots(play: &Play) -> Vec<SlotKey> {
    play.world.desired.snapshot.slots.iter().map(|slot| slot.key.clone()).collect()
}

fn alive_uids(play: &Play) -> Vec<String> {
    play.world.observed.pods.iter().filter(|pod| pod.is_alive()).map(|pod| pod.uid.clone()).collect()
}

fn subset(names: [&str; 2], bits: u8) -> String {
    let chosen: Vec<&str> = names.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0).map(|(_, n)| *n).collect();
    chosen.join(",")
}

pub fn prepared() -> Play {
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
pub fn alter(play: &mut Play, change: &Change) {
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

pub fn happen(play: &mut Play, witness: &mut Witness, what: &Move) {
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
    if play.world.observed.pods.iter().all(|pod| pod.name != name) {
        play.late_create(&name);
    }
}

fn tick(play: &mut Play, witness: &mut Witness, first: usize) {
    let before = play.clone();
    let plan = play.world.plan();
    witness.judge(play, &plan);
    play.apply_first(&plan, first);
    judge_surge(witness, play, &before);
}
