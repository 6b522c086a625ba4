//! Engines that die, statements that are cancelled, clients that go, ZooKeeper that is away.

use hs2::session::Table;
use hs2::tcli::{TExecuteStatementReq, TExecuteStatementResp};
use hs2::{ClientError, Session};

use crate::agents::{run, try_run};
use crate::cluster::{Cluster, sessions_of};
use crate::fixture::{WAIT, eventually};

const FOR_EVER: &str = "SELECT count(*) FROM generate_series(1, 100000000000)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_dies_fails_what_runs_there_and_nothing_else() {
    let (cluster, mut admin, mut dies) = Cluster::with_engine().await;
    let (mut running, mut idle, mut stateful) =
        (cluster.session("ann").await, cluster.session("ann").await, cluster.session("bob").await);
    run(&mut idle, "SELECT 1").await;
    run(&mut stateful, "CREATE TEMPORARY VIEW mine AS SELECT 1").await;
    let mut statement = running.execute(FOR_EVER).await.unwrap();
    let lives = cluster.engine(&mut admin).await;
    dies.datafusion.die("killed by the test");
    let error = statement.wait(WAIT).await.unwrap_err();
    let ClientError::Refused(error) = error else { panic!("{error}") };
    assert_eq!(error.sqlstate(), "08S01");
    assert!(error.text().contains(dies.name.as_str()), "{}", error.text());
    drop(statement);
    // A statement that is sent while its agent still closes may be lost with it; a later one is not.
    assert!(dies.ended().await.is_err());
    // Bound again at the next statement.
    run(&mut idle, "SELECT 1").await;
    run(&mut running, "SELECT 1").await;
    assert_eq!(lives.datafusion.load().0, 2);
    for _ in 0..2 {
        let error = try_run(&mut stateful, "SELECT 1").await.unwrap_err();
        assert_eq!(error.sqlstate(), "08S01");
        assert!(error.text().contains("session state was lost"), "{}", error.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_statement_is_cancelled_at_once() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    let mut statement = ann.execute(FOR_EVER).await.unwrap();
    assert_eq!(statement.poll().await.unwrap(), hs2::session::StatementProgress::Running);
    statement.cancel().await.unwrap();
    let error = statement.wait(WAIT).await.unwrap_err();
    assert!(matches!(&error, ClientError::Refused(error) if error.sqlstate() == "57014"), "{error}");
    eventually("the engine's rest", async || (engine.datafusion.load().1 == 0).then_some(())).await;
    statement.close().await.unwrap();
    run(&mut ann, "SELECT 1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_too_long_request_is_refused_and_its_session_stays() {
    // Smaller than that of the client and the engine, so that it is the proxy's limit, and parsing takes little time.
    let limit = 1 << 20;
    let (cluster, _admin, engine) = Cluster::with_engine_and(|settings| settings.limits.wire.frame_bytes = limit).await;
    let mut ann = cluster.session("ann").await;
    let mut request = TExecuteStatementReq {
        session_handle: ann.handle().clone(),
        statement: format!("SELECT {}1", " ".repeat(limit)),
        conf_overlay: None,
        run_async: Some(true),
        query_timeout: None,
    };
    for sessions in [0, 1] {
        let answer: TExecuteStatementResp = ann.client().call("ExecuteStatement", &request, WAIT).await.unwrap();
        assert_eq!(answer.status.sql_state.as_deref(), Some("54000"));
        let text = answer.status.error_message.unwrap();
        assert!(text.contains("too long") && text.contains(&limit.to_string()) && text.contains("Hint:"), "{text}");
        assert_eq!(engine.datafusion.load().0, sessions, "a request that is not read binds nothing");
        run(&mut ann, "SELECT 1").await;
    }
    // The longest request that is read goes through to the engine, byte for byte.
    let around = hs2::message::encode_call("ExecuteStatement", 1, &request).unwrap().len() - request.statement.len();
    request.statement = format!("SELECT {}2", " ".repeat(limit - around - "SELECT 2".len()));
    let answer = ann.client().execute_statement(&request).await.unwrap();
    let table = ann.statement(answer.operation_handle.unwrap()).collect(WAIT).await.unwrap();
    assert_eq!(table.rows[0][0].to_string(), "2");
    assert_eq!(engine.datafusion.load().0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_leaves_nothing_running() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    ann.execute(FOR_EVER).await.unwrap();
    eventually("a running statement", async || (engine.datafusion.load() == (1, 1)).then_some(())).await;
    drop(ann);
    eventually("the end of it", async || (engine.datafusion.load() == (0, 0)).then_some(())).await;
    let mut session = cluster.session("ann").await;
    session.execute(FOR_EVER).await.unwrap();
    session.close().await.unwrap();
    eventually("the end of it", async || (engine.datafusion.load() == (0, 0)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_work_without_zookeeper_and_metadata_agents() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let mut before = cluster.session("ann").await;
    run(&mut before, "SELECT 1").await;
    cluster.fixture.zookeeper.faults().outage(true);
    cluster.agents[0].1.cut();
    run(&mut before, "SELECT 1").await;
    let mut after = cluster.session("bob").await;
    run(&mut after, "SELECT 1").await;
    let error = try_run(&mut after, "SHOW ENGINES t_1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "57P03", "{}", error.text());
    run(&mut after, "SELECT 2").await;
    sessions_of(&engine, 2).await;
    cluster.fixture.zookeeper.faults().outage(false);
}

/// What a statement shows, and its log.
async fn shown(session: &mut Session, sql: &str) -> (Table, Vec<String>) {
    let mut statement = session.execute(sql).await.unwrap();
    let table = statement.collect(WAIT).await.unwrap();
    let log = statement.logs().await.unwrap();
    statement.close().await.unwrap();
    (table, log)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_without_zookeeper_reports_it_in_show_and_in_waits() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let lacks = |log: &[String]| log.iter().find(|line| line.contains("ZooKeeper")).cloned();
    let (_, log) = shown(&mut admin, "SHOW ENGINES t_1").await;
    assert_eq!(lacks(&log), None, "nothing is missing");
    cluster.fixture.zookeeper.faults().outage(true);
    for sql in ["SHOW ENGINES t_1", "SHOW TENANTS"] {
        let (table, line) = eventually("the warning", async || {
            let (table, log) = shown(&mut admin, sql).await;
            lacks(&log).map(|line| (table, line))
        })
        .await;
        assert_eq!(table.rows.len(), 1, "it is shown all the same");
        assert!(line.starts_with("warning: this proxy has had no connection to ZooKeeper for "), "{line}");
        assert!(line.contains(", and knows the engines that were registered "), "{line}");
    }
    // Who waits for an engine learns that it may be there, unseen.
    let mut ann = cluster.session("ann").await;
    let mut statement = ann.execute("SELECT 1").await.unwrap();
    let line = lacks(&statement.logs().await.unwrap()).unwrap();
    assert!(line.starts_with("waiting for engine ") && line.ends_with("that became ready since"), "{line}");
    statement.cancel().await.unwrap();
    statement.close().await.unwrap();
    cluster.fixture.zookeeper.faults().outage(false);
    eventually("the end of it", async || {
        let (_, log) = shown(&mut admin, "SHOW ENGINES t_1").await;
        lacks(&log).is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_a_new_proxy_waits_for_the_first_catalog() {
    let cluster = Cluster::with(0, |_| {}).await;
    let mut ann = cluster.session("ann").await;
    let asking = tokio::spawn(async move { try_run(&mut ann, "SELECT 1").await });
    let settings = crate::agents::settings(&cluster.fixture);
    let agent = crate::agents::agent(&cluster.fixture, &cluster.master.lock, &cluster.store, settings).await;
    // The catalog says that there is no such user: that an agent is missing was no reason to say anything.
    assert_eq!(asking.await.unwrap().unwrap_err().sqlstate(), "42501");
    agent.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_catalog_a_statement_fails_with_57p03() {
    let cluster = Cluster::with(0, |_| {}).await;
    let mut ann = cluster.session("ann").await;
    assert_eq!(try_run(&mut ann, "SELECT 1").await.unwrap_err().sqlstate(), "57P03");
}
