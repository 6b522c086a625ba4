//! Parsing of the statements that the engine executes itself.

#![allow(clippy::unwrap_used)]

use super::*;

fn read(statement: &str) -> Command {
    Command::read(statement, SqlDialect::Own).unwrap()
}

fn table(schema: Option<&str>, name: &str) -> TableName {
    TableName { schema: schema.map(str::to_owned), name: name.to_owned() }
}

#[test]
fn set_takes_any_text_as_its_value() {
    let set = |key: &str, value: &str| Command::Set(key.to_owned(), value.to_owned());
    assert_eq!(read("SET x=don't"), set("x", "don't"));
    assert_eq!(read(" -- why\nset a.b = 'c; d' ;"), set("a.b", "'c; d'"));
    assert_eq!(read("SET datafusion.execution.batch_size TO 100"), set("datafusion.execution.batch_size", "100"));
    assert_eq!(read("SET TIME ZONE 'UTC'"), set("datafusion.execution.time_zone", "UTC"));
    assert_eq!(read("set"), Command::SetShow { verbose: false });
    assert_eq!(read("SET -v"), Command::SetShow { verbose: true });
    assert_eq!(read("SET hiveconf:x"), Command::SetGet("hiveconf:x".to_owned()));
    assert_eq!(read("RESET"), Command::Reset(None));
    assert_eq!(read("RESET a.b;"), Command::Reset(Some("a.b".to_owned())));
}

#[test]
fn statements_that_drivers_send_are_read() {
    assert_eq!(read("USE `default`"), Command::Use("default".to_owned()));
    assert_eq!(read("use Sales;"), Command::Use("sales".to_owned()));
    assert_eq!(read("USE DATABASE sales"), Command::Use("sales".to_owned()));
    assert_eq!(read("USE schema"), Command::Use("schema".to_owned()));
    assert!(Command::read("USE", SqlDialect::Own).is_err());
    assert_eq!(read("SHOW DATABASES"), Command::ShowSchemas(None));
    assert_eq!(read("show schemas like 's*'"), Command::ShowSchemas(Some("s*".to_owned())));
    let tables = |schema: Option<&str>, pattern: Option<&str>, only_views| Command::ShowTables {
        schema: schema.map(str::to_owned),
        pattern: pattern.map(str::to_owned),
        only_views,
    };
    assert_eq!(read("SHOW TABLES"), tables(None, None, false));
    assert_eq!(read("SHOW TABLES IN `sales` LIKE 'r*'"), tables(Some("sales"), Some("r*"), false));
    assert_eq!(read("SHOW TABLES 'r*'"), tables(None, Some("r*"), false));
    assert_eq!(read("SHOW VIEWS FROM sales"), tables(Some("sales"), None, true));
    assert_eq!(read("SHOW COLUMNS IN t FROM s"), Command::ShowColumns(table(Some("s"), "t")));
    assert_eq!(read("SHOW CREATE TABLE s.t"), Command::ShowCreate(table(Some("s"), "t")));
    assert_eq!(read("DESC t"), Command::Describe { table: table(None, "t"), extended: false });
    let extended = Command::Describe { table: table(Some("s"), "T"), extended: true };
    assert_eq!(read("DESCRIBE TABLE EXTENDED s.`T`"), extended);
    assert_eq!(read("DESCRIBE DATABASE s"), Command::DescribeSchema("s".to_owned()));
    assert_eq!(
        read("CREATE DATABASE IF NOT EXISTS s COMMENT 'x'"),
        Command::CreateSchema { name: "s".to_owned(), if_not_exists: true }
    );
    assert_eq!(
        read("DROP SCHEMA IF EXISTS s CASCADE"),
        Command::DropSchema { name: "s".to_owned(), if_exists: true, cascade: true }
    );
}

#[test]
fn everything_else_is_left_alone() {
    for statement in [
        "SELECT 1",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/x'",
        "CREATE VIEW v AS SELECT 1",
        "DROP TABLE t",
        "SHOW ALL",
        "SHOW datafusion.execution.batch_size",
        "DESCRIBE FUNCTION abs",
        "SET_X y",
        "/* /* */ set x=1 */ SELECT 1",
        "CREATE TABLE 'unclosed",
        "SHOW TABLES nonsense nonsense",
        "",
    ] {
        assert_eq!(read(statement), Command::Sql, "{statement}");
    }
}

#[test]
fn a_query_is_described_only_with_the_word_for_it() {
    assert_eq!(read("DESCRIBE QUERY SELECT 1"), Command::DescribeQuery(" SELECT 1".to_owned()));
    assert_eq!(read("desc /* x */ query\nVALUES (1)"), Command::DescribeQuery("\nVALUES (1)".to_owned()));
    for statement in
        ["DESCRIBE SELECT 1", "DESC (SELECT 1)", "DESCRIBE WITH x AS (SELECT 1) SELECT 1", "DESC VALUES (1)"]
    {
        let error = Command::read(statement, SqlDialect::Own).unwrap_err();
        assert_eq!(error.sqlstate(), "42601", "{statement}");
    }
    let values = table(None, "values");
    assert_eq!(read("DESCRIBE values"), Command::Describe { table: values.clone(), extended: false });
    let column = Command::DescribeColumn { table: values, column: "x".to_owned() };
    assert_eq!(read("DESCRIBE `values` x"), column);
    assert_eq!(read("SHOW PARTITIONS s.t"), Command::ShowPartitions(table(Some("s"), "t")));
}
