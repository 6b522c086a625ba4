//! The contract on `SQLite`: quick, needs no server.

#![allow(clippy::unwrap_used, clippy::panic)]

mod contract;

use metadata::Settings;
use sqlx::{Connection as _, Executor as _};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_keeps_its_contract_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    contract::run_all("sqlite", async |at| Settings::sqlite(&folder.path().join(format!("case {at}.db")))).await;
}

/// `SQLite` has no time-outs of its own but the one for its lock; the deadline of a call bounds the rest.
#[tokio::test]
async fn a_lock_on_the_file_is_waited_for_no_longer_than_the_lock_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        lock_timeout: std::time::Duration::from_millis(300),
        ..Settings::sqlite(&folder.path().join("a.db"))
    };
    let bench = contract::Bench::open(settings).await;
    let mut other = sqlx::AnyConnection::connect(&bench.settings.url).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let begun = std::time::Instant::now();
    let error = bench.try_alter("a-1", contract::bench::create_unit("uc_1", 0, 1)).await.unwrap_err();
    assert_eq!(error.kind(), metadata::Kind::Unavailable, "{error}");
    let took = begun.elapsed().as_millis();
    assert!((250..5_000).contains(&took), "{took} ms");
    other.execute("ROLLBACK").await.unwrap();
    bench.alter("a-1", contract::bench::create_unit("uc_1", 0, 1)).await;
}
