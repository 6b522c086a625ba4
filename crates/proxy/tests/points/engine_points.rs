//! Points of DataFusion as an engine: definitions that are written, statements on their way, rows that are fetched.

use datafusion_engine::failpoints;
use hs2::ClientError;

use crate::agents::{run, try_run};
use crate::cluster::Cluster;
use crate::engines::RunningEngine;
use crate::fixture::{WAIT, eventually};
use crate::held::{Held, alone};

/// Two sessions of one tenant on two engines, which share its catalog.
async fn two() -> (Cluster, [hs2::Session; 2], [RunningEngine; 2]) {
    let (cluster, mut admin, first) = Cluster::with_engine().await;
    let mut one = cluster.session("ann").await;
    run(&mut one, "SELECT 1").await;
    let second = cluster.engine(&mut admin).await;
    let two = eventually("a session at the second engine", async || {
        let mut session = cluster.session("ann").await;
        run(&mut session, "SELECT 1").await;
        (second.datafusion.load().0 == 1).then_some(session)
    })
    .await;
    (cluster, [one, two], [first, second])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_definition_is_seen_by_others_whole_or_not_at_all() {
    let _alone = alone().await;
    let (_house, [mut one, mut two], _engines) = two().await;
    for (point, is_visible) in [(failpoints::DEFINITION_WRITTEN, false), (failpoints::DEFINITION_PUBLISHED, true)] {
        let held = Held::at(point);
        let defining =
            tokio::spawn(async move { (try_run(&mut one, "CREATE VIEW v AS SELECT 42 AS answer").await, one) });
        held.reached().await;
        let seen = try_run(&mut two, "SELECT answer FROM v").await;
        match seen {
            Ok(table) => assert!(is_visible && table.rows[0][0].to_string() == "42", "{point}: {table:?}"),
            Err(error) => assert!(!is_visible && error.sqlstate() == "42P01", "{point}: {}", error.text()),
        }
        held.go_on();
        let (defined, session) = defining.await.unwrap();
        one = session;
        defined.unwrap_or_else(|error| panic!("{point}: {}", error.text()));
        for session in [&mut one, &mut two] {
            assert_eq!(run(session, "SELECT answer FROM v").await.rows[0][0].to_string(), "42");
        }
        run(&mut one, "DROP VIEW v").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_schema_that_is_being_dropped_is_gone_for_everybody_and_may_be_made_again() {
    let _alone = alone().await;
    let (_house, [mut one, mut two], _engines) = two().await;
    run(&mut one, "CREATE SCHEMA s").await;
    run(&mut one, "CREATE VIEW s.v AS SELECT 1").await;
    run(&mut two, "SELECT * FROM s.v").await;
    let held = Held::at(failpoints::SCHEMA_MOVED);
    let dropping = tokio::spawn(async move { (try_run(&mut one, "DROP SCHEMA s CASCADE").await, one) });
    held.reached().await;
    assert!(try_run(&mut two, "SELECT * FROM s.v").await.is_err());
    run(&mut two, "CREATE SCHEMA s").await;
    run(&mut two, "CREATE VIEW s.new AS SELECT 2 AS answer").await;
    held.go_on();
    let (dropped, mut one) = dropping.await.unwrap();
    dropped.unwrap_or_else(|error| panic!("{}", error.text()));
    assert_eq!(run(&mut one, "SELECT answer FROM s.new").await.rows[0][0].to_string(), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_can_be_cancelled_and_closed_wherever_it_is() {
    let _alone = alone().await;
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SELECT 1").await;
    for point in [failpoints::STATEMENT_STARTED, failpoints::STATEMENT_PLANNED] {
        let held = Held::at(point);
        let mut statement = ann.execute("SELECT count(*) FROM generate_series(1, 100000000000)").await.unwrap();
        held.reached().await;
        statement.cancel().await.unwrap();
        let ended = statement.wait(WAIT).await;
        assert!(
            matches!(&ended, Err(ClientError::Refused(error)) if error.sqlstate() == "57014"),
            "{point}: {ended:?}"
        );
        statement.close().await.unwrap();
        held.go_on();
        eventually(point, async || (engine.datafusion.load() == (1, 0)).then_some(())).await;
        run(&mut ann, "SELECT 1").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_fetch_delays_no_other_and_loses_no_row() {
    let _alone = alone().await;
    let (cluster, _admin, _engine) = Cluster::with_engine().await;
    let (mut ann, mut bob) = (cluster.session("ann").await, cluster.session("bob").await);
    run(&mut bob, "SELECT 1").await;
    let held = Held::at(failpoints::ROWS_FETCHED);
    let reading = tokio::spawn(async move { try_run(&mut ann, "SELECT value FROM generate_series(1, 30000)").await });
    held.reached().await;
    assert_eq!(run(&mut bob, "SELECT 7").await.rows[0][0].to_string(), "7");
    held.go_on();
    let table = reading.await.unwrap().unwrap_or_else(|error| panic!("{}", error.text()));
    let read: Vec<String> = table.rows.iter().map(|row| row[0].to_string()).collect();
    assert!(read.iter().map(String::as_str).eq((1..=30_000).map(|n| n.to_string()).collect::<Vec<_>>()));
}
