//! Engines on demand in plans: sessions that wait start engines, and idle engines are released.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;
#[path = "on_demand/failed_nodes.rs"]
mod failed_nodes;
#[path = "on_demand/failed_starts.rs"]
mod failed_starts;
#[path = "on_demand/incremental.rs"]
mod incremental;
#[path = "on_demand/owners.rs"]
mod owners;
#[path = "on_demand/run_as.rs"]
mod run_as;

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::Cluster;
use cluster::pools::{commit, pool, quota, running, tick, verbs};
use model::demand::{Demand, DemandKey, ScalingGroup};
use model::engine_name::EngineName;
use model::name::{PoolName, TenantName};
use model::shared::Shared;
use model::slot::{Origin, Slot};
use planner::{Action, Plan, Scaling};

/// Tenant `t_a` on pool `rp_1` with unit `uc_1`, which starts on demand and has these options.
fn on_demand(options: &[(&str, &str)]) -> Cluster {
    let mut cluster = cluster::pools::with(&["t_a"], "1", &[]);
    unit(&mut cluster, options);
    cluster
}

fn unit(cluster: &mut Cluster, options: &[(&str, &str)]) {
    let options: BTreeMap<&str, &str> = [("on_demand", "true")].into_iter().chain(options.iter().copied()).collect();
    commit(cluster, Cluster::unit("uc_1", &options));
}

fn key(tenant: &str, pool: Option<&str>) -> DemandKey {
    DemandKey {
        pool: pool.map(|pool| PoolName::new(pool).unwrap()),
        ..DemandKey::of_tenant(TenantName::new(tenant).unwrap(), "IDE")
    }
}

fn wait(cluster: &mut Cluster, tenant: &str, waiting: u64) {
    cluster.wait(tenant, waiting);
}

/// What each plan of the cluster decides about slots.
fn scaled(plan: &Plan) -> Vec<&Scaling> {
    let scaled = plan.decisions().filter_map(|decision| match &decision.action {
        Action::Scale(scaling) => Some(&**scaling),
        _ => None,
    });
    scaled.collect()
}

/// How many slots a plan adds, removes at once, and releases with the consent of their agents.
fn changes(plan: &Plan) -> (u32, usize, usize) {
    scaled(plan).into_iter().fold((0, 0, 0), |(add, remove, release), scaling| {
        (add + scaling.slots.added(), remove + scaling.slots.remove.len(), release + scaling.release.len())
    })
}

fn slots(cluster: &Cluster) -> &[Shared<Slot>] {
    &cluster.simulation.desired.snapshot.slots
}

/// Everything that is created registers, with so many sessions each.
fn register(cluster: &mut Cluster, sessions: u32) {
    for engine in cluster.simulation.about_to_register() {
        assert!(cluster.simulation.register(&engine));
        load(cluster, &engine, sessions, 0);
    }
}

fn load(cluster: &mut Cluster, engine: &EngineName, sessions: u32, idle_s: u64) {
    cluster.load(engine, sessions, Duration::from_secs(idle_s));
}

/// Ticks until nothing more is decided, while nothing registers and nothing ends.
fn settle(cluster: &mut Cluster) -> Plan {
    for _ in 0..20 {
        let plan = tick(cluster);
        if plan.chains.is_empty() {
            return plan;
        }
    }
    panic!("the cluster does not settle");
}

#[test]
fn waiting_sessions_start_as_many_engines_as_they_need() {
    let mut cluster = on_demand(&[("sessions", "10"), ("max", "50")]);
    wait(&mut cluster, "t_a", 30);
    let plan = tick(&mut cluster);
    assert_eq!((verbs(&plan), changes(&plan)), (vec!["scale"], (3, 0, 0)));
    let because = &plan.decisions().next().unwrap().reason;
    let link = "tenant \"t_a\" on resource pool \"rp_1\", unit \"uc_1\"";
    assert_eq!(*because, format!("{link}: adds 3 engines, because 30 sessions wait"));
    assert!(slots(&cluster).iter().all(|slot| slot.origin == Origin::Demand && slot.started_for.is_none()));
    // They are created from the reservations that they have, and no others are added meanwhile.
    let plan = tick(&mut cluster);
    assert_eq!(verbs(&plan).iter().filter(|verb| **verb == "create engine").count(), 3);
    assert!(!verbs(&plan).contains(&"reserve"), "{:?}", verbs(&plan));
    assert_eq!((settle(&mut cluster).unmet.unwrap(), running(&cluster)), (vec![], 3));
    register(&mut cluster, 10);
    wait(&mut cluster, "t_a", 0);
    assert_eq!((changes(&settle(&mut cluster)), running(&cluster)), ((0, 0, 0), 3));
}

#[test]
fn free_seats_of_any_pool_come_before_new_engines() {
    let mut cluster = on_demand(&[("sessions", "4")]);
    commit(&mut cluster, Cluster::pool("rp_2", &[("units", "uc_1")].into()));
    commit(&mut cluster, Cluster::tenant("t_a", &[("pools", "rp_1,rp_2")].into()));
    let engine = cluster.start("t_a/rp_2/uc_1");
    settle(&mut cluster);
    register(&mut cluster, 3);
    wait(&mut cluster, "t_a", 1);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0));
    // Its agent does not answer: it counts as full.
    cluster.simulation.observed.loads.remove(&engine);
    assert_eq!(changes(&tick(&mut cluster)), (1, 0, 0));
    assert_eq!(slots(&cluster)[1].key.pool.as_str(), "rp_1", "the first pool of the list");
}

#[test]
fn a_started_slot_that_is_queued_covers_no_session() {
    let mut cluster = on_demand(&[("sessions", "4")]);
    pool(&mut cluster, &[("capacity", "1")]);
    commit(&mut cluster, Cluster::pool("rp_2", &[("units", "uc_1")].into()));
    commit(&mut cluster, Cluster::tenant("t_a", &[("pools", "rp_1,rp_2")].into()));
    cluster.start("t_a/rp_1/uc_1");
    settle(&mut cluster);
    register(&mut cluster, 4);
    cluster.start("t_a/rp_1/uc_1");
    assert!(settle(&mut cluster).waits.iter().any(|wait| wait.is_queued), "pool rp_1 is full");
    wait(&mut cluster, "t_a", 1);
    let plan = tick(&mut cluster);
    assert_eq!(changes(&plan), (1, 0, 0), "{:?}", plan.unmet);
    let on_demand = slots(&cluster).iter().filter(|slot| slot.origin == Origin::Demand);
    assert_eq!(on_demand.map(|slot| slot.key.pool.as_str()).collect::<Vec<_>>(), ["rp_2"]);
    assert_eq!((changes(&settle(&mut cluster)), running(&cluster)), ((0, 0, 0), 2));
}

#[test]
fn nothing_starts_on_demand_unless_the_unit_does() {
    let mut cluster = cluster::pools::with(&["t_a"], "1", &[]);
    cluster.simulation.desired.defaults.on_demand.start_on_demand = false;
    wait(&mut cluster, "t_a", 3);
    let plan = settle(&mut cluster);
    let unmet = plan.unmet.unwrap();
    assert_eq!((unmet.len(), unmet[0].sessions, unmet[0].is_futile), (1, 3, true));
    assert_eq!(unmet[0].reason, "resource unit \"uc_1\" does not start engines on demand");
    cluster.simulation.desired.defaults.on_demand.start_on_demand = true;
    assert_eq!(changes(&tick(&mut cluster)), (1, 0, 0));
}

#[test]
fn what_is_short_of_capacity_stays_demand_with_a_position() {
    let mut cluster = on_demand(&[("sessions", "1"), ("max", "50")]);
    pool(&mut cluster, &[("capacity", "2")]);
    wait(&mut cluster, "t_a", 5);
    let plan = tick(&mut cluster);
    assert_eq!((changes(&plan), slots(&cluster).len()), ((2, 0, 0), 2));
    let plan = settle(&mut cluster);
    let [unmet] = &plan.unmet.as_ref().unwrap()[..] else { panic!("{:?}", plan.unmet) };
    let reason = "queued at position 1: resource pool \"rp_1\": asked 1, left 0 of 2 (POOL_CPU, retryable)";
    assert_eq!((unmet.sessions, unmet.reason.as_str(), unmet.position), (3, reason, Some(1)));
    assert_eq!(plan.queued.as_ref().unwrap().values().sum::<i64>(), 3, "holders come after them");
    assert!(plan.waits.iter().all(|wait| !wait.is_queued), "no slot is queued");
    pool(&mut cluster, &[("capacity", "4")]);
    settle(&mut cluster);
    assert_eq!(slots(&cluster).len(), 4);
    // An engine that is larger than the pool.
    unit(&mut cluster, &[("cpu", "9")]);
    wait(&mut cluster, "t_a", 50);
    let unmet = settle(&mut cluster).unmet.unwrap();
    let limit = "resource pool \"rp_1\": asked 9, left 0 of 4 (POOL_CPU, not retryable)";
    let reason = format!("an engine of resource unit \"uc_1\" can never fit: {limit}");
    assert!(unmet.iter().any(|unmet| unmet.reason.ends_with(&reason)), "{unmet:?}");
}

#[test]
fn demand_is_admitted_between_tenants_by_their_guarantees() {
    let mut cluster = cluster::pools::with(&["t_a", "t_b"], "1", &[("capacity", "4")]);
    unit(&mut cluster, &[("sessions", "1")]);
    quota(&mut cluster, "t_b", "3", "0");
    wait(&mut cluster, "t_a", 5);
    wait(&mut cluster, "t_b", 5);
    settle(&mut cluster);
    let of = |tenant: &str| slots(&cluster).iter().filter(|slot| slot.key.tenant.as_str() == tenant).count();
    assert_eq!((of("t_a"), of("t_b")), (1, 3));
}

#[test]
fn an_idle_engine_is_released_after_its_timeout_and_never_below_the_minimum() {
    let mut cluster = on_demand(&[("sessions", "4"), ("idle", "5m")]);
    wait(&mut cluster, "t_a", 8);
    settle(&mut cluster);
    register(&mut cluster, 4);
    wait(&mut cluster, "t_a", 0);
    settle(&mut cluster);
    let engines: Vec<EngineName> = slots(&cluster).iter().map(|slot| slot.engine()).collect();
    load(&mut cluster, &engines[0], 0, 299);
    let plan = tick(&mut cluster);
    assert_eq!((changes(&plan), plan.idle_due), ((0, 0, 0), Some(Duration::from_secs(1))));
    assert_eq!(plan.next_due(cluster.simulation.desired.snapshot.now_ms), Some(Duration::from_secs(1)));
    load(&mut cluster, &engines[0], 0, 300);
    let plan = cluster.simulation.plan();
    assert_eq!(changes(&plan), (0, 0, 1));
    let [scaling] = scaled(&plan)[..] else { panic!("one link") };
    let release = &scaling.release[0];
    assert_eq!((&release.engine, release.slot.reason.as_str()), (&engines[0], "idle for 5m"));
    assert_eq!(release.uid, cluster.uid(&engines[0]));
    assert_eq!(plan.released().len(), 1);
    // The minimum is raised to what exists.
    unit(&mut cluster, &[("min", "2")]);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0));
    unit(&mut cluster, &[("min", "0")]);
    tick(&mut cluster);
    settle(&mut cluster);
    assert_eq!(slots(&cluster).len(), 1);
    let drained: Vec<&EngineName> = cluster.simulation.observed.drains.iter().map(|drain| &drain.engine).collect();
    assert_eq!(drained, [&engines[0]]);
}

#[test]
fn an_engine_that_a_user_started_or_of_which_nothing_is_known_is_never_released() {
    let mut cluster = on_demand(&[("sessions", "4"), ("idle", "5m")]);
    let started = cluster.start("t_a/rp_1/uc_1");
    wait(&mut cluster, "t_a", 9);
    settle(&mut cluster);
    register(&mut cluster, 4);
    wait(&mut cluster, "t_a", 0);
    settle(&mut cluster);
    load(&mut cluster, &started, 0, 9_000);
    let other = slots(&cluster)[1].engine();
    cluster.simulation.observed.loads.remove(&other);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0));
    // One without the call to retire reports no idle time.
    load(&mut cluster, &other, 0, 0);
    cluster.simulation.observed.scaling.uses.remove(&other);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0));
    // While the registry may be incomplete, nothing is scaled unless all that runs is there.
    load(&mut cluster, &other, 0, 9_000);
    cluster.simulation.observed.registry_complete = false;
    let registrations = cluster.simulation.observed.registrations.clone();
    cluster.simulation.observed.registrations.pop();
    wait(&mut cluster, "t_a", 99);
    assert_eq!(changes(&tick(&mut cluster)), (0, 0, 0));
    cluster.simulation.observed.registrations = registrations;
    wait(&mut cluster, "t_a", 0);
    assert_eq!(changes(&tick(&mut cluster)), (0, 0, 1));
}

#[test]
fn an_engine_on_its_way_is_cancelled_only_once_demand_has_lapsed() {
    let mut cluster = on_demand(&[("sessions", "4")]);
    wait(&mut cluster, "t_a", 8);
    settle(&mut cluster);
    assert_eq!(running(&cluster), 2);
    let group = ScalingGroup { link: slots(&cluster)[0].key.link(), owner: None };
    let recent = |waiting: u64| Some(BTreeMap::from([(group.clone(), waiting)]));
    wait(&mut cluster, "t_a", 0);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0), "the master does not know how it was before");
    cluster.simulation.observed.scaling.recent_demand = recent(8);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0), "a moment ago 8 sessions waited");
    cluster.simulation.observed.scaling.recent_demand = recent(0);
    let plan = tick(&mut cluster);
    assert_eq!((changes(&plan), slots(&cluster).len()), ((0, 2, 0), 0));
    settle(&mut cluster);
    cluster.simulation.exit_drained();
    settle(&mut cluster);
    assert_eq!(running(&cluster), 0);
    assert!(cluster.simulation.desired.snapshot.ledger.reservations().all(|it| !it.state.is_charged()));
}

#[test]
fn a_plan_does_not_create_what_it_cancels() {
    let mut cluster = on_demand(&[("sessions", "4")]);
    wait(&mut cluster, "t_a", 8);
    assert_eq!(changes(&tick(&mut cluster)), (2, 0, 0));
    // One client has stopped waiting before its engine is created.
    wait(&mut cluster, "t_a", 1);
    let plan = tick(&mut cluster);
    assert_eq!(changes(&plan), (0, 1, 0));
    assert_eq!(verbs(&plan).iter().filter(|verb| **verb == "create engine").count(), 1, "{:?}", verbs(&plan));
    settle(&mut cluster);
    assert_eq!((running(&cluster), slots(&cluster).len()), (1, 1));
    assert!(cluster.simulation.observed.drains.is_empty(), "nothing was created for the other one");
}

#[test]
fn a_spare_engine_is_kept_ready_while_the_group_is_in_use() {
    let mut cluster = on_demand(&[("sessions", "2"), ("spare", "1"), ("idle", "5m")]);
    wait(&mut cluster, "t_a", 2);
    settle(&mut cluster);
    register(&mut cluster, 2);
    wait(&mut cluster, "t_a", 0);
    let plan = tick(&mut cluster);
    assert_eq!(changes(&plan), (1, 0, 0));
    let because = &plan.decisions().find(|decision| decision.verb() == "scale").unwrap().reason;
    assert!(because.ends_with("adds 1 engine, because a spare engine is kept ready"), "{because}");
    settle(&mut cluster);
    register(&mut cluster, 0);
    let engines: Vec<EngineName> = slots(&cluster).iter().map(|slot| slot.engine()).collect();
    load(&mut cluster, &engines[1], 0, 900);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0));
    load(&mut cluster, &engines[0], 0, 900);
    assert_eq!(changes(&tick(&mut cluster)), (0, 0, 2), "nothing is in use");
}

#[test]
fn a_spare_engine_is_started_also_where_no_engine_follows_demand_yet() {
    let mut cluster = on_demand(&[("sessions", "2"), ("spare", "1"), ("min", "1")]);
    settle(&mut cluster);
    register(&mut cluster, 0);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0), "nothing is in use");
    let engine = slots(&cluster)[0].engine();
    load(&mut cluster, &engine, 1, 0);
    assert_eq!(changes(&tick(&mut cluster)), (1, 0, 0));
    settle(&mut cluster);
    // It has registered and was not polled yet.
    for engine in cluster.simulation.about_to_register() {
        assert!(cluster.simulation.register(&engine));
    }
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0));
    let spare = slots(&cluster)[1].engine();
    load(&mut cluster, &spare, 0, 0);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0));
}

#[test]
fn a_failed_start_holds_back_only_its_own_link() {
    let mut cluster = on_demand(&[("sessions", "1"), ("max", "9")]);
    commit(&mut cluster, Cluster::unit("uc_2", &[("on_demand", "true"), ("sessions", "1"), ("cpu", "1")].into()));
    commit(&mut cluster, Cluster::pool("rp_2", &[("units", "uc_2")].into()));
    commit(&mut cluster, Cluster::tenant("t_b", &[("pools", "rp_2")].into()));
    wait(&mut cluster, "t_a", 1);
    settle(&mut cluster);
    let engine = slots(&cluster)[0].engine();
    let uid = cluster.uid(&engine);
    cluster.simulation.end(&uid, "exit code 1");
    for _ in 0..3 {
        tick(&mut cluster);
    }
    wait(&mut cluster, "t_a", 2);
    let plan = settle(&mut cluster);
    assert_eq!((changes(&plan), slots(&cluster).len()), ((0, 0, 0), 1));
    let unmet = plan.unmet.unwrap();
    assert_eq!(unmet[0].reason, "the last start has failed and is repeated after a while");
    wait(&mut cluster, "t_b", 1);
    assert_eq!(changes(&tick(&mut cluster)), (1, 0, 0));
    // The slot starts again after its back-off.
    cluster.simulation.advance(Duration::from_secs(10));
    settle(&mut cluster);
    register(&mut cluster, 1);
    wait(&mut cluster, "t_b", 0);
    wait(&mut cluster, "t_a", 1);
    assert_eq!(changes(&tick(&mut cluster)), (1, 0, 0));
}

#[test]
fn a_lowered_maximum_drains_idle_engines_first() {
    let mut cluster = on_demand(&[("sessions", "4"), ("max", "5")]);
    wait(&mut cluster, "t_a", 12);
    settle(&mut cluster);
    register(&mut cluster, 4);
    wait(&mut cluster, "t_a", 0);
    settle(&mut cluster);
    let engines: Vec<EngineName> = slots(&cluster).iter().map(|slot| slot.engine()).collect();
    load(&mut cluster, &engines[1], 0, 1);
    unit(&mut cluster, &[("max", "2")]);
    settle(&mut cluster);
    assert_eq!(
        slots(&cluster).iter().map(|slot| slot.engine()).collect::<Vec<_>>(),
        [engines[0].clone(), engines[2].clone()]
    );
    let [drain] = &cluster.simulation.observed.drains[..] else { panic!("one engine drains") };
    assert_eq!((&drain.engine, drain.reason.as_str()), (&engines[1], "MAX_ENGINES is 2"));
}

#[test]
fn explain_starts_what_demand_needs_and_no_more() {
    let mut cluster = on_demand(&[("sessions", "10"), ("max", "50")]);
    wait(&mut cluster, "t_a", 30);
    cluster.simulation.desired.snapshot.demand[0].until_ms = cluster.simulation.desired.snapshot.now_ms + 15_000;
    let simulation = &mut cluster.simulation;
    let rows = planner::explain(&simulation.desired, &simulation.observed);
    let scaled: Vec<String> = rows.iter().filter(|row| row.decision == "scale").map(ToString::to_string).collect();
    let link = "tenant \"t_a\" on resource pool \"rp_1\", unit \"uc_1\"";
    assert_eq!(scaled, [format!("1. scale t_a/rp_1/uc_1: {link}: adds 3 engines, because 30 sessions wait")]);
    let count = |decision: &str| rows.iter().filter(|row| row.decision == decision).count();
    assert_eq!((count("create engine"), count("drain engine"), count("wait")), (3, 0, 0), "{rows:?}");

    unit(&mut cluster, &[("sessions", "10"), ("max", "2")]);
    let rows = planner::explain(&cluster.simulation.desired, &cluster.simulation.observed);
    let last = rows.last().unwrap().to_string();
    let expected = "wait t_a/*/*: 10 sessions wait: all engines are full, and MAX_ENGINES is 2";
    assert!(last.ends_with(expected), "{last}");
}
