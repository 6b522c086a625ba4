//! A secret property is in no label, row or answer: neither itself nor as a digest that a dictionary finds.

use std::collections::BTreeSet;

use model::configuration::{Configuration, Defaults};
use model::engine_labels::EngineLabels;
use sqlx::{Column as _, Connection as _, Row as _};

use crate::agents::run;
use crate::bench::{Bench, among_others};

const SECRET: &str = "hunter2";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_dictionary_finds_no_secret_in_labels_rows_and_answers() {
    let _among = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let settling = bench.master.keep_settling();
    let sql = format!("ALTER RESOURCE UNIT uc_1 MIN_ENGINES 1, PROPERTIES ('a'='1', 'my.password'='{SECRET}')");
    run(&mut admin, &sql).await;
    bench.settled().await;
    drop(settling);
    let snapshot = bench.store.snapshot().await.unwrap();
    let slot = &snapshot.slots[0];
    let configuration = Configuration::from_slot(&snapshot.catalog, &slot.key, &Defaults::default()).unwrap();
    assert_eq!(configuration.properties["my.password"], SECRET, "the engine is given it");

    // What a correct guess could compute: the digests of the clear values.
    let clear = Configuration { secrets: None, ..configuration.clone() };
    let dictionary = [SECRET.to_owned(), clear.properties_digest(), clear.hash()];
    let mut seen: Vec<(String, String)> = Vec::new();
    let labels = EngineLabels::new("eh", &slot.key, slot.incarnation, &configuration).encode();
    seen.extend(labels.into_iter().map(|(label, value)| (format!("label {label}"), value)));
    let engine = slot.engine();
    for sql in [
        "SHOW ENGINES t_1".to_owned(),
        format!("DESCRIBE ENGINE rp_1 '{engine}'"),
        "SHOW RESOURCE UNITS".to_owned(),
        "SHOW RESOURCE POOLS".to_owned(),
        "SHOW TENANTS".to_owned(),
        "DESCRIBE RESOURCE UNIT uc_1".to_owned(),
        "DESCRIBE RESOURCE POOL rp_1".to_owned(),
        "DESCRIBE TENANT t_1".to_owned(),
        "SHOW CREATE RESOURCE UNIT uc_1".to_owned(),
        "SHOW ALTERATIONS".to_owned(),
        "SHOW AUDIT".to_owned(),
        "SHOW MASTER".to_owned(),
        "EXPLAIN ALTER RESOURCE UNIT uc_1 PROPERTIES ('my.password'='other')".to_owned(),
    ] {
        let answer = run(&mut admin, &sql).await;
        seen.push((sql, format!("{:?}", answer.rows)));
    }
    seen.push((
        "what proxies read".to_owned(),
        serde_json::to_string(&bench.store.proxy_snapshot().await.unwrap()).unwrap(),
    ));
    let rows = rows(&format!("sqlite://{}", bench.fixture.folder.path().join("metadata.db").display())).await;
    let tables: BTreeSet<&str> = rows.iter().map(|(place, _)| place.split('.').next().unwrap()).collect();
    assert!(tables.contains("alteration") && tables.contains("audit") && tables.contains("engine"), "{tables:?}");
    let own = rows.iter().find(|(place, _)| place == "resource_unit.spec").unwrap();
    assert!(own.1.contains("my.password") && own.1.contains("sealed:1:1:"), "{own:?}");
    seen.extend(rows);
    for (place, text) in seen {
        for word in &dictionary {
            assert!(!text.contains(word), "{place} has {word}: {text}");
        }
    }
}

/// Every value of every table as text, with its table and column.
async fn rows(url: &str) -> Vec<(String, String)> {
    let mut connection = sqlx::SqliteConnection::connect(url).await.unwrap();
    let tables = sqlx::query("SELECT name FROM sqlite_master WHERE type = 'table'");
    let mut values = Vec::new();
    for table in tables.fetch_all(&mut connection).await.unwrap() {
        let table: String = table.get(0);
        let all = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT * FROM {table}")));
        for row in all.fetch_all(&mut connection).await.unwrap() {
            for column in row.columns() {
                let value: Option<String> = row.try_get_unchecked(column.ordinal()).unwrap();
                values.push((format!("{table}.{}", column.name()), value.unwrap_or_default()));
            }
        }
    }
    values
}
