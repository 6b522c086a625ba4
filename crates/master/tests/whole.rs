//! The master over real parts: the embedded ZooKeeper, metadata agents over `HiveServer2` and a SQLite database, and
//! the orchestrator's fake with engines that register, drain and exit.
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code)]
#[path = "../../agent-api/tests/agent/mod.rs"]
mod agent;
mod cluster;
#[path = "whole/reservations.rs"]
mod reservations;

use std::time::Duration;

use cluster::{Cluster, acting, eventually, memory};
use master::CandidateState;
use model::PoolName;
use model::alteration::{AlterationProgress, Outcome};
use model::change::{Change, ObjectPatch, PoolPatch, Setting};
use model::observation::ObservedNode;
use orchestrator::Error;
use orchestrator::memory::{End, Verb};

/// Calls that fail: more than a test makes.
const MANY: u32 = 10_000;

fn epoch(state: CandidateState) -> i64 {
    let CandidateState::Acting { epoch, .. } = state else { panic!("{state:?}") };
    epoch.get()
}

#[tokio::test]
async fn engines_converge_through_start_alter_restart_and_stop() {
    let cluster = Cluster::founded(2).await;
    let master = cluster.master();
    cluster.converges().await;
    let before = cluster.uids().await;
    cluster.start().await;
    cluster.converges().await;
    assert!(cluster.uids().await.is_superset(&before), "no other engine was changed");

    let altered = cluster.memory_of_unit(2).await;
    cluster.converges().await;
    let after = cluster.uids().await;
    assert!(before.is_disjoint(&after) && after.len() == 3);
    assert_eq!(cluster.store.outcome(&altered).await.unwrap().unwrap().progress, Some(AlterationProgress::Converged));

    let snapshot = cluster.store.snapshot().await.unwrap();
    let slot = snapshot.slots.iter().find(|slot| slot.key == started_slot(&snapshot)).unwrap();
    let successor = cluster.restart(&slot.engine(), false).await;
    cluster.converges().await;
    let forced = cluster.restart(&successor, true).await;
    cluster.converges().await;
    cluster.stop(&forced).await;
    cluster.converges().await;
    assert_eq!(cluster.engines().await.len(), 2);
    master.shutdown().await;
}

/// The slot of an engine that was started: the one that is not of the minimum.
fn started_slot(snapshot: &model::snapshot::Snapshot) -> model::SlotKey {
    let started = snapshot.slots.iter().find(|slot| slot.origin == model::slot::Origin::Start);
    started.unwrap().key.clone()
}

#[tokio::test]
async fn work_converges_while_masters_come_and_go() {
    let cluster = Cluster::founded(3).await;
    for life_ms in (5..200).step_by(15) {
        let master = cluster.master();
        tokio::time::sleep(Duration::from_millis(life_ms)).await;
        drop(master);
    }
    cluster.memory_of_unit(2).await;
    for life_ms in (5..200).step_by(15) {
        let master = cluster.master();
        tokio::time::sleep(Duration::from_millis(life_ms)).await;
        drop(master);
    }
    let master = cluster.master();
    cluster.converges().await;
    let ensures = cluster.memory.calls().into_iter().filter(|call| call.verb == Verb::Ensure);
    assert!(ensures.count() >= 6);
    master.shutdown().await;
}

#[tokio::test]
async fn a_freshly_started_master_makes_no_create_call_when_all_is_well() {
    let cluster = Cluster::founded(3).await;
    let first = cluster.master();
    cluster.converges().await;
    let first_epoch = epoch(acting(&first).await);
    first.shutdown().await;
    cluster.memory.clear_calls();
    let second = cluster.master();
    let mut state = second.state();
    let several = state.wait_for(|state| matches!(state, CandidateState::Acting { ticks, .. } if *ticks > 3));
    let reached = *tokio::time::timeout(Duration::from_secs(30), several).await.unwrap().unwrap();
    assert_eq!(epoch(reached), first_epoch + 1);
    assert_eq!((cluster.memory.count(Verb::Ensure), cluster.memory.count(Verb::Delete)), (0, 0));
    assert!(cluster.is_as_desired().await);
    second.shutdown().await;
}

#[tokio::test]
async fn only_one_of_two_candidates_acts_and_the_other_follows() {
    let cluster = Cluster::founded(1).await;
    let (one, other) = (cluster.master(), cluster.master());
    cluster.converges().await;
    let (leader, follower) =
        if matches!(*one.state().borrow(), CandidateState::Acting { .. }) { (one, other) } else { (other, one) };
    assert_eq!(*follower.state().borrow(), CandidateState::Candidate);
    let before = epoch(acting(&leader).await);
    leader.shutdown().await;
    assert_eq!(epoch(acting(&follower).await), before + 1);
    cluster.memory_of_unit(2).await;
    cluster.converges().await;
    follower.shutdown().await;
}

#[tokio::test]
async fn an_agent_that_dies_between_node_and_database_changes_nothing_and_its_node_goes() {
    let cluster = Cluster::founded(1).await;
    let master = cluster.master();
    cluster.converges().await;
    let uids = cluster.uids().await;
    let settings = cluster.zookeeper_settings(cluster::engine_agent_identity(&cluster.keys));
    let dying = coordination::Session::connect(&settings, &cluster.clock).await.unwrap();
    let request = cluster.make_node(&dying, memory(2)).await;
    dying.close().await;
    eventually("it is aborted", || async { cluster.store.outcome(&request.id).await.unwrap().is_some() }).await;
    assert_eq!(cluster.store.outcome(&request.id).await.unwrap().unwrap().outcome, Outcome::Aborted);
    assert!(cluster.store.commit(&request).await.is_err(), "the late commit loses");
    cluster.converges().await;
    assert_eq!(cluster.uids().await, uids);
    master.shutdown().await;
}

#[tokio::test]
async fn an_alteration_whose_agent_lives_and_does_nothing_is_aborted_after_its_grace() {
    let cluster = Cluster::founded(1).await;
    let master = cluster.master();
    cluster.converges().await;
    let before_ms = cluster.store.snapshot().await.unwrap().now_ms;
    let request = cluster.make_node(&cluster.agent_session("agent-1"), memory(2)).await;
    eventually("it is aborted", || async { cluster.store.outcome(&request.id).await.unwrap().is_some() }).await;
    let record = cluster.store.outcome(&request.id).await.unwrap().unwrap();
    let after_ms = record.decided_at_ms - before_ms;
    assert!(
        model::millis::to_duration(after_ms) >= Cluster::settings().alter_grace,
        "its agent lives: aborted after {after_ms} ms"
    );
    assert!(record.reason.unwrap().contains("did not decide it"));
    cluster.converges().await;
    master.shutdown().await;
}

#[tokio::test]
async fn it_converges_with_all_watch_events_suppressed() {
    let mut cluster = Cluster::founded(2).await;
    cluster.watch_events = false;
    let master = cluster.master();
    cluster.converges().await;
    cluster.memory_of_unit(2).await;
    cluster.converges().await;
    master.shutdown().await;
}

#[tokio::test]
async fn a_master_whose_session_expires_comes_back_and_touches_no_engine() {
    let cluster = Cluster::founded(2).await;
    let master = cluster.master();
    cluster.converges().await;
    let before = epoch(acting(&master).await);
    cluster.memory.clear_calls();
    let holder = cluster.store.master().await.unwrap().holder;
    let session = i64::from_str_radix(holder.rsplit("0x").next().unwrap(), 16).unwrap();
    assert!(cluster.zookeeper.as_ref().unwrap().faults().expire_session(session));
    let mut state = master.state();
    let again = state.wait_for(|state| matches!(state, CandidateState::Acting { epoch, .. } if epoch.get() > before));
    tokio::time::timeout(Duration::from_secs(30), again).await.unwrap().unwrap();
    cluster.converges().await;
    assert_eq!((cluster.memory.count(Verb::Ensure), cluster.memory.count(Verb::Delete)), (0, 0));
    master.shutdown().await;
}

#[tokio::test]
async fn when_zookeeper_loses_everything_all_engines_are_registered_again() {
    let mut cluster = Cluster::founded(2).await;
    let master = cluster.master();
    cluster.converges().await;
    let uids = cluster.uids().await;
    cluster.restart_zookeeper().await;
    cluster.converges().await;
    assert_eq!(cluster.uids().await, uids);
    cluster.memory_of_unit(2).await;
    cluster.converges().await;
    master.shutdown().await;
}

#[tokio::test]
async fn a_call_goes_to_another_metadata_agent_when_one_is_gone() {
    let mut cluster = Cluster::founded(1).await;
    cluster.second_agent().await;
    let master = cluster.master();
    cluster.converges().await;
    cluster.stop_agents_server("agent-1").await;
    let stopped = cluster.start().await;
    cluster.converges().await;
    assert!(cluster.engines().await.iter().any(|engine| engine.name == stopped));
    master.shutdown().await;
}

#[tokio::test]
async fn an_engine_that_is_killed_is_replaced_after_its_back_off_and_its_reason_is_kept() {
    let cluster = Cluster::founded(2).await;
    let master = cluster.master();
    cluster.converges().await;
    let killed = cluster.engines().await[0].clone();
    assert!(cluster.memory.end(&killed.name, &End::signal(9)));
    eventually("its end is recorded", || async {
        let detail = cluster.store.engine(&killed.name).await.unwrap().unwrap();
        detail.record.ended_reason.as_deref() == Some("killed by signal 9")
    })
    .await;
    cluster.converges().await;
    assert!(cluster.engines().await.iter().all(|engine| engine.name != killed.name));
    master.shutdown().await;
}

#[tokio::test]
async fn an_engine_that_vanished_without_a_trace_is_replaced() {
    let cluster = Cluster::founded(1).await;
    let master = cluster.master();
    cluster.converges().await;
    let gone = cluster.engines().await[0].name.clone();
    assert!(cluster.memory.vanish(&gone));
    cluster.converges().await;
    assert_ne!(cluster.engines().await[0].name, gone);
    master.shutdown().await;
}

#[tokio::test]
async fn an_engine_whose_label_was_changed_by_hand_is_replaced_and_serves_until_then() {
    let cluster = Cluster::founded(1).await;
    let master = cluster.master();
    cluster.converges().await;
    let outdated = cluster.engines().await[0].name.clone();
    assert!(cluster.memory.set_label(&outdated, model::labels::CONFIG, "0000000000000000"));
    eventually("it is drained", || async { cluster.engines().await.iter().all(|engine| engine.name != outdated) })
        .await;
    cluster.converges().await;
    master.shutdown().await;
}

#[tokio::test]
async fn an_engine_that_this_master_never_made_is_adopted() {
    let cluster = Cluster::founded(1).await;
    let snapshot = cluster.store.snapshot().await.unwrap();
    let (slot, settings) = (&snapshot.slots[0], Cluster::settings());
    let configuration =
        model::configuration::Configuration::from_slot(&snapshot.catalog, &slot.key, &settings.defaults).unwrap();
    let labels =
        model::engine_labels::EngineLabels::new(&settings.cluster, &slot.key, slot.incarnation, &configuration);
    cluster.memory.put(orchestrator::ObservedInstance {
        name: slot.engine(),
        uid: "made-by-hand".to_owned(),
        labels: labels.encode().into(),
        annotations: std::sync::Arc::default(),
        phase: model::engine_state::Phase::Running,
        incomplete: false,
        reason: None,
        node: None,
        started_at_ms: None,
        exit: None,
        log_tail: None,
        fault: None,
        pods: None,
        details: std::sync::Arc::default(),
    });
    let master = cluster.master();
    cluster.converges().await;
    assert!(cluster.uids().await.contains("made-by-hand"));
    assert_eq!(cluster.memory.count(Verb::Ensure), 0);
    master.shutdown().await;
}

#[tokio::test]
async fn a_configuration_that_never_answers_converges_and_the_old_engine_serves() {
    let cluster = Cluster::founded(1).await;
    let master = cluster.master();
    cluster.converges().await;
    let old = cluster.engines().await[0].clone();
    cluster.broken.lock().insert("1_3G_1_1G".to_owned());
    let altered = cluster.memory_of_unit(3).await;
    eventually("it converges", || async {
        cluster.store.outcome(&altered).await.unwrap().unwrap().progress == Some(AlterationProgress::Converged)
    })
    .await;
    eventually("SHOW says why", || async {
        let seen = cluster.store.overview(None).await.unwrap().observed;
        let row = seen.iter().find(|row| row.engine.name == old.name).unwrap();
        row.engine.registered
            && row.engine.reason.as_ref().is_some_and(|reason| reason.starts_with("waits for replacement"))
    })
    .await;
    assert!(cluster.uids().await.contains(&old.uid));
    // And back: the one that never answered is condemned at once.
    cluster.memory_of_unit(1).await;
    cluster.converges().await;
    master.shutdown().await;
}

#[tokio::test]
async fn a_rejecting_orchestrator_stalls_the_alteration_and_blocks_no_other() {
    let cluster = Cluster::founded(1).await;
    let mut settings = Cluster::settings();
    settings.limits.alter_deadline = Duration::from_millis(500);
    let master = cluster.master_with(settings);
    cluster.converges().await;
    cluster.memory.refuse_creates(Some("no quota left"));
    let altered = cluster.memory_of_unit(2).await;
    eventually("it stalls", || async {
        cluster.store.outcome(&altered).await.unwrap().unwrap().progress == Some(AlterationProgress::Stalled)
    })
    .await;
    let record = cluster.store.outcome(&altered).await.unwrap().unwrap();
    assert!(record.reason.unwrap().contains("no quota left"));
    eventually("its node goes", || async {
        let session = cluster.agent_session("agent-1");
        coordination::alter_node::read(&session).await.unwrap().is_none()
    })
    .await;
    cluster.memory.refuse_creates(None);
    cluster.converges().await;
    master.shutdown().await;
}

#[tokio::test]
async fn more_permits_than_are_read_keep_no_master_from_deleting_them() {
    let cluster = Cluster::founded(1).await;
    let settings = cluster::zookeeper_settings(&cluster.servers, master::identity(&cluster.keys.master));
    let many = settings.max_children * 2;
    let lock = coordination::Election::new(settings, cluster.clock.clone(), "test").win().await.unwrap();
    let slot = cluster.store.snapshot().await.unwrap().slots[0].key.clone();
    for number in 0..many {
        // Half of them before the wanted engine's in the order of names, half of them after it.
        let name = if number % 2 == 0 { format!("a-{number}") } else { format!("z-{number}") };
        let permit = coordination::Permit {
            tenant: slot.tenant.clone(),
            pool: slot.pool.clone(),
            unit: slot.unit.clone(),
            uid: Some(format!("uid-{number}")),
            sessions: None,
            owner: None,
        };
        coordination::permits::create(&lock, &model::EngineName::new(name).unwrap(), &permit).await.unwrap();
    }
    assert_eq!(coordination::observe(lock.session()).await.unwrap().unread.permits.len(), many / 2);
    lock.resign().await;
    let master = cluster.master();
    cluster.converges().await;
    master.shutdown().await;
}

#[tokio::test]
async fn what_is_known_of_nodes_is_written_down_and_outlives_its_master() {
    let cluster = Cluster::founded(1).await;
    let node = |name: &str| ObservedNode {
        name: name.to_owned(),
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        cpu_millis: 4_000,
        memory_bytes: 16 << 30,
        ready: true,
        open: true,
        ..ObservedNode::default()
    };
    let known = async |names: &[&str]| {
        let nodes = cluster.store.node_overview().await.unwrap().nodes;
        nodes.iter().map(|node| node.name.as_str()).eq(names.iter().copied())
    };
    cluster.memory.set_nodes(vec![node("node-1"), node("node-2")]);
    let master = cluster.master();
    eventually("both nodes", || known(&["node-1", "node-2"])).await;
    cluster.memory.set_nodes(vec![node("node-2")]);
    eventually("one node", || known(&["node-2"])).await;
    master.shutdown().await;
    assert!(known(&["node-2"]).await, "without a master, the last rows remain");
    // Without a master, one node leaves and one joins; the next master reports it.
    cluster.memory.set_nodes(vec![node("node-3")]);
    let master = cluster.master();
    eventually("the other node", || known(&["node-3"])).await;
    // Unreadable nodes remove no row and block no engine.
    for _ in 0..MANY {
        cluster.memory.fail_next(Verb::Nodes, Error::transient("the server is away"));
    }
    cluster.start().await;
    cluster.converges().await;
    assert!(known(&["node-3"]).await);
    master.shutdown().await;
}

#[tokio::test]
async fn the_launcher_receives_the_pools_labels_and_overcommit() {
    let cluster = Cluster::founded(0).await;
    let patch = PoolPatch {
        node_selector: Setting::Set([("zone".to_owned(), "a".to_owned())].into()),
        cpu_overcommit: Setting::Set(200),
        ..PoolPatch::default()
    };
    let pool = ObjectPatch::ResourcePool(PoolName::new("rp_1").unwrap(), patch);
    let master = cluster.master();
    cluster.alter(Change::Alter { if_exists: false, object: pool }).await;
    cluster.converges().await;
    cluster.start().await;
    cluster.converges().await;
    // The launcher of the tests records its parameters.
    let annotations = cluster.engines().await.remove(0).annotations.clone();
    assert_eq!(annotations.get("zone").map(String::as_str), Some("a"));
    assert_eq!(annotations.get("cpu overcommit").map(String::as_str), Some("200"));
    master.shutdown().await;
}
