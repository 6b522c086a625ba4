//! Failed nodes in plans: which evidence replaces an engine, what its charge becomes, and what does not wait for it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cluster;

use std::time::Duration;

use cluster::pools::{commit, idle, ledger_changes, queued, running, settle, start, tick, verbs, with};
use cluster::{Cluster, slot_key};
use model::demand::{Demand, DemandKey};
use model::engine_name::EngineName;
use model::ledger::{Change, ScopeKey, State};
use model::name::{PoolName, TenantName};
use model::observation::ObservedEngine;
use model::slot::Replacement;
use planner::{Action, EngineLoad, ObservedState, Plan, UnreadyNode, plan};

const FIRST: &str = "t_a/rp_1/uc_1/0";

/// A tenant with so many engines of 1 CPU that serve, each on its own node, in a pool of this capacity.
fn serving(count: usize, capacity: &str) -> Cluster {
    let mut cluster = with(&["t_a", "t_b"], "1", &[("capacity", capacity)]);
    start(&mut cluster, "t_a", count);
    settle(&mut cluster);
    for ordinal in 0..count {
        let engine = cluster.engine(&format!("t_a/rp_1/uc_1/{ordinal}"));
        put_on(&mut cluster, &engine, &format!("n-{ordinal}"));
    }
    cluster
}

fn put_on(cluster: &mut Cluster, engine: &EngineName, node: &str) {
    let instances = &mut cluster.simulation.observed.instances;
    instances.iter_mut().filter(|instance| instance.name == *engine).for_each(|it| it.node = Some(node.to_owned()));
}

fn unready(cluster: &mut Cluster, node: &str, secs: u64) {
    let unready = UnreadyNode { lasted: Duration::from_secs(secs), is_absent: false };
    cluster.simulation.observed.unready.insert(node.to_owned(), unready);
}

fn cut_off(cluster: &mut Cluster, engine: &EngineName) {
    cluster.simulation.observed.registrations.retain(|registration| registration.engine != *engine);
}

/// The node of the tenant's engine has failed.
fn fail(cluster: &mut Cluster, ordinal: usize) -> EngineName {
    let engine = cluster.engine(&format!("t_a/rp_1/uc_1/{ordinal}"));
    unready(cluster, &format!("n-{ordinal}"), 60);
    cut_off(cluster, &engine);
    engine
}

fn held(cluster: &Cluster) -> i64 {
    let pool = ScopeKey::pool(&PoolName::new("rp_1").unwrap());
    cluster.simulation.desired.snapshot.ledger.scope(&pool).unwrap().counter.held.cpu_m
}

fn state(cluster: &Cluster, engine: &EngineName) -> Option<State> {
    cluster.reservation(engine).map(|reservation| reservation.state)
}

fn created(plan: &Plan) -> Vec<EngineName> {
    let created = plan.decisions().filter(|decision| matches!(decision.action, Action::CreateEngine(_)));
    created.map(|decision| decision.engine.clone().unwrap()).collect()
}

#[test]
fn an_engine_is_replaced_only_with_all_the_evidence() {
    #[allow(clippy::struct_excessive_bools)]
    struct Case {
        what: &'static str,
        is_registered: bool,
        has_been: bool,
        registry_complete: bool,
        node_secs: Option<u64>,
        is_replaced: bool,
    }
    let all = Case {
        what: "all",
        is_registered: false,
        has_been: true,
        registry_complete: true,
        node_secs: Some(5),
        is_replaced: true,
    };
    let cases = [
        Case { what: "registered", is_registered: true, is_replaced: false, ..all },
        Case { what: "registry incomplete", registry_complete: false, is_replaced: false, ..all },
        Case { what: "node ready", node_secs: None, is_replaced: false, ..all },
        Case { what: "for 4 s", node_secs: Some(4), is_replaced: false, ..all },
        Case { what: "never registered, 29 s", has_been: false, node_secs: Some(29), is_replaced: false, ..all },
        Case { what: "never registered, 30 s", has_been: false, node_secs: Some(30), ..all },
        Case {
            what: "never registered, registry incomplete",
            has_been: false,
            node_secs: Some(30),
            registry_complete: false,
            is_replaced: false,
            ..all
        },
        all,
    ];
    for case in cases {
        let mut cluster = serving(1, "9");
        let engine = cluster.engine(FIRST);
        if !case.is_registered {
            cut_off(&mut cluster, &engine);
        }
        for permit in &mut cluster.simulation.observed.permits {
            permit.answered = case.has_been;
        }
        if let Some(secs) = case.node_secs {
            unready(&mut cluster, "n-0", secs);
        }
        cluster.simulation.observed.registry_complete = case.registry_complete;
        let slot = cluster.simulation.desired.snapshot.slots[0].clone();
        let plan = cluster.simulation.plan();
        let draws: Vec<_> = plan.decisions().filter(|it| matches!(it.action, Action::DrawIncarnation { .. })).collect();
        assert_eq!(draws.len(), usize::from(case.is_replaced), "{}: {:?}", case.what, verbs(&plan));
        if let Some(draw) = draws.first() {
            assert_eq!(draw.reason, "node \"n-0\" is not ready");
            let Action::DrawIncarnation { failures, replacement, .. } = draw.action else { panic!("a draw") };
            assert_eq!((failures, replacement), (slot.failures, Replacement::StandIn));
        }
    }
}

#[test]
fn a_permit_that_was_not_read_is_no_evidence_of_a_lost_registration() {
    let mut cluster = serving(1, "9");
    fail(&mut cluster, 0);
    unready(&mut cluster, "n-0", 6);
    for permit in &mut cluster.simulation.observed.permits {
        permit.sessions = None;
    }
    let plan = cluster.simulation.plan();
    assert!(!verbs(&plan).contains(&"draw incarnation"), "{:?}", verbs(&plan));
}

#[test]
fn in_a_full_pool_the_successor_takes_the_charge_before_a_younger_request() {
    let mut cluster = serving(1, "1");
    cluster.simulation.advance(Duration::from_secs(1));
    start(&mut cluster, "t_b", 1);
    tick(&mut cluster);
    let old = fail(&mut cluster, 0);
    tick(&mut cluster);
    let plan = tick(&mut cluster);
    let successor = cluster.engine(FIRST);
    assert_eq!(created(&plan), std::slice::from_ref(&successor), "two ticks after the evidence");
    assert!(ledger_changes(&plan).any(|change| matches!(change, Change::End(end) if end.state == State::Lost)));
    assert_eq!((state(&cluster, &old), state(&cluster, &successor)), (Some(State::Lost), Some(State::Locked)));
    assert_eq!((held(&cluster), queued(&cluster.simulation.plan()).len()), (1_000, 1), "the other tenant waits");
    assert_eq!(running(&cluster), 2, "the old pod remains");
}

#[test]
fn a_lost_engine_is_charged_again_only_when_its_node_returns() {
    let mut cluster = serving(1, "1");
    let old = fail(&mut cluster, 0);
    for _ in 0..4 {
        tick(&mut cluster);
    }
    // A new master measures the time of the node from the start, and does not know the registry.
    unready(&mut cluster, "n-0", 0);
    cluster.simulation.observed.registry_complete = false;
    let plan = tick(&mut cluster);
    assert_eq!((verbs(&plan), held(&cluster)), (vec![], 1_000));
    cluster.simulation.observed.registry_complete = true;
    cluster.simulation.observed.unready.clear();
    let plan = tick(&mut cluster);
    assert_eq!((verbs(&plan), held(&cluster)), (vec!["adopt"], 2_000), "whatever the capacity");
    // The successor registers: the old engine ends, and its charge with it.
    settle(&mut cluster);
    assert_eq!((held(&cluster), running(&cluster)), (1_000, 1));
    assert_ne!(cluster.simulation.observed.instances[0].name, old);
}

#[test]
fn the_charge_of_an_unreachable_engine_ends_with_its_slot() {
    let mut cluster = serving(2, "2");
    let old = fail(&mut cluster, 0);
    cluster.stop(&slot_key(FIRST));
    tick(&mut cluster);
    // Its drain order has taken its permit, so that its registration says nothing more: the node alone counts.
    tick(&mut cluster);
    assert_eq!((state(&cluster, &old), held(&cluster)), (Some(State::Lost), 1_000));
    assert_eq!(running(&cluster), 2);
}

#[test]
fn the_charge_of_a_draining_engine_stays_while_its_node_may_return() {
    let mut cluster = serving(1, "1");
    cluster.stop(&slot_key(FIRST));
    tick(&mut cluster);
    unready(&mut cluster, "n-0", 29);
    tick(&mut cluster);
    assert_eq!(held(&cluster), 1_000);
}

#[test]
fn in_place_does_not_wait_for_an_unreachable_engine_and_it_takes_no_turn() {
    let mut cluster = serving(4, "4");
    let lost = [fail(&mut cluster, 0), fail(&mut cluster, 1)];
    let change = cluster.change_to(Cluster::unit("uc_1", &[("memory", "2G")].into()));
    cluster.commit_with(&change, Replacement::InPlace).unwrap();
    let plan = tick(&mut cluster);
    let successors = [cluster.engine(FIRST), cluster.engine("t_a/rp_1/uc_1/1")];
    assert_eq!(created(&plan), successors, "with the charge of the older ones");
    let transfers = ledger_changes(&plan).filter(|change| matches!(change, Change::Transfer { .. }));
    assert_eq!((transfers.count(), held(&cluster)), (2, 4_000));
    // The turn is left to an engine that serves.
    let drained = plan.decisions().filter(|decision| matches!(decision.action, Action::Drain { .. })).count();
    assert_eq!(drained, 1, "{:?}", verbs(&plan));
    settle(&mut cluster);
    assert_eq!(running(&cluster), 4);
    assert!(cluster.simulation.observed.instances.iter().all(|instance| !lost.contains(&instance.name)));
}

#[test]
fn a_restart_with_a_new_engine_first_takes_no_turn_for_an_unreachable_one() {
    let mut cluster = serving(4, "9");
    fail(&mut cluster, 0);
    fail(&mut cluster, 1);
    commit(&mut cluster, Cluster::unit("uc_1", &[("memory", "2G")].into()));
    let current: Vec<EngineName> = cluster.simulation.desired.snapshot.slots.iter().map(|slot| slot.engine()).collect();
    let is_created = |engine: &&EngineName| cluster.simulation.observed.instances.iter().any(|it| it.name == **engine);
    assert_eq!(current.iter().filter(is_created).count(), 3, "both lost ones, and one in its turn");
}

#[test]
fn if_most_nodes_fail_nothing_is_replaced_and_no_charge_ends() {
    let mut cluster = serving(5, "5");
    for ordinal in 0..2 {
        fail(&mut cluster, ordinal);
    }
    unready(&mut cluster, "n-2", 0);
    let plan = tick(&mut cluster);
    assert_eq!(verbs(&plan), Vec::<&str>::new());
    let why = "3 of 5 nodes with engines are not ready: no engine is replaced because of its node";
    assert_eq!((plan.suspended.as_deref(), plan.waits_for.as_deref()), (Some(why), Some(why)));
    cluster.simulation.observed.unready.remove("n-2");
    cluster.simulation.observed.since_suspended = Some(Duration::from_secs(4));
    assert_eq!(verbs(&tick(&mut cluster)), Vec::<&str>::new(), "the others may return as well");
    cluster.simulation.observed.since_suspended = Some(Duration::from_secs(5));
    let plan = tick(&mut cluster);
    assert_eq!((verbs(&plan), plan.suspended), (vec!["draw incarnation"; 2], None));
}

#[test]
fn explain_knows_from_the_report_which_engines_are_unreachable() {
    let mut cluster = serving(1, "1");
    fail(&mut cluster, 0);
    for _ in 0..2 {
        tick(&mut cluster);
    }
    let rows: Vec<ObservedEngine> =
        cluster.simulation.plan().rows.iter().map(|row| ObservedEngine::clone(row)).collect();
    let snapshot = &mut cluster.simulation.desired.snapshot;
    let uncharged = |reported: &ObservedState| reported.unready.keys().cloned().collect::<Vec<String>>();
    let in_that_tick = ObservedState::from_report(&rows, snapshot);
    assert_eq!(uncharged(&in_that_tick), [""; 0], "its end may be recorded next");
    snapshot.master.last_tick_ms = snapshot.now_ms + 1;
    let reported = ObservedState::from_report(&rows, snapshot);
    assert_eq!(uncharged(&reported), ["n-0"]);
    let plan = plan(&cluster.simulation.desired, &reported);
    assert_eq!(verbs(&plan), Vec::<&str>::new(), "it does not charge the old engine");
}

#[test]
fn two_nodes_of_two_are_replaced() {
    let mut cluster = serving(2, "2");
    fail(&mut cluster, 0);
    fail(&mut cluster, 1);
    assert_eq!(verbs(&tick(&mut cluster)), ["draw incarnation"; 2]);
}

#[test]
fn a_slot_on_demand_counts_as_pending_while_its_engine_is_unreachable() {
    let mut cluster = with(&["t_a"], "1", &[]);
    commit(&mut cluster, Cluster::unit("uc_1", &[("on_demand", "true"), ("sessions", "4")].into()));
    let wait = |cluster: &mut Cluster, waiting: u64| {
        let snapshot = &mut cluster.simulation.desired.snapshot;
        let key = DemandKey::of_tenant(TenantName::new("t_a").unwrap(), "IDE");
        snapshot.demand = vec![Demand { key, waiting, since_ms: snapshot.now_ms, until_ms: i64::MAX }];
    };
    wait(&mut cluster, 4);
    for _ in 0..4 {
        tick(&mut cluster);
    }
    for engine in cluster.simulation.about_to_register() {
        assert!(cluster.simulation.register(&engine));
    }
    wait(&mut cluster, 0);
    tick(&mut cluster);
    let old = cluster.engine(FIRST);
    put_on(&mut cluster, &old, "n-0");
    idle(&mut cluster);
    cluster.simulation.observed.loads.insert(old, EngineLoad { sessions: 4, running: 0 });
    // Its sessions were lost with it, and wait for another engine.
    fail(&mut cluster, 0);
    cluster.simulation.observed.loads.clear();
    wait(&mut cluster, 4);
    let plan = tick(&mut cluster);
    assert_eq!(verbs(&plan), ["draw incarnation"], "no second slot");
    for _ in 0..3 {
        let plan = tick(&mut cluster);
        assert!(!verbs(&plan).contains(&"scale"), "{:?}", verbs(&plan));
    }
    assert_eq!((cluster.simulation.desired.snapshot.slots.len(), running(&cluster)), (1, 2));
}
