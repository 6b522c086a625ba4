//! SQL as HiveServer2's clients write it: escapes, unsupported clauses, the syntax of Spark and Hive.

use std::fs;

use crate::fixture::{Fixture, executed, one, refusal, rows, run, state, status};
use hs2::tcli::{TExecuteStatementReq, TOperationState};

/// A string literal as PyHive, impyla and Hive's JDBC driver write it.
fn quoted_by_clients(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\'', "\\'").replace('\r', "\\r");
    format!("'{}'", text.replace('\n', "\\n").replace('\t', "\\t"))
}

#[tokio::test]
async fn a_value_that_a_client_escapes_stays_a_value() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for value in [
        "' or 1=1 --",
        "\\' or 1=1 --",
        "'; DROP VIEW v; --",
        "it's",
        "O'Brien",
        "a\\b",
        "ends with \\",
        "\\\\",
        "x\ny\tz\r",
        "say \"x\"",
        "100%",
        "`x`",
        "日本 😀 '",
        "''",
        "",
    ] {
        let literal = quoted_by_clients(value);
        assert_eq!(one(&mut session, &format!("SELECT {literal}")).await, value, "{literal}");
        let people = "(SELECT 'Bob' AS name UNION ALL SELECT 'Ann') t";
        let count = one(&mut session, &format!("SELECT count(*) FROM {people} WHERE name = {literal}")).await;
        assert_eq!(count, "0", "{literal}");
    }
    engine.stop().await;
}

#[tokio::test]
async fn strings_are_read_as_spark_reads_them() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for (sql, expected) in [
        (r#"SELECT "Bob""#, "Bob"),
        (r#"SELECT "it's \"x\"""#, "it's \"x\""),
        ("SELECT 'it''s'", "it's"),
        (r"SELECT '\u0041\102\Z\%'", "AB\u{1a}\\%"),
        (r"SELECT r'a\nb'", r"a\nb"),
        (r#"SELECT R"a\'b""#, r"a\'b"),
        ("SELECT 'a' 'b' \"c\"", "abc"),
        (r"SELECT '100%' LIKE '100\%'", "true"),
        (r"SELECT '1000' LIKE '100\%'", "false"),
        (r"SELECT 'a_b' LIKE '%\_%'", "true"),
        (r"SELECT 'x1' RLIKE '^[a-z]\\d$'", "true"),
        (r"SELECT 'x1' NOT RLIKE '^[a-z]$'", "true"),
        ("SELECT x AS \"total\" FROM (SELECT 1 AS x) t", "1"),
        ("SELECT `a``b` FROM (SELECT 1 AS `a``b`) t", "1"),
        ("SELECT count(*) FILTER (WHERE v > 1) FROM (VALUES (1), (2)) t(v)", "1"),
        ("SELECT * EXCEPT (a) FROM (SELECT 1 AS a, 2 AS b)", "2"),
        ("SELECT v FROM (VALUES (1), (2)) t(v) QUALIFY row_number() OVER (ORDER BY v DESC) = 1", "2"),
        ("SELECT /*! 1 + */ 2", "2"),
        ("FROM (SELECT 7 AS x)", "7"),
        ("SELECT 1 MINUS SELECT 2", "1"),
        ("SELECT 7 DIV 2 + 10 * 9 DIV 4", "25"),
    ] {
        assert_eq!(one(&mut session, sql).await, expected, "{sql}");
    }
    let sums =
        "SELECT a, count(*) FROM (VALUES ('x'), ('x'), ('y')) t(a) GROUP BY a WITH ROLLUP ORDER BY a NULLS FIRST";
    assert_eq!(rows(&mut session, sums).await, [["NULL", "3"], ["x", "2"], ["y", "1"]]);
    assert!(!rows(&mut session, "EXPLAIN EXTENDED SELECT 1").await.is_empty());
    assert!(!rows(&mut session, "EXPLAIN FORMATTED SELECT 1").await.is_empty());
    assert_eq!(state(&mut session, r"SELECT 'open\'").await, "42601");
    let (ungrouped, text) = refusal(&mut session, "SELECT a, count(*) FROM (SELECT 1 AS a) t").await;
    assert_eq!((ungrouped.as_str(), text.contains("While expanding")), ("42803", false), "{text}");
    assert_eq!(state(&mut session, "SELECT 1; SELECT 2").await, "0A000");
    // Another dialect can still be set, and then applies to all parts of the engine.
    run(&mut session, "SET datafusion.sql_parser.dialect = postgresql").await;
    assert_eq!(one(&mut session, r"SELECT 'a\'").await, r"a\");
    engine.stop().await;
}

#[tokio::test]
async fn a_view_is_read_in_the_dialect_in_which_it_was_written() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    run(&mut session, r"CREATE VIEW new AS SELECT 'it\'s \\' AS x").await;
    let schema = fixture.root().join("catalog/schemas/default");
    let stored = fs::read_to_string(schema.join("new.json")).unwrap();
    // As stored by version 0.1.0, which supported only DataFusion's dialect.
    let old = stored
        .replace("\"version\": 2", "\"version\": 1")
        .replace("\"version\":2", "\"version\":1")
        .replace(r"SELECT 'it\\'s \\\\' AS x", r#"SELECT 'C:\\' AS \"x\", \"x\" AS y FROM (SELECT 1 AS \"x\")"#)
        .replace("VIEW new", "VIEW old")
        .replace("\"new\"", "\"old\"")
        .replace("\"enginehouse\"", "null");
    assert_ne!(stored, old);
    fs::write(schema.join("old.json"), &old).unwrap();
    assert_eq!(rows(&mut session, "SELECT * FROM old").await, [[r"C:\", "1"]], "{old}");
    engine.stop().await;
    let engine = fixture.start("e-2").await;
    let mut session = engine.session().await;
    assert_eq!(one(&mut session, "SELECT x FROM new").await, r"it's \");
    assert_eq!(rows(&mut session, "SELECT * FROM old").await, [[r"C:\", "1"]]);
    let unknown = stored.replace("\"enginehouse\"", "\"of the future\"");
    fs::write(schema.join("new.json"), unknown).unwrap();
    assert_eq!(state(&mut session, "SELECT x FROM new").await, "58030");
    engine.stop().await;
}

#[tokio::test]
async fn a_clause_that_would_be_dropped_is_refused_by_its_name() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    run(&mut session, "CREATE TEMPORARY TABLE t AS SELECT value AS id FROM generate_series(1, 4)").await;
    for (sql, clause) in [
        ("SELECT count(*) FROM t TABLESAMPLE (1 PERCENT)", "TABLESAMPLE"),
        ("SELECT count(*) FROM generate_series(1, 100000) TABLESAMPLE (1 PERCENT)", "TABLESAMPLE"),
        ("SELECT id FROM t PREWHERE id > 3", "PREWHERE"),
        ("SELECT id FROM t CONNECT BY id = PRIOR id", "CONNECT BY"),
        ("SELECT id FROM t PARTITION (p1)", "PARTITION"),
        ("SELECT id FROM t WITH (NOLOCK)", "WITH"),
        ("SELECT id FROM t FOR UPDATE", "FOR UPDATE"),
        ("SELECT id FROM t SETTINGS max_threads = 1", "SETTINGS"),
        ("CREATE VIEW v AS SELECT id FROM default.t TABLESAMPLE (5 ROWS)", "TABLESAMPLE"),
        ("SELECT * FROM t PIVOT (sum(id) FOR id IN (1, 2))", "PIVOT"),
        ("CREATE TABLE u STORED AS PARQUET LOCATION '/x' AS SELECT 1 AS a", "CREATE EXTERNAL TABLE"),
        ("CREATE DATABASE d LOCATION '/x'", "LOCATION"),
    ] {
        let (state, text) = refusal(&mut session, sql).await;
        assert_eq!(state, "0A000", "{sql}: {text}");
        assert!(text.contains(clause), "{sql}: {text}");
        for debug in ["Span", "Some(", "{ "] {
            assert!(!text.contains(debug), "{sql}: {text}");
        }
    }
    engine.stop().await;
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_timed_out_and_not_failed() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let request = TExecuteStatementReq {
        session_handle: session.handle().clone(),
        statement: "SELECT count(*) FROM generate_series(1, 100000000000)".to_owned(),
        conf_overlay: None,
        run_async: Some(true),
        query_timeout: Some(1),
    };
    let handle = session.client().execute_statement(&request).await.unwrap().operation_handle.unwrap();
    let answer = loop {
        let answer = status(&mut session, &handle).await;
        if answer.operation_state != Some(TOperationState::RUNNING_STATE) {
            break answer;
        }
    };
    assert_eq!(answer.operation_state, Some(TOperationState::TIMEDOUT_STATE));
    assert_eq!(answer.sql_state.as_deref(), Some("HYT00"));
    assert_eq!(executed(&mut session, "SELECT nowhere", None).await.unwrap_err().user_error().sqlstate(), "42703");
    engine.stop().await;
}
