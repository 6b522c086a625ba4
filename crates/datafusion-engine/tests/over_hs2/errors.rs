//! Errors with their SQLSTATE, panics, hostile statements, closed handles, idle time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion_engine::{Engine, EngineError, failpoints};
use hs2::tcli::{TCloseOperationReq, TGetOperationStatusReq};
use model::clock::ManualClock;
use tokio_util::sync::CancellationToken;

use crate::fixture::{DEADLINE, Fixture, one, refusal, run, state};

#[tokio::test]
async fn errors_carry_the_sqlstate_of_their_cause() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for (sql, expected) in [
        ("SELEC 1", "42601"),
        ("SELECT 'open", "42601"),
        ("SELECT 1; SELECT 2", "0A000"),
        ("SELECT * FROM nowhere", "42P01"),
        ("SELECT * FROM nowhere.t", "42P01"),
        ("SELECT * FROM other.default.t", "42P01"),
        ("SELECT nothing FROM (SELECT 1 AS a) x", "42703"),
        ("SELECT no_such_function(1)", "42883"),
        ("SELECT * FROM no_such_function(1)", "42883"),
        ("SELECT arrow_cast('x', 'Int32')", "22018"),
        ("SELECT arrow_cast(value * 1000, 'Int8') FROM generate_series(1, 10)", "22003"),
        ("SELECT regexp_extract('x', '(', 1)", "2201B"),
        ("DROP TABLE nowhere", "42P01"),
        ("DROP SCHEMA nowhere", "3F000"),
        ("CREATE FUNCTION f() RETURNS INT RETURN 1", "0A000"),
        ("BEGIN", "0A000"),
        ("CREATE UNBOUNDED EXTERNAL TABLE t (a INT) STORED AS CSV LOCATION '/tmp/x'", "0A000"),
        ("SHOW TABLES IN nowhere", "3F000"),
        ("DESCRIBE nowhere", "42P01"),
    ] {
        let (state, text) = refusal(&mut session, sql).await;
        assert_eq!(state, expected, "{sql}: {text}");
        assert!(
            text.chars()
                .next()
                .is_some_and(|c| !c.is_uppercase() || text.chars().nth(1).is_some_and(char::is_uppercase)),
            "{text}"
        );
    }
    let (_, text) = refusal(&mut session, "SELECT * FROM nowhere").await;
    assert!(text.starts_with("table \"nowhere\" does not exist"), "{text}");
    engine.stop().await;
}

#[tokio::test]
async fn a_panic_is_an_error_of_its_statement() {
    let fixture = Fixture::exclusive();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for point in [failpoints::STATEMENT_STARTED, failpoints::STATEMENT_PLANNED, failpoints::ROWS_FETCHED] {
        model::failpoint::fail::cfg(point, "1*panic(broken on purpose)").unwrap();
        let (state, text) = refusal(&mut session, "SELECT 'after a panic'").await;
        model::failpoint::fail::remove(point);
        assert_eq!(state, "XX000", "{point}");
        assert!(text.contains("broken on purpose"), "{text}");
        assert_eq!(one(&mut session, "SELECT 'lives'").await, "lives");
    }
    assert_eq!(engine.engine.load().running_statements, 0);
    engine.stop().await;
}

#[tokio::test]
async fn deeply_nested_statements_never_crash_the_engine() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    assert_eq!(state(&mut session, "SET datafusion.sql_parser.recursion_limit = 100000").await, "22023");
    let conditions = |count: usize, operator: &str| {
        let conditions: Vec<_> = (0..count).map(|number| format!("value = {number}")).collect();
        format!("SELECT count(*) FROM generate_series(1, 10) WHERE {}", conditions.join(operator))
    };
    for (sql, expected) in [
        (format!("SELECT {}", vec!["1"; 1_000].join(" + ")), "1000"),
        (format!("SELECT length({})", vec!["'a'"; 1_900].join(" || ")), "1900"),
        (conditions(950, " OR "), "10"),
        (conditions(950, " AND "), "0"),
        (format!("SELECT 1{}", "::int".repeat(1_900)), "1"),
        (format!("SELECT count(*) FROM ({})", vec!["SELECT 1"; 300].join(" UNION ALL ")), "300"),
        (format!("SELECT count(*) FROM generate_series(1, 10) WHERE value IN ({})", vec!["3"; 20_000].join(",")), "1"),
    ] {
        assert_eq!(one(&mut session, &sql).await, expected, "{}", &sql[..60]);
    }
    for sql in [
        format!("SELECT {}", vec!["1"; 20_000].join(" + ")),
        conditions(50_000, " AND "),
        format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000)),
        format!("SELECT {}1", "- ".repeat(10_000)),
        format!("SELECT {}1{}", "[".repeat(1_000), "]".repeat(1_000)),
        format!("SELECT * FROM {}(SELECT 1 AS a){}", "(SELECT * FROM ".repeat(1_000), ") x".repeat(1_000)),
        vec!["SELECT 1"; 10_000].join(" UNION ALL "),
    ] {
        assert_eq!(state(&mut session, &sql).await, "54001", "{}", &sql[..60]);
    }
    engine.stop().await;
}

/// Each part of these statements is allowed, but their combination would take minutes to plan.
#[tokio::test]
async fn statements_that_would_plan_for_minutes_are_refused_at_once() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let sums = |columns: usize, terms: usize| {
        let sums: Vec<_> = (0..columns).map(|at| format!("{} AS x{at}", vec!["a"; terms].join("+"))).collect();
        sums.join(", ")
    };
    let sql = format!("SELECT {} FROM (SELECT 1 AS a) t", sums(60, 300));
    let (state, text) = refusal(&mut session, &sql).await;
    assert_eq!(state, "54001", "{text}");

    run(&mut session, "CREATE VIEW one AS SELECT 1 AS a").await;
    run(&mut session, &format!("CREATE VIEW long AS SELECT {} FROM one", sums(5, 200))).await;
    let many = |count: usize| (0..count).map(|at| format!("long l{at}")).collect::<Vec<_>>().join(", ");
    assert_eq!(one(&mut session, &format!("SELECT l0.x0 + l1.x4 FROM {}", many(2))).await, "400");
    for sql in [format!("SELECT 1 FROM {}", many(30)), format!("CREATE VIEW wide AS SELECT l0.x0 FROM {}", many(30))] {
        let (state, text) = refusal(&mut session, &sql).await;
        assert_eq!(state, "54001", "{text}");
        assert!(text.contains("including those of its views"), "{text}");
    }
    engine.stop().await;
}

/// Each view names the one below it four times, so the plans grow exponentially.
#[tokio::test]
async fn views_that_multiply_one_another_are_refused_early() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    run(&mut session, "CREATE VIEW v0 AS SELECT 1 AS a").await;
    let mut level = 0;
    let refused = loop {
        level += 1;
        let below = vec![format!("SELECT * FROM v{}", level - 1); 4].join(" UNION ALL ");
        match session.run(&format!("CREATE VIEW v{level} AS {below}"), DEADLINE).await {
            Ok(_) => assert!(level < 10, "a million plans of v0 are planned"),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.user_error().sqlstate(), "54001", "{refused}");
    assert_eq!(one(&mut session, "SELECT count(*) FROM v4").await, "256");
    engine.stop().await;
}

#[tokio::test]
async fn closed_handles_are_not_found() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let handle = session.execute("SELECT 1").await.unwrap().handle().clone();
    session.client().close_operation(&TCloseOperationReq { operation_handle: handle.clone() }).await.unwrap();
    let request = TGetOperationStatusReq { operation_handle: handle.clone(), get_progress_update: None };
    let refused = session.client().get_operation_status(&request).await.unwrap_err();
    assert_eq!(refused.user_error().sqlstate(), "HY010");
    // A handle with the right id and a wrong secret is not found either.
    let live = session.execute("SELECT 1").await.unwrap().handle().clone();
    let mut forged = live.clone();
    forged.operation_id.secret[0] ^= 1;
    let request = TGetOperationStatusReq { operation_handle: forged, get_progress_update: None };
    let refused = session.client().get_operation_status(&request).await.unwrap_err();
    assert_eq!(refused.user_error().sqlstate(), "HY010");
    engine.stop().await;
}

#[tokio::test]
async fn idle_operations_are_closed_and_running_ones_are_not() {
    let fixture = Fixture::new();
    let clock = ManualClock::at(1_000);
    let mut config = fixture.config("e-1");
    (config.limits.operation_idle, config.limits.session_idle) = (Duration::from_mins(1), Duration::from_mins(10));
    let engine = Engine::start(config, clock.clone()).unwrap();
    let (own, other) = (1, 2);
    let session = engine.open_session("alice", own).unwrap();
    let execute = |sql: &str| engine.execute(&session, sql.to_owned(), BTreeMap::default(), None).unwrap();
    let (done, asked) = (execute("SELECT 1"), execute("SELECT 2"));
    let busy = execute("SELECT count(*) FROM generate_series(1, 100000000000)");
    done.wait_final(DEADLINE).await;
    asked.wait_final(DEADLINE).await;
    clock.advance(Duration::from_secs(40));
    // Only calls on its session's connection reset the idle time.
    assert!(engine.operation(&done.handle, other).is_ok());
    assert!(engine.operation(&asked.handle, own).is_ok());
    clock.advance(Duration::from_secs(21));
    engine.sweep();
    assert!(engine.operation(&done.handle, own).is_err());
    assert!(engine.operation(&asked.handle, own).is_ok());
    assert!(engine.operation(&busy.handle, own).is_ok());
    clock.advance(Duration::from_secs(700));
    engine.sweep();
    assert_eq!(engine.load().sessions, 1, "a session that computes is not idle");
    engine.close_operation(&busy.handle);
    clock.advance(Duration::from_secs(700));
    engine.sweep();
    assert_eq!(engine.load().sessions, 0);
}

#[tokio::test]
async fn work_for_a_call_ends_with_its_deadline_or_its_caller() {
    let fixture = Fixture::new();
    let mut config = fixture.config("e-1");
    config.limits.statement_timeout = Duration::from_millis(50);
    let short = Engine::start(config, ManualClock::at(1_000)).unwrap();
    let late = short.on_executor(std::future::pending::<Result<(), EngineError>>()).await.unwrap_err();
    assert_eq!(late.into_user().sqlstate(), "HYT00");

    let engine = Engine::start(fixture.config("e-2"), ManualClock::at(1_000)).unwrap();
    let (begun, ended) = (CancellationToken::new(), CancellationToken::new());
    let work = {
        let (begun, held) = (begun.clone(), ended.clone().drop_guard());
        async move {
            begun.cancel();
            let _held = held;
            std::future::pending::<Result<(), EngineError>>().await
        }
    };
    let asked = Arc::clone(&engine);
    let call = tokio::spawn(async move { asked.on_executor(work).await });
    tokio::time::timeout(DEADLINE, begun.cancelled()).await.unwrap();
    assert!(!ended.is_cancelled());
    call.abort();
    tokio::time::timeout(DEADLINE, ended.cancelled()).await.unwrap();
}

#[tokio::test]
async fn closing_a_session_during_ddl_leaves_a_consistent_catalog() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for number in 0..20 {
        let mut short = engine.session().await;
        short.execute(&format!("CREATE VIEW v{number} AS SELECT {number} AS n")).await.unwrap();
        short.close().await.unwrap();
    }
    for number in 0..20 {
        let table = session.run(&format!("SELECT n FROM v{number}"), DEADLINE).await;
        match table {
            Ok(table) => assert_eq!(table.rows[0][0].to_string(), number.to_string()),
            Err(error) => assert_eq!(error.user_error().sqlstate(), "42P01", "{error}"),
        }
    }
    run(&mut session, "CREATE OR REPLACE VIEW v0 AS SELECT 0 AS n").await;
    engine.stop().await;
}
