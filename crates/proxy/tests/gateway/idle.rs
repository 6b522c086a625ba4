//! Idle sessions: they leave their engine and return unnoticed, and are closed in the end.

use std::sync::Arc;
use std::time::Duration;

use hs2::Session;
use hs2::tcli::{TExecuteStatementReq, TGetInfoReq, TGetInfoType, TGetInfoValue};
use proxy::IdleLimits;

use crate::agents::run;
use crate::cluster::{Cluster, sessions_of};
use crate::engines::RunningEngine;
use crate::fixture::{ShiftedClock, WAIT, eventually, within};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

struct Bench {
    cluster: Cluster,
    clock: Arc<ShiftedClock>,
    _admin: Session,
    engine: RunningEngine,
}

impl Bench {
    /// With an engine that the proxy has seen. The proxy's clock moves with the test only, as far as these limits are concerned.
    async fn new(idle: IdleLimits) -> Self {
        let clock = Arc::new(ShiftedClock::default());
        let cluster = Cluster::with_clock(clock.clone(), |settings| {
            settings.idle = idle;
            settings.limits.sweep_interval = Duration::from_millis(50);
            settings.limits.without_session = Duration::from_secs(5);
        })
        .await;
        let mut admin = cluster.objects().await;
        let engine = cluster.engine(&mut admin).await;
        Self { cluster, clock, _admin: admin, engine }
    }

    async fn bound(&self, user: &str) -> Session {
        let mut session = self.cluster.session(user).await;
        run(&mut session, "SELECT 1").await;
        session
    }

    async fn sessions(&self, count: u32) {
        sessions_of(&self.engine, count).await;
    }
}

/// Waits until the proxy has noted that its calls have ended, which it does after their answers: it serves the next call after that.
/// The statement itself uses no engine.
async fn rests(session: &mut Session) {
    run(session, "SHOW TENANTS").await;
}

fn unbinding() -> IdleLimits {
    IdleLimits { unbind_after: Some(5 * MINUTE), session: None, http_session: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_session_leaves_its_engine_and_returns_unnoticed() {
    let bench = Bench::new(unbinding()).await;
    let mut ann = bench.bound("ann").await;
    for statement in [
        "CREATE SCHEMA kept",
        "CREATE VIEW kept.answers AS SELECT 42 AS answer",
        "USE kept",
        "SET datafusion.execution.batch_size=17",
    ] {
        run(&mut ann, statement).await;
    }
    for _ in 0..2 {
        bench.sessions(1).await;
        rests(&mut ann).await;
        bench.clock.advance(6 * MINUTE);
        // Statements that need no engine do not keep it.
        eventually("its engine's session is closed", async || {
            run(&mut ann, "SHOW TENANTS").await;
            (bench.engine.datafusion.load().0 == 0).then_some(())
        })
        .await;
        let address = bench.cluster.address(&bench.engine).await;
        let status = eventually("the agent counts it no more", async || {
            let status = bench.engine.status(&address).await;
            ((status.sessions, status.stateful) == (0, Some(0))).then_some(status)
        })
        .await;
        assert!(status.idle.is_some_and(|idle| idle < WAIT), "the engine's idle time begins");
        assert_eq!(run(&mut ann, "SELECT answer FROM answers").await.rows[0][0].to_string(), "42", "USE is kept");
        let shown = run(&mut ann, "SHOW datafusion.execution.batch_size").await;
        assert_eq!(shown.rows[0][1].to_string(), "17", "SET is kept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_an_open_operation_and_a_short_pause_keep_the_engine() {
    let bench = Bench::new(unbinding()).await;
    let mut stateful = bench.bound("ann").await;
    run(&mut stateful, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer").await;
    let mut reader = bench.cluster.session("ann").await;
    let mut reading = reader.execute("SELECT value FROM generate_series(1, 20000)").await.unwrap();
    reading.wait(WAIT).await.unwrap();
    let mut idle = bench.bound("ann").await;
    rests(&mut idle).await;
    bench.sessions(3).await;
    bench.clock.advance(4 * MINUTE);
    let mut busy = bench.bound("bob").await;
    bench.clock.advance(2 * MINUTE);
    bench.sessions(3).await;
    let address = bench.cluster.address(&bench.engine).await;
    eventually("the agent's counts", async || {
        let status = bench.engine.status(&address).await;
        ((status.sessions, status.stateful) == (3, Some(1))).then_some(())
    })
    .await;
    run(&mut busy, "SELECT 1").await;
    assert!(!reading.fetch(100).await.unwrap().is_empty());
    reading.close().await.unwrap();
    for session in [&mut busy, &mut reader] {
        rests(session).await;
    }
    bench.clock.advance(6 * MINUTE);
    bench.sessions(1).await;
    assert_eq!(run(&mut stateful, "SELECT answer FROM mine").await.rows[0][0].to_string(), "42");
    run(&mut reader, "SELECT 1").await;
}

/// A kind of information that the proxy itself does not have.
async fn longest_catalog_name(session: &mut Session) -> TGetInfoValue {
    let info_type = TGetInfoType::CLI_MAX_CATALOG_NAME_LEN;
    let request = TGetInfoReq { session_handle: session.handle().clone(), info_type };
    let answer = session.client().get_info(&request).await.unwrap();
    answer.info_value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_an_engine_knows_is_answered_after_unbinding() {
    let bench = Bench::new(unbinding()).await;
    let mut ann = bench.bound("ann").await;
    let before = longest_catalog_name(&mut ann).await;
    rests(&mut ann).await;
    bench.clock.advance(6 * MINUTE);
    bench.sessions(0).await;
    assert_eq!(longest_catalog_name(&mut ann).await, before);
    rests(&mut ann).await;
    bench.clock.advance(6 * MINUTE);
    bench.sessions(0).await;
    let shown = run(&mut ann, "SET datafusion.execution.batch_size").await;
    assert!(shown.rows[0][1].to_string().parse::<u32>().is_ok(), "{:?}", shown.rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_session_is_closed_with_its_connection() {
    let bench = Bench::new(IdleLimits { unbind_after: None, session: Some(HOUR), http_session: None }).await;
    let mut stateful = bench.bound("ann").await;
    run(&mut stateful, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer").await;
    bench.clock.advance(HOUR / 2);
    let mut used = bench.bound("bob").await;
    bench.clock.advance(HOUR / 3);
    // The proxy notes the end of a call after its answer, perhaps at the new time.
    eventually("the abandoned session is closed", async || {
        bench.clock.advance(MINUTE / 10);
        (bench.engine.datafusion.load().0 == 1).then_some(())
    })
    .await;
    bench.sessions(1).await;
    within("the end of the connection", stateful.client().closed()).await;
    assert!(stateful.execute("SELECT 1").await.is_err());
    run(&mut used, "SELECT 1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_time_begins_at_the_end_of_a_long_statement() {
    let limits = IdleLimits { unbind_after: Some(HOUR / 2), session: Some(HOUR), http_session: Some(HOUR) };
    let bench = Bench::new(limits).await;
    let mut ann = bench.bound("ann").await;
    let request = TExecuteStatementReq {
        session_handle: ann.handle().clone(),
        statement: "SELECT count(*) FROM generate_series(1, 100000000000)".to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout: Some(5),
    };
    let meanwhile = async {
        eventually("the statement", async || (bench.engine.datafusion.load().1 > 0).then_some(())).await;
        bench.clock.advance(2 * HOUR);
    };
    let (executed, ()) = tokio::join!(ann.client().execute_statement(&request), meanwhile);
    assert!(executed.is_err(), "its timeout ends it");
    rests(&mut ann).await;
    // Sweeps have passed when it is unbound.
    bench.clock.advance(HOUR * 2 / 3);
    bench.sessions(0).await;
    run(&mut ann, "SELECT 1").await;
}
