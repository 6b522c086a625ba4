//! Statement timeouts: the client's, the session's and the unit's.

use std::time::Duration;

use hs2::tcli::TExecuteStatementReq;
use hs2::{ClientError, Session};
use model::error::UserError;

use crate::agents::{run, try_run};
use crate::cluster::Cluster;
use crate::fixture::{WAIT, eventually};

const FOR_EVER: &str = "SELECT count(*) FROM generate_series(1, 100000000000)";

/// Runs a statement with a timeout that is enough for what does not wait.
async fn with_timeout(session: &mut Session, sql: &str, run_async: bool) -> Result<(), UserError> {
    let request = TExecuteStatementReq {
        session_handle: session.handle().clone(),
        statement: sql.to_owned(),
        conf_overlay: None,
        run_async: Some(run_async),
        query_timeout: Some(3),
    };
    let ended = async {
        let handle = session.client().execute_statement(&request).await?.operation_handle.unwrap();
        session.statement(handle).wait(WAIT).await
    };
    ended.await.map_err(|error| match error {
        ClientError::Refused(error) => error,
        other => panic!("{other}"),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_timeout_counts_while_an_engine_or_a_wait_is_waited_for() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    let error = with_timeout(&mut admin, "START ENGINE t_1 rp_1 uc_1 WAIT '1h'", true).await.unwrap_err();
    assert_eq!(error.sqlstate(), "HYT00");
    assert!(error.text().contains("the statement remains in effect"), "{}", error.text());
    assert_eq!(cluster.store.snapshot().await.unwrap().slots.len(), 1);
    let error = try_run(&mut admin, "START ENGINE t_1 rp_1 uc_1 WAIT '25h'").await.unwrap_err();
    assert_eq!(error.sqlstate(), "22023");
    assert_eq!(cluster.store.snapshot().await.unwrap().slots.len(), 1, "it had no effect");
    let mut ann = cluster.session("ann").await;
    for run_async in [true, false] {
        let error = with_timeout(&mut ann, "SELECT 1", run_async).await.unwrap_err();
        assert_eq!(error.sqlstate(), "HYT00");
        assert!(error.text().contains("waiting for engine"), "{}", error.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shortest_timeout_ends_a_statement_and_nothing_else() {
    let (cluster, mut admin, engine) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    assert!(try_run(&mut ann, "SET enginehouse.statement_timeout=soon").await.is_err());
    run(&mut ann, "SET enginehouse.statement_timeout=3s").await;
    let error = try_run(&mut ann, FOR_EVER).await.unwrap_err();
    assert_eq!(error.sqlstate(), "HYT00");
    eventually("the end of the statement", async || (engine.datafusion.load() == (1, 0)).then_some(())).await;
    run(&mut ann, "SELECT 1").await;
    {
        let _settling = cluster.master.keep_settling();
        run(&mut admin, "ALTER RESOURCE UNIT uc_1 PROPERTIES ('enginehouse.statement_timeout'='4s')").await;
        let error = try_run(&mut admin, "ALTER RESOURCE UNIT uc_1 PROPERTIES ('enginehouse.timeout'='2s')").await;
        assert_eq!(error.unwrap_err().sqlstate(), "22023");
    }
    run(&mut ann, "SET enginehouse.statement_timeout=1h").await;
    let begun = std::time::Instant::now();
    let error = eventually("the unit's timeout", async || {
        let mut statement = ann.execute(FOR_EVER).await.unwrap();
        let ended = statement.wait(Duration::from_secs(8)).await.err();
        let _ = statement.cancel().await;
        // The first one may have been sent before the proxy knew of the timeout.
        ended.filter(|error| matches!(error, ClientError::Refused(_)))
    })
    .await;
    assert!(matches!(&error, ClientError::Refused(error) if error.sqlstate() == "HYT00"), "{error}");
    assert!(begun.elapsed() >= Duration::from_secs(4));
    run(&mut ann, "SELECT 1").await;
    let slots = cluster.store.snapshot().await.unwrap().slots;
    assert_eq!(slots[0].engine(), engine.name, "no engine is replaced for it");
}
