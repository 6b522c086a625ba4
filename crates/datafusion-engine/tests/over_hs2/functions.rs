//! Functions: limits on their allocations, their semantics, and the limit on joined relations.

use std::time::{Duration, Instant};

use crate::fixture::{Fixture, one, refusal, rows, run};

/// The resident set of this process, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test]
async fn functions_that_multiply_are_refused_before_they_allocate() {
    let fixture = Fixture::exclusive();
    let mut config = fixture.config("e-1");
    config.memory_bytes = 64 << 20;
    let engine = crate::fixture::RunningEngine::start(config).await;
    let mut session = engine.session().await;
    let mut other = engine.session().await;
    run(&mut session, "CREATE VIEW some AS SELECT value AS v FROM generate_series(1, 100000)").await;
    let before = resident();
    for sql in [
        "SELECT length(repeat('x', 1000000000))",
        "SELECT repeat('x', 1000000000)",
        "SELECT repeat('x', 200000) FROM generate_series(1, 100000)",
        "SELECT length(repeat('x', 200000 + v % 2)) FROM some",
        "SELECT repeat('x', 2000000000)",
        "SELECT range(0, 200000000)",
        "SELECT array_repeat(1, 200000000)",
        "SELECT array_repeat(v, 20000000) FROM some",
        "SELECT array_resize([1], 200000000, 1)",
        "SELECT lpad('x', 1000000000, 'y')",
        "SELECT rpad('x', 1000000000)",
        "SELECT space(1000000000)",
        "SELECT format_string('%1000000000d', 1)",
        "SELECT sequence(0, 200000000)",
        "SELECT replace(repeat('x', 200000), 'x', repeat('y', 1000))",
        "SELECT regexp_replace(repeat('x', 200000), 'x', repeat('y', 1000), 'g')",
        "SELECT length(a || a || a || a) FROM (SELECT repeat('x', 50000000 + v % 2) AS a FROM some LIMIT 1)",
        "SELECT generate_series(TIMESTAMP '2000-01-01', TIMESTAMP '2001-01-01', INTERVAL '1' SECOND)",
        "SELECT array_to_string(array_repeat(1, 100000), repeat('x', 10000))",
        "SELECT make_array(a, a, a) FROM (SELECT repeat('x', 60000000 + v % 2) AS a FROM some LIMIT 1)",
        "SELECT [a] || [a] || [a] FROM (SELECT repeat('x', 60000000 + v % 2) AS a FROM some LIMIT 1)",
        "SELECT concat_ws(repeat('x', 1000000), 'a', 'b', 'c') FROM some",
    ] {
        let (state, text) = refusal(&mut session, sql).await;
        assert_eq!(state, "54000", "{sql}: {text}");
        assert!(text.contains("is too large"), "{sql}: {text}");
        assert_eq!(one(&mut other, "SELECT 1").await, "1");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < (64 + 500) << 20, "{grown} bytes more are resident");
    // Results within the limit are returned.
    assert_eq!(one(&mut session, "SELECT sum(length(repeat('x', v % 100))) FROM some").await, "4950000");
    assert_eq!(one(&mut session, "SELECT length(lpad('x', 100000, 'yz'))").await, "100000");
    assert_eq!(one(&mut session, "SELECT cardinality(range(0, 1000000))").await, "1000000");
    engine.stop().await;
}

#[tokio::test]
async fn joins_of_too_many_relations_are_refused_at_once() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    run(&mut session, "CREATE TEMPORARY TABLE t AS SELECT 1 AS a").await;
    let tables = |count: usize| (0..count).map(|at| format!("t a{at}")).collect::<Vec<_>>();
    let series: Vec<_> = (0..60).map(|at| format!("generate_series(1, 1) a{at}")).collect();
    run(&mut session, &format!("CREATE VIEW wide AS SELECT 1 AS a FROM {}", series.join(", "))).await;
    for sql in [
        format!("SELECT 1 FROM {}", tables(1000).join(", ")),
        format!("SELECT 1 FROM {}", tables(1000).join(" CROSS JOIN ")),
        format!(
            "SELECT 1 FROM (SELECT 1 FROM {}) x, (SELECT 1 FROM {}) y",
            tables(200).join(", "),
            tables(200).join(", ")
        ),
        format!("WITH c AS (SELECT 1 FROM {}) SELECT 1 FROM c a, c b, c d, c e", tables(100).join(", ")),
        "SELECT 1 FROM wide a, wide b, wide c, wide d, wide e".to_owned(),
        format!("EXPLAIN SELECT 1 FROM {}", tables(1000).join(", ")),
        format!("SELECT {}", vec!["(SELECT max(a) FROM t)"; 300].join(" + ")),
    ] {
        let started = Instant::now();
        let (state, text) = refusal(&mut session, &sql).await;
        assert_eq!(state, "54001", "{}: {text}", &sql[..60]);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}: {}", started.elapsed(), &sql[..60]);
    }
    assert_eq!(rows(&mut session, &format!("SELECT a0.a FROM {}", tables(40).join(", "))).await, [["1"]]);
    let union = vec!["SELECT a FROM t"; 300].join(" UNION ALL ");
    assert_eq!(one(&mut session, &format!("SELECT count(*) FROM ({union})")).await, "300");
    engine.stop().await;
}

/// Expressions with Spark's results.
#[tokio::test]
async fn functions_and_operators_mean_what_they_mean_in_spark() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let mut wrong = Vec::new();
    for (expression, expected) in [
        ("7 / 2", "3.5"),
        ("10 / 4", "2.5"),
        ("1 / 0", "NULL"),
        ("1.5 / 0", "NULL"),
        ("7 % 0", "NULL"),
        ("7 DIV 2", "3"),
        ("7 DIV 0.5", "14"),
        ("-7.9 DIV 2", "-3"),
        ("7 DIV 0", "NULL"),
        ("CAST(2 AS DECIMAL(10,2)) / 3", "0.666667"),
        ("CAST(2 AS DECIMAL(10,2)) / CAST(3 AS INT)", "0.6666666666667"),
        ("CAST(2 AS DECIMAL(18,2)) / CAST(3 AS DECIMAL(18,2))", "0.66666666666666666667"),
        (
            "CAST('9999999999999999.99' AS DECIMAL(18,2)) / CAST(0.5 AS DECIMAL(18,2))",
            "19999999999999999.98000000000000000000",
        ),
        ("CAST(2 AS DECIMAL(10,2)) / 0", "NULL"),
        ("CAST('1e20' AS DOUBLE) > CAST(1 AS DECIMAL(10,2))", "true"),
        ("CAST(300 AS TINYINT)", "44"),
        ("CAST(-129 AS TINYINT)", "127"),
        ("CAST(-1 AS SMALLINT)", "-1"),
        ("CAST(3000000000 AS INT)", "-1294967296"),
        ("CAST(CAST('3e9' AS DOUBLE) AS INT)", "NULL"),
        ("current_user()", "alice"),
        ("user()", "alice"),
        ("typeof(array(CAST(1 AS DECIMAL(5,2))))", "array<decimal(5,2)>"),
        ("7 % 4", "3"),
        ("CAST('abc' AS INT)", "NULL"),
        ("CAST(' 12 ' AS INT)", "12"),
        ("CAST('1.9' AS INT)", "1"),
        ("CAST('x' AS DOUBLE)", "NULL"),
        ("CAST('2020-13-01' AS DATE)", "NULL"),
        ("CAST('9999-12-31 23:59:59' AS TIMESTAMP)", "9999-12-31 23:59:59"),
        ("CAST(TIMESTAMP '2020-01-02 03:04:05' AS STRING)", "2020-01-02 03:04:05"),
        ("CAST(86400 AS TIMESTAMP)", "1970-01-02 00:00:00"),
        ("array(1, 2)[0]", "1"),
        ("make_array(1, 2)[1]", "2"),
        ("make_array(1, 2)[2]", "NULL"),
        ("make_array(1, 2)[-1]", "NULL"),
        ("map('a', 1, 'b', 2)['b']", "2"),
        ("map(1, 2, 3, 4)", "{1:2,3:4}"),
        ("concat('a', NULL)", "NULL"),
        ("concat('a', 'b', 1)", "ab1"),
        ("concat(array(1), array(2))", "[1,2]"),
        ("element_at(array(1, 2), 1)", "1"),
        ("element_at(map('a', 1), 'a')", "1"),
        ("'1' + 1", "2.0"),
        ("~5", "-6"),
        ("factorial(5)", "120"),
        ("sort_array(array(1, 3, 2), false)", "[3,2,1]"),
        ("'a' || 'b' || 'c'", "abc"),
        ("date_format(TIMESTAMP '2020-01-02 03:04:05', 'yyyy-MM-dd')", "2020-01-02"),
        ("date_format('2020-01-02', 'dd.MM.yyyy')", "02.01.2020"),
        ("from_unixtime(unix_timestamp('2020-01-02 03:04:05'), 'yyyy-MM-dd HH')", "2020-01-02 03"),
        ("from_unixtime(0)", "1970-01-01 00:00:00"),
        ("unix_timestamp('02/01/2020', 'dd/MM/yyyy')", "1577923200"),
        ("to_date('02/01/2020', 'dd/MM/yyyy')", "2020-01-02"),
        ("to_date('nonsense', 'dd/MM/yyyy')", "NULL"),
        ("to_timestamp('2020-01-02 03:04', 'yyyy-MM-dd HH:mm')", "2020-01-02 03:04:00"),
        ("if(1 > 2, 'a', 'b')", "b"),
        ("split('a,b,c', ',')", "[\"a\",\"b\",\"c\"]"),
        ("split('a1b2c', '[0-9]', 2)", "[\"a\",\"b2c\"]"),
        ("year('2020-02-03')", "2020"),
        ("month(DATE '2020-02-03')", "2"),
        ("day(TIMESTAMP '2020-02-03 04:05:06')", "3"),
        ("hour(TIMESTAMP '2020-02-03 04:05:06')", "4"),
        ("dayofweek('2020-02-03')", "2"),
        ("weekofyear('2020-02-03')", "6"),
        ("quarter('2020-05-01')", "2"),
        ("date_add('2020-02-28', 2)", "2020-03-01"),
        ("date_sub('2020-03-01', 1)", "2020-02-29"),
        ("datediff('2020-03-01', '2020-02-01')", "29"),
        ("add_months('2020-01-31', 1)", "2020-02-29"),
        ("last_day('2020-02-03')", "2020-02-29"),
        ("months_between('2020-03-31', '2020-02-29')", "1.0"),
        ("size(array(1, 2, 3))", "3"),
        ("array(1, 2, 3)", "[1,2,3]"),
        ("array_contains(array(1, 2), 2)", "true"),
        ("sort_array(array(3, 1, 2))", "[1,2,3]"),
        ("array_join(array('a', 'b'), '-')", "a-b"),
        ("get_json_object('{\"a\":{\"b\":[1,2]}}', '$.a.b[1]')", "2"),
        ("regexp_extract('100-200', '([0-9]+)-([0-9]+)', 2)", "200"),
        ("regexp_extract('x', '([0-9]+)', 1)", ""),
        ("'abc' RLIKE 'b'", "true"),
        ("'abc' NOT RLIKE 'b'", "false"),
        ("regexp_replace('a1b2', '[0-9]', '#')", "a#b#"),
        ("string(1)", "1"),
        ("int('7')", "7"),
        ("double('1.5')", "1.5"),
        ("nvl(NULL, 1)", "1"),
        ("ifnull(NULL, 2)", "2"),
        ("coalesce(NULL, 3)", "3"),
        ("isnull(NULL)", "true"),
        ("instr('hello', 'l')", "3"),
        ("locate('l', 'hello')", "3"),
        ("locate('l', 'hello', 4)", "4"),
        ("substring('hello', -3)", "llo"),
        ("substring('hello', 2, 3)", "ell"),
        ("substring_index('a.b.c', '.', 2)", "a.b"),
        ("concat_ws('-', 'a', NULL, 'b')", "a-b"),
        ("format_number(1234567.891, 2)", "1,234,567.89"),
        ("initcap('hello world')", "Hello World"),
        ("log(10, 100)", "2.0"),
        ("round(2.5)", "3.0"),
        ("floor(1.7)", "1"),
        ("pmod(-7, 3)", "2"),
        ("hex(255)", "FF"),
        ("conv('ff', 16, 10)", "255"),
        ("md5('a')", "0cc175b9c0f1b6a831c399e269772661"),
        ("current_database()", "default"),
        ("INTERVAL '1' DAY", "1 00:00:00.000000000"),
        ("named_struct('b', 1, 'a', CAST(1.5 AS DECIMAL(3,1)))", "{\"b\":1,\"a\":1.5}"),
        ("CAST(0.1 AS FLOAT)", "0.1"),
        ("date_trunc('month', TIMESTAMP '2020-02-03 04:05:06')", "2020-02-01 00:00:00"),
        ("trunc(3.7)", "3.0"),
        ("trunc(DATE '2020-02-03', 'MM')", "2020-02-01"),
        ("to_date('05/2020/01', '%d/%Y/%m')", "2020-01-05"),
        ("EXTRACT(YEAR FROM DATE '2020-02-03')", "2020"),
    ] {
        let found = match session.run(&format!("SELECT {expression} AS v"), crate::fixture::DEADLINE).await {
            Ok(table) if table.rows[0][0].is_null() => "NULL".to_owned(),
            Ok(table) => table.rows[0][0].to_string(),
            Err(error) => error.to_string(),
        };
        if found != expected {
            wrong.push(format!("{expression}: {found}, not {expected}"));
        }
    }
    for (sql, expected) in [
        ("SELECT count(DISTINCT a, b) FROM (VALUES (1, 2), (1, 2), (1, NULL), (2, 1)) t(a, b)", "2"),
        ("SELECT size(collect_list(a)) FROM (VALUES (1), (1), (2)) t(a)", "3"),
        ("SELECT size(collect_set(a)) FROM (VALUES (1), (1), (2)) t(a)", "2"),
        ("SELECT sum(v) FROM (SELECT explode(array(1, 2, 3)) AS v)", "6"),
        ("SELECT percentile(a, 0.5) FROM (VALUES (1), (2), (4)) t(a)", "2.0"),
        ("SELECT percentile_approx(a, 0.5) FROM (VALUES (1), (2), (4)) t(a)", "2.0"),
        ("SELECT approx_count_distinct(a) FROM (VALUES (1), (2), (2)) t(a)", "2"),
        ("SELECT max_by(a, b) FROM (VALUES ('x', 1), ('y', 2)) t(a, b)", "y"),
        ("SELECT max(r) - 5 FROM (SELECT row_number() OVER (ORDER BY a) AS r FROM (VALUES (1), (2)) t(a))", "-3"),
        ("SELECT a FROM (VALUES (2), (NULL), (1)) t(a) ORDER BY a DESC LIMIT 1", "2"),
        ("SELECT count(*) FROM (VALUES ('a'), ('1')) t(a) WHERE a = 1", "1"),
    ] {
        let found = match session.run(sql, crate::fixture::DEADLINE).await {
            Ok(table) => table.rows[0][0].to_string(),
            Err(error) => error.to_string(),
        };
        if found != expected {
            wrong.push(format!("{sql}: {found}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let sql = "SELECT 1, 'x', upper('a'), 'a' RLIKE 'b', current_user() FROM (SELECT 1)";
    let table = session.run(sql, crate::fixture::DEADLINE).await.unwrap();
    let names: Vec<_> = table.columns.iter().map(|column| column.name.clone()).collect();
    assert_eq!(names, ["1", "x", "upper(a)", "RLIKE(a, b)", "current_user()"]);
    let (state, text) = refusal(&mut session, "SELECT group_concat(1)").await;
    assert_eq!(state, "42883");
    assert!(text.contains("collect_list"), "{text}");
    let (_, text) = refusal(&mut session, "SELECT qwertz(1)").await;
    assert!(!text.contains("mean"), "{text}");
    engine.stop().await;
}
