//! Points of DataFusion as an engine: definitions that are written, statements on their way, rows that are fetched.

use datafusion_engine::failpoints;
use hs2::ClientError;

use crate::agents::{must, say};
use crate::engines::Running;
use crate::held::{Held, alone};
use crate::house::House;
use crate::rig::{WAIT, eventually};

/// Two sessions of one tenant on two engines, which share its catalog.
async fn two() -> (House, [hs2::Session; 2], [Running; 2]) {
    let (house, mut admin, first) = House::furnished().await;
    let mut one = house.session("ann").await;
    must(&mut one, "SELECT 1").await;
    let second = house.engine(&mut admin).await;
    let two = eventually("a session at the second engine", async || {
        let mut session = house.session("ann").await;
        must(&mut session, "SELECT 1").await;
        (second.datafusion.load().0 == 1).then_some(session)
    })
    .await;
    (house, [one, two], [first, second])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_definition_is_seen_by_others_whole_or_not_at_all() {
    let _alone = alone().await;
    let (_house, [mut one, mut two], _engines) = two().await;
    for (point, is_visible) in [(failpoints::DEFINITION_WRITTEN, false), (failpoints::DEFINITION_PUBLISHED, true)] {
        let held = Held::at(point);
        let defining = tokio::spawn(async move { (say(&mut one, "CREATE VIEW v AS SELECT 42 AS answer").await, one) });
        held.reached().await;
        let seen = say(&mut two, "SELECT answer FROM v").await;
        match seen {
            Ok(table) => assert!(is_visible && table.rows[0][0].to_string() == "42", "{point}: {table:?}"),
            Err(error) => assert!(!is_visible && error.sqlstate() == "42P01", "{point}: {}", error.text()),
        }
        held.go_on();
        let (defined, session) = defining.await.unwrap();
        one = session;
        defined.unwrap_or_else(|error| panic!("{point}: {}", error.text()));
        for session in [&mut one, &mut two] {
            assert_eq!(must(session, "SELECT answer FROM v").await.rows[0][0].to_string(), "42");
        }
        must(&mut one, "DROP VIEW v").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_schema_that_is_being_dropped_is_gone_for_everybody_and_may_be_made_again() {
    let _alone = alone().await;
    let (_house, [mut one, mut two], _engines) = two().await;
    must(&mut one, "CREATE SCHEMA s").await;
    must(&mut one, "CREATE VIEW s.v AS SELECT 1").await;
    must(&mut two, "SELECT * FROM s.v").await;
    let held = Held::at(failpoints::SCHEMA_MOVED);
    let dropping = tokio::spawn(async move { (say(&mut one, "DROP SCHEMA s CASCADE").await, one) });
    held.reached().await;
    assert!(say(&mut two, "SELECT * FROM s.v").await.is_err());
    must(&mut two, "CREATE SCHEMA s").await;
    must(&mut two, "CREATE VIEW s.new AS SELECT 2 AS answer").await;
    held.go_on();
    let (dropped, mut one) = dropping.await.unwrap();
    dropped.unwrap_or_else(|error| panic!("{}", error.text()));
    assert_eq!(must(&mut one, "SELECT answer FROM s.new").await.rows[0][0].to_string(), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_can_be_cancelled_and_closed_wherever_it_is() {
    let _alone = alone().await;
    let (house, _admin, engine) = House::furnished().await;
    let mut ann = house.session("ann").await;
    must(&mut ann, "SELECT 1").await;
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
        must(&mut ann, "SELECT 1").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_fetch_holds_up_nobody_else_and_loses_no_row() {
    let _alone = alone().await;
    let (house, _admin, _engine) = House::furnished().await;
    let (mut ann, mut bob) = (house.session("ann").await, house.session("bob").await);
    must(&mut bob, "SELECT 1").await;
    let held = Held::at(failpoints::ROWS_FETCHED);
    let reading = tokio::spawn(async move { say(&mut ann, "SELECT value FROM generate_series(1, 30000)").await });
    held.reached().await;
    assert_eq!(must(&mut bob, "SELECT 7").await.rows[0][0].to_string(), "7");
    held.go_on();
    let table = reading.await.unwrap().unwrap_or_else(|error| panic!("{}", error.text()));
    let read: Vec<String> = table.rows.iter().map(|row| row[0].to_string()).collect();
    assert!(read.iter().map(String::as_str).eq((1..=30_000).map(|n| n.to_string()).collect::<Vec<_>>()));
}
