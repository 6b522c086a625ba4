//! The ends of engines as the history shows them: one word and one reason, those of the order that ended the engine.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::pools::{commit, tick, with};
use cluster::{Cluster, Step};
use model::demand::{Demand, DemandKey, ScalingGroup};
use model::end::EndWord;
use model::engine_name::EngineName;
use model::name::TenantName;
use model::shared::Shared;
use model::slot::{Replacement, Slot};
use model::snapshot::EngineRecord;
use planner::{Action, EngineLoad, EngineUse, Plan};

/// The ends that a plan records.
fn ends(plan: &Plan) -> Vec<(EngineName, EndWord, String)> {
    let ended = plan.decisions().filter_map(|decision| match &decision.action {
        Action::RecordEnd { reason, class, .. } => Some((decision.engine.clone()?, class.word, reason.clone())),
        _ => None,
    });
    ended.collect()
}

fn slots(cluster: &Cluster) -> &[Shared<Slot>] {
    &cluster.simulation.desired.snapshot.slots
}

fn record(cluster: &Cluster, engine: &EngineName) -> EngineRecord {
    let engines = &cluster.simulation.desired.snapshot.engines;
    EngineRecord::clone(engines.iter().find(|record| record.name == *engine).unwrap())
}

#[test]
fn the_end_of_a_replaced_engine_names_its_successor() {
    for (replacement, how) in [(Replacement::StandIn, "replaced by"), (Replacement::InPlace, "replaced in place by")] {
        let mut cluster = with(&["t_a"], "1", &[]);
        let old = cluster.start("t_a/rp_1/uc_1");
        cluster.settle(|_, _| {});
        let key = slots(&cluster)[0].key.clone();
        cluster.restart(&key, replacement);
        let new = slots(&cluster)[0].engine();
        let mut recorded = Vec::new();
        cluster.settle(|_, step| {
            if let Step::Plan(plan) = step {
                recorded.extend(ends(plan));
            }
        });
        assert_eq!(recorded, [(old, EndWord::Superseded, format!("{how} {new}"))]);
    }
}

#[test]
fn a_replaced_engine_that_fails_while_it_drains_shows_both() {
    let mut cluster = with(&["t_a"], "1", &[]);
    let old = cluster.start("t_a/rp_1/uc_1");
    cluster.settle(|_, _| {});
    let key = slots(&cluster)[0].key.clone();
    cluster.restart(&key, Replacement::StandIn);
    let new = slots(&cluster)[0].engine();
    tick(&mut cluster);
    assert!(cluster.simulation.register(&new));
    tick(&mut cluster);
    let uid = cluster.uid(&old);
    cluster.simulation.end(&uid, "exit code 1");
    for instance in cluster.simulation.observed.instances.iter_mut().filter(|instance| instance.uid == uid) {
        instance.fault = Some(model::end::StartFault::Exited);
    }
    let reason = format!("replaced by {new}; exit code 1");
    assert_eq!(ends(&cluster.simulation.plan()), [(old, EndWord::Superseded, reason)]);
}

/// A unit on demand with one engine that has a session, and nothing waits.
fn busy() -> (Cluster, EngineName) {
    let mut cluster = with(&["t_a"], "1", &[]);
    commit(&mut cluster, Cluster::unit("uc_1", &[("on_demand", "true"), ("sessions", "4"), ("idle", "5m")].into()));
    let key = DemandKey::of_tenant(TenantName::new("t_a").unwrap(), "IDE");
    let snapshot = &mut cluster.simulation.desired.snapshot;
    snapshot.demand.push(Demand { key, waiting: 1, since_ms: snapshot.now_ms, until_ms: i64::MAX });
    for _ in 0..3 {
        tick(&mut cluster);
    }
    let engine = slots(&cluster)[0].engine();
    register(&mut cluster, &engine, 1);
    cluster.simulation.desired.snapshot.demand.clear();
    let group = ScalingGroup { link: slots(&cluster)[0].key.link(), owner: None };
    cluster.simulation.observed.scaling.recent_demand = Some(BTreeMap::from([(group, 0)]));
    tick(&mut cluster);
    (cluster, engine)
}

fn register(cluster: &mut Cluster, engine: &EngineName, sessions: u32) {
    assert!(cluster.simulation.register(engine));
    let observed = &mut cluster.simulation.observed;
    observed.loads.insert(engine.clone(), EngineLoad { sessions, running: 0 });
    observed.scaling.uses.insert(engine.clone(), EngineUse::default());
}

/// The engine was replaced, and its session has not left it when the slot goes.
fn assert_superseded(cluster: &Cluster, old: &EngineName, new: &EngineName) {
    assert!(slots(cluster).is_empty(), "nothing waits");
    let record = record(cluster, old);
    let reason = format!("replaced by {new}");
    assert_eq!((record.ended_word, record.end_reason), (Some(EndWord::Superseded), Some(reason)));
}

#[test]
fn an_engine_replaced_in_place_does_not_end_as_unneeded_with_its_successor() {
    let (mut cluster, old) = busy();
    let change = cluster.change_to(Cluster::unit("uc_1", &[("memory", "2G")].into()));
    cluster.commit_with(&change, Replacement::InPlace).unwrap();
    let new = slots(&cluster)[0].engine();
    for _ in 0..3 {
        tick(&mut cluster);
    }
    assert_superseded(&cluster, &old, &new);
}

#[test]
fn a_busy_engine_does_not_end_as_idle_with_its_successor() {
    let (mut cluster, old) = busy();
    let key = slots(&cluster)[0].key.clone();
    cluster.restart(&key, Replacement::StandIn);
    let new = slots(&cluster)[0].engine();
    tick(&mut cluster);
    register(&mut cluster, &new, 0);
    tick(&mut cluster);
    let idle = EngineUse { idle_for: Duration::from_mins(6), ..EngineUse::default() };
    cluster.simulation.observed.scaling.uses.insert(new.clone(), idle);
    for _ in 0..2 {
        tick(&mut cluster);
    }
    assert_superseded(&cluster, &old, &new);
    assert_eq!(record(&cluster, &new).ended_word, Some(EndWord::Idle));
}

#[test]
fn restart_with_force_names_itself_as_the_reason_also_when_its_engine_is_not_needed() {
    let (mut cluster, old) = busy();
    let key = slots(&cluster)[0].key.clone();
    cluster.restart(&key, Replacement::Force);
    for _ in 0..3 {
        tick(&mut cluster);
    }
    assert!(slots(&cluster).is_empty(), "nothing waits");
    assert_eq!(record(&cluster, &old).end_reason.as_deref(), Some("restarted with FORCE"));
}
