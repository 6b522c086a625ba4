//! The age of sessions: an old one begins nothing more, and is closed when what it runs has ended.

use std::sync::Arc;
use std::time::Duration;

use hs2::tcli::{
    TCancelOperationReq, TCloseOperationReq, TExecuteStatementReq, TExecuteStatementResp, TFetchOrientation,
    TFetchResultsReq, TGetInfoReq, TGetInfoType, TGetOperationStatusReq, TOperationHandle, TOperationState,
    TSessionHandle,
};
use hs2::{ClientError, Limit, LimitHits, Session, rowset, status};
use model::error::UserError;
use proxy::IdleLimits;

use crate::agents::run;
use crate::cluster::{Cluster, sessions_of};
use crate::engines::RunningEngine;
use crate::fixture::{ShiftedClock, WAIT, eventually, within};
use crate::http;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const FOR_EVER: &str = "SELECT count(*) FROM generate_series(1, 100000000000)";
/// It has 500 rows.
const ROWS: &str = "SELECT value FROM generate_series(1, 500)";

struct Bench {
    cluster: Cluster,
    clock: Arc<ShiftedClock>,
    hits: Arc<LimitHits>,
    engine: RunningEngine,
}

impl Bench {
    /// With sessions of at most an hour, which may be idle, and an engine that the proxy has seen.
    async fn new() -> Self {
        let clock = Arc::new(ShiftedClock::default());
        let hits = Arc::new(LimitHits::default());
        let cluster = Cluster::with_clock(clock.clone(), |settings| {
            settings.idle = IdleLimits { unbind_after: None, session: None, http_session: None };
            settings.session_age = Some(HOUR);
            settings.limits.wire.hits = Arc::clone(&hits);
            settings.limits.sweep_interval = Duration::from_millis(50);
            settings.limits.without_session = WAIT;
        })
        .await;
        let mut admin = cluster.objects().await;
        let engine = cluster.engine(&mut admin).await;
        admin.close().await.unwrap();
        let bench = Self { cluster, clock, hits, engine };
        bench.bound("ann").await.close().await.unwrap();
        bench.sessions(0).await;
        bench
    }

    async fn bound(&self, user: &str) -> Session {
        let mut session = self.cluster.session(user).await;
        run(&mut session, "SELECT 1").await;
        session
    }

    async fn sessions(&self, count: u32) {
        sessions_of(&self.engine, count).await;
    }

    /// Time goes on until the engine has that many sessions: the proxy may note the end of a call at the new time.
    async fn sessions_in_the_end(&self, count: u32) {
        eventually("the sessions that remain", async || {
            self.clock.advance(10 * SECOND);
            (self.engine.datafusion.load().0 == count).then_some(())
        })
        .await;
    }
}

fn statement(session: &TSessionHandle, sql: &str) -> TExecuteStatementReq {
    TExecuteStatementReq {
        session_handle: session.clone(),
        statement: sql.to_owned(),
        conf_overlay: None,
        run_async: Some(true),
        query_timeout: None,
    }
}

async fn started(session: &mut Session, sql: &str) -> TOperationHandle {
    let request = statement(session.handle(), sql);
    session.client().execute_statement(&request).await.unwrap().operation_handle.unwrap()
}

fn refused<T>(result: Result<T, ClientError>) -> UserError {
    match result.map(drop) {
        Err(ClientError::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}

async fn state(session: &mut Session, operation: &TOperationHandle) -> TOperationState {
    let request = TGetOperationStatusReq { operation_handle: operation.clone(), get_progress_update: None };
    session.client().get_operation_status(&request).await.unwrap().operation_state.unwrap()
}

async fn fetch(session: &mut Session, operation: &TOperationHandle) -> Result<usize, ClientError> {
    let request = TFetchResultsReq {
        operation_handle: operation.clone(),
        orientation: TFetchOrientation::FETCH_NEXT,
        max_rows: 100,
        fetch_type: Some(0),
    };
    let answer = session.client().fetch_results(&request).await?;
    Ok(rowset::rows(&answer.results.unwrap()).unwrap().len())
}

fn assert_closed(error: &UserError) {
    assert_eq!(error.sqlstate(), "57P03", "{error:?}");
    assert_eq!(
        error.text(),
        "the session was closed because it was too old\nDetail: It was opened more than 1h ago.\n\
         Hint: Open a new session. The limit is proxy.session_age."
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_session_is_closed_with_its_state_and_its_client_learns_why() {
    let bench = Bench::new().await;
    let mut ann = bench.bound("ann").await;
    run(&mut ann, "CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer").await;
    bench.clock.advance(59 * MINUTE);
    let mut bob = bench.bound("bob").await;
    // Its use does not make it younger.
    run(&mut ann, "SELECT answer FROM mine").await;
    bench.sessions(2).await;
    bench.clock.advance(2 * MINUTE);
    bench.sessions(1).await;
    assert_closed(&refused(ann.execute("SELECT answer FROM mine").await));
    assert_eq!(bench.hits.count(Limit::SessionAge), 1);
    run(&mut bob, "SELECT 1").await;
    let request = statement(bob.handle(), "SELECT 1");
    assert_eq!(refused(ann.client().execute_statement(&request).await).sqlstate(), "55000", "another user's");
    assert_eq!(bench.hits.count(Limit::SessionAge), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_runs_keeps_an_old_session_which_begins_nothing_more() {
    let bench = Bench::new().await;
    let mut ann = bench.bound("ann").await;
    let runs = started(&mut ann, FOR_EVER).await;
    // As long as it runs, however long that is and whether it is asked about or not.
    bench.clock.advance(2 * HOUR);
    for refusals in 1..=3 {
        let error = refused(ann.execute("SELECT 1").await);
        assert_eq!((error.sqlstate(), error.message.as_str()), ("57P03", "the session is too old"));
        assert!(error.hint.unwrap().contains("proxy.session_age"));
        assert_eq!(bench.hits.count(Limit::SessionAge), refusals);
        // Some sweeps pass.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Pools ask for that to know whether a connection can be used.
    let request = TGetInfoReq { session_handle: ann.handle().clone(), info_type: TGetInfoType::CLI_DBMS_NAME };
    assert_eq!(refused(ann.client().get_info(&request).await).message, "the session is too old");
    assert_eq!(state(&mut ann, &runs).await, TOperationState::RUNNING_STATE);
    assert_eq!(bench.engine.datafusion.load(), (1, 1), "nothing of what was refused runs");
    let request = TCancelOperationReq { operation_handle: runs.clone() };
    ann.client().cancel_operation(&request).await.unwrap();
    eventually("the end of the statement", async || {
        (state(&mut ann, &runs).await == TOperationState::CANCELED_STATE).then_some(())
    })
    .await;
    let request = TCloseOperationReq { operation_handle: runs };
    ann.client().close_operation(&request).await.unwrap();
    bench.sessions(0).await;
    assert_closed(&refused(ann.execute("SELECT 1").await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_an_old_session_reads_its_result_to_the_end() {
    let bench = Bench::new().await;
    let (mut reader, mut pausing) = (bench.bound("ann").await, bench.bound("ann").await);
    let (read, unread) = (started(&mut reader, ROWS).await, started(&mut pausing, ROWS).await);
    for (session, operation) in [(&mut reader, &read), (&mut pausing, &unread)] {
        eventually("the end of the statement", async || {
            (state(session, operation).await == TOperationState::FINISHED_STATE).then_some(())
        })
        .await;
    }
    bench.clock.advance(59 * MINUTE + 30 * SECOND);
    state(&mut pausing, &unread).await;
    let mut rows = 0;
    // The last fetch has none. In between the other one has paused for too long.
    for step in 0..6 {
        rows += fetch(&mut reader, &read).await.unwrap();
        if step < 5 {
            bench.clock.advance(50 * SECOND);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    assert_eq!(rows, 500);
    bench.sessions(1).await;
    assert_closed(&refused(fetch(&mut pausing, &unread).await));
    // Its client has not closed the operation, and does nothing more.
    bench.sessions_in_the_end(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_served_is_not_cut_when_its_session_grows_too_old() {
    let bench = Bench::new().await;
    let mut ann = bench.bound("ann").await;
    let request =
        TExecuteStatementReq { run_async: Some(false), query_timeout: Some(5), ..statement(ann.handle(), FOR_EVER) };
    let meanwhile = async {
        eventually("the statement", async || (bench.engine.datafusion.load().1 > 0).then_some(())).await;
        bench.clock.advance(2 * HOUR);
    };
    let (executed, ()) = tokio::join!(ann.client().execute_statement(&request), meanwhile);
    let error = refused(executed);
    assert_eq!(error.sqlstate(), "HYT00", "its timeout ends it: {error:?}");
    bench.sessions(0).await;
    within("the reason", async { assert_closed(&refused(ann.execute("SELECT 1").await)) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_session_over_http_is_closed_for_its_user_alone_to_know() {
    let bench = Bench::new().await;
    let execute = async |who: &str, session: &TSessionHandle, sql: &str| {
        let answer: TExecuteStatementResp =
            http::call(&bench.cluster, who, "ExecuteStatement", &statement(session, sql)).await;
        status::check(&answer.status).map(|()| answer.operation_handle.unwrap())
    };
    let old = http::open(&bench.cluster, http::ANN).await;
    let runs = execute(http::ANN, &old, FOR_EVER).await.unwrap();
    bench.sessions(1).await;
    bench.clock.advance(HOUR);
    let young = http::open(&bench.cluster, http::ANN).await;
    execute(http::ANN, &young, "SELECT 1").await.unwrap();
    let error = execute(http::ANN, &old, "SELECT 1").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.message.as_str()), ("57P03", "the session is too old"));
    let closing = TCloseOperationReq { operation_handle: runs };
    let answer: hs2::tcli::TCloseOperationResp =
        http::call(&bench.cluster, http::ANN, "CloseOperation", &closing).await;
    status::check(&answer.status).unwrap();
    bench.sessions(1).await;
    assert_closed(&execute(http::ANN, &old, "SELECT 1").await.unwrap_err());
    let of_another = execute(http::BOB, &old, "SELECT 1").await.unwrap_err();
    assert_eq!((of_another.sqlstate(), of_another.message.as_str()), ("55000", "session does not exist"));
    execute(http::ANN, &young, "SELECT 1").await.unwrap();
}
