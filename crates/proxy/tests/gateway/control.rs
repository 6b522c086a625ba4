//! Control statements, with and without engines, and metadata agents that die.

use std::time::Duration;

use crate::agents::{column, ready, run, try_run};
use crate::cluster::Cluster;
use crate::fixture::{WAIT, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_without_an_engine_says_control_statements() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    let started = run(&mut admin, "-- a comment\n start engine t_1 RP_1 uc_1 ;").await;
    assert_eq!(column(&started, "state"), ["starting"]);
    let shown = run(&mut admin, "SHOW ENGINES t_1").await;
    assert_eq!(column(&shown, "engine"), column(&started, "engine"));
    let audited = run(&mut admin, "SHOW AUDIT LIMIT 1").await;
    assert_eq!(column(&audited, "statement"), ["START ENGINE t_1 rp_1 uc_1"]);
    assert_eq!(column(&audited, "client"), ["127.0.0.1"]);
    assert_eq!(column(&audited, "proxy"), [cluster.proxy.addr().to_string()]);
    let error = try_run(&mut admin, "SHOW RESOURCE POOL rp_1 FRO TENANT").await.unwrap_err();
    assert_eq!(error.sqlstate(), "42601");
    assert!(error.text().contains("FOR"), "{}", error.text());
    let error = try_run(&mut admin, "DROP RESOURCE UNIT uc_1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "2BP01", "an agent's error arrives as it is");
    let mut eve = cluster.session("eve").await;
    assert_eq!(try_run(&mut eve, "SHOW ENGINES t_1").await.unwrap_err().sqlstate(), "42501");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_without_control_statements_hold_no_agent_connection() {
    let cluster = Cluster::with(1, |settings| settings.snapshot_poll = Duration::from_mins(1)).await;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        let mut session = cluster.session("admin").await;
        run(&mut session, "SHOW TENANTS").await;
        assert!(try_run(&mut session, "DESCRIBE TENANT t_9").await.is_err());
        sessions.push(session);
    }
    let (_, wire) = &cluster.agents[0];
    eventually("no connection left", async || (wire.connections() == 0).then_some(())).await;
    // What still runs, or is still read, keeps its own.
    let shown = sessions[0].execute("SHOW RESOURCE UNITS").await.unwrap();
    eventually("one connection", async || (wire.connections() == 1).then_some(())).await;
    shown.close().await.unwrap();
    eventually("no connection left", async || (wire.connections() == 0).then_some(())).await;
    run(&mut sessions[0], "SHOW TENANTS").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_syntax_error_needs_no_agent() {
    let cluster = Cluster::with(0, |_| {}).await;
    let mut admin = cluster.session("admin").await;
    assert_eq!(try_run(&mut admin, "START ENGINE").await.unwrap_err().sqlstate(), "42601");
    let error = try_run(&mut admin, "CREATE TENANT t_1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "57P03");
    assert_eq!(error.message, "no metadata agent can be reached");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_agent_answers_for_one_that_died() {
    let cluster = Cluster::with(2, |_| {}).await;
    let mut admin = cluster.objects().await;
    let mut statement = admin.execute("START ENGINE t_1 rp_1 uc_1 WAIT '30s'").await.unwrap();
    let slot = eventually("the slot", async || cluster.store.snapshot().await.unwrap().slots.pop()).await;
    eventually("the log", async || statement.logs().await.unwrap().pop()).await;
    // Whichever of the two has it: one dies now, and the statement goes on at the other.
    let before = statements_begun(&cluster).await;
    cluster.agents[0].1.cut();
    for _ in 0..3 {
        statement.poll().await.unwrap();
    }
    cluster.master.seen(ready(slot.engine().as_str(), "127.0.0.1:1")).await;
    let answer = statement.collect(WAIT).await.unwrap();
    assert_eq!(column(&answer, "engine"), [slot.engine().to_string()]);
    assert_eq!(column(&answer, "state"), ["ready"]);
    assert_eq!(statements_begun(&cluster).await, before, "it took effect once");
    statement.close().await.unwrap();
    // And so does everything after it.
    assert_eq!(column(&run(&mut admin, "SHOW ENGINES t_1").await, "state"), ["ready"]);
    let mut other = cluster.session("admin").await;
    run(&mut other, "SHOW TENANTS").await;
}

async fn statements_begun(cluster: &Cluster) -> usize {
    cluster.store.snapshot().await.unwrap().slots.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_both_agents_die_the_outcome_is_unknown() {
    let cluster = Cluster::with(2, |_| {}).await;
    let mut admin = cluster.objects().await;
    let mut statement = admin.execute("START ENGINE t_1 rp_1 uc_1 WAIT '60s'").await.unwrap();
    eventually("the slot", async || cluster.store.snapshot().await.unwrap().slots.pop()).await;
    for (_, wire) in &cluster.agents {
        wire.cut();
    }
    let error = statement.collect(WAIT).await.unwrap_err();
    assert!(matches!(&error, hs2::ClientError::Refused(error) if error.sqlstate() == "08007"), "{error}");
    drop(statement);
    let error = try_run(&mut admin, "SHOW ENGINES t_1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "57P03");
    assert!(error.text().contains("the catalog that it read"), "{}", error.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_is_cancelled_through_the_proxy() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    let mut statement = admin.execute("START ENGINE t_1 rp_1 uc_1 WAIT '60s'").await.unwrap();
    eventually("the log", async || statement.logs().await.unwrap().pop()).await;
    statement.cancel().await.unwrap();
    // Long before the wait itself would be over.
    let error = statement.wait(WAIT).await.unwrap_err();
    assert!(matches!(&error, hs2::ClientError::Refused(error) if error.sqlstate() == "57014"), "{error}");
    statement.close().await.unwrap();
    assert_eq!(run(&mut admin, "SHOW ENGINES t_1").await.rows.len(), 1, "the statement stands");
}
