//! Values on the wire: the size of a fetch, and values without a text form.

use std::time::Duration;

use hs2::tcli::{TExecuteStatementReq, TFetchOrientation, TFetchResultsReq};

use crate::fixture::{DEADLINE, Fixture, one, state};

#[tokio::test]
async fn a_fetch_is_measured_by_its_text_whatever_the_type() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for (value, count, length) in [
        ("array_repeat(true, 200000)", 50, 1_000_001),
        ("array_repeat(NULL, 200000)", 50, 1_000_001),
        ("arrow_cast(repeat('x', 1000000), 'Dictionary(Int32, Utf8)')", 50, 1_000_000),
    ] {
        let sql = format!("SELECT {value} AS v FROM generate_series(1, {count})");
        let handle = session.execute(&sql).await.unwrap().handle().clone();
        let (mut rows, mut fetches) = (0, 0);
        loop {
            let request = TFetchResultsReq {
                operation_handle: handle.clone(),
                orientation: TFetchOrientation::FETCH_NEXT,
                max_rows: 10_000,
                fetch_type: Some(0),
            };
            let answer = session.client().fetch_results(&request).await.unwrap();
            let fetched = hs2::rowset::rows(&answer.results.unwrap()).unwrap();
            if fetched.is_empty() {
                break;
            }
            let bytes: usize = fetched.iter().map(|row| row[0].to_string().len()).sum();
            assert!(bytes <= 9 << 20, "{bytes} bytes at once: {value}");
            assert!(fetched.iter().all(|row| row[0].to_string().len() == length), "{value}");
            (rows, fetches) = (rows + fetched.len(), fetches + 1);
        }
        assert_eq!(rows, count, "{value}");
        assert!(fetches > 5, "{fetches} fetches: {value}");
    }
    engine.stop().await;
}

#[tokio::test]
async fn a_time_out_of_range_is_an_error_and_no_text() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for value in [
        "arrow_cast(9223372036854775807, 'Timestamp(Second, None)')",
        "arrow_cast(arrow_cast(2147483647, 'Int32'), 'Date32')",
        "make_array(arrow_cast(9223372036854775807, 'Timestamp(Second, None)'))",
    ] {
        assert_eq!(state(&mut session, &format!("SELECT {value}")).await, "22008", "{value}");
    }
    engine.stop().await;
}

#[tokio::test]
async fn nested_values_keep_their_order_and_their_equal_names() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for (value, expected) in [
        ("named_struct('b', 1, 'a', 2)", r#"{"b":1,"a":2}"#),
        ("named_struct('p', CAST(1.5 AS DECIMAL(3,1)))", r#"{"p":1.5}"#),
        ("map(make_array('z', 'a'), make_array(1, 2))", r#"{"z":1,"a":2}"#),
        ("make_array(CAST('NaN' AS DOUBLE), 1.5)", r#"["NaN",1.5]"#),
        ("make_array(DATE '2020-01-02', NULL)", r#"["2020-01-02",null]"#),
        ("make_array(make_array('a\"b'), make_array())", r#"[["a\"b"],[]]"#),
    ] {
        assert_eq!(one(&mut session, &format!("SELECT {value}")).await, expected, "{value}");
    }
    engine.stop().await;
}

#[tokio::test]
async fn a_clients_timeout_ends_with_the_first_rows() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let request = TExecuteStatementReq {
        session_handle: session.handle().clone(),
        // More rows than the engine queues for its client.
        statement: "SELECT value FROM generate_series(1, 1000000)".to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout: Some(3),
    };
    let handle = session.client().execute_statement(&request).await.unwrap().operation_handle.unwrap();
    let mut statement = session.statement(handle);
    statement.wait(DEADLINE).await.unwrap();
    // The test waits here to show that the elapsed time does not end the statement.
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    let mut count = 0;
    loop {
        let rows = statement.fetch(16_000).await.unwrap();
        if rows.is_empty() {
            break;
        }
        count += rows.len();
    }
    assert_eq!(count, 1_000_000);
    engine.stop().await;
}
