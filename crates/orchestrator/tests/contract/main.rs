//! The contract suite: every case runs on every implementation, and all of them must run every case.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code, reason = "shared with the tests of the client")]
#[path = "../cluster/mod.rs"]
mod cluster;
mod delete;
mod ensure;
mod harness;
mod kubernetes;
mod list;
mod memory;
mod process;
mod real;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures::StreamExt as _;
use harness::Harness;

/// A case: its name, and the test.
type Case = (&'static str, fn(Arc<dyn Harness>) -> Pin<Box<dyn Future<Output = ()> + Send>>);

/// Creates the harness of one case.
type Make = fn() -> Arc<dyn Harness>;

/// The table of a module's cases.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        &[$((stringify!($case), |harness| Box::pin($case(harness)))),*]
    };
}
pub(crate) use cases;

/// Records a passed case: cargo reports only the test that runs all of them, and `tests/run` checks that every test that the
/// guarantees name has passed.
fn record_passed(case: &str) {
    let Some(path) = std::env::var_os("EH_TEST_PASSED") else { return };
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    // One write for each line, because several tests append concurrently.
    std::io::Write::write_all(&mut file, format!("{case}\n").as_bytes()).unwrap();
}

/// Runs all cases, each with its own harness; returns how many passed, and the failures.
async fn run(make: Make, concurrency: usize) -> (usize, Vec<String>) {
    let (mut passed, mut failed) = (0, Vec::new());
    let cases = ensure::CASES.iter().chain(delete::CASES).chain(list::CASES);
    let run = |(name, case): &'static Case| async move { (name, tokio::spawn(case(make())).await) };
    let mut running = futures::stream::iter(cases.map(run)).buffer_unordered(concurrency);
    while let Some((name, ended)) = running.next().await {
        match ended {
            Ok(()) => {
                record_passed(name);
                passed += 1;
            }
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    (passed, failed)
}

/// Runs all cases and returns the failures, with the implementation's name.
async fn failures(name: &str, make: Make, concurrency: usize) -> Vec<String> {
    let count = ensure::CASES.len() + delete::CASES.len() + list::CASES.len();
    let (passed, failed) = run(make, concurrency).await;
    println!("orchestrator contract, {name}: {passed} passed, {} failed, of {count}", failed.len());
    assert_eq!(passed + failed.len(), count, "{name} did not run every case");
    failed.into_iter().map(|failed| format!("{name}: {failed}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_implementation_keeps_the_contract() {
    let implementations: [(&str, Make); 3] =
        [("memory", memory::make), ("process", process::make), ("kubernetes", kubernetes::make)];
    let mut all_failed = Vec::new();
    for (name, make) in implementations {
        all_failed.extend(failures(name, make, 1).await);
    }
    assert!(all_failed.is_empty(), "{all_failed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn pods_at_a_real_api_server_keep_the_contract() {
    // Each case mostly waits for the server.
    let failed = failures("kubernetes, real", real::make, 4).await;
    assert!(failed.is_empty(), "{failed:#?}");
}
