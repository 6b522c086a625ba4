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

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

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

/// Runs all cases, each in a place of its own; how many passed, and which did not.
async fn run(make: Make) -> (usize, Vec<String>) {
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, case) in making::CASES.iter().chain(deleting::CASES).chain(looking::CASES) {
        match tokio::spawn(case(make())).await {
            Ok(()) => passed += 1,
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    (passed, failed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_implementation_keeps_the_contract() {
    let wanted = making::CASES.len() + deleting::CASES.len() + looking::CASES.len();
    let implementations: [(&str, Make); 3] =
        [("memory", memory::make), ("process", process::make), ("kubernetes", kubernetes::make)];
    let mut all_failed = Vec::new();
    for (name, make) in implementations {
        let (passed, failed) = run(make).await;
        println!("orchestrator contract, {name}: {passed} passed, {} failed, of {wanted}", failed.len());
        assert_eq!(passed + failed.len(), wanted, "{name} did not run every case");
        all_failed.extend(failed.into_iter().map(|failed| format!("{name}: {failed}")));
    }
    assert!(all_failed.is_empty(), "{all_failed:#?}");
}
