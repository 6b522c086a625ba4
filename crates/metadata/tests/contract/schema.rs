//! Cases of the schema itself: versions, texts, names, old rows.

use super::bench::AUDIT_KEEP;
use metadata::{DeletedRows, Error, MAX_DELETED, SCHEMA_VERSION, Store};
use model::change::Rules;
use model::clock::SystemClock;
use model::observation::ClusterWarnings;

use super::bench::{Bench, abort_of, create_pool, create_tenant, create_unit, id, properties};

pub async fn migrating_again_changes_nothing(bench: Bench) {
    let bench = bench.founded(1).await;
    let before = bench.store.snapshot().await.unwrap();
    bench.store.close().await;
    let settings = bench.settings.clone();
    drop(bench);
    assert_eq!(Store::migrate(&settings).await.unwrap(), SCHEMA_VERSION);
    let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().slots, before.slots);
}

pub async fn two_migrations_at_once_both_succeed(bench: Bench) {
    let settings = bench.settings.clone();
    if settings.backend().unwrap() == metadata::Backend::Sqlite {
        // One store per file: the second one is refused while the first is open.
        let mut hurried = settings.clone();
        hurried.connect_deadline = std::time::Duration::from_millis(100);
        assert!(matches!(Store::migrate(&hurried).await, Err(Error::Settings(_))));
        return;
    }
    for table in ["schema_version", "catalog", "master", "tenant", "resource_pool", "resource_unit", "slot", "request"]
    {
        bench.raw(&format!("DROP TABLE {table}")).await;
    }
    for table in [
        "engine",
        "alteration",
        "observed_engine",
        "observed_node",
        "namespace",
        "audit",
        "resource_quota",
        "quota_scope",
        "reservation",
    ] {
        bench.raw(&format!("DROP TABLE {table}")).await;
    }
    let (one, other) = tokio::join!(Store::migrate(&settings), Store::migrate(&settings));
    assert_eq!((one.unwrap(), other.unwrap()), (SCHEMA_VERSION, SCHEMA_VERSION));
    assert_eq!(bench.store.snapshot().await.unwrap().catalog.generation.get(), 0);
}

pub async fn a_database_of_a_newer_program_is_refused(bench: Bench) {
    bench.raw(&format!("UPDATE schema_version SET version = {}", SCHEMA_VERSION + 1)).await;
    let error = reopened(bench).await.unwrap_err();
    let newer =
        matches!(error, Error::NewerSchema { found, known } if found == SCHEMA_VERSION + 1 && known == SCHEMA_VERSION);
    assert!(newer, "{error}");
}

pub async fn an_empty_database_must_be_migrated_first(bench: Bench) {
    bench.raw("UPDATE schema_version SET version = 0").await;
    let settings = bench.settings.clone();
    let error = reopened(bench).await.unwrap_err();
    assert!(matches!(error, Error::OlderSchema { found: 0, .. }), "{error}");
    super::bench::raw(&settings, "DROP TABLE schema_version").await;
    let error = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap_err();
    assert!(matches!(error, Error::OlderSchema { found: 0, .. }), "{error}");
}

/// Opens the database again after the store of the case is closed, because an SQLite file allows only one.
async fn reopened(bench: Bench) -> Result<Store, Error> {
    let settings = bench.settings.clone();
    drop(bench);
    Store::open(&settings, Rules::default(), SystemClock::shared()).await
}

pub async fn old_rows_are_deleted_and_recent_ones_stay(bench: Bench) {
    let bench = bench.founded(0).await;
    let started = bench.start("s-1").await.unwrap();
    bench.stop("s-2", &started.engine).await.unwrap();
    let young = bench.start("s-3").await.unwrap();
    bench.try_alter("a-open", create_unit("uc_2", 0, 1)).await.unwrap();
    assert_eq!(bench.store.housekeep(AUDIT_KEEP, metadata::REQUEST_KEEP).await.unwrap(), DeletedRows::default());
    bench.raw("UPDATE request SET done_at_ms = 1 WHERE id <> 's-3'").await;
    bench.raw("UPDATE alteration SET decided_at_ms = 1").await;
    bench.raw("UPDATE engine SET ended_at_ms = 1").await;
    let deleted = bench.store.housekeep(AUDIT_KEEP, metadata::REQUEST_KEEP).await.unwrap();
    // The converging alteration and the current engine stay at any age.
    assert_eq!(deleted, DeletedRows { requests: 2, alterations: 3, engines: 1, ..DeletedRows::default() });
    assert!(bench.store.request(&id("s-3")).await.unwrap().is_some());
    assert!(bench.store.outcome(&id("a-open")).await.unwrap().is_some());
    assert!(bench.store.engine(&young.engine).await.unwrap().is_some());
    assert!(bench.store.engine(&started.engine).await.unwrap().is_none());
    assert_eq!(bench.store.housekeep(AUDIT_KEEP, metadata::REQUEST_KEEP).await.unwrap(), DeletedRows::default());
}

pub async fn one_run_deletes_all_old_rows(bench: Bench) {
    let many = 2 * MAX_DELETED + 200;
    let digits = |name: &str| format!("{name}(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM {name} WHERE i < 40)");
    bench
        .raw(&format!(
            "INSERT INTO request (id, statement, engine, requested_by, answer, done_at_ms) WITH RECURSIVE {}, {} \
             SELECT CONCAT('r-', a.i * 100 + b.i), '', '', '', '', 1 FROM a CROSS JOIN b WHERE a.i <= {}",
            digits("a"),
            digits("b"),
            many / 40
        ))
        .await;
    let deleted = bench.store.housekeep(AUDIT_KEEP, metadata::REQUEST_KEEP).await.unwrap();
    assert_eq!(deleted, DeletedRows { requests: many, ..DeletedRows::default() });
    assert_eq!(bench.store.housekeep(AUDIT_KEEP, metadata::REQUEST_KEEP).await.unwrap(), DeletedRows::default());
}

/// In a rolling upgrade it would drop the fields of specs that it does not know.
pub async fn an_open_store_stops_writing_after_a_newer_migration(bench: Bench) {
    let bench = bench.founded(1).await;
    let base = bench.base(&create_pool("rp_1", &["uc_1"])).await;
    let engine = bench.present().await[0].clone();
    bench.raw(&format!("UPDATE schema_version SET version = {}", SCHEMA_VERSION + 1)).await;
    let spec = r#"{"units":["uc_1"],"namespace":null,"nodes":null,"image":null,"comment":null,"later":1}"#;
    bench.raw(&format!("UPDATE resource_pool SET spec = '{spec}'")).await;
    let comment = model::change::Setting::Set("x".to_owned());
    let patch = model::change::PoolPatch { comment, ..Default::default() };
    let object = model::change::ObjectPatch::ResourcePool(model::PoolName::new("rp_1").unwrap(), patch);
    let alter = model::change::Change::Alter { if_exists: false, object };
    let request = super::bench::commit("a-late", alter, Some(base), bench.soon());
    let newer = |error: &Error| matches!(error, Error::NewerSchema { .. });
    let error = bench.store.commit(&request).await.unwrap_err();
    assert!(newer(&error), "{error}");
    assert_eq!(bench.stop("s-late", &engine).await.map_err(|error| newer(&error)), Err(true));
    assert_eq!(super::bench::asked(&bench.settings, "SELECT spec FROM resource_pool").await, spec);
    // Its id can still be aborted, so that its node is deleted.
    bench.store.abort(&abort_of("a-late")).await.unwrap();
}

pub async fn long_and_foreign_texts_are_stored_unchanged(bench: Bench) {
    bench.alter("a-1", create_unit("uc_1", 0, 1)).await;
    // Longer than MariaDB's TEXT, with characters of four bytes, quotes and placeholders.
    let text = "'\"\\?$1 ü🦀\n".repeat(20_000);
    bench.alter("a-2", properties("uc_1", "k", &text)).await;
    let catalog = bench.store.catalog().await.unwrap();
    let unit = catalog.units.values().next().unwrap();
    assert_eq!(unit.spec.properties.get("k"), Some(&text));
    let mut abort = abort_of("a-3");
    abort.statement.clone_from(&text);
    bench.store.abort(&abort).await.unwrap();
    assert_eq!(bench.store.outcome(&id("a-3")).await.unwrap().unwrap().statement, text);
}

pub async fn names_are_compared_byte_by_byte(bench: Bench) {
    bench.store.abort(&abort_of("Same-Id")).await.unwrap();
    let other = bench.store.abort(&abort_of("same-id")).await.unwrap();
    assert_eq!(other.id, id("same-id"));
    assert_eq!(bench.store.alterations(10).await.unwrap().len(), 2);
    assert!(bench.store.outcome(&id("SAME-ID")).await.unwrap().is_none());
    for (at, name) in ["t_1", "t-1", "t.1"].into_iter().enumerate() {
        bench.alter(&format!("a-{at}"), create_tenant(name, &[], &["Alice", "alice"])).await;
    }
    assert_eq!(bench.store.catalog().await.unwrap().tenants.len(), 3);
}

pub async fn a_new_column_is_added_to_existing_rows(bench: Bench) {
    let bench = bench.founded(1).await;
    let name = bench.present().await[0].clone();
    bench.made(&name).await;
    // Version 1: without the columns of later versions.
    bench.raw("ALTER TABLE observed_engine DROP COLUMN details").await;
    bench.raw("ALTER TABLE observed_engine DROP COLUMN answered").await;
    bench.raw("ALTER TABLE master DROP COLUMN surroundings").await;
    bench.without_schema_10().await;
    bench.raw("UPDATE schema_version SET version = 1").await;
    bench
        .raw(&format!(
            "INSERT INTO observed_engine (name, phase, registered, draining, labels, observed_at_ms, epoch) \
             VALUES ('{name}', 'running', 1, 0, '{{}}', 5, 1)"
        ))
        .await;
    let settings = bench.settings.clone();
    bench.store.close().await;
    drop(bench);
    assert_eq!(Store::migrate(&settings).await.unwrap(), SCHEMA_VERSION);
    let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
    let seen = store.engine(&name).await.unwrap().unwrap().seen.unwrap();
    assert!(seen.engine.registered && seen.engine.details.is_empty() && seen.engine.answered, "{seen:?}");
    assert_eq!((seen.engine.idle_since_ms, seen.engine.stateful), (None, None));
    assert_eq!(store.master().await.unwrap().cluster_warnings, ClusterWarnings::default());
}

/// Specs of the previous version have no secrets. Only units with secret properties change.
pub async fn opening_a_store_records_secret_properties_of_old_rows(bench: Bench) {
    let bench = bench.founded(1).await;
    bench.alter("a-1", properties("uc_1", "db.password", "hunter2")).await;
    bench.alter("a-2", create_unit("uc_2", 0, 1)).await;
    bench.alter("a-3", properties("uc_2", "open", "1")).await;
    bench.raw("UPDATE slot SET asked_at_ms = 0").await;
    let before = bench.store.snapshot().await.unwrap();
    let old = before.catalog.units.clone();
    for (name, unit) in &old {
        let spec = model::catalog::UnitSpec { secrets: None, ..unit.spec.clone() };
        let json = serde_json::to_string(&spec).unwrap();
        bench.raw(&format!("UPDATE resource_unit SET spec = '{json}' WHERE name = '{name}'")).await;
    }
    bench.without_schema_10().await;
    bench.raw("UPDATE schema_version SET version = 5").await;
    let settings = bench.settings.clone();
    bench.store.close().await;
    drop(bench);
    assert_eq!(Store::migrate(&settings).await.unwrap(), SCHEMA_VERSION);
    let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
    let after = store.snapshot().await.unwrap();
    for (name, unit) in &after.catalog.units {
        let was = &old[name];
        assert_eq!(unit.spec, was.spec, "{name}: the same fingerprint, because the key is");
        let is_secret = name.as_str() == "uc_1";
        assert_eq!(unit.spec.secrets.is_some(), is_secret, "{name}");
        assert_eq!(unit.generation > was.generation, is_secret, "{name}");
    }
    assert_eq!((after.slots, after.engines), (before.slots, before.engines), "no engine is replaced");
    store.close().await;
    drop(store);
    let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
    assert_eq!(store.catalog().await.unwrap().generation, after.catalog.generation, "once");
}
