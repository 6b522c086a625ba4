//! Control statements, with and without engines, and metadata agents that die.

use std::time::Duration;

use crate::agents::{column, must, ready, say};
use crate::house::House;
use crate::rig::{WAIT, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_without_an_engine_says_control_statements() {
    let house = House::new().await;
    let mut admin = house.objects().await;
    let started = must(&mut admin, "-- a comment\n start engine t_1 RP_1 uc_1 ;").await;
    assert_eq!(column(&started, "state"), ["starting"]);
    let shown = must(&mut admin, "SHOW ENGINES t_1").await;
    assert_eq!(column(&shown, "engine"), column(&started, "engine"));
    let error = say(&mut admin, "SHOW RESOURCE POOL rp_1 FRO TENANT").await.unwrap_err();
    assert_eq!(error.sqlstate(), "42601");
    assert!(error.text().contains("FOR"), "{}", error.text());
    let error = say(&mut admin, "DROP RESOURCE UNIT uc_1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "2BP01", "an agent's error arrives as it is");
    let mut eve = house.session("eve").await;
    assert_eq!(say(&mut eve, "SHOW ENGINES t_1").await.unwrap_err().sqlstate(), "42501");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_say_nothing_to_a_metadata_agent_hold_no_connection_to_it() {
    let house = House::with(1, |it| it.snapshot_poll = Duration::from_mins(1)).await;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        let mut session = house.session("admin").await;
        must(&mut session, "SHOW TENANTS").await;
        assert!(say(&mut session, "DESCRIBE TENANT t_9").await.is_err());
        sessions.push(session);
    }
    let (_, wire) = &house.agents[0];
    eventually("no connection left", async || (wire.connections() == 0).then_some(())).await;
    // What still runs, or is still read, keeps its own.
    let shown = sessions[0].execute("SHOW RESOURCE UNITS").await.unwrap();
    eventually("one connection", async || (wire.connections() == 1).then_some(())).await;
    shown.close().await.unwrap();
    eventually("no connection left", async || (wire.connections() == 0).then_some(())).await;
    must(&mut sessions[0], "SHOW TENANTS").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_syntax_error_needs_no_agent_and_without_one_nothing_is_said_to_have_changed() {
    let house = House::with(0, |_| {}).await;
    let mut admin = house.session("admin").await;
    assert_eq!(say(&mut admin, "START ENGINE").await.unwrap_err().sqlstate(), "42601");
    let error = say(&mut admin, "CREATE TENANT t_1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "57P03");
    assert_eq!(error.message, "no metadata agent can be reached");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_metadata_agent_dies_in_the_middle_another_answers_the_same_id() {
    let house = House::with(2, |_| {}).await;
    let mut admin = house.objects().await;
    let mut statement = admin.execute("START ENGINE t_1 rp_1 uc_1 WAIT '30s'").await.unwrap();
    let slot = eventually("the slot", async || house.store.snapshot().await.unwrap().slots.pop()).await;
    eventually("the log", async || statement.logs().await.unwrap().pop()).await;
    // Whichever of the two has it: one dies now, and the statement goes on at the other.
    let before = statements_begun(&house).await;
    house.agents[0].1.cut();
    for _ in 0..3 {
        statement.poll().await.unwrap();
    }
    house.hand.seen(ready(slot.engine().as_str(), "127.0.0.1:1")).await;
    let answer = statement.collect(WAIT).await.unwrap();
    assert_eq!(column(&answer, "engine"), [slot.engine().to_string()]);
    assert_eq!(column(&answer, "state"), ["ready"]);
    assert_eq!(statements_begun(&house).await, before, "it took effect once");
    statement.close().await.unwrap();
    // And so does everything after it.
    assert_eq!(column(&must(&mut admin, "SHOW ENGINES t_1").await, "state"), ["ready"]);
    let mut other = house.session("admin").await;
    must(&mut other, "SHOW TENANTS").await;
}

async fn statements_begun(house: &House) -> usize {
    house.store.snapshot().await.unwrap().slots.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_both_die_the_statement_is_not_told_as_undone() {
    let house = House::with(2, |_| {}).await;
    let mut admin = house.objects().await;
    let mut statement = admin.execute("START ENGINE t_1 rp_1 uc_1 WAIT '60s'").await.unwrap();
    eventually("the slot", async || house.store.snapshot().await.unwrap().slots.pop()).await;
    for (_, wire) in &house.agents {
        wire.cut();
    }
    let error = statement.collect(WAIT).await.unwrap_err();
    assert!(matches!(&error, hs2::ClientError::Refused(error) if error.sqlstate() == "08007"), "{error}");
    drop(statement);
    let error = say(&mut admin, "SHOW ENGINES t_1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "57P03");
    assert!(error.text().contains("the catalog that it read"), "{}", error.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_is_cancelled_through_the_proxy() {
    let house = House::new().await;
    let mut admin = house.objects().await;
    let mut statement = admin.execute("START ENGINE t_1 rp_1 uc_1 WAIT '60s'").await.unwrap();
    eventually("the log", async || statement.logs().await.unwrap().pop()).await;
    statement.cancel().await.unwrap();
    // Long before the wait itself would be over.
    let error = statement.wait(WAIT).await.unwrap_err();
    assert!(matches!(&error, hs2::ClientError::Refused(error) if error.sqlstate() == "57014"), "{error}");
    statement.close().await.unwrap();
    assert_eq!(must(&mut admin, "SHOW ENGINES t_1").await.rows.len(), 1, "what was said stands");
}
