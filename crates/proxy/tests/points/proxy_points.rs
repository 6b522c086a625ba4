//! Points of the proxy itself: sessions, control statements, binding.

use std::time::Duration;

use embedded_zookeeper::EventFilter;
use hs2::{ClientError, Session};
use proxy::failpoints;

use crate::agents::{column, run, try_run};
use crate::cluster::{Cluster, agent};
use crate::fixture::{WAIT, drain, eventually};
use crate::held::{Held, alone};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_gone_while_its_session_opens_leaves_none() {
    let _alone = alone().await;
    let cluster = Cluster::with(1, |settings| settings.limits.sessions_per_user = 1).await;
    let client = cluster.connect("ann").await;
    let held = Held::at(failpoints::SESSION_OPENED);
    let opening = tokio::spawn(async move { Session::open(client, &[]).await.map(drop) });
    held.reached().await;
    let Err(ClientError::Refused(error)) = cluster.try_session("ann", &[]).await.map(drop) else {
        panic!("the session that is being opened has the only place")
    };
    assert_eq!(error.sqlstate(), "54000");
    opening.abort();
    assert!(opening.await.is_err());
    held.go_on();
    eventually("the place of the session", async || cluster.try_session("ann", &[]).await.ok().map(drop)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_unsent_statement_is_reported_as_without_effect() {
    let _alone = alone().await;
    let cluster = Cluster::new().await;
    let mut admin = cluster.session("admin").await;
    run(&mut admin, "SHOW TENANTS").await;
    let held = Held::at(failpoints::CONTROL_ID_MADE);
    let saying = tokio::spawn(async move { try_run(&mut admin, "CREATE TENANT t_9").await });
    held.reached().await;
    cluster.agents[0].1.cut();
    held.go_on();
    let error = saying.await.unwrap().unwrap_err();
    assert_eq!(error.sqlstate(), "57P03", "{}", error.text());
    let snapshot = cluster.store.snapshot().await.unwrap();
    assert!(snapshot.catalog.tenants.is_empty() && snapshot.alterations.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sent_statement_takes_effect_once_when_its_agent_dies() {
    let _alone = alone().await;
    let mut cluster = Cluster::new().await;
    let _settling = cluster.master.keep_settling();
    let mut admin = cluster.session("admin").await;
    run(&mut admin, "SHOW TENANTS").await;
    let held = Held::at(failpoints::CONTROL_SENT);
    let saying = tokio::spawn(async move { (try_run(&mut admin, "CREATE TENANT t_9").await, admin) });
    held.reached().await;
    let tenants = async || cluster.store.snapshot().await.unwrap().catalog.tenants.len();
    eventually("its effect", async || (tenants().await == 1).then_some(())).await;
    cluster.agents[0].1.cut();
    let second = agent(&cluster.fixture, &cluster.master.lock, &cluster.store, |_| {}).await;
    cluster.agents.push(second);
    held.go_on();
    let (outcome, mut admin) = saying.await.unwrap();
    outcome.unwrap_or_else(|error| panic!("{}", error.text()));
    let statements = column(&run(&mut admin, "SHOW ALTERATIONS").await, "statement");
    assert_eq!(statements.iter().filter(|statement| statement.contains("t_9")).count(), 1, "{statements:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_chosen_engine_that_dies_is_replaced_transparently() {
    let _alone = alone().await;
    let (cluster, mut admin, dies) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    let held = Held::at(failpoints::ENGINE_CHOSEN);
    let saying = tokio::spawn(async move { try_run(&mut ann, "SELECT 42").await });
    held.reached().await;
    dies.datafusion.die("killed by the test");
    let lives = cluster.engine(&mut admin).await;
    held.go_on();
    let answer = saying.await.unwrap().unwrap_or_else(|error| panic!("{}", error.text()));
    assert_eq!(answer.rows[0][0].to_string(), "42");
    assert!(lives.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_dies_during_replay_is_replaced_transparently() {
    let _alone = alone().await;
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SET datafusion.execution.batch_size=17").await;
    let mut dies = cluster.engine(&mut admin).await;
    let held = Held::at(failpoints::ENGINE_SESSION_OPENED);
    let saying = tokio::spawn(async move { (try_run(&mut ann, "SHOW datafusion.execution.batch_size").await, ann) });
    held.reached().await;
    dies.datafusion.die("killed by the test");
    assert!(dies.ended().await.is_err());
    let lives = cluster.engine(&mut admin).await;
    held.go_on();
    let (answer, _ann) = saying.await.unwrap();
    let answer = answer.unwrap_or_else(|error| panic!("{}", error.text()));
    assert_eq!(answer.rows[0][1].to_string(), "17");
    assert_eq!(lives.datafusion.load().0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_moved_statement_is_executed_once_after_the_old_engine_ended() {
    let _alone = alone().await;
    // The proxy hears of the drain from the engine alone, which refuses.
    let cluster = Cluster::with(1, |settings| settings.zookeeper.reread = Duration::from_hours(1)).await;
    let mut admin = cluster.objects().await;
    let mut old = cluster.engine(&mut admin).await;
    let address = cluster.address(&old).await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SELECT 1").await;
    // A result that waits keeps the old engine for as long as it is not read.
    let mut reader = cluster.session("bob").await;
    let mut reading = reader.execute("SELECT value FROM generate_series(1, 20000)").await.unwrap();
    reading.wait(WAIT).await.unwrap();
    assert_eq!(reading.fetch(100).await.unwrap().len(), 100);
    let new = cluster.engine(&mut admin).await;
    let mut bob = cluster.session("bob").await;
    eventually("the new engine's first session", async || {
        run(&mut bob, "SELECT 1").await;
        if new.datafusion.load().0 == 0 {
            bob = cluster.session("bob").await;
        }
        (new.datafusion.load().0 == 1).then_some(())
    })
    .await;
    cluster.fixture.zookeeper.faults().drop_events(EventFilter::All);
    drain(&cluster.master.lock, &old.name, &old.uid, WAIT).await;
    eventually("the drain", async || old.status(&address).await.draining.then_some(())).await;
    let held = Held::at(failpoints::HANDOVER);
    let saying = tokio::spawn(async move { (try_run(&mut ann, "SELECT 42").await, ann) });
    held.reached().await;
    old.datafusion.die("killed by the test");
    let _ = old.ended().await;
    held.go_on();
    let (answer, _ann) = saying.await.unwrap();
    let answer = answer.unwrap_or_else(|error| panic!("{}", error.text()));
    assert_eq!(answer.rows[0][0].to_string(), "42");
    assert_eq!(new.datafusion.load().0, 2);
    cluster.fixture.zookeeper.faults().drop_events(EventFilter::None);
}
