//! Names of columns and tables: matching in any case, and the clients' queries about them.

use std::fs::File;
use std::sync::Arc;

use datafusion::parquet::basic::Repetition;
use datafusion::parquet::data_type::{Int96, Int96Type};
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::parquet::file::writer::SerializedFileWriter;
use datafusion::parquet::schema::types::Type;

use crate::fixture::{Fixture, RunningEngine, one, refusal, rows, run, state};

/// A Parquet file with one column of timestamps as Spark writes them: a day of the Julian calendar and nanoseconds of it.
fn write_int96(path: &std::path::Path, column: &str, days: &[u32]) {
    let int96 = datafusion::parquet::basic::Type::INT96;
    let field = Type::primitive_type_builder(column, int96).with_repetition(Repetition::REQUIRED).build().unwrap();
    let schema = Type::group_type_builder("spark_schema").with_fields(vec![Arc::new(field)]).build().unwrap();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), Arc::new(schema), properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<_> = days
        .iter()
        .map(|day| {
            let mut value = Int96::new();
            value.set_data(0, 0, *day);
            value
        })
        .collect();
    column.typed::<Int96Type>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[tokio::test]
async fn timestamps_of_sparks_own_parquet_files_are_right() {
    let fixture = Fixture::new();
    let file = fixture.data().join("t.parquet");
    // 9999-12-31, 1500-01-01 and 2020-01-02 as Julian days.
    write_int96(&file, "validTo", &[5_373_484, 2_268_924, 2_458_851]);
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    run(&mut session, &format!("CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{}'", file.display())).await;
    assert_eq!(
        rows(&mut session, "SELECT validto FROM t ORDER BY VALIDTO").await,
        [["1500-01-01 00:00:00"], ["2020-01-02 00:00:00"], ["9999-12-31 00:00:00"]]
    );
    assert_eq!(one(&mut session, "SELECT count(*) FROM t WHERE validTo > '2025-01-01'").await, "1");
    engine.stop().await;
}

#[tokio::test]
async fn columns_match_in_any_case() {
    let fixture = Fixture::new();
    let data = fixture.data().display().to_string();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let copy = "COPY (SELECT 1 AS `customerId`, 'x' AS `Name`, named_struct('xY', 5) AS st, 2026 AS `Year`)";
    run(&mut session, &format!("{copy} TO '{data}/m/' STORED AS PARQUET")).await;
    run(&mut session, &format!("COPY (SELECT 1 AS CUSTOMERID, 'other' AS city) TO '{data}/o/' STORED AS PARQUET"))
        .await;
    run(&mut session, &format!("CREATE EXTERNAL TABLE m STORED AS PARQUET LOCATION '{data}/m/'")).await;
    run(&mut session, &format!("CREATE EXTERNAL TABLE o STORED AS PARQUET LOCATION '{data}/o/'")).await;
    for sql in [
        "SELECT customerId FROM m",
        "SELECT CUSTOMERID FROM m",
        "SELECT `customerid` FROM m",
        "SELECT M.customerid FROM m",
        "SELECT x.CustomerId FROM m AS X WHERE x.NAME = 'x'",
        "SELECT default.m.CustomerId FROM default.m",
        "SELECT max(customerid) FROM m GROUP BY name ORDER BY MAX(CUSTOMERID)",
        "WITH c AS (SELECT customerid AS Id FROM m) SELECT iD FROM c",
        "SELECT ID FROM (SELECT customerid FROM m) AS q (Id)",
        "SELECT count(*) FROM m JOIN o ON m.customerid = o.customerid",
        "SELECT count(*) FROM m JOIN o USING (CustomerId)",
        "SELECT m.customerid FROM m, o WHERE o.customerId = m.CustomerID AND City = 'other'",
        "SELECT m.st.xy - 4 FROM m",
        "SELECT st.XY - 4 FROM m",
        "SELECT customerid FROM (SELECT * EXCEPT (NAME, ST, year) FROM m)",
    ] {
        assert_eq!(one(&mut session, sql).await, "1", "{sql}");
    }
    let table = session.run("SELECT customerid, 1 AS Total FROM m", crate::fixture::DEADLINE).await.unwrap();
    let names: Vec<_> = table.columns.into_iter().map(|column| column.name).collect();
    assert_eq!(names, ["customerId", "Total"]);
    run(&mut session, "CREATE VIEW v AS SELECT customerid, NAME FROM m").await;
    assert_eq!(one(&mut session, "SELECT Name FROM V WHERE CUSTOMERID = 1").await, "x");
    assert_eq!(rows(&mut session, "DESCRIBE m CUSTOMERID").await[0], ["col_name", "customerId"]);
    // A declared column keeps its case, because it has to match the file's.
    run(&mut session, &format!("CREATE EXTERNAL TABLE d (customerId BIGINT, PRIMARY KEY (customerid)) STORED AS PARQUET LOCATION '{data}/m/'")).await;
    assert_eq!(one(&mut session, "SELECT customerid FROM d").await, "1");
    // Two columns that differ in case alone are distinguished by their exact names.
    run(&mut session, "CREATE TEMPORARY VIEW two AS SELECT * FROM (VALUES (1, 2)) t(`a`, `b`)").await;
    run(&mut session, &format!("COPY (SELECT 1 AS aB, 2 AS c) TO '{data}/a/' STORED AS JSON")).await;
    std::fs::write(format!("{data}/two.json"), "{\"aB\": 1, \"Ab\": 2}\n").unwrap();
    run(&mut session, &format!("CREATE EXTERNAL TABLE ab STORED AS JSON LOCATION '{data}/two.json'")).await;
    assert_eq!(one(&mut session, "SELECT aB FROM ab").await, "1");
    assert_eq!(one(&mut session, "SELECT `Ab` FROM ab").await, "2");
    let (state, text) = refusal(&mut session, "SELECT AB FROM ab").await;
    assert_eq!(state, "42702", "{text}");
    assert!(text.contains("Ab, aB"), "{text}");
    engine.stop().await;
}

#[tokio::test]
async fn a_qualified_name_is_the_catalogs_table_and_a_bare_one_the_sessions() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    run(&mut session, "CREATE VIEW t AS SELECT 'catalog' AS x").await;
    run(&mut session, "CREATE TEMPORARY VIEW t AS SELECT 'session' AS x").await;
    assert_eq!(one(&mut session, "SELECT x FROM t").await, "session");
    assert_eq!(one(&mut session, "SELECT t.x FROM T").await, "session");
    assert_eq!(one(&mut session, "SELECT x FROM default.t").await, "catalog");
    assert_eq!(one(&mut session, "SELECT t.x FROM datafusion.default.t").await, "catalog");
    assert_eq!(state(&mut session, "SELECT * FROM t, default.t u").await, "0A000");
    assert_eq!(rows(&mut session, "SHOW TABLES").await, [["t"]]);
    run(&mut session, "CREATE DATABASE b").await;
    run(&mut session, "USE b").await;
    assert_eq!(one(&mut session, "SELECT x FROM t").await, "session");
    assert_eq!(state(&mut session, "SELECT x FROM b.t").await, "42P01");
    assert_eq!(
        one(
            &mut session,
            "SELECT count(*) FROM information_schema.tables WHERE table_name = 't' AND table_schema = 'b'"
        )
        .await,
        "1"
    );
    engine.stop().await;
}

#[tokio::test]
async fn show_partitions_beyond_its_limit_is_refused() {
    let fixture = Fixture::new();
    let data = fixture.data().display().to_string();
    let mut config = fixture.config("e-1");
    config.limits.partitions = 3;
    let engine = RunningEngine::start(config).await;
    let mut session = engine.session().await;
    for (table, partitions) in [("fits", 3), ("too_many", 4)] {
        let copy = format!("COPY (SELECT 1 AS id, value AS part FROM generate_series(1, {partitions}))");
        run(&mut session, &format!("{copy} TO '{data}/{table}/' STORED AS PARQUET PARTITIONED BY (part)")).await;
        let create = format!("CREATE EXTERNAL TABLE {table} STORED AS PARQUET PARTITIONED BY (part)");
        run(&mut session, &format!("{create} LOCATION '{data}/{table}/'")).await;
    }
    assert_eq!(rows(&mut session, "SHOW PARTITIONS fits").await, [["part=1"], ["part=2"], ["part=3"]]);
    let (state, text) = refusal(&mut session, "SHOW PARTITIONS too_many").await;
    assert_eq!(state, "54000", "{text}");
    assert!(text.contains("SHOW PARTITIONS returns at most 3 rows."), "{text}");
    engine.stop().await;
}

#[tokio::test]
async fn tables_are_described_as_clients_expect() {
    let fixture = Fixture::new();
    let data = fixture.data().display().to_string();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let copy = "COPY (SELECT 1 AS id, 2026 AS year, v AS month FROM (VALUES (1), (2)) t(v))";
    run(&mut session, &format!("{copy} TO '{data}/p/' STORED AS PARQUET PARTITIONED BY (year, month)")).await;
    run(
        &mut session,
        &format!("CREATE EXTERNAL TABLE p STORED AS PARQUET PARTITIONED BY (year, month) LOCATION '{data}/p/'"),
    )
    .await;
    let described = rows(&mut session, "DESCRIBE p").await;
    let names: Vec<_> = described.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["id", "year", "month", "# Partition Information", "# col_name", "year", "month"]);
    assert_eq!(rows(&mut session, "SHOW PARTITIONS p").await, [["year=2026/month=1"], ["year=2026/month=2"]]);
    run(&mut session, "CREATE VIEW v AS SELECT 1 AS id").await;
    assert_eq!(state(&mut session, "SHOW PARTITIONS v").await, "42809");
    assert_eq!(rows(&mut session, "DESCRIBE QUERY SELECT 1 AS a, 'x' AS b").await[1][..2], ["b", "string"]);
    // pandas checks whether a query is the name of a table.
    let (refused, text) = refusal(&mut session, "DESCRIBE SELECT 1").await;
    assert_eq!(refused, "42601", "{text}");
    assert!(text.contains("DESCRIBE QUERY"), "{text}");
    // SQLAlchemy's dialect of PyHive recognizes a missing table by these words.
    let (refused, text) = refusal(&mut session, "DESCRIBE default.nowhere").await;
    assert_eq!(refused, "42P01", "{text}");
    assert!(text.replace('\n', "\\n").contains("SemanticException: Table not found default.nowhere"), "{text}");
    let (refused, text) = refusal(&mut session, "SELECT * FROM nowhere").await;
    assert_eq!(refused, "42P01", "{text}");
    assert!(text.contains("SemanticException: Table not found default.nowhere"), "{text}");
    engine.stop().await;
}
