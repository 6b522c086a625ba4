//! The contract on `SQLite`, which needs no server.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use metadata::{ROUND_TRIPS, SCHEMA_VERSION, Store, StoreSettings};
use sqlx::{Connection as _, Executor as _};

use crate::contract;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_keeps_its_contract_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    contract::run_all("sqlite", async |at| StoreSettings::sqlite(&folder.path().join(format!("case {at}.db")))).await;
}

/// `SQLite` has only a lock timeout; the deadline of a call bounds everything else.
#[tokio::test]
async fn a_wait_for_the_file_lock_ends_with_the_lock_timeout() {
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

/// Whether this process holds `SQLite`'s lock on the file, by which another process knows that it has it open.
fn holds_its_lock(file: &Path) -> bool {
    let (pid, inode) = (std::process::id().to_string(), std::fs::metadata(file).unwrap().ino().to_string());
    // `5: POSIX  ADVISORY  READ 13926 fe:00:10190899 1073741826 1073742335`
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.contains(&pid.as_str()) && fields.iter().any(|field| field.rsplit(':').next() == Some(&inode))
    })
}

/// The kernel drops all locks of a process on a file when the process closes any descriptor of it. Another program that
/// reads the file then takes itself for the last one that has it open, and deletes the journal: what is committed after that
/// is in no file, and is lost with the process. Python's module does so with `SQLite` 3.40.
#[tokio::test]
async fn a_store_that_opens_keeps_the_locks_of_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db");
    let settings = StoreSettings::sqlite(&file);
    let bench = contract::Bench::open(settings.clone()).await;
    // A connection whose call was given up is closed by its own thread, perhaps later than its store.
    let mut given_up = sqlx::AnyConnection::connect(&settings.url).await.unwrap();
    given_up.execute("SELECT version FROM schema_version").await.unwrap();
    bench.store.close().await;
    drop(bench);
    let bench = contract::Bench::open(settings).await;
    given_up.close().await.unwrap();
    assert!(holds_its_lock(&file));
    bench.store.close().await;
    assert!(!holds_its_lock(&file));
}

/// A later connection finds no file and does not create an empty one, which would hide the loss.
#[tokio::test]
async fn a_deleted_file_is_an_error_and_not_recreated() {
    let folder = tempfile::tempdir().unwrap();
    let (file, aside) = (folder.path().join("a.db"), folder.path().join("aside"));
    let bench = contract::Bench::open(StoreSettings::sqlite(&file)).await;
    std::fs::rename(&file, &aside).unwrap();
    // More concurrent calls than connections.
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

/// While another process has the file open, and for a missing and a damaged file.
#[tokio::test]
async fn an_open_file_is_diagnosed_read_only() {
    let folder = tempfile::tempdir().unwrap();
    let settings = StoreSettings::sqlite(&folder.path().join("a b.db"));
    let error = Store::diagnose_read_only(&settings).await.unwrap_err();
    assert_eq!(error.kind(), metadata::StoreErrorKind::Unavailable, "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a look has made a file");
    let bench = contract::Bench::open(settings.clone()).await;
    let seen = Store::diagnose_read_only(&settings).await.unwrap();
    assert_eq!((seen.schema, seen.damage.len(), seen.round_trips.len()), (SCHEMA_VERSION, 0, ROUND_TRIPS));
    // It blocks no other process, and a writer does not block it.
    let mut writer = sqlx::AnyConnection::connect(&settings.url).await.unwrap();
    writer.execute("BEGIN IMMEDIATE; UPDATE schema_version SET version = version + 1").await.unwrap();
    assert_eq!(Store::diagnose_read_only(&settings).await.unwrap().schema, SCHEMA_VERSION);
    writer.execute("ROLLBACK").await.unwrap();
    writer.close().await.unwrap();
    bench.alter("a-1", contract::bench::create_unit("uc_1", 0, 1)).await;
    let elsewhere = StoreSettings::new("postgres://nobody@127.0.0.1:1/nothing");
    assert_eq!(Store::diagnose_read_only(&elsewhere).await.unwrap_err().kind(), metadata::StoreErrorKind::Operator);
}

/// A retry would not help, so the error does not suggest one.
#[tokio::test]
async fn a_damaged_file_is_reported_as_damaged() {
    const PAGE_BYTES: usize = 4_096;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let settings = StoreSettings::sqlite(&path);
    let bench = contract::Bench::open(settings.clone()).await;
    bench.alter("a-1", contract::bench::create_unit("uc_1", 0, 1)).await;
    bench.store.close().await;
    drop(bench);
    // Keeps the first page, which lists the tables, and destroys their content.
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
