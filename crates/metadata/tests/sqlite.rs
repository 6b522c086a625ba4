//! The contract on `SQLite`: quick, needs no server.

#![allow(clippy::unwrap_used, clippy::panic)]

mod contract;

use metadata::{ROUND_TRIPS, SCHEMA_VERSION, Store, StoreSettings};
use sqlx::{Connection as _, Executor as _};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_keeps_its_contract_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    contract::run_all("sqlite", async |at| StoreSettings::sqlite(&folder.path().join(format!("case {at}.db")))).await;
}

/// `SQLite` has no time-outs of its own but the one for its lock; the deadline of a call bounds the rest.
#[tokio::test]
async fn a_lock_on_the_file_is_waited_for_no_longer_than_the_lock_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let settings = StoreSettings {
        lock_timeout: std::time::Duration::from_millis(300),
        ..StoreSettings::sqlite(&folder.path().join("a.db"))
    };
    let bench = contract::Bench::open(settings).await;
    let mut other = sqlx::AnyConnection::connect(&bench.settings.url).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let begun = std::time::Instant::now();
    let error = bench.try_alter("a-1", contract::bench::create_unit("uc_1", 0, 1)).await.unwrap_err();
    assert_eq!(error.kind(), metadata::StoreErrorKind::Unavailable, "{error}");
    let took = begun.elapsed().as_millis();
    assert!((250..5_000).contains(&took), "{took} ms");
    other.execute("ROLLBACK").await.unwrap();
    bench.alter("a-1", contract::bench::create_unit("uc_1", 0, 1)).await;
}

/// A connection that is made later finds no file: it makes no empty one, which would hide that the other is missed.
#[tokio::test]
async fn a_file_that_went_is_missed_and_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (file, aside) = (folder.path().join("a.db"), folder.path().join("aside"));
    let bench = contract::Bench::open(StoreSettings::sqlite(&file)).await;
    std::fs::rename(&file, &aside).unwrap();
    // More at once than there are connections.
    let read = |store: Store| tokio::spawn(async move { store.catalog().await });
    for read in (0..20).map(|_| read(bench.store.clone())).collect::<Vec<_>>() {
        if let Err(error) = read.await.unwrap() {
            assert_eq!(error.kind(), metadata::StoreErrorKind::Unavailable, "{error}");
        }
    }
    assert!(!file.exists());
    std::fs::rename(&aside, &file).unwrap();
    bench.alter("a-1", contract::bench::create_unit("uc_1", 0, 1)).await;
}

/// Beside the process that has the file, and at one that is not there or damaged.
#[tokio::test]
async fn a_file_is_looked_at_beside_the_process_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let settings = StoreSettings::sqlite(&folder.path().join("a b.db"));
    let error = Store::diagnose_read_only(&settings).await.unwrap_err();
    assert_eq!(error.kind(), metadata::StoreErrorKind::Unavailable, "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a look has made a file");
    let bench = contract::Bench::open(settings.clone()).await;
    let seen = Store::diagnose_read_only(&settings).await.unwrap();
    assert_eq!((seen.schema, seen.damage.len(), seen.round_trips.len()), (SCHEMA_VERSION, 0, ROUND_TRIPS));
    // It hinders nobody, and is not hindered by one who writes.
    let mut writer = sqlx::AnyConnection::connect(&settings.url).await.unwrap();
    writer.execute("BEGIN IMMEDIATE; UPDATE schema_version SET version = version + 1").await.unwrap();
    assert_eq!(Store::diagnose_read_only(&settings).await.unwrap().schema, SCHEMA_VERSION);
    writer.execute("ROLLBACK").await.unwrap();
    writer.close().await.unwrap();
    bench.alter("a-1", contract::bench::create_unit("uc_1", 0, 1)).await;
    let elsewhere = StoreSettings::new("postgres://nobody@127.0.0.1:1/nothing");
    assert_eq!(Store::diagnose_read_only(&elsewhere).await.unwrap_err().kind(), metadata::StoreErrorKind::Operator);
}

/// No later try mends it, so nobody is told to try again.
#[tokio::test]
async fn a_damaged_file_is_not_called_away() {
    const PAGE_BYTES: usize = 4_096;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let settings = StoreSettings::sqlite(&path);
    let bench = contract::Bench::open(settings.clone()).await;
    bench.alter("a-1", contract::bench::create_unit("uc_1", 0, 1)).await;
    bench.store.close().await;
    drop(bench);
    // The first page says which tables there are; all that is in them goes.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[PAGE_BYTES..].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let clock = model::clock::SystemClock::shared();
    let Err(error) = Store::open(&settings, model::change::Rules::default(), clock).await else {
        panic!("it was opened")
    };
    assert_eq!(error.kind(), metadata::StoreErrorKind::Internal, "{error}");
    assert!(error.to_string().contains("malformed"), "{error}");
}
