//! HTTP, as impyla speaks it: a new connection for each request.

use std::sync::Arc;
use std::time::Duration;

use hs2::message::{decode_reply, encode_call};
use hs2::tcli::{
    TCancelOperationReq, TCancelOperationResp, TCloseSessionReq, TCloseSessionResp, TExecuteStatementReq,
    TExecuteStatementResp, TFetchOrientation, TFetchResultsReq, TFetchResultsResp, TGetOperationStatusReq,
    TGetOperationStatusResp, TOpenSessionReq, TOpenSessionResp, TOperationState, TSessionHandle,
};
use hs2::{protocol, rowset, status};
use thrift::protocol::TSerializable;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, sessions_of};
use crate::fixture::{ShiftedClock, WAIT, eventually};

const FOR_EVER: &str = "SELECT count(*) FROM generate_series(1, 100000000000)";

/// `user:x` in base 64.
pub const ANN: &str = "YW5uOng=";
pub const BOB: &str = "Ym9iOng=";

pub async fn call<Q: TSerializable, A: TSerializable>(cluster: &Cluster, who: &str, method: &str, request: &Q) -> A {
    let body = encode_call(method, 1, request).unwrap();
    let mut stream = TcpStream::connect(cluster.proxy.addr()).await.unwrap();
    let head = format!(
        "POST /cliservice HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {who}\r\nContent-Type: application/x-thrift\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let mut reply = Vec::new();
    crate::fixture::within(method, stream.read_to_end(&mut reply)).await.unwrap();
    let end = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    assert!(reply.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&reply[..end]));
    decode_reply(&reply[end..]).unwrap()
}

pub async fn open(cluster: &Cluster, who: &str) -> TSessionHandle {
    let request = TOpenSessionReq {
        client_protocol: protocol::NEWEST,
        username: Some("root".to_owned()),
        password: None,
        configuration: None,
    };
    let answer: TOpenSessionResp = call(cluster, who, "OpenSession", &request).await;
    status::check(&answer.status).unwrap();
    answer.session_handle.unwrap()
}

fn statement(session: &TSessionHandle, sql: &str, run_async: bool) -> TExecuteStatementReq {
    TExecuteStatementReq {
        session_handle: session.clone(),
        statement: sql.to_owned(),
        conf_overlay: None,
        run_async: Some(run_async),
        query_timeout: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_lives_on_from_connection_to_connection() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let session = open(&cluster, ANN).await;
    let answer: TExecuteStatementResp =
        call(&cluster, ANN, "ExecuteStatement", &statement(&session, "SELECT 42", false)).await;
    status::check(&answer.status).unwrap();
    let operation_handle = answer.operation_handle.unwrap();
    let request = TFetchResultsReq {
        operation_handle: operation_handle.clone(),
        orientation: TFetchOrientation::FETCH_NEXT,
        max_rows: 10,
        fetch_type: Some(0),
    };
    let stranger: TFetchResultsResp = call(&cluster, BOB, "FetchResults", &request).await;
    assert!(status::check(&stranger.status).is_err(), "another user's result");
    let answer: TFetchResultsResp = call(&cluster, ANN, "FetchResults", &request).await;
    let rows = rowset::rows(&answer.results.unwrap()).unwrap();
    assert_eq!(rows[0][0].to_string(), "42");
    let answer: TExecuteStatementResp =
        call(&cluster, ANN, "ExecuteStatement", &statement(&session, "SHOW ENGINES t_1", false)).await;
    status::check(&answer.status).unwrap();
    sessions_of(&engine, 1).await;
    let closing = TCloseSessionReq { session_handle: session };
    let answer: TCloseSessionResp = call(&cluster, ANN, "CloseSession", &closing).await;
    status::check(&answer.status).unwrap();
    sessions_of(&engine, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_session_is_closed_sooner_over_http_than_over_its_own_connection() {
    let clock = Arc::new(ShiftedClock::default());
    let cluster = Cluster::with_clock(clock.clone(), |settings| {
        settings.idle.unbind_after = None;
        settings.limits.sweep_interval = Duration::from_millis(50);
    })
    .await;
    let mut admin = cluster.objects().await;
    let engine = cluster.engine(&mut admin).await;
    let execute = async |session: &TSessionHandle| {
        let request = statement(session, "SELECT 1", false);
        let answer: TExecuteStatementResp = call(&cluster, ANN, "ExecuteStatement", &request).await;
        status::check(&answer.status)
    };
    let mut binary = cluster.session("ann").await;
    crate::agents::run(&mut binary, "SELECT 1").await;
    let (idle, used) = (open(&cluster, ANN).await, open(&cluster, ANN).await);
    execute(&idle).await.unwrap();
    clock.advance(Duration::from_mins(40));
    execute(&used).await.unwrap();
    sessions_of(&engine, 3).await;
    clock.advance(Duration::from_mins(40));
    sessions_of(&engine, 2).await;
    let error = execute(&idle).await.unwrap_err();
    assert_eq!((error.sqlstate(), error.message.as_str()), ("57P03", "the session was closed because it was idle"));
    assert!(error.hint.unwrap().contains("proxy.http_session_idle"));
    execute(&used).await.unwrap();
    crate::agents::run(&mut binary, "SELECT 1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_does_not_wait_for_the_call_that_waits_for_the_statement() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let session = open(&cluster, ANN).await;
    let answer: TExecuteStatementResp =
        call(&cluster, ANN, "ExecuteStatement", &statement(&session, FOR_EVER, true)).await;
    let operation_handle = answer.operation_handle.unwrap();
    // The engine answers the fetch when it has rows, which is never.
    let request = TFetchResultsReq {
        operation_handle: operation_handle.clone(),
        orientation: TFetchOrientation::FETCH_NEXT,
        max_rows: 10,
        fetch_type: Some(0),
    };
    let fetching = async {
        let answer: TFetchResultsResp = call(&cluster, ANN, "FetchResults", &request).await;
        status::check(&answer.status).unwrap_err()
    };
    let canceling = async {
        eventually("a running statement", async || (engine.datafusion.load().1 == 1).then_some(())).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let request = TCancelOperationReq { operation_handle: operation_handle.clone() };
        let answer: TCancelOperationResp = call(&cluster, ANN, "CancelOperation", &request).await;
        status::check(&answer.status).unwrap();
    };
    let (error, ()) = tokio::join!(fetching, canceling);
    assert_eq!(error.sqlstate(), "57014");
    let request = TGetOperationStatusReq { operation_handle, get_progress_update: None };
    let answer: TGetOperationStatusResp = call(&cluster, ANN, "GetOperationStatus", &request).await;
    assert_eq!(answer.operation_state, Some(TOperationState::CANCELED_STATE));
}

/// Sends a call and hangs up nowhere: the connection, with its answer still to come.
async fn sent<Q: TSerializable>(cluster: &Cluster, who: &str, method: &str, request: &Q) -> TcpStream {
    let body = encode_call(method, 1, request).unwrap();
    let mut stream = TcpStream::connect(cluster.proxy.addr()).await.unwrap();
    let head = format!(
        "POST /cliservice HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {who}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_gone_during_a_call_marks_no_engine_as_lost() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let session = open(&cluster, ANN).await;
    let answer: TExecuteStatementResp =
        call(&cluster, ANN, "ExecuteStatement", &statement(&session, FOR_EVER, true)).await;
    let operation_handle = answer.operation_handle.unwrap();
    let request = TFetchResultsReq {
        operation_handle: operation_handle.clone(),
        orientation: TFetchOrientation::FETCH_NEXT,
        max_rows: 10,
        fetch_type: Some(0),
    };
    let asking = TGetOperationStatusReq { operation_handle, get_progress_update: None };
    let state = eventually("the end of the statement", async || {
        // A call that was given up before anybody read it was never made: it is made again, and given up a little later.
        let fetching = sent(&cluster, ANN, "FetchResults", &request).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(fetching);
        let answer: TGetOperationStatusResp = call(&cluster, ANN, "GetOperationStatus", &asking).await;
        answer.operation_state.filter(|state| *state != TOperationState::RUNNING_STATE).map(|_| answer)
    });
    let answer = state.await;
    assert_eq!(answer.sql_state.as_deref(), Some("08S01"), "{answer:?}");
    // The engine is there, and is taken at once: it was not lost.
    let mut fresh = cluster.session("bob").await;
    let mut statement = fresh.execute("SELECT 1").await.unwrap();
    assert_eq!(statement.logs().await.unwrap().first().filter(|line| line.starts_with("waiting")), None);
    statement.collect(WAIT).await.unwrap();
    assert!(engine.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_call_reports_the_lost_state() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let session = open(&cluster, ANN).await;
    let view = statement(&session, "CREATE TEMPORARY VIEW mine AS SELECT 1", false);
    let answer: TExecuteStatementResp = call(&cluster, ANN, "ExecuteStatement", &view).await;
    status::check(&answer.status).unwrap();
    let waiting = sent(&cluster, ANN, "ExecuteStatement", &statement(&session, FOR_EVER, false)).await;
    eventually("a running statement", async || (engine.datafusion.load() == (1, 1)).then_some(())).await;
    drop(waiting);
    eventually("the end of it", async || (engine.datafusion.load() == (0, 0)).then_some(())).await;
    let answer: TExecuteStatementResp =
        call(&cluster, ANN, "ExecuteStatement", &statement(&session, "SELECT 1", false)).await;
    let error = status::check(&answer.status).unwrap_err();
    assert_eq!(error.sqlstate(), "08S01");
    assert!(error.text().contains("session state was lost"), "{}", error.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_a_session_cancels_what_another_connection_waits_for() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let session = open(&cluster, ANN).await;
    let mut waiting = sent(&cluster, ANN, "ExecuteStatement", &statement(&session, FOR_EVER, false)).await;
    eventually("a running statement", async || (engine.datafusion.load() == (1, 1)).then_some(())).await;
    let answer: TCloseSessionResp =
        call(&cluster, ANN, "CloseSession", &TCloseSessionReq { session_handle: session }).await;
    status::check(&answer.status).unwrap();
    eventually("the end of it", async || (engine.datafusion.load() == (0, 0)).then_some(())).await;
    assert_cut(&mut waiting).await;
}

/// A call that was cut has an answer: JDBC would repeat one without, and run its statement twice.
async fn assert_cut(waiting: &mut TcpStream) {
    let mut rest = Vec::new();
    crate::fixture::within("the end of the connection", waiting.read_to_end(&mut rest)).await.unwrap();
    let end = rest.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    assert!(rest.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&rest));
    let answer: TExecuteStatementResp = decode_reply(&rest[end..]).unwrap();
    let error = status::check(&answer.status).unwrap_err();
    assert_eq!(error.sqlstate(), "08S01", "{}", error.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_over_http_that_outlives_its_engine_is_answered() {
    let (cluster, _admin, mut engine) = Cluster::with_engine().await;
    let session = open(&cluster, ANN).await;
    let request = statement(&session, FOR_EVER, false);
    let (answer, ()) = tokio::join!(call(&cluster, ANN, "ExecuteStatement", &request), async {
        eventually("a running statement", async || (engine.datafusion.load() == (1, 1)).then_some(())).await;
        engine.datafusion.die("killed by the test");
    });
    let answer: TExecuteStatementResp = answer;
    let error = status::check(&answer.status).unwrap_err();
    assert_eq!(error.sqlstate(), "08S01", "{}", error.text());
    assert!(error.text().contains(engine.name.as_str()), "{}", error.text());
    assert!(engine.ended().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_over_http_that_outlives_its_proxy_is_answered() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let session = open(&cluster, ANN).await;
    let mut waiting = sent(&cluster, ANN, "ExecuteStatement", &statement(&session, FOR_EVER, false)).await;
    eventually("a running statement", async || (engine.datafusion.load() == (1, 1)).then_some(())).await;
    let Cluster { proxy, .. } = cluster;
    let (stopped, ()) = tokio::join!(tokio::spawn(proxy.shutdown()), assert_cut(&mut waiting));
    stopped.unwrap();
}
