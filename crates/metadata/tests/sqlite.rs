//! The contract on `SQLite`: quick, needs no server.

#![allow(clippy::unwrap_used, clippy::panic)]

mod contract;

use metadata::Settings;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_keeps_its_contract_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    contract::run_all("sqlite", async |at| Settings::sqlite(&folder.path().join(format!("case {at}.db")))).await;
}
