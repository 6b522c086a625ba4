//! Permits in an unexpected state: nodes below one that only its engine may delete, unreadable content.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use model::slot::Replacement;
use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{Cluster, slot_key};
use model::engine_state::Phase;
use planner::{Action, DELETE_AFTER_GRACE, ObservedState, Permit, Row, explain_change};

fn with_one_engine() -> Cluster {
    let mut cluster = Cluster::new();
    for object in [
        Cluster::unit("uc_1", &BTreeMap::from([("min", "1")])),
        Cluster::pool("rp_1", &BTreeMap::from([("units", "uc_1")])),
        Cluster::tenant("t_1", &BTreeMap::from([("pools", "rp_1")])),
    ] {
        let change = cluster.change_to(object);
        cluster.commit(&change).unwrap();
        cluster.settle(|_, _| {});
    }
    cluster
}

#[test]
fn an_unreadable_permit_is_created_again_below_a_registered_engine() {
    let mut cluster = with_one_engine();
    let (engine, uid) = (cluster.engine("t_1/rp_1/uc_1/0"), cluster.uid(&cluster.engine("t_1/rp_1/uc_1/0")));
    cluster.simulation.observed.permits[0] =
        Permit { engine: engine.clone(), uid: None, readable: false, answered: true, sessions: None, owner: None }
            .into();
    let plan = cluster.simulation.plan();
    assert_eq!(plan.decisions().map(planner::Decision::verb).collect::<Vec<_>>(), ["delete permit"]);
    cluster.simulation.apply(&plan);
    let plan = cluster.simulation.plan();
    assert_eq!(plan.decisions().map(planner::Decision::verb).collect::<Vec<_>>(), ["create permit"]);
    cluster.simulation.apply(&plan);
    assert!(cluster.simulation.register(&engine));
    assert!(cluster.simulation.plan().chains.is_empty());
    assert_eq!(cluster.uid(&engine), uid, "it is the same engine all the while");
}

#[test]
fn an_engine_is_ended_although_its_permit_cannot_be_deleted() {
    let mut cluster = with_one_engine();
    let slot = slot_key("t_1/rp_1/uc_1/0");
    let engine = cluster.engine("t_1/rp_1/uc_1/0");
    cluster.stop(&slot);
    let plan = cluster.simulation.plan();
    cluster.simulation.apply(&plan);
    // The drain could not delete the permit, which no longer has a uid.
    let permit = Permit {
        engine: engine.clone(),
        uid: None,
        readable: true,
        answered: false,
        sessions: Some(None),
        owner: Some(None),
    };
    cluster.simulation.observed.permits.push(permit.into());
    let grace = cluster.simulation.observed.drains[0].grace;
    cluster.simulation.advance(grace + DELETE_AFTER_GRACE);
    let plan = cluster.simulation.plan();
    let chain_of = |desired_by: fn(&Action) -> bool| {
        plan.chains
            .iter()
            .position(|chain| chain.decisions.iter().any(|decision| desired_by(&decision.action)))
            .unwrap()
    };
    let permit = chain_of(|action| matches!(action, Action::DeletePermit));
    let instance = chain_of(|action| matches!(action, Action::DeleteEngine { .. }));
    assert_ne!(permit, instance, "a chain stops at its first failure");
}

/// The rows of EXPLAIN from the master's report only, and the decisions that follow.
fn explained_and_decided(cluster: &mut Cluster) -> (Vec<Row>, Vec<Row>) {
    let change = cluster.change_to(Cluster::unit("uc_1", &BTreeMap::from([("memory", "2G")])));
    let report: Vec<_> = cluster.simulation.plan().rows.into_iter().map(Arc::unwrap_or_clone).collect();
    let observed = ObservedState::from_report(&report, &cluster.simulation.desired.snapshot);
    let explained =
        explain_change(&cluster.simulation.desired, &change, Replacement::StandIn, &cluster.rules, &observed).unwrap();
    (explained, cluster.explain(&change).unwrap())
}

#[test]
fn explain_knows_from_the_report_which_engine_never_registered() {
    let mut cluster = with_one_engine();
    cluster.restart(&slot_key("t_1/rp_1/uc_1/0"), Replacement::StandIn);
    let plan = cluster.simulation.plan();
    cluster.simulation.apply(&plan);
    // Its program runs, and it has not registered.
    let starting = cluster.engine("t_1/rp_1/uc_1/0");
    cluster
        .simulation
        .observed
        .instances
        .iter_mut()
        .filter(|instance| instance.name == starting)
        .for_each(|instance| instance.phase = Phase::Running);
    let (explained, decided) = explained_and_decided(&mut cluster);
    let drained = explained.iter().find(|row| row.decision == "drain engine" && row.engine == starting.as_str());
    assert_eq!(drained.unwrap().because, "it was superseded before it ever registered");
    assert_eq!(explained, decided);
}

#[test]
fn explain_knows_from_the_report_that_an_unregistered_engine_stands_in() {
    let mut cluster = with_one_engine();
    let serving = cluster.engine("t_1/rp_1/uc_1/0");
    cluster.simulation.observed.registrations.clear();
    cluster.simulation.observed.instances.iter_mut().for_each(|instance| instance.phase = Phase::Starting);
    let (explained, decided) = explained_and_decided(&mut cluster);
    assert!(explained.iter().any(|row| row.because == format!("replaces {serving}")), "{explained:?}");
    assert_eq!(explained, decided);
}
