//! Points of the engine agent: registration, sessions, the drain.

use std::time::Duration;

use coordination::permits;
use engine_agent::engine::Ended;
use engine_agent::engine::failpoints;

use crate::agents::{column, must, say};
use crate::engines::{DataFusion, Running};
use crate::held::{Held, alone};
use crate::house::House;
use crate::rig::{WAIT, drain, eventually, permit, permit_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_whose_permit_goes_before_it_registers_serves_nobody() {
    let _alone = alone().await;
    let house = House::new().await;
    let mut admin = house.objects().await;
    let name = column(&must(&mut admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
    let slots = house.store.snapshot().await.unwrap().slots;
    let slot = slots.into_iter().find(|slot| slot.engine().to_string() == name).unwrap();
    let held = Held::at(failpoints::BEFORE_REGISTER);
    let datafusion = DataFusion::new(&house.ground, &slot.engine());
    let mut engine = Running::start_with(&house.ground, slot.engine(), datafusion, Duration::from_secs(3));
    permit(&house.hand.lock, &slot.key, &engine.name, Some(&engine.uid)).await;
    held.reached().await;
    let seen = permit_of(&house.hand.lock, &engine.name).await.unwrap();
    permits::delete(&house.hand.lock, &seen).await.unwrap();
    held.go_on();
    // Nobody permits it any more: it ends by itself, and has never been registered.
    assert!(!matches!(engine.ended().await, Ok(Ended::Drained)));
    assert!(permit_of(&house.hand.lock, &engine.name).await.is_none());
    assert_eq!(engine.datafusion.load().0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_serves_from_its_registration_on_although_its_agent_was_not_told_of_it() {
    let _alone = alone().await;
    let house = House::new().await;
    let mut admin = house.objects().await;
    let held = Held::at(failpoints::REGISTERED);
    let engine = house.engine(&mut admin).await;
    held.reached().await;
    let mut ann = house.session("ann").await;
    must(&mut ann, "SELECT 1").await;
    held.go_on();
    must(&mut ann, "SELECT 2").await;
    assert_eq!(engine.datafusion.load().0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_hangs_up_while_its_engine_session_is_opened_leaves_none() {
    let _alone = alone().await;
    let (house, _admin, engine) = House::furnished().await;
    let address = house.address(&engine).await;
    let mut ann = house.session("ann").await;
    let held = Held::at(failpoints::SESSION_OPENED);
    let saying = tokio::spawn(async move { say(&mut ann, "SELECT 1").await.map(drop) });
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
    let (house, _admin, mut engine) = House::furnished().await;
    let address = house.address(&engine).await;
    let mut ann = house.session("ann").await;
    must(&mut ann, "SELECT 1").await;
    let held = Held::at(failpoints::STATEMENT_ACCEPTED);
    let saying = tokio::spawn(async move { say(&mut ann, "SELECT 42").await });
    held.reached().await;
    drain(&house.hand.lock, &engine.name, &engine.uid, WAIT).await;
    eventually("the drain", async || engine.status(&address).await.draining.then_some(())).await;
    held.go_on();
    let answer = saying.await.unwrap().unwrap_or_else(|error| panic!("{}", error.text()));
    assert_eq!(answer.rows[0][0].to_string(), "42");
    assert!(matches!(engine.ended().await, Ok(Ended::Drained)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_has_just_seen_the_order_to_drain_takes_no_new_statement() {
    let _alone = alone().await;
    let (house, mut admin, mut old) = House::furnished().await;
    let mut ann = house.session("ann").await;
    must(&mut ann, "SELECT 1").await;
    let new = house.engine(&mut admin).await;
    let held = Held::at(failpoints::DRAIN_BEGUN);
    drain(&house.hand.lock, &old.name, &old.uid, WAIT).await;
    held.reached().await;
    must(&mut ann, "SELECT 2").await;
    assert_eq!(new.datafusion.load().0, 1);
    assert!(old.is_running());
    held.go_on();
    assert!(matches!(old.ended().await, Ok(Ended::Drained)));
    must(&mut ann, "SELECT 3").await;
}
