//! Points of the proxy itself: sessions, control statements, binding.

use std::time::Duration;

use embedded_zookeeper::EventFilter;
use hs2::{ClientError, Session};
use proxy::failpoints;

use crate::agents::{column, must, say};
use crate::held::{Held, alone};
use crate::house::{House, agent};
use crate::rig::{WAIT, drain, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_that_hangs_up_while_its_session_is_opened_leaves_no_session() {
    let _alone = alone().await;
    let house = House::with(1, |settings| settings.limits.sessions_per_user = 1).await;
    let client = house.connect("ann").await;
    let held = Held::at(failpoints::SESSION_OPENED);
    let opening = tokio::spawn(async move { Session::open(client, &[]).await.map(drop) });
    held.reached().await;
    let Err(ClientError::Refused(error)) = house.try_session("ann", &[]).await.map(drop) else {
        panic!("the session that is being opened has the only place")
    };
    assert_eq!(error.sqlstate(), "54000");
    opening.abort();
    assert!(opening.await.is_err());
    held.go_on();
    eventually("the place of the session", async || house.try_session("ann", &[]).await.ok().map(drop)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_whose_agent_dies_before_it_is_sent_is_said_to_have_changed_nothing() {
    let _alone = alone().await;
    let house = House::new().await;
    let mut admin = house.session("admin").await;
    must(&mut admin, "SHOW TENANTS").await;
    let held = Held::at(failpoints::CONTROL_ID_MADE);
    let saying = tokio::spawn(async move { say(&mut admin, "CREATE TENANT t_9").await });
    held.reached().await;
    house.agents[0].1.cut();
    held.go_on();
    let error = saying.await.unwrap().unwrap_err();
    assert_eq!(error.sqlstate(), "57P03", "{}", error.text());
    let snapshot = house.store.snapshot().await.unwrap();
    assert!(snapshot.catalog.tenants.is_empty() && snapshot.alterations.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_whose_agent_dies_after_it_was_sent_takes_effect_once_and_is_answered_by_another() {
    let _alone = alone().await;
    let mut house = House::new().await;
    let _settling = house.hand.keep_settling();
    let mut admin = house.session("admin").await;
    must(&mut admin, "SHOW TENANTS").await;
    let held = Held::at(failpoints::CONTROL_SENT);
    let saying = tokio::spawn(async move { (say(&mut admin, "CREATE TENANT t_9").await, admin) });
    held.reached().await;
    let tenants = async || house.store.snapshot().await.unwrap().catalog.tenants.len();
    eventually("its effect", async || (tenants().await == 1).then_some(())).await;
    house.agents[0].1.cut();
    let second = agent(&house.ground, &house.hand.lock, &house.store).await;
    house.agents.push(second);
    held.go_on();
    let (said, mut admin) = saying.await.unwrap();
    said.unwrap_or_else(|error| panic!("{}", error.text()));
    let statements = column(&must(&mut admin, "SHOW ALTERATIONS").await, "statement");
    assert_eq!(statements.iter().filter(|it| it.contains("t_9")).count(), 1, "{statements:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_dies_after_it_was_chosen_is_replaced_by_another_unseen() {
    let _alone = alone().await;
    let (house, mut admin, dies) = House::furnished().await;
    let mut ann = house.session("ann").await;
    let held = Held::at(failpoints::ENGINE_CHOSEN);
    let saying = tokio::spawn(async move { say(&mut ann, "SELECT 42").await });
    held.reached().await;
    dies.datafusion.die("killed by the test");
    let lives = house.engine(&mut admin).await;
    held.go_on();
    let answer = saying.await.unwrap().unwrap_or_else(|error| panic!("{}", error.text()));
    assert_eq!(answer.rows[0][0].to_string(), "42");
    assert!(lives.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_dies_while_it_is_told_what_was_said_before_is_replaced_unseen() {
    let _alone = alone().await;
    let house = House::new().await;
    let mut admin = house.objects().await;
    let mut ann = house.session("ann").await;
    must(&mut ann, "SET datafusion.execution.batch_size=17").await;
    let mut dies = house.engine(&mut admin).await;
    let held = Held::at(failpoints::ENGINE_SESSION_OPENED);
    let saying = tokio::spawn(async move { (say(&mut ann, "SHOW datafusion.execution.batch_size").await, ann) });
    held.reached().await;
    dies.datafusion.die("killed by the test");
    assert!(dies.ended().await.is_err());
    let lives = house.engine(&mut admin).await;
    held.go_on();
    let (answer, _ann) = saying.await.unwrap();
    let answer = answer.unwrap_or_else(|error| panic!("{}", error.text()));
    assert_eq!(answer.rows[0][1].to_string(), "17");
    assert_eq!(lives.datafusion.load().0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_that_is_handed_over_is_executed_once_although_the_old_engine_has_gone() {
    let _alone = alone().await;
    // The proxy hears of the drain from the engine alone, which refuses.
    let house = House::with(1, |settings| settings.zookeeper.reread = Duration::from_hours(1)).await;
    let mut admin = house.objects().await;
    let mut old = house.engine(&mut admin).await;
    let address = house.address(&old).await;
    let mut ann = house.session("ann").await;
    must(&mut ann, "SELECT 1").await;
    // A result that waits keeps the old engine for as long as it is not read.
    let mut reader = house.session("bob").await;
    let mut reading = reader.execute("SELECT value FROM generate_series(1, 20000)").await.unwrap();
    reading.wait(WAIT).await.unwrap();
    assert_eq!(reading.fetch(100).await.unwrap().len(), 100);
    let new = house.engine(&mut admin).await;
    let mut bob = house.session("bob").await;
    eventually("the new engine's first session", async || {
        must(&mut bob, "SELECT 1").await;
        if new.datafusion.load().0 == 0 {
            bob = house.session("bob").await;
        }
        (new.datafusion.load().0 == 1).then_some(())
    })
    .await;
    house.ground.zookeeper.faults().drop_events(EventFilter::All);
    drain(&house.hand.lock, &old.name, &old.uid, WAIT).await;
    eventually("the drain", async || old.status(&address).await.draining.then_some(())).await;
    let held = Held::at(failpoints::HANDOVER);
    let saying = tokio::spawn(async move { (say(&mut ann, "SELECT 42").await, ann) });
    held.reached().await;
    old.datafusion.die("killed by the test");
    let _ = old.ended().await;
    held.go_on();
    let (answer, _ann) = saying.await.unwrap();
    let answer = answer.unwrap_or_else(|error| panic!("{}", error.text()));
    assert_eq!(answer.rows[0][0].to_string(), "42");
    assert_eq!(new.datafusion.load().0, 2);
    house.ground.zookeeper.faults().drop_events(EventFilter::None);
}
