//! Cases of the schema itself: versions, texts, names, old rows.

use metadata::{Deleted, Error, SCHEMA_VERSION, Store};
use model::change::Rules;
use model::clock::SystemClock;
use model::observation::Surroundings;

use super::bench::{Bench, abort_of, create_tenant, create_unit, id, properties};

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
        // One process, one store: the second one is refused while the first is open.
        let mut hurried = settings.clone();
        hurried.connect_deadline = std::time::Duration::from_millis(100);
        assert!(matches!(Store::migrate(&hurried).await, Err(Error::Settings(_))));
        return;
    }
    for table in ["schema_version", "catalog", "master", "tenant", "resource_pool", "resource_unit", "slot", "request"]
    {
        bench.raw(&format!("DROP TABLE {table}")).await;
    }
    for table in ["engine", "alteration", "observed_engine", "observed_node", "namespace"] {
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

/// Opens the database once more, after the case's store is gone: an SQLite file has one at a time.
async fn reopened(bench: Bench) -> Result<Store, Error> {
    let settings = bench.settings.clone();
    drop(bench);
    Store::open(&settings, Rules::default(), SystemClock::shared()).await
}

pub async fn old_rows_are_deleted_and_young_ones_stay(bench: Bench) {
    let bench = bench.founded(0).await;
    let started = bench.start("s-1").await.unwrap();
    bench.stop("s-2", &started.engine).await.unwrap();
    let young = bench.start("s-3").await.unwrap();
    bench.try_alter("a-open", create_unit("uc_2", 0, 1)).await.unwrap();
    assert_eq!(bench.store.housekeep().await.unwrap(), Deleted::default());
    bench.raw("UPDATE request SET done_at_ms = 1 WHERE id <> 's-3'").await;
    bench.raw("UPDATE alteration SET decided_at_ms = 1").await;
    bench.raw("UPDATE engine SET ended_at_ms = 1").await;
    let deleted = bench.store.housekeep().await.unwrap();
    // The converging alteration and the present engine stay, however old they are.
    assert_eq!(deleted, Deleted { requests: 2, alterations: 3, engines: 1 });
    assert!(bench.store.request(&id("s-3")).await.unwrap().is_some());
    assert!(bench.store.outcome(&id("a-open")).await.unwrap().is_some());
    assert!(bench.store.engine(&young.engine).await.unwrap().is_some());
    assert!(bench.store.engine(&started.engine).await.unwrap().is_none());
    assert_eq!(bench.store.housekeep().await.unwrap(), Deleted::default());
}

pub async fn long_and_foreign_texts_come_back_as_they_were(bench: Bench) {
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

pub async fn a_column_that_came_later_is_added_to_rows_that_are_there(bench: Bench) {
    let bench = bench.founded(1).await;
    let name = bench.present().await[0].clone();
    bench.made(&name).await;
    // As version 1 was: without what the orchestrator knows besides, whether an engine ever registered, and what is around.
    bench.raw("ALTER TABLE observed_engine DROP COLUMN details").await;
    bench.raw("ALTER TABLE observed_engine DROP COLUMN answered").await;
    bench.raw("ALTER TABLE master DROP COLUMN surroundings").await;
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
    assert_eq!(store.master().await.unwrap().surroundings, Surroundings::default());
}
