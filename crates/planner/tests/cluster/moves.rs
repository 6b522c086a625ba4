//! Random events of a cluster: statements, failures, dying masters.

use std::collections::BTreeMap;
use std::time::Duration;

use model::change::Change;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::slot::{Link, Replacement, SlotKey};
use planner::{Action, EngineLoad, UnreadyNode};
use proptest::prelude::*;

use super::Cluster;
use super::judge::{Judge, judge_surge};
use super::succession_judge::{judge_charges, judge_down};

const UNITS: [&str; 2] = ["uc_1", "uc_2"];
const POOLS: [&str; 2] = ["rp_1", "rp_2"];
const NODES: [&str; 3] = ["node-0", "node-1", "spare-1"];
const TENANTS: [&str; 2] = ["t_1", "t_2"];

/// One event. Numbers choose among the existing objects.
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
    Restart(usize, Replacement),
    /// ALTER … IN PLACE
    MemoryInPlace(usize, u32),
    CpuInPlace(usize, u32),
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
    LoseReservation(usize),
    EndReservation(usize),
    Quota(usize, usize, u8),
    Capacity(usize, u8),
    UserQuota(u8),
    StartFor(usize),
    External(usize, i64),
    Idle(usize),
    /// An instance is assigned a node.
    OnNode(usize, usize),
    /// A node is not ready for so many seconds; with `true` its engines lose their registrations.
    FailNode(usize, u64, bool),
    ReturnNode(usize),
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
        4 => (any::<usize>(), replacement()).prop_map(|(slot, replacement)| Move::Restart(slot, replacement)),
        3 => (0..2_usize, 1..4_u32).prop_map(|(unit, gib)| Move::MemoryInPlace(unit, gib)),
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
    let one = prop_oneof![
        60 => one,
        1 => any::<usize>().prop_map(Move::LoseReservation),
        1 => any::<usize>().prop_map(Move::EndReservation),
        4 => (any::<usize>(), 0..3_usize).prop_map(|(at, node)| Move::OnNode(at, node)),
        3 => (0..3_usize, prop_oneof![Just(0_u64), Just(6), Just(60)], any::<bool>())
            .prop_map(|(node, secs, is_cut_off)| Move::FailNode(node, secs, is_cut_off)),
        2 => (0..3_usize).prop_map(Move::ReturnNode),
    ];
    proptest::collection::vec(one, 1..40)
}

fn replacement() -> impl Strategy<Value = Replacement> {
    prop_oneof![
        2 => Just(Replacement::StandIn),
        2 => Just(Replacement::Force),
        3 => Just(Replacement::InPlace),
    ]
}

/// Moves of clusters in which quotas and capacities change, engines are started for users, and programs request reservations.
pub fn limited_moves() -> impl Strategy<Value = Vec<Move>> {
    let limits = prop_oneof![
        3 => (0..2_usize, 0..2_usize, 0..7_u8).prop_map(|(tenant, pool, cpu)| Move::Quota(tenant, pool, cpu)),
        4 => (0..2_usize, 0..8_u8).prop_map(|(pool, cpu)| Move::Capacity(pool, cpu)),
        1 => (0..4_u8).prop_map(Move::UserQuota),
        4 => any::<usize>().prop_map(Move::StartFor),
        2 => (0..2_usize, 1..4_i64).prop_map(|(tenant, cores)| Move::External(tenant, cores)),
        2 => any::<usize>().prop_map(Move::Idle),
        3 => (0..2_usize, 1..4_u32).prop_map(|(unit, cores)| Move::CpuInPlace(unit, cores)),
    ];
    let limits = proptest::collection::vec((limits, any::<prop::sample::Index>()), 1..20);
    (moves(), limits).prop_map(|(mut moves, limits)| {
        for (limit, at) in limits {
            moves.insert(at.index(moves.len() + 1), limit);
        }
        moves
    })
}

pub fn pick<T: Clone>(all: &[T], at: usize) -> Option<T> {
    (!all.is_empty()).then(|| all[at % all.len()].clone())
}

pub fn slots(cluster: &Cluster) -> Vec<SlotKey> {
    cluster.simulation.desired.snapshot.slots.iter().map(|slot| slot.key.clone()).collect()
}

fn alive_uids(cluster: &Cluster) -> Vec<String> {
    cluster
        .simulation
        .observed
        .instances
        .iter()
        .filter(|instance| instance.is_alive())
        .map(|instance| instance.uid.clone())
        .collect()
}

/// The charged reservations of engines.
fn charged(cluster: &Cluster) -> Vec<String> {
    let reservations = cluster.simulation.desired.snapshot.ledger.reservations();
    let charged = reservations.filter(|held| held.state.is_charged() && !held.request.holder.is_external());
    charged.map(|held| held.id().to_string()).collect()
}

/// A guarantee of 0 to 2 CPU, which may be exceeded from 3 on; with 6 the quota is dropped.
fn change_quota(cluster: &mut Cluster, tenant: &str, pool: &str, cpu: u8) {
    let (name, guarantee) = (format!("q_{tenant}_{pool}"), (cpu % 3).to_string());
    let borrow = if cpu < 3 { "0" } else { "unlimited" };
    let options = [("tenant", tenant), ("pool", pool), ("cpu", guarantee.as_str()), ("borrow", borrow)];
    let object = Cluster::quota(&name, &options.into());
    let exists = cluster.exists(&object.reference());
    let change = match (cpu, exists) {
        (6, true) => Cluster::drop_change("quota", &name),
        (6, false) => return,
        (_, true) => cluster.change_to(Cluster::quota(&name, &options.into_iter().skip(2).collect())),
        (_, false) => cluster.change_to(object),
    };
    alter(cluster, &change);
}

fn subset(names: [&str; 2], bits: u8) -> String {
    let chosen: Vec<&str> = names.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0).map(|(_, n)| *n).collect();
    chosen.join(",")
}

pub fn prepared() -> Cluster {
    let mut cluster = Cluster::new();
    for unit in UNITS {
        let change = cluster.change_to(Cluster::unit(unit, &[("min", "1")].into()));
        alter(&mut cluster, &change);
    }
    for pool in POOLS {
        let change = cluster.change_to(Cluster::pool(pool, &[("units", "uc_1,uc_2")].into()));
        alter(&mut cluster, &change);
    }
    let change = cluster.change_to(Cluster::tenant("t_1", &[("pools", "rp_1")].into()));
    alter(&mut cluster, &change);
    cluster
}

/// An alteration, if none is converging: the database refuses it otherwise. Refused ones change nothing.
pub fn alter(cluster: &mut Cluster, change: &Change) {
    alter_with(cluster, change, Replacement::StandIn);
}

fn alter_in_place(cluster: &mut Cluster, unit: &str, option: (&str, &str)) {
    let change = cluster.change_to(Cluster::unit(unit, &[option].into()));
    alter_with(cluster, &change, Replacement::InPlace);
}

fn alter_with(cluster: &mut Cluster, change: &Change, replacement: Replacement) {
    let mut tried = cluster.clone();
    if tried.commit_with(change, replacement).is_ok() {
        *cluster = tried;
        finish_without_effect(cluster);
    }
}

/// Finishes alterations that affect nothing, so that the next one is accepted.
fn finish_without_effect(cluster: &mut Cluster) {
    let plan = cluster.simulation.plan();
    for decision in plan.decisions().filter(|decision| matches!(decision.action, Action::Finish { .. })) {
        cluster.simulation.apply_one(decision, &mut None);
    }
}

pub fn apply(cluster: &mut Cluster, judge: &mut Judge, event: &Move) {
    match event {
        Move::Memory(unit, gib) => {
            let memory = format!("{gib}G");
            let change = cluster.change_to(Cluster::unit(UNITS[*unit], &[("memory", memory.as_str())].into()));
            alter(cluster, &change);
        }
        Move::Min(unit, min) => {
            let min = min.to_string();
            let change = cluster.change_to(Cluster::unit(UNITS[*unit], &[("min", min.as_str())].into()));
            alter(cluster, &change);
        }
        Move::Units(pool, bits) => {
            let units = subset(UNITS, *bits);
            let change = cluster.change_to(Cluster::pool(POOLS[*pool], &[("units", units.as_str())].into()));
            alter(cluster, &change);
        }
        Move::Nodes(pool, choice) => {
            let nodes = [format!("node-{pool}"), format!("node-{pool},spare-{pool}"), "any".to_owned()];
            let change =
                cluster.change_to(Cluster::pool(POOLS[*pool], &[("nodes", nodes[*choice as usize].as_str())].into()));
            alter(cluster, &change);
        }
        Move::Pools(tenant, bits) => {
            let pools = subset(POOLS, *bits);
            let change = cluster.change_to(Cluster::tenant(TENANTS[*tenant], &[("pools", pools.as_str())].into()));
            alter(cluster, &change);
        }
        Move::DropTenant(tenant) => alter(cluster, &Cluster::drop_change("tenant", TENANTS[*tenant])),
        Move::Start(at) => {
            let links: Vec<Link> = cluster.simulation.desired.snapshot.catalog.links().into_iter().collect();
            if let Some(link) = pick(&links, *at) {
                cluster.start(&format!("{}/{}/{}", link.tenant, link.pool, link.unit));
            }
        }
        Move::Stop(at) => {
            if let Some(key) = pick(&slots(cluster), *at) {
                cluster.stop(&key);
            }
        }
        Move::Restart(at, replacement) => {
            if let Some(key) = pick(&slots(cluster), *at) {
                cluster.restart(&key, *replacement);
            }
        }
        Move::MemoryInPlace(unit, gib) => {
            let memory = format!("{gib}G");
            alter_in_place(cluster, UNITS[*unit], ("memory", memory.as_str()));
        }
        Move::CpuInPlace(unit, cores) => {
            let cores = cores.to_string();
            alter_in_place(cluster, UNITS[*unit], ("cpu", cores.as_str()));
        }
        Move::Tick => tick(cluster, judge, usize::MAX),
        Move::DiesAfter(count) => tick(cluster, judge, *count),
        Move::Register(at) => {
            if let Some(engine) = pick(&cluster.simulation.about_to_register(), *at) {
                cluster.simulation.register(&engine);
            }
        }
        Move::End(at) => {
            if let Some(uid) = pick(&alive_uids(cluster), *at) {
                cluster.simulation.end(&uid, "killed");
            }
        }
        Move::Vanish(at) => {
            if let Some(uid) = pick(&alive_uids(cluster), *at) {
                cluster.simulation.observed.instances.retain(|instance| instance.uid != uid);
            }
        }
        Move::Terminate(at) => {
            if let Some(uid) = pick(&alive_uids(cluster), *at) {
                cluster.simulation.observed.instances.iter_mut().filter(|instance| instance.uid == uid).for_each(
                    |instance| {
                        instance.phase = Phase::Terminating;
                    },
                );
            }
        }
        Move::ExitDrained => drop(cluster.simulation.exit_drained()),
        Move::LoseSession(at) => {
            let registrations: Vec<EngineName> = cluster
                .simulation
                .observed
                .registrations
                .iter()
                .map(|registration| registration.engine.clone())
                .collect();
            if let Some(engine) = pick(&registrations, *at) {
                cluster.simulation.observed.registrations.retain(|registration| registration.engine != engine);
            }
        }
        Move::LoseZookeeper => cluster.lose_zookeeper(),
        Move::Label(at) => {
            if let Some(uid) = pick(&alive_uids(cluster), *at) {
                cluster.simulation.observed.instances.iter_mut().filter(|instance| instance.uid == uid).for_each(
                    |instance| {
                        std::sync::Arc::make_mut(&mut instance.labels)
                            .insert("enginehouse.io/config".to_owned(), "0".to_owned());
                    },
                );
            }
        }
        Move::LateCreate(at) => late_create(cluster, *at),
        Move::LoseReservation(at) => {
            if let Some(id) = pick(&charged(cluster), *at) {
                cluster.lose_reservation(&id);
            }
        }
        Move::EndReservation(at) => {
            if let Some(id) = pick(&charged(cluster), *at) {
                cluster.end_reservation(&id);
            }
        }
        Move::Quota(tenant, pool, cpu) => change_quota(cluster, TENANTS[*tenant], POOLS[*pool], *cpu),
        Move::Capacity(pool, cpu) => {
            let capacity = if *cpu == 7 { "default".to_owned() } else { cpu.to_string() };
            let options = [("capacity", capacity.as_str())];
            let change = cluster.change_to(Cluster::pool(POOLS[*pool], &options.into()));
            alter(cluster, &change);
        }
        Move::UserQuota(cpu) => {
            let limit = cpu.to_string();
            let exists = cluster.exists(&Cluster::quota("q_user", &BTreeMap::default()).reference());
            let subject = if exists { None } else { Some(("user", "alice")) };
            let options = subject.into_iter().chain([("limit", limit.as_str())]).collect();
            let change = cluster.change_to(Cluster::quota("q_user", &options));
            alter(cluster, &change);
        }
        Move::StartFor(at) => {
            let links: Vec<Link> = cluster.simulation.desired.snapshot.catalog.links().into_iter().collect();
            if let Some(link) = pick(&links, *at) {
                cluster.start_for(&format!("{}/{}/{}", link.tenant, link.pool, link.unit), "alice");
            }
        }
        Move::External(tenant, cores) => {
            let id = format!("x-{}", cluster.simulation.desired.snapshot.ledger.reservations().count());
            // Refused if the tenant has no such pool or it can never fit.
            let _ = cluster.request_external(&id, TENANTS[*tenant], POOLS[0], *cores);
        }
        Move::Idle(at) => {
            if let Some(instance) = pick(&cluster.simulation.observed.instances, *at) {
                let load = EngineLoad { sessions: 0, running: 0 };
                cluster.simulation.observed.loads.insert(instance.name.clone(), load);
            }
        }
        Move::OnNode(at, node) => {
            let instances = &mut cluster.simulation.observed.instances;
            let count = instances.len().max(1);
            if let Some(instance) = instances.get_mut(at % count) {
                instance.node.get_or_insert_with(|| NODES[*node].to_owned());
            }
        }
        Move::FailNode(node, secs, is_cut_off) => fail_node(cluster, NODES[*node], *secs, *is_cut_off),
        Move::ReturnNode(node) => drop(cluster.simulation.observed.unready.remove(NODES[*node])),
        Move::Pass(ms) => cluster.simulation.advance(Duration::from_millis(*ms)),
    }
    judge.look(cluster);
}

fn fail_node(cluster: &mut Cluster, node: &str, secs: u64, is_cut_off: bool) {
    let observed = &mut cluster.simulation.observed;
    let unready = UnreadyNode { lasted: Duration::from_secs(secs), is_absent: false };
    observed.unready.insert(node.to_owned(), unready);
    if is_cut_off {
        let there = observed.instances.iter().filter(|instance| instance.node.as_deref() == Some(node));
        let there: Vec<String> = there.map(|instance| instance.uid.clone()).collect();
        observed.registrations.retain(|registration| registration.uid.as_ref().is_none_or(|uid| !there.contains(uid)));
    }
}

/// A create of some instance arrives once more, after the first instance is gone.
fn late_create(cluster: &mut Cluster, at: usize) {
    let names: Vec<EngineName> =
        cluster.simulation.desired.snapshot.engines.iter().map(|record| record.name.clone()).collect();
    let Some(name) = pick(&names, at) else { return };
    if cluster.simulation.observed.instances.iter().all(|instance| instance.name != name) {
        cluster.late_create(&name);
    }
}

fn tick(cluster: &mut Cluster, judge: &mut Judge, first: usize) {
    let before = cluster.clone();
    let plan = cluster.simulation.plan();
    judge.judge(cluster, &plan);
    cluster.apply_first(&plan, first);
    judge_surge(judge, cluster, &before);
    judge_down(judge, cluster, &before);
    judge_charges(cluster, &before);
}
