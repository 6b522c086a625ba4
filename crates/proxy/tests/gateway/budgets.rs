//! Byte budgets: what one session, and all of them, may make the proxy keep.

use std::time::Duration;

use hs2::tcli::{
    TExecuteStatementReq, TExecuteStatementResp, TFetchOrientation, TFetchResultsReq, TGetOperationStatusReq,
    TOperationHandle,
};
use hs2::{Session, rowset};

use crate::agents::{run, try_run};
use crate::cluster::Cluster;
use crate::fixture::{WAIT, eventually};

const MIB: usize = 1 << 20;

/// The memory of this process that is resident, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Issues a statement and does not poll it.
async fn issue(session: &mut Session, sql: &str, query_timeout: Option<i64>) -> TExecuteStatementResp {
    let request = TExecuteStatementReq {
        session_handle: session.handle().clone(),
        statement: sql.to_owned(),
        conf_overlay: None,
        run_async: Some(true),
        query_timeout,
    };
    session.client().call("ExecuteStatement", &request, WAIT).await.unwrap()
}

/// The SQLSTATE of an operation.
async fn sqlstate(session: &mut Session, operation: &TOperationHandle) -> Option<String> {
    let request = TGetOperationStatusReq { operation_handle: operation.clone(), get_progress_update: None };
    session.client().get_operation_status(&request).await.unwrap().sql_state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_beyond_their_bytes_are_refused_and_not_kept() {
    let cluster = Cluster::with(1, |settings| {
        settings.limits.setting_bytes = 2 * MIB;
        settings.limits.session_settings_bytes = 5 * MIB;
        settings.limits.held_bytes = 8 * MIB;
    })
    .await;
    let (mut one, mut two) = (cluster.session("eve").await, cluster.session("eve").await);
    let value = "x".repeat(MIB);
    let before = resident();
    let mut refused = Vec::new();
    for at in 0..20 {
        refused.extend(try_run(&mut one, &format!("SET k{at}={value}")).await.err());
    }
    assert_eq!(refused.len(), 18, "a setting is kept as it is shown and as it is replayed");
    assert!(refused.iter().all(|error| error.sqlstate() == "54000"), "{refused:?}");
    let error = try_run(&mut one, &format!("SET k={value}{value}")).await.unwrap_err();
    assert!(error.message.contains("too long"), "{}", error.text());
    // What is left of the proxy's budget: the other session may keep one of them.
    run(&mut two, &format!("SET k={value}")).await;
    let error = try_run(&mut two, &format!("SET l={value}")).await.unwrap_err();
    assert_eq!(error.sqlstate(), "54000");
    assert!(error.text().contains("proxy.max_held_bytes"), "{}", error.text());
    let grown = resident().saturating_sub(before);
    assert!(grown < 48 * MIB, "{grown} bytes more are resident");
    // What is closed is given back.
    one.close().await.unwrap();
    eventually("room", async || try_run(&mut two, &format!("SET l={value}")).await.ok()).await;
    let keys = [("a".to_owned(), value.clone() + &value + &value)];
    let opened = Session::open(cluster.connect("eve").await, &keys).await;
    assert!(matches!(opened, Err(hs2::ClientError::Refused(error)) if error.sqlstate() == "54000"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_wait_are_bounded_and_end_without_a_poll() {
    let cluster = Cluster::with(1, |settings| {
        settings.limits.session_statement_bytes = 5 * MIB / 2;
        settings.bind_deadline = Duration::from_secs(9);
    })
    .await;
    let mut admin = cluster.objects().await;
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let mut ann = cluster.session("ann").await;
    let long = format!("SELECT '{}'", "x".repeat(MIB));
    let first = issue(&mut ann, &long, None).await.operation_handle.unwrap();
    let second = issue(&mut ann, &long, Some(3)).await.operation_handle.unwrap();
    let refused = issue(&mut ann, &long, None).await.status;
    assert_eq!(refused.sql_state.as_deref(), Some("54000"));
    assert!(refused.error_message.unwrap().contains("open statements are too long"));
    // No client polls: each ends at its deadline, and its message is dropped.
    let third = eventually("room for another", async || issue(&mut ann, &long, None).await.operation_handle).await;
    assert_eq!(sqlstate(&mut ann, &second).await.as_deref(), Some("HYT00"), "its own timeout was the first");
    assert_eq!(sqlstate(&mut ann, &first).await, None);
    eventually("the deadline", async || sqlstate(&mut ann, &first).await.filter(|sqlstate| sqlstate == "HYT00")).await;
    eventually("the deadline", async || sqlstate(&mut ann, &third).await.filter(|sqlstate| sqlstate == "HYT00")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_of_the_proxy_is_fetched_again_from_its_first_row() {
    let cluster = Cluster::new().await;
    let mut eve = cluster.session("eve").await;
    for at in 0..5 {
        run(&mut eve, &format!("SET k{at}={at}")).await;
    }
    let operation_handle = issue(&mut eve, "SET", None).await.operation_handle.unwrap();
    let mut counts = Vec::new();
    for (orientation, max_rows) in [
        (TFetchOrientation::FETCH_NEXT, 2),
        (TFetchOrientation::FETCH_NEXT, 10),
        (TFetchOrientation::FETCH_NEXT, 10),
        (TFetchOrientation::FETCH_FIRST, 4),
        (TFetchOrientation::FETCH_NEXT, 10),
    ] {
        let operation_handle = operation_handle.clone();
        let request = TFetchResultsReq { operation_handle, orientation, max_rows, fetch_type: Some(0) };
        let fetched = eve.client().fetch_results(&request).await.unwrap().results.unwrap();
        counts.push((fetched.start_row_offset, rowset::row_count(&fetched).unwrap()));
    }
    assert_eq!(counts, [(0, 2), (2, 3), (5, 0), (0, 4), (4, 1)]);
}
