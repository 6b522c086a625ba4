//! One suite for all orchestrators: every case runs on every implementation, and the numbers must be equal.

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code, reason = "shared with the tests of the client")]
#[path = "../cluster/mod.rs"]
mod cluster;
mod deleting;
mod harness;
mod kubernetes;
mod looking;
mod making;
mod memory;
mod process;
mod real;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures::StreamExt as _;
use harness::Harness;

/// A case: a sentence, and what must hold.
type Case = (&'static str, fn(Arc<dyn Harness>) -> Pin<Box<dyn Future<Output = ()> + Send>>);

/// Makes a place for one case.
type Make = fn() -> Arc<dyn Harness>;

/// Makes the table of a module's cases.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        &[$((stringify!($case), |harness| Box::pin($case(harness)))),*]
    };
}
pub(crate) use cases;

/// Records a case that passed: cargo names only the test that runs all of them, and `tests/run` checks that each test
/// that the guarantees name has passed.
fn record_passed(case: &str) {
    let Some(path) = std::env::var_os("EH_TEST_PASSED") else { return };
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    // One write for each line: several tests append at the same time.
    std::io::Write::write_all(&mut file, format!("{case}\n").as_bytes()).unwrap();
}

/// Runs all cases, each in a place of its own and so many at once; how many passed, and which did not.
async fn run(make: Make, at_once: usize) -> (usize, Vec<String>) {
    let (mut passed, mut failed) = (0, Vec::new());
    let cases = making::CASES.iter().chain(deleting::CASES).chain(looking::CASES);
    let run = |(name, case): &'static Case| async move { (name, tokio::spawn(case(make())).await) };
    let mut running = futures::stream::iter(cases.map(run)).buffer_unordered(at_once);
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

/// Runs all cases and answers those that failed, with the implementation's name.
async fn judge(name: &str, make: Make, at_once: usize) -> Vec<String> {
    let wanted = making::CASES.len() + deleting::CASES.len() + looking::CASES.len();
    let (passed, failed) = run(make, at_once).await;
    println!("orchestrator contract, {name}: {passed} passed, {} failed, of {wanted}", failed.len());
    assert_eq!(passed + failed.len(), wanted, "{name} did not run every case");
    failed.into_iter().map(|failed| format!("{name}: {failed}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_implementation_keeps_the_contract() {
    let implementations: [(&str, Make); 3] =
        [("memory", memory::make), ("process", process::make), ("kubernetes", kubernetes::make)];
    let mut all_failed = Vec::new();
    for (name, make) in implementations {
        all_failed.extend(judge(name, make, 1).await);
    }
    assert!(all_failed.is_empty(), "{all_failed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs EH_TEST_KUBECONFIG"]
async fn pods_at_a_real_api_server_keep_the_contract() {
    // Each case mostly waits for the server.
    let failed = judge("kubernetes, real", real::make, 4).await;
    assert!(failed.is_empty(), "{failed:#?}");
}
