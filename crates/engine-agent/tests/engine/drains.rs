//! The drain: what is refused, what finishes, when it exits.

use std::time::{Duration, Instant};

use coordination::Lock;
use engine_agent::engine::Ended;
use hs2::session::StatementProgress;
use hs2::{ClientError, Session};
use model::error::{ENGINE_DRAINING, ErrorKind};

use crate::engines::{DataFusion, RunningEngine};
use crate::fixture::wire::probe;
use crate::fixture::{Fixture, WAIT, drain, engine_name, eventually, permit, registered, slot};

/// How soon an engine must have exited once nothing is left: long before its grace is over. That it takes less than two
/// seconds is measured by a scenario, on a machine that does nothing else.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Runs longer than any test.
const FOR_EVER: &str = "SELECT count(*) FROM generate_series(1, 100000000000)";

async fn ready(fixture: &Fixture, lock: &Lock) -> (RunningEngine, String) {
    let engine = RunningEngine::start(fixture, engine_name(1));
    permit(lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
    let node = registered(lock, &engine.name).await;
    (engine, node.ready().unwrap().content.clone().unwrap().address)
}

async fn begun(engine: &RunningEngine, address: &str) {
    eventually("the drain", async || engine.status(address).await.draining.then_some(())).await;
}

fn draining(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(error)
        if error.kind == ErrorKind::EngineDraining && error.sqlstate() == "08S01" && error.kind.error_code() == ENGINE_DRAINING)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_still_starting_exits_at_once() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let name = engine_name(1);
    // It answers no query, so that it would start until its deadline.
    let deaf = DataFusion::new(&fixture, &name).locked();
    let mut engine = RunningEngine::start_with(&fixture, name, deaf, 2 * WAIT);
    permit(&lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
    eventually("its start", async || engine.datafusion.is_started().then_some(())).await;
    drain(&lock, &engine.name, "another-uid", WAIT).await;
    assert!(engine.ended_within(Duration::from_secs(2)).await.is_none(), "the order is for another instance");
    coordination::drains::remove(&lock, &engine.name).await.unwrap();
    drain(&lock, &engine.name, &engine.uid, WAIT).await;
    let ended = engine.ended_within(AT_ONCE).await;
    assert!(matches!(ended, Some(Ok(Ended::Drained))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_engine_exits_at_once() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (mut engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    session.run("SELECT 1", WAIT).await.unwrap();
    drain(&lock, &engine.name, &engine.uid, WAIT).await;
    let ended = engine.ended_within(AT_ONCE).await;
    assert!(matches!(ended, Some(Ok(Ended::Drained))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_was_sent_before_the_drain_was_known_is_refused_and_not_cut() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (mut engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    session.run("SELECT 1", WAIT).await.unwrap();
    drain(&lock, &engine.name, &engine.uid, WAIT).await;
    // Nothing runs, so it has drained as soon as it begins to.
    begun(&engine, &address).await;
    let refused = session.execute("SELECT 1").await.err().unwrap();
    assert!(draining(&refused), "{refused}");
    let ended = engine.ended_within(AT_ONCE).await;
    assert!(matches!(ended, Some(Ok(Ended::Drained))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn livez_and_readyz_report_the_agents_state() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (engine, address) = ready(&fixture, &lock).await;
    let is_ready = async || (probe(&address, "/readyz").await == (200, "ok".to_owned())).then_some(());
    eventually("it is ready", is_ready).await;
    let mut busy = engine.open_polling(&address, "ann", "1ms").await;
    let mut statement = busy.execute(FOR_EVER).await.unwrap();
    assert_eq!(statement.poll().await.unwrap(), StatementProgress::Running);
    assert_eq!(probe(&address, "/livez").await, (200, "ok".to_owned()), "a statement runs");
    drain(&lock, &engine.name, &engine.uid, WAIT).await;
    begun(&engine, &address).await;
    assert_eq!(probe(&address, "/livez").await, (200, "ok".to_owned()), "it drains");
    assert_eq!(probe(&address, "/readyz").await, (503, "the engine is draining".to_owned()));
    statement.cancel().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fact_of_another_uid_is_no_order() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (engine, address) = ready(&fixture, &lock).await;
    let fact = coordination::DrainOrder {
        uid: Some("another".to_owned()),
        grace_ms: 0,
        reason: String::new(),
        namespace: None,
    };
    coordination::drains::drain(&lock, &engine.name, None, None, &fact).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!engine.status(&address).await.draining);
    assert!(engine.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_work_is_refused_before_anything_runs_and_what_runs_finishes() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (mut engine, address) = ready(&fixture, &lock).await;
    let (mut busy, mut idle) = (engine.open_polling(&address, "ann", "1ms").await, engine.open(&address, "ann").await);
    // Takes a second or so: far longer than the first answer about it, far less than is waited for its end.
    let mut statement = busy.execute("SELECT count(*) FROM generate_series(1, 300000000)").await.unwrap();
    assert_eq!(statement.poll().await.unwrap(), StatementProgress::Running);
    drain(&lock, &engine.name, &engine.uid, WAIT).await;
    begun(&engine, &address).await;

    let executed = engine.datafusion.load().1;
    let refused = idle.execute("SELECT 1").await.err().unwrap();
    assert!(draining(&refused), "{refused}");
    // State of one's own begins with the first such statement; this one comes too late for that.
    let refused = idle.execute("CREATE TEMPORARY VIEW v AS SELECT 1").await.err().unwrap();
    assert!(draining(&refused), "{refused}");
    assert!(engine.datafusion.load().1 <= executed, "something was executed");
    let refused = Session::open(engine.connect(&address, "bob").await, &[]).await.err().unwrap();
    assert!(draining(&refused), "{refused}");

    statement.wait(WAIT).await.unwrap();
    assert!(engine.is_running(), "a result waits");
    let rows = statement.fetch(100).await.unwrap();
    assert_eq!(rows[0][0].to_string(), "300000000");
    assert!(statement.fetch(100).await.unwrap().is_empty());
    let ended = engine.ended_within(AT_ONCE).await;
    assert!(matches!(ended, Some(Ok(Ended::Drained))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_of_many_batches_stays_fetchable_to_its_end() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (mut engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    let mut statement = session.execute("SELECT value FROM generate_series(1, 50000)").await.unwrap();
    statement.wait(WAIT).await.unwrap();
    let mut rows = statement.fetch(1_000).await.unwrap().len();
    drain(&lock, &engine.name, &engine.uid, WAIT).await;
    begun(&engine, &address).await;
    loop {
        let batch = statement.fetch(5_000).await.unwrap();
        if batch.is_empty() {
            break;
        }
        rows += batch.len();
    }
    assert_eq!(rows, 50_000);
    let fetched = Instant::now();
    assert!(matches!(engine.ended().await, Ok(Ended::Drained)));
    assert!(fetched.elapsed() < AT_ONCE, "{:?}", fetched.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pinned_session_continues_until_the_grace_is_over() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (mut engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    session.run("CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer", WAIT).await.unwrap();
    let grace = Duration::from_secs(5);
    let ordered = Instant::now();
    drain(&lock, &engine.name, &engine.uid, grace).await;
    begun(&engine, &address).await;
    assert_eq!(session.run("SELECT answer FROM mine", WAIT).await.unwrap().rows[0][0].to_string(), "42");
    assert!(matches!(engine.ended().await, Ok(Ended::Drained)));
    assert!(ordered.elapsed() >= grace, "{:?}", ordered.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_with_state_that_closes_lets_the_engine_go() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (mut engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    session.run("CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer", WAIT).await.unwrap();
    drain(&lock, &engine.name, &engine.uid, WAIT).await;
    begun(&engine, &address).await;
    session.close().await.unwrap();
    assert!(matches!(engine.ended_within(AT_ONCE).await, Some(Ok(Ended::Drained))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn force_ends_what_runs() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (mut engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    let mut statement = session.execute(FOR_EVER).await.unwrap();
    let polling = async {
        loop {
            if let Err(error) = statement.poll().await {
                return error;
            }
        }
    };
    drain(&lock, &engine.name, &engine.uid, Duration::ZERO).await;
    let (ended, error) = tokio::join!(engine.ended_within(WAIT), polling);
    assert!(matches!(ended, Some(Ok(Ended::Drained))), "{ended:?}");
    assert!(!matches!(error, ClientError::Refused(_)), "the connection is cut: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unpolled_statement_does_not_keep_the_engine() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (mut engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    // A statement without a result, begun and left alone.
    let _statement = session.execute("CREATE SCHEMA left_alone").await.unwrap();
    drain(&lock, &engine.name, &engine.uid, WAIT).await;
    let ended = engine.ended_within(AT_ONCE).await;
    assert!(matches!(ended, Some(Ok(Ended::Drained))), "{ended:?}");
}

/// The engine closes it after a while, and what the agent asks about it keeps it no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_result_keeps_the_engine_until_it_is_closed() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let name = engine_name(1);
    let datafusion = DataFusion::new(&fixture, &name).forgetting(Duration::from_secs(2));
    let mut engine = RunningEngine::start_with(&fixture, name, datafusion, WAIT);
    permit(&lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
    let node = registered(&lock, &engine.name).await;
    let mut session = engine.open(&node.ready().unwrap().content.clone().unwrap().address, "ann").await;
    let mut statement = session.execute("SELECT 1").await.unwrap();
    statement.wait(WAIT).await.unwrap();
    let grace = Duration::from_hours(1);
    drain(&lock, &engine.name, &engine.uid, grace).await;
    let ended = engine.ended_within(Duration::from_mins(1)).await;
    assert!(matches!(ended, Some(Ok(Ended::Drained))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_termination_it_leaves_the_registry_and_drains() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let (mut engine, address) = ready(&fixture, &lock).await;
    let mut session = engine.open(&address, "ann").await;
    let mut statement = session.execute("SELECT value FROM generate_series(1, 10)").await.unwrap();
    statement.wait(WAIT).await.unwrap();
    engine.terminate.cancel();
    eventually("leaving the registry", async || {
        crate::fixture::permit_of(&lock, &engine.name).await?.registration.is_none().then_some(())
    })
    .await;
    assert_eq!(statement.fetch(100).await.unwrap().len(), 10);
    assert!(statement.fetch(100).await.unwrap().is_empty());
    assert!(matches!(engine.ended_within(AT_ONCE).await, Some(Ok(Ended::Drained))));
}
