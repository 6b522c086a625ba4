//! Refused clauses, and ordinary statements of all kinds, which are accepted.

use datafusion::prelude::SessionContext;

use super::check;
use crate::dialect::{SqlDialect, rewrite};
use crate::functions::spelling;

/// The SQLSTATE and text of the error.
fn checked(sql: &str) -> Result<(), (String, String)> {
    let state = SessionContext::new().state();
    let statement = SqlDialect::Own.statement(sql, state.config_options());
    let statement = statement.map_err(|error| ("unread".to_owned(), error.to_string()))?;
    let mut statement = rewrite::rewritten(statement);
    spelling::respell(&mut statement);
    check(&statement, &state).map_err(|error| (error.sqlstate().to_owned(), error.text()))
}

#[test]
fn a_clause_that_the_planner_drops_is_refused() {
    let mut wrong = Vec::new();
    for (sql, clause) in [
        ("SELECT count(*) FROM t TABLESAMPLE (1 PERCENT)", "TABLESAMPLE"),
        ("SELECT count(*) FROM generate_series(1, 9) TABLESAMPLE (1 PERCENT)", "TABLESAMPLE"),
        ("SELECT * FROM (SELECT 1) x TABLESAMPLE (5 ROWS)", "TABLESAMPLE"),
        ("SELECT a, count(*) FROM t GROUP BY a WITH TOTALS", "WITH TOTALS"),
        ("SELECT a, count(*) FROM t GROUP BY ALL WITH ROLLUP", "WITH ROLLUP"),
        ("SELECT a FROM t PREWHERE a > 3", "PREWHERE"),
        ("SELECT a FROM t CONNECT BY a = PRIOR a", "CONNECT BY"),
        ("SELECT a FROM t START WITH a = 1 CONNECT BY a = PRIOR a", "CONNECT BY"),
        ("SELECT a FROM t PARTITION (p1)", "PARTITION"),
        ("SELECT a FROM t WITH (NOLOCK)", "hint"),
        ("SELECT a FROM t FOR UPDATE", "FOR UPDATE"),
        ("SELECT a FROM t FOR SHARE NOWAIT", "FOR UPDATE or FOR SHARE"),
        ("SELECT a FROM t SETTINGS max_threads = 1", "SETTINGS"),
        ("SELECT a FROM t FORMAT CSV", "FORMAT"),
        ("SELECT a FROM t FETCH FIRST 1 ROW ONLY", "FETCH"),
        ("SELECT TOP 1 a FROM t", "TOP"),
        ("SELECT a FROM t LIMIT 1 BY a", "LIMIT … BY"),
        ("SELECT a FROM t ORDER BY a WITH FILL", "WITH FILL"),
        ("SELECT a INTO u FROM t", "SELECT INTO"),
        ("SELECT 1 UNION ALL SELECT a INTO u FROM t", "SELECT INTO"),
        ("SELECT a FROM t SORT BY a", "SORT BY"),
        ("SELECT a FROM t CLUSTER BY a", "CLUSTER BY"),
        ("SELECT * RENAME (a AS b) FROM t", "RENAME"),
        ("SELECT * FROM t JOIN u ON t.a = u.a, LATERAL (SELECT 1) x TABLESAMPLE (1 ROWS)", "TABLESAMPLE"),
        ("SELECT * FROM t GLOBAL JOIN u ON t.a = u.a", "GLOBAL"),
        ("SELECT * FROM t CROSS APPLY (SELECT 1) x", "APPLY"),
        ("SELECT * FROM t ASOF JOIN u MATCH_CONDITION (t.a >= u.a) ON t.b = u.b", "ASOF"),
        ("SELECT * FROM t SEMI JOIN u ON t.a = u.a", "SEMI JOIN"),
        ("SELECT * FROM t AS x (a INT)", "type in the columns"),
        ("SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2))", "PIVOT"),
        ("SELECT * FROM UNNEST(ARRAY[1]) WITH ORDINALITY", "ORDINALITY"),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r LIMIT 5) SELECT * FROM r", "recursive"),
        ("SELECT upper(a) FILTER (WHERE a > 'x') FROM t", "FILTER of upper()"),
        ("SELECT upper(DISTINCT a) FROM t", "DISTINCT of upper()"),
        ("SELECT abs(a) OVER (ORDER BY a) FROM t", "OVER of abs()"),
        ("SELECT sum(b) OVER (w ORDER BY a) FROM t WINDOW w AS (PARTITION BY a)", "window"),
        ("SELECT a FROM t WINDOW w AS (ORDER BY a) QUALIFY sum(a) OVER w > 1", "named window"),
        ("SELECT a FROM t WINDOW w AS (ORDER BY a) ORDER BY sum(a) OVER w", "named window"),
        ("SELECT count(* EXCLUDE (a)) FROM t", "EXCLUDE"),
        ("SELECT a COLLATE x FROM t", "COLLATE"),
        ("SELECT a LIKE ANY ('x', 'y') FROM t", "LIKE ANY"),
        ("SELECT * FROM t |> AGGREGATE sum(a) GROUP BY b DESC", "AGGREGATE"),
        ("INSERT INTO t PARTITION (p = 1) SELECT 1", "PARTITION"),
        ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", "ON CONFLICT"),
        ("INSERT INTO t SELECT 1 RETURNING a", "RETURNING"),
        ("INSERT INTO t SELECT a FROM u TABLESAMPLE (1 PERCENT)", "TABLESAMPLE"),
        ("CREATE TABLE t STORED AS PARQUET LOCATION '/x' AS SELECT 1 AS a", "CREATE EXTERNAL TABLE"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (b INT)", "PARTITIONED BY"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "MATERIALIZED"),
        ("CREATE VIEW v AS SELECT a FROM t FOR UPDATE", "FOR UPDATE"),
        ("CREATE EXTERNAL TABLE t (a INT CHECK (a > 1)) STORED AS CSV LOCATION '/x'", "CHECK"),
        ("CREATE DATABASE d LOCATION '/x'", "LOCATION"),
        ("DROP TABLE t CASCADE", "CASCADE"),
        ("DROP TABLE t PURGE", "PURGE"),
        ("DROP TABLE t, u", "several"),
        ("COPY (SELECT a FROM t FOR UPDATE) TO '/x' STORED AS CSV", "FOR UPDATE"),
        ("EXPLAIN SELECT a FROM t FOR UPDATE", "FOR UPDATE"),
        ("PREPARE p AS SELECT a FROM t FOR UPDATE", "FOR UPDATE"),
        ("SELECT (SELECT max(a) FROM t FOR UPDATE)", "FOR UPDATE"),
        ("WITH c AS (SELECT a FROM t PREWHERE a > 1) SELECT * FROM c", "PREWHERE"),
    ] {
        match checked(sql) {
            Err((state, text)) if state == "0A000" && text.contains(clause) => {}
            other => wrong.push(format!("{sql}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ordinary_statements_have_no_clause_that_is_refused() {
    let mut wrong = Vec::new();
    for sql in [
        "SELECT 1",
        "SELECT /*+ BROADCAST(t) */ a FROM t",
        "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b DESC NULLS LAST LIMIT 3 OFFSET 1",
        "SELECT * EXCLUDE (a) FROM t",
        "SELECT * EXCEPT (a) FROM t",
        "SELECT * REPLACE (a + 1 AS a) FROM t",
        "SELECT a, count(*) FILTER (WHERE b > 1) FROM t GROUP BY a HAVING count(*) > 1",
        "SELECT a, sum(b) OVER w FROM t WINDOW w AS (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
        "SELECT a FROM t QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) = 1",
        "SELECT first_value(a IGNORE NULLS ORDER BY b) FROM t",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t",
        "SELECT a, count(*) FROM t GROUP BY ROLLUP (a)",
        "SELECT a, count(*) FROM t GROUP BY a WITH ROLLUP",
        "SELECT a, b, count(*) FROM t GROUP BY a, b WITH CUBE",
        "SELECT a, b, count(*) FROM t GROUP BY GROUPING SETS ((a), (b), ())",
        "SELECT a, count(*) FROM t GROUP BY ALL",
        "SELECT a FROM t DISTRIBUTE BY a",
        "SELECT * FROM t JOIN u USING (a) LEFT SEMI JOIN v ON t.a = v.a CROSS JOIN w NATURAL JOIN x",
        "SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.a = t.a) x",
        "SELECT * FROM UNNEST(ARRAY[1, 2]) AS x (n)",
        "SELECT * FROM generate_series(1, 3)",
        "SELECT a FROM t UNION ALL BY NAME SELECT a FROM u",
        "(SELECT a FROM t) EXCEPT ALL (SELECT a FROM u) ORDER BY 1 LIMIT 2",
        "SELECT a FROM t MINUS SELECT a FROM u",
        "VALUES (1, 'x'), (2, 'y')",
        "FROM t",
        "FROM t SELECT a",
        "FROM t |> WHERE a > 1 |> SELECT a |> ORDER BY a |> LIMIT 1",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
        "WITH c AS (SELECT 1 AS a) SELECT a FROM c",
        "SELECT CASE WHEN a LIKE 'x%' ESCAPE '!' THEN 1 ELSE 2 END, a RLIKE 'x', a NOT RLIKE 'y' FROM t",
        "SELECT EXTRACT(year FROM d), INTERVAL '1 day', DATE '2020-01-01', trim(BOTH 'x' FROM a), CAST(a AS INT) FROM t",
        "SELECT [1, 2][1], {'a': 1}, struct(1, 'x'), MAP {'a': 1}, a::int, t.a IN (SELECT a FROM u), EXISTS (SELECT 1)",
        "INSERT INTO t (a, b) VALUES (1, 2)",
        "INSERT OVERWRITE t SELECT 1",
        "COPY t TO '/x' STORED AS PARQUET PARTITIONED BY (a) OPTIONS ('format.compression' 'zstd')",
        "CREATE EXTERNAL TABLE t (a INT NOT NULL COMMENT 'x', b VARCHAR DEFAULT 'y', PRIMARY KEY (a)) STORED AS CSV WITH ORDER (a) LOCATION '/x' OPTIONS ('format.has_header' 'true')",
        "CREATE OR REPLACE TEMPORARY VIEW v (a) AS SELECT 1",
        "CREATE VIEW IF NOT EXISTS v AS SELECT 1",
        "CREATE TEMPORARY TABLE t AS SELECT 1 AS a",
        "CREATE DATABASE IF NOT EXISTS d",
        "DROP TABLE IF EXISTS t",
        "DROP VIEW v RESTRICT",
        "EXPLAIN ANALYZE VERBOSE SELECT 1",
        "PREPARE p (INT) AS SELECT $1",
        "EXECUTE p (1)",
        "SHOW ALL",
    ] {
        if let Err(refused) = checked(sql) {
            wrong.push(format!("{sql}: {refused:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
