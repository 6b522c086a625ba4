//! The hand-over of a session from an engine that drains to another one.

use std::time::Duration;

use engine_agent::engine::Ended;

use crate::agents::{run, try_run};
use crate::cluster::Cluster;
use crate::fixture::{WAIT, drain, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_sees_nothing_of_a_drain() {
    let (cluster, mut admin, mut old) = Cluster::with_engine().await;
    let address = cluster.address(&old).await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SET datafusion.execution.batch_size=17").await;
    run(&mut ann, "SELECT 1").await;
    let mut bob = cluster.session("bob").await;
    // A result that waits keeps the old engine for as long as it is not read.
    let mut reading = bob.execute("SELECT value FROM generate_series(1, 20000)").await.unwrap();
    reading.wait(WAIT).await.unwrap();
    let first = reading.fetch(100).await.unwrap().len();
    let new = cluster.engine(&mut admin).await;
    drain(&cluster.master.lock, &old.name, &old.uid, WAIT).await;
    eventually("the drain", async || old.status(&address).await.draining.then_some(())).await;

    let shown = run(&mut ann, "SHOW datafusion.execution.batch_size").await;
    assert_eq!(shown.rows[0][1].to_string(), "17", "the setting is replayed");
    assert_eq!(new.datafusion.load().0, 1);
    assert!(old.is_running());
    let mut rows = first;
    loop {
        let batch = reading.fetch(5_000).await.unwrap();
        if batch.is_empty() {
            break;
        }
        rows += batch.len();
    }
    assert_eq!(rows, 20_000);
    // Long before its grace is over; how soon, the scenarios measure.
    let ended = old.ended_within(WAIT / 2).await;
    assert!(matches!(ended, Some(Ok(Ended::Drained))), "{ended:?}");
    // Its engine is gone, and nothing was lost with it.
    reading.close().await.unwrap();
    run(&mut bob, "SELECT 1").await;
    assert_eq!(new.datafusion.load().0, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_failed_is_not_replayed_at_the_new_engine() {
    let (cluster, mut admin, mut old) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SELECT 1").await;
    // Each is accepted by the engine, which tells only later that it failed, or succeeded.
    for (text, succeeds) in [
        ("SET datafusion.execution.batch_size=17", true),
        ("SET datafusion.execution.batch_size=many", false),
        ("SET datafusion.no_such_thing=1", false),
        ("USE nowhere", false),
        ("SET note.by=ann", true),
        // Forms that only the engine reads.
        ("SET TIME ZONE 'Asia/Tokyo'", true),
        ("SET note.with TO care", true),
    ] {
        assert_eq!(try_run(&mut ann, text).await.is_ok(), succeeds, "{text}");
    }
    // How these ended the client never asks.
    for text in ["SET datafusion.no_such_thing_either=1", "SET note.to=bob"] {
        ann.execute(text).await.unwrap().close().await.unwrap();
    }
    let new = cluster.engine(&mut admin).await;
    drain(&cluster.master.lock, &old.name, &old.uid, WAIT).await;
    assert!(matches!(old.ended().await, Ok(Ended::Drained)));
    let shown = run(&mut ann, "SHOW datafusion.execution.batch_size").await;
    assert_eq!(shown.rows[0][1].to_string(), "17");
    let all = [("note.by", "ann"), ("note.to", "bob"), ("note.with", "care")];
    for (key, value) in all.into_iter().chain([("datafusion.execution.time_zone", "Asia/Tokyo")]) {
        assert_eq!(run(&mut ann, &format!("SET {key}")).await.rows[0][1].to_string(), value);
    }
    assert_eq!(new.datafusion.load().0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_move_while_they_work() {
    let (cluster, mut admin, mut old) = Cluster::with_engine().await;
    let new = cluster.engine(&mut admin).await;
    let mut working = Vec::new();
    for _ in 0..8 {
        let mut session = cluster.session("ann").await;
        run(&mut session, "SELECT 1").await;
        working.push(tokio::spawn(async move {
            for round in 0..30 {
                let answer = run(&mut session, &format!("SELECT {round}")).await;
                assert_eq!(answer.rows[0][0].to_string(), round.to_string());
            }
        }));
    }
    drain(&cluster.master.lock, &old.name, &old.uid, WAIT).await;
    for session in working {
        session.await.unwrap();
    }
    assert!(matches!(old.ended().await, Ok(Ended::Drained)));
    assert!(new.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pinned_session_stays_until_the_grace_is_over() {
    let (cluster, mut admin, mut old) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer").await;
    let _new = cluster.engine(&mut admin).await;
    let address = cluster.address(&old).await;
    drain(&cluster.master.lock, &old.name, &old.uid, Duration::from_secs(8)).await;
    eventually("the drain", async || old.status(&address).await.draining.then_some(())).await;
    assert_eq!(run(&mut ann, "SELECT answer FROM mine").await.rows[0][0].to_string(), "42");
    // It cannot move to another tenant either.
    assert_eq!(try_run(&mut ann, "SET enginehouse.tenant=t_1").await.unwrap_err().sqlstate(), "55000");
    assert!(matches!(old.ended().await, Ok(Ended::Drained)));
    for _ in 0..2 {
        let error = try_run(&mut ann, "SELECT answer FROM mine").await.unwrap_err();
        assert_eq!(error.sqlstate(), "08S01");
        assert!(error.text().contains("state"), "{}", error.text());
    }
    // Control statements need no engine.
    run(&mut ann, "SHOW ENGINES t_1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_another_engine_the_error_names_what_to_start() {
    let (cluster, mut admin, mut old) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SELECT 1").await;
    run(&mut admin, &format!("STOP ENGINE rp_1 '{}'", old.name)).await;
    drain(&cluster.master.lock, &old.name, &old.uid, WAIT).await;
    assert!(matches!(old.ended().await, Ok(Ended::Drained)));
    let error = try_run(&mut ann, "SELECT 1").await.unwrap_err();
    assert_eq!(error.hint.as_deref(), Some("To start an engine, run START ENGINE t_1 rp_1 uc_1."));
}
