//! The tenant's catalog: persistence, sharing between engines, refused locations.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use datafusion_engine::sample;

use crate::fixture::{Fixture, one, refusal, rows, run, state, written};

fn csv(dir: &Path, name: &str, text: &str) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join(name), text).unwrap();
}

#[tokio::test]
async fn tables_and_views_are_seen_after_a_restart_and_by_a_second_engine() {
    let fixture = Fixture::new();
    let data = fixture.data();
    csv(&data.join("people"), "a.csv", "id,name\n1,ann\n2,bob\n");
    sample::write_rides(&data.join("rides/part-0.parquet"), 42, 20_000).unwrap();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let people = format!(
        "CREATE EXTERNAL TABLE people STORED AS CSV LOCATION '{}' OPTIONS ('format.has_header' 'true')",
        data.join("people").display()
    );
    run(&mut session, &people).await;
    assert_eq!(state(&mut session, &people).await, "42P07");
    run(&mut session, &people.replace("TABLE people", "TABLE IF NOT EXISTS people")).await;
    let rides = data.join("rides").display().to_string();
    run(&mut session, "CREATE DATABASE sales").await;
    run(&mut session, "USE sales").await;
    run(&mut session, &format!("CREATE EXTERNAL TABLE rides STORED AS PARQUET LOCATION 'file://{rides}/'")).await;
    run(&mut session, "CREATE VIEW far AS SELECT * FROM rides WHERE distance_km > 20").await;
    run(&mut session, "CREATE VIEW IF NOT EXISTS far AS SELECT 1").await;
    run(&mut session, "CREATE OR REPLACE VIEW farther AS SELECT id FROM far WHERE distance_km > 25").await;

    let other = fixture.start("e-2").await;
    let mut second = other.session_with(&[("use:database", "sales")]).await.unwrap();
    let expected = (1..=20_000).filter(|id| sample::ride(42, *id).distance_tenths > 250).count().to_string();
    assert_eq!(one(&mut second, "SELECT count(*) FROM farther").await, expected);
    assert_eq!(one(&mut second, "SELECT name FROM default.people WHERE id = 2").await, "bob");
    // Each engine sees the other's changes without notification.
    run(&mut second, "DROP VIEW farther").await;
    assert_eq!(state(&mut session, "SELECT * FROM farther").await, "42P01");
    run(&mut second, "CREATE OR REPLACE VIEW far AS SELECT 7 AS seven").await;
    assert_eq!(one(&mut session, "SELECT * FROM far").await, "7");
    csv(&data.join("people"), "b.csv", "id,name\n3,eve\n");
    assert_eq!(one(&mut session, "SELECT count(*) FROM default.people").await, "3");
    assert_eq!(one(&mut second, "SELECT count(*) FROM default.people").await, "3");
    other.stop().await;
    engine.stop().await;

    let engine = fixture.start("e-3").await;
    let mut session = engine.session().await;
    assert_eq!(rows(&mut session, "SHOW SCHEMAS").await, [["default"], ["sales"]]);
    assert_eq!(rows(&mut session, "SHOW TABLES").await, [["people"]]);
    assert_eq!(rows(&mut session, "SHOW TABLES IN sales LIKE 'r*'").await, [["rides"]]);
    assert_eq!(rows(&mut session, "SHOW VIEWS IN sales").await, [["far"]]);
    assert_eq!(rows(&mut session, "DESCRIBE people").await, [["id", "bigint", ""], ["name", "string", ""]]);
    assert_eq!(one(&mut session, "SHOW CREATE TABLE people").await, people);
    let fares: u64 = (1..=20_000).map(|id| u64::from(sample::ride(42, id).fare_cents)).sum();
    let sum = format!("{}.{:02}", fares / 100, fares % 100);
    assert_eq!(one(&mut session, "SELECT sum(fare) FROM sales.rides").await, sum);
    let tables = "SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_schema <> 'information_schema' ORDER BY 1, 2";
    let listed = rows(&mut session, tables).await;
    assert_eq!(
        listed,
        [["default", "people", "BASE TABLE"], ["sales", "far", "VIEW"], ["sales", "rides", "BASE TABLE"]]
    );
    assert_eq!(state(&mut session, "DROP SCHEMA sales").await, "2BP01");
    assert_eq!(state(&mut session, "DROP TABLE sales.far").await, "42809");
    run(&mut session, "DROP SCHEMA sales CASCADE").await;
    assert_eq!(state(&mut session, "SELECT * FROM sales.rides").await, "42P01");
    run(&mut session, "DROP TABLE IF EXISTS sales.rides").await;
    run(&mut session, "DROP TABLE people").await;
    assert_eq!(state(&mut session, "DROP TABLE people").await, "42P01");
    assert!(data.join("people/a.csv").exists(), "an external table's files are not the engine's");
    engine.stop().await;
}

#[tokio::test]
async fn a_location_outside_the_allowed_ones_is_always_refused() {
    let fixture = Fixture::new();
    let data = fixture.data();
    let outside = fixture.root().join("outside");
    csv(&outside, "secret.csv", "id\n1\n");
    csv(&data.join("mine"), "a.csv", "id\n1\n");
    symlink(&outside, data.join("link")).unwrap();
    symlink(outside.join("secret.csv"), data.join("mine/linked.csv")).unwrap();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let data = data.display().to_string();
    for location in [
        outside.display().to_string(),
        format!("{}/secret.csv", outside.display()),
        "/etc/passwd".to_owned(),
        format!("{data}/../outside/"),
        format!("{data}/link/"),
        format!("file://{data}/%2E%2E/outside/secret.csv"),
    ] {
        for statement in [
            format!("CREATE EXTERNAL TABLE t (id INT) STORED AS CSV LOCATION '{location}'"),
            format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{location}'"),
            format!("CREATE EXTERNAL TEMPORARY TABLE t STORED AS CSV LOCATION '{location}'"),
            format!("COPY (SELECT 1) TO '{location}' STORED AS CSV"),
            format!("EXPLAIN ANALYZE COPY (SELECT 1) TO '{location}' STORED AS CSV"),
        ] {
            let (state, text) = refusal(&mut session, &statement).await;
            assert_eq!(state, "42501", "{statement}: {text}");
        }
    }
    assert_eq!(fs::read_to_string(outside.join("secret.csv")).unwrap(), "id\n1\n");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(rows(&mut session, "SHOW TABLES").await.is_empty());
    assert_eq!(state(&mut session, "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 'relative/'").await, "22023");
    assert_eq!(state(&mut session, "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 's3://b/x/'").await, "0A000");
    assert_eq!(
        state(&mut session, &format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{data}/none/'")).await,
        "58P01"
    );
    assert_eq!(state(&mut session, &format!("SELECT * FROM '{data}/mine/a.csv'")).await, "42P01");
    // A link below an allowed folder does not lead out of it, neither now nor if it is created later.
    run(
        &mut session,
        &format!(
            "CREATE EXTERNAL TABLE mine STORED AS CSV LOCATION '{data}/mine/' OPTIONS ('format.has_header' 'true')"
        ),
    )
    .await;
    assert_eq!(one(&mut session, "SELECT count(*) FROM mine").await, "1");
    fs::remove_dir_all(format!("{data}/mine")).unwrap();
    symlink(&outside, format!("{data}/mine")).unwrap();
    assert_eq!(state(&mut session, "SELECT count(*) FROM mine").await, "42501");
    assert_eq!(state(&mut session, "INSERT INTO mine VALUES (2)").await, "42501");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    engine.stop().await;
}

#[tokio::test]
async fn results_are_written_below_the_allowed_folders_and_read_back() {
    let fixture = Fixture::new();
    let data = fixture.data().display().to_string();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    let copied = written(
        &mut session,
        &format!("COPY (SELECT value AS v FROM generate_series(1, 1000)) TO '{data}/out/' STORED AS PARQUET"),
    )
    .await;
    assert_eq!(copied, 1000);
    run(&mut session, &format!("CREATE EXTERNAL TABLE back STORED AS PARQUET LOCATION '{data}/out/'")).await;
    assert_eq!(one(&mut session, "SELECT sum(v) FROM back").await, "500500");
    run(&mut session, &format!("CREATE EXTERNAL TABLE sink (v BIGINT NOT NULL, t VARCHAR, PRIMARY KEY (v)) STORED AS PARQUET LOCATION '{data}/sink/'")).await;
    assert_eq!(written(&mut session, "INSERT INTO sink SELECT v, 'x' FROM back WHERE v <= 10").await, 10);
    assert_eq!(written(&mut session, "INSERT INTO sink VALUES (11, NULL)").await, 1);
    assert_eq!(one(&mut session, "SELECT sum(v) FROM sink").await, "66");
    // A value that a column cannot hold is not truncated.
    run(&mut session, &format!("CREATE EXTERNAL TABLE small (v TINYINT) STORED AS PARQUET LOCATION '{data}/small/'"))
        .await;
    assert_eq!(state(&mut session, "INSERT INTO small VALUES (300)").await, "22003");
    assert_eq!(state(&mut session, "INSERT INTO small SELECT v FROM back WHERE v = 300").await, "22003");
    assert_eq!(written(&mut session, "INSERT INTO small SELECT CAST(v AS TINYINT) FROM back WHERE v = 300").await, 1);
    assert_eq!(one(&mut session, "SELECT sum(v) FROM small").await, "44");
    run(&mut session, "PREPARE p(BIGINT) AS SELECT count(*) FROM sink WHERE v > $1").await;
    assert_eq!(one(&mut session, "EXECUTE p(5)").await, "6");
    engine.stop().await;
}

#[tokio::test]
async fn one_broken_table_hides_nothing_but_itself() {
    let fixture = Fixture::new();
    let data = fixture.data();
    csv(&data.join("good"), "a.csv", "id\n1\n");
    csv(&data.join("gone"), "a.csv", "id\n1\n");
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    for name in ["good", "gone"] {
        let location = data.join(name).display().to_string();
        run(
            &mut session,
            &format!(
                "CREATE EXTERNAL TABLE {name} STORED AS CSV LOCATION '{location}/' OPTIONS ('format.has_header' 'true')"
            ),
        )
        .await;
    }
    run(&mut session, "CREATE VIEW on_gone AS SELECT * FROM gone").await;
    run(&mut session, "DROP TABLE gone").await;
    fs::write(fixture.root().join("catalog/schemas/default/damaged.json"), "{").unwrap();
    let columns = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'default'";
    assert_eq!(rows(&mut session, columns).await, [["good", "id"]]);
    assert_eq!(rows(&mut session, "SHOW TABLES").await.len(), 3);
    assert_eq!(state(&mut session, "SELECT * FROM on_gone").await, "42P01");
    assert_eq!(state(&mut session, "SELECT * FROM damaged").await, "58030");
    run(&mut session, "DROP TABLE damaged").await;
    // A table that a restarted engine can no longer build can still be dropped or replaced.
    engine.stop().await;
    let engine = fixture.start("e-2").await;
    let mut session = engine.session().await;
    fs::remove_dir_all(data.join("good")).unwrap();
    assert_eq!(state(&mut session, "SELECT * FROM good").await, "58P01");
    csv(&data.join("better"), "a.csv", "id\n1\n2\n");
    let location = data.join("better").display().to_string();
    run(&mut session, &format!("CREATE OR REPLACE EXTERNAL TABLE good STORED AS CSV LOCATION '{location}/' OPTIONS ('format.has_header' 'true')")).await;
    assert_eq!(one(&mut session, "SELECT count(*) FROM good").await, "2");
    engine.stop().await;
}

#[tokio::test]
async fn a_view_on_itself_is_refused_and_not_followed_for_ever() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    run(&mut session, "CREATE VIEW a AS SELECT 1 AS x").await;
    run(&mut session, "CREATE VIEW b AS SELECT * FROM a").await;
    run(&mut session, "CREATE OR REPLACE VIEW a AS SELECT * FROM b").await;
    assert_eq!(state(&mut session, "SELECT * FROM a").await, "54000");
    run(&mut session, "DROP VIEW a").await;
    run(&mut session, "DROP VIEW b").await;
    assert_eq!(one(&mut session, "SELECT 1").await, "1");
    engine.stop().await;
}

#[tokio::test]
async fn names_are_any_text_and_tables_need_a_location() {
    let fixture = Fixture::new();
    let engine = fixture.start("e-1").await;
    let mut session = engine.session().await;
    run(&mut session, "CREATE SCHEMA \"../Über uns\"").await;
    run(&mut session, "CREATE VIEW `../Über uns`.`../t` AS SELECT 1 AS x").await;
    assert_eq!(one(&mut session, "SELECT x FROM `../Über uns`.`../t`").await, "1");
    assert!(!fixture.root().join("t.json").exists());
    let (state, text) = refusal(&mut session, "CREATE TABLE t AS SELECT 1").await;
    assert_eq!(state, "0A000");
    assert!(text.contains("Hint: Use CREATE EXTERNAL TABLE"), "{text}");
    engine.stop().await;
}
