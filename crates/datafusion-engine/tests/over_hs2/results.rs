//! Results: all types, large results in batches, asynchronous statements, cancellation.

use std::time::{Duration, Instant};

use hs2::tcli::{TExecuteStatementReq, TFetchOrientation, TFetchResultsReq, TGetOperationStatusReq, TOperationState};
use hs2::{ClientError, SqlType, Value};

use crate::fixture::{DEADLINE, Fixture, RunningEngine, executing_ticks, one, rows, run};

/// The pause between two looks at an engine that ends a statement.
const LOOK: Duration = Duration::from_millis(20);

#[tokio::test]
async fn every_type_arrives_in_its_form_and_null_as_null() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for (expression, sql_type, shown) in [
        ("true", SqlType::Boolean, "true"),
        ("arrow_cast(-7, 'Int8')", SqlType::TinyInt, "-7"),
        ("arrow_cast(7, 'UInt8')", SqlType::SmallInt, "7"),
        ("arrow_cast(-300, 'Int16')", SqlType::SmallInt, "-300"),
        ("arrow_cast(70000, 'Int32')", SqlType::Int, "70000"),
        ("arrow_cast(60000, 'UInt16')", SqlType::Int, "60000"),
        ("9000000000", SqlType::BigInt, "9000000000"),
        ("arrow_cast(4000000000, 'UInt32')", SqlType::BigInt, "4000000000"),
        ("18446744073709551615", SqlType::Decimal { precision: 20, scale: 0 }, "18446744073709551615"),
        ("arrow_cast(1.5, 'Float32')", SqlType::Float, "1.5"),
        ("arrow_cast(1.5, 'Float16')", SqlType::Float, "1.5"),
        ("2.25e0", SqlType::Double, "2.25"),
        ("CAST('12.30' AS DECIMAL(10,2))", SqlType::Decimal { precision: 10, scale: 2 }, "12.30"),
        ("'grüße'", SqlType::String, "grüße"),
        ("arrow_cast('view', 'Utf8View')", SqlType::String, "view"),
        ("arrow_cast('large', 'LargeUtf8')", SqlType::String, "large"),
        ("arrow_cast('dict', 'Dictionary(Int32, Utf8)')", SqlType::String, "dict"),
        ("DATE '2026-02-28'", SqlType::Date, "2026-02-28"),
        ("TIMESTAMP '2026-02-28 01:02:03.004500'", SqlType::Timestamp, "2026-02-28 01:02:03.0045"),
        ("TIMESTAMP '2026-02-28 01:02:30'", SqlType::Timestamp, "2026-02-28 01:02:30"),
        ("arrow_cast(0, 'Timestamp(Second, Some(\"+02:00\"))')", SqlType::Timestamp, "1970-01-01 02:00:00"),
        ("TIME '10:20:30'", SqlType::String, "10:20:30"),
        ("arrow_cast(arrow_cast(14, 'Int32'), 'Interval(YearMonth)')", SqlType::IntervalYearMonth, "1-2"),
        ("arrow_cast(90061, 'Duration(Second)')", SqlType::IntervalDayTime, "1 01:01:01.000000000"),
        ("make_array(1, NULL, 3)", SqlType::Array, "[1,null,3]"),
        ("named_struct('a', 1, 'b', make_array('x\"y'))", SqlType::Struct, "{\"a\":1,\"b\":[\"x\\\"y\"]}"),
        ("map(make_array('k'), make_array(1.5e0))", SqlType::Map, "{\"k\":1.5}"),
    ] {
        let sql = format!("SELECT {expression} AS v UNION ALL SELECT NULL");
        let table = session.run(&sql, DEADLINE).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(table.columns[0].sql_type, sql_type, "{expression}");
        let mut values: Vec<_> = table.rows.iter().map(|row| row[0].clone()).collect();
        values.sort_by_key(Value::is_null);
        assert_eq!(values.len(), 2, "{expression}");
        assert_eq!(values[0].to_string(), shown, "{expression}");
        assert!(values[1].is_null(), "{expression}");
    }
    let table = session.run("SELECT x'00ff' AS b, NULL AS n", DEADLINE).await.unwrap();
    assert_eq!((table.columns[0].sql_type, table.columns[1].sql_type), (SqlType::Binary, SqlType::Null));
    assert_eq!(table.rows, [[Value::Bytes(vec![0, 255]), Value::Null]]);
    let empty = session.run("SELECT 1 AS a, 'x' AS b WHERE false", DEADLINE).await.unwrap();
    assert_eq!((empty.columns.len(), empty.rows.len()), (2, 0));
    engine.stop().await;
}

#[tokio::test]
async fn a_million_rows_arrive_in_batches_and_are_never_held_whole() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let mut statement = session
        .execute("SELECT value AS id, value * value % 1000 AS v, 'row ' || value AS t FROM generate_series(1, 1000000)")
        .await
        .unwrap();
    statement.wait(DEADLINE).await.unwrap();
    // Finished for the client, and still running: the statement waits until its rows are fetched.
    assert_eq!(engine.engine.load().running_statements, 1);
    let (mut seen, mut fetches) = (vec![false; 1_000_001], 0);
    loop {
        let rows = statement.fetch(10_000).await.unwrap();
        if rows.is_empty() {
            break;
        }
        assert!(rows.len() <= 10_000);
        fetches += 1;
        for row in rows {
            let id = row[0].as_i64().unwrap();
            assert_eq!(row[1], Value::I64(id * id % 1000));
            assert_eq!(row[2], Value::Text(format!("row {id}")));
            assert!(!std::mem::replace(&mut seen[id as usize], true), "{id} came twice");
        }
    }
    assert_eq!(seen.iter().filter(|seen| **seen).count(), 1_000_000);
    assert!(fetches >= 100);
    assert!(statement.fetch(10).await.unwrap().is_empty());
    statement.close().await.unwrap();
    engine.stop().await;
}

#[tokio::test]
async fn wide_rows_come_in_smaller_batches() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let mut statement = session.execute("SELECT repeat('x', 100000) AS t FROM generate_series(1, 500)").await.unwrap();
    let (mut count, mut largest) = (0, 0);
    loop {
        let rows = statement.fetch(10_000).await.unwrap();
        if rows.is_empty() {
            break;
        }
        (count, largest) = (count + rows.len(), largest.max(rows.len()));
    }
    assert_eq!(count, 500);
    assert!(largest < 100, "{largest} rows of 100 kB at once");
    engine.stop().await;
}

#[tokio::test]
async fn a_statement_runs_in_the_background_and_has_a_log() {
    let fixture = Fixture::new();
    let mut config = fixture.config("e-1");
    config.limits.long_poll = Duration::from_mins(10);
    let engine = RunningEngine::start(config).await;
    let poll = ("set:hiveconf:hive.server2.long.polling.timeout", "50ms");
    let mut session = engine.session_with(&[poll]).await.unwrap();
    let mut other = engine.session().await;
    let handle = {
        let statement = session.execute("SELECT count(*) FROM generate_series(1, 100000000000)").await.unwrap();
        statement.handle().clone()
    };
    let asked = Instant::now();
    let request = TGetOperationStatusReq { operation_handle: handle.clone(), get_progress_update: None };
    let answer = session.client().get_operation_status(&request).await.unwrap();
    assert_eq!(answer.operation_state, Some(TOperationState::RUNNING_STATE));
    assert!(asked.elapsed() < DEADLINE, "the session asked for short polls");
    assert_eq!(one(&mut other, "SELECT 42").await, "42");
    let mut statement = session.statement(handle);
    // It is running from its first moment on, and executes once it is planned.
    let mut log = Vec::new();
    while !log.iter().any(|line: &String| line.contains("executing")) {
        assert!(asked.elapsed() < DEADLINE, "{log:?}");
        log.extend(statement.logs().await.unwrap());
    }
    statement.cancel().await.unwrap();
    engine.stop().await;
}

#[tokio::test]
async fn a_cancelled_statement_uses_no_cpu_two_seconds_later() {
    let fixture = Fixture::exclusive();
    let engine = fixture.start("e-1").await;
    run(&mut engine.session().await, "CREATE VIEW big AS SELECT value AS v FROM generate_series(1, 3000000)").await;
    for sql in [
        "SELECT count(*) FROM generate_series(1, 100000000000)",
        "SELECT sum(a.value * b.value) FROM generate_series(1, 1000000) a CROSS JOIN generate_series(1, 1000000) b",
        "SELECT value % 1000, count(DISTINCT value % 7) FROM range(0, 100000000000) GROUP BY 1",
        "SELECT count(*) FROM big a JOIN big b ON a.v % 100 = b.v % 100",
        "SELECT sum(v) OVER (ORDER BY v % 1000) FROM big WHERE v IN (SELECT value FROM generate_series(1, 100000000000))",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 1000000000) SELECT max(n) FROM t",
        "SELECT value FROM generate_series(1, 100000000000) ORDER BY value DESC",
    ] {
        let mut session = engine.session().await;
        let handle = {
            let mut statement = session.execute(sql).await.unwrap();
            // The statement uses the CPU, so that the cancellation is visible.
            let before = executing_ticks();
            let busy = async {
                while executing_ticks() < before + 5 {
                    assert!(statement.poll().await.is_ok(), "{sql}");
                }
            };
            tokio::time::timeout(DEADLINE, busy).await.unwrap();
            statement.cancel().await.unwrap();
            statement.handle().clone()
        };
        // Two seconds are counted in looks, so that the time in which the whole machine stands still is not counted.
        let mut looks = 100_u32;
        while engine.engine.load().running_statements > 0 {
            looks = looks.checked_sub(1).unwrap_or_else(|| panic!("still runs: {sql}"));
            tokio::time::sleep(LOOK).await;
        }
        // The test waits here to show that the CPU is idle. The last check begins two seconds after the cancellation.
        loop {
            let before = executing_ticks();
            for _ in 0..15 {
                tokio::time::sleep(LOOK).await;
            }
            if executing_ticks() <= before + 3 {
                break;
            }
            looks = looks.checked_sub(15).unwrap_or_else(|| panic!("still uses cycles: {sql}"));
        }
        let request = TGetOperationStatusReq { operation_handle: handle.clone(), get_progress_update: None };
        let answer = session.client().get_operation_status(&request).await.unwrap();
        assert_eq!(answer.operation_state, Some(TOperationState::CANCELED_STATE));
        let refused = session.statement(handle).fetch(1).await.err().unwrap();
        assert_eq!(refused.user_error().sqlstate(), "57014", "{sql}");
        assert_eq!(one(&mut session, "SELECT 1").await, "1");
    }
    engine.stop().await;
}

#[tokio::test]
async fn a_statement_ends_when_its_time_is_over() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let request = TExecuteStatementReq {
        session_handle: session.handle().clone(),
        statement: "SELECT count(*) FROM generate_series(1, 100000000000)".to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout: Some(1),
    };
    let refused = session.client().execute_statement(&request).await.err().unwrap();
    assert_eq!(refused.user_error().sqlstate(), "HYT00");
    assert_eq!(one(&mut session, "SELECT 1").await, "1");
    engine.stop().await;
}

#[tokio::test]
async fn a_blocking_call_returns_the_error_and_an_overlay_is_per_statement() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let mut request = TExecuteStatementReq {
        session_handle: session.handle().clone(),
        statement: "SELECT arrow_cast('x', 'Int32')".to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout: None,
    };
    let refused = session.client().execute_statement(&request).await.err().unwrap();
    assert_eq!(refused.user_error().sqlstate(), "22018");
    request.statement =
        "SELECT value FROM information_schema.df_settings WHERE name = 'datafusion.execution.batch_size'".to_owned();
    request.conf_overlay = Some([("datafusion.execution.batch_size".to_owned(), "77".to_owned())].into());
    let handle = session.client().execute_statement(&request).await.unwrap().operation_handle.unwrap();
    assert_eq!(session.statement(handle).fetch(1).await.unwrap(), [[Value::from("77")]]);
    assert_eq!(one(&mut session, &request.statement).await, "8192");
    engine.stop().await;
}

#[tokio::test]
async fn small_answers_can_be_read_again_and_queries_can_not() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for (sql, again) in [("SHOW DATABASES", true), ("SELECT 1", false)] {
        let handle = session.execute(sql).await.unwrap().handle().clone();
        let mut fetch = async |orientation| {
            let request =
                TFetchResultsReq { operation_handle: handle.clone(), orientation, max_rows: 10, fetch_type: Some(0) };
            session
                .client()
                .fetch_results(&request)
                .await
                .map(|answer| hs2::rowset::rows(&answer.results.unwrap()).unwrap().len())
        };
        assert_eq!(fetch(TFetchOrientation::FETCH_FIRST).await.unwrap(), 1);
        assert_eq!(fetch(TFetchOrientation::FETCH_NEXT).await.unwrap(), 0);
        match fetch(TFetchOrientation::FETCH_FIRST).await {
            Ok(rows) => assert!(again && rows == 1, "{sql}"),
            Err(ClientError::Refused(error)) => assert!(!again && error.sqlstate() == "0A000", "{sql}: {error}"),
            Err(error) => panic!("{sql}: {error}"),
        }
    }
    assert_eq!(rows(&mut session, "SELECT 1").await, [["1"]]);
    engine.stop().await;
}
