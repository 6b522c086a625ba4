//! Points of the engine agent: registration, sessions, the drain.

use std::time::Duration;

use coordination::permits;
use engine_agent::engine::Ended;
use engine_agent::engine::failpoints;

use crate::agents::{column, run, try_run};
use crate::cluster::Cluster;
use crate::engines::{DataFusion, RunningEngine};
use crate::fixture::{WAIT, drain, eventually, permit, permit_of};
use crate::held::{Held, alone};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_without_its_permit_never_registers() {
    let _alone = alone().await;
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    let name = column(&run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    let slots = cluster.store.snapshot().await.unwrap().slots;
    let slot = slots.into_iter().find(|slot| slot.engine().to_string() == name).unwrap();
    let held = Held::at(failpoints::BEFORE_REGISTER);
    let datafusion = DataFusion::new(&cluster.fixture, &slot.engine());
    let mut engine = RunningEngine::start_with(&cluster.fixture, slot.engine(), datafusion, Duration::from_secs(8));
    permit(&cluster.master.lock, &slot.key, &engine.name, Some(&engine.uid)).await;
    held.reached().await;
    let seen = permit_of(&cluster.master.lock, &engine.name).await.unwrap();
    permits::delete(&cluster.master.lock, &seen).await.unwrap();
    held.go_on();
    // Without a permit it ends by itself, and was never registered.
    assert!(!matches!(engine.ended().await, Ok(Ended::Drained)));
    assert!(permit_of(&cluster.master.lock, &engine.name).await.is_none());
    assert_eq!(engine.datafusion.load().0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_serves_from_its_registration_on() {
    let _alone = alone().await;
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    let held = Held::at(failpoints::REGISTERED);
    let engine = cluster.engine(&mut admin).await;
    held.reached().await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SELECT 1").await;
    held.go_on();
    run(&mut ann, "SELECT 2").await;
    assert_eq!(engine.datafusion.load().0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_gone_while_an_engine_session_opens_leaves_none() {
    let _alone = alone().await;
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let address = cluster.address(&engine).await;
    let mut ann = cluster.session("ann").await;
    let held = Held::at(failpoints::SESSION_OPENED);
    let saying = tokio::spawn(async move { try_run(&mut ann, "SELECT 1").await.map(drop) });
    held.reached().await;
    saying.abort();
    assert!(saying.await.is_err());
    held.go_on();
    eventually("the end of it", async || (engine.datafusion.load() == (0, 0)).then_some(())).await;
    eventually("the agent's count", async || (engine.status(&address).await.sessions == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_that_was_accepted_before_a_drain_is_finished() {
    let _alone = alone().await;
    let (cluster, _admin, mut engine) = Cluster::with_engine().await;
    let address = cluster.address(&engine).await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SELECT 1").await;
    let held = Held::at(failpoints::STATEMENT_ACCEPTED);
    let saying = tokio::spawn(async move { try_run(&mut ann, "SELECT 42").await });
    held.reached().await;
    drain(&cluster.master.lock, &engine.name, &engine.uid, WAIT).await;
    eventually("the drain", async || engine.status(&address).await.draining.then_some(())).await;
    held.go_on();
    let answer = saying.await.unwrap().unwrap_or_else(|error| panic!("{}", error.text()));
    assert_eq!(answer.rows[0][0].to_string(), "42");
    assert!(matches!(engine.ended().await, Ok(Ended::Drained)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_drain_order_stops_new_statements_at_once() {
    let _alone = alone().await;
    let (cluster, mut admin, mut old) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SELECT 1").await;
    let new = cluster.engine(&mut admin).await;
    let held = Held::at(failpoints::DRAIN_BEGUN);
    drain(&cluster.master.lock, &old.name, &old.uid, WAIT).await;
    held.reached().await;
    run(&mut ann, "SELECT 2").await;
    assert_eq!(new.datafusion.load().0, 1);
    assert!(old.is_running());
    held.go_on();
    assert!(matches!(old.ended().await, Ok(Ended::Drained)));
    run(&mut ann, "SELECT 3").await;
}
