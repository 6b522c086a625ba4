//! Crashes at every failpoint: another process on the same directory must be able to continue.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::{ObservedInstance, Orchestrator, failpoints};

use super::support::{DEADLINE, EPOCH, LONG, TestDir, eventually, get, is_alive, name, open, pid, sleeper};

/// Set in the process that crashes: its state directory, and the failpoint.
const STATE: &str = "ORCHESTRATOR_TEST_CRASH_IN";
const POINT: &str = "ORCHESTRATOR_TEST_CRASH_AT";

/// The failpoints of the crate that local processes pass.
fn points() -> impl Iterator<Item = &'static &'static str> {
    failpoints::ALL.iter().filter(|point| **point != failpoints::NAMESPACE_MADE)
}

/// By itself, a test that the life of an engine passes every failpoint of the crate. With the variables set, the process
/// that [`a_crash_at_any_failpoint_leaves_a_usable_state`] lets crash.
#[tokio::test]
async fn an_engines_life_passes_every_failpoint() {
    let scenario = fail::FailScenario::setup();
    let dir = TestDir::new();
    let state = std::env::var_os(STATE).map_or(dir.state(), |given| Path::new(&given).to_owned());
    let passed = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    for point in points() {
        let passed = std::sync::Arc::clone(&passed);
        let crashes = std::env::var(POINT).is_ok_and(|name| name == *point);
        fail::cfg_callback(*point, move || {
            if crashes {
                std::process::abort();
            }
            passed.lock().push(*point);
        })
        .unwrap();
    }
    let process = open(&state);
    let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    process.delete(&name("one"), &ensured.uid, LONG, EPOCH).await.unwrap();
    let missing = || {
        let passed = passed.lock();
        points().filter(|point| !passed.contains(point)).copied().collect::<Vec<_>>()
    };
    // Upkeep passes the last ones.
    let upkeep = async {
        while !missing().is_empty() {
            process.list(&LabelMap::new()).await.unwrap();
        }
    };
    let passed_all = tokio::time::timeout(DEADLINE, upkeep).await;
    scenario.teardown();
    assert!(passed_all.is_ok(), "not passed: {:?}", missing());
}

#[tokio::test]
async fn a_crash_at_any_failpoint_leaves_a_usable_state() {
    for point in points() {
        let dir = TestDir::new();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crashes::an_engines_life_passes_every_failpoint", "--nocapture"])
            .env(STATE, dir.state())
            .env(POINT, point)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(!status.success(), "it must crash at {point}");
        let process = dir.open();
        let found = get(&process, "one").await;
        check(point, found.as_ref());
        if let Some(found) = &found {
            // Its deletion may have been requested already; requesting it again is harmless.
            process.delete(&found.name, &found.uid, LONG, EPOCH).await.unwrap();
        }
        eventually(&process, &format!("one is gone after {point}"), |listing| listing.engines.is_empty()).await;
        if let Some(pid) = found.as_ref().filter(|engine| engine.phase != Phase::Ended).map(pid) {
            assert!(!is_alive(pid), "{point} left a process");
        }
        // The name can be taken again, and the next read clears hidden directories.
        let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
        assert!(ensured.created, "{point}");
        process.delete(&name("one"), &ensured.uid, Duration::ZERO, EPOCH).await.unwrap();
        eventually(&process, "one is gone", |listing| listing.engines.is_empty()).await;
        dir.cleared(&process).await;
    }
}

/// Checks the state after a crash at the failpoint.
fn check(point: &str, found: Option<&ObservedInstance>) {
    let phase = found.map(|found| found.phase);
    match point {
        failpoints::ENSURE_BEGUN | failpoints::ENSURE_ADMITTED | failpoints::REMOVE_RENAMED => {
            assert_eq!(phase, None, "{point}");
        }
        failpoints::ENSURE_PLACED => {
            assert_eq!(phase, Some(Phase::Ended), "{point}");
            assert!(found.unwrap().reason.as_deref().unwrap().contains("never started"), "{found:?}");
        }
        failpoints::ENSURE_SPAWNED
        | failpoints::ENSURE_RECORDED
        | failpoints::DELETE_BEGUN
        | failpoints::DELETE_ADMITTED => {
            assert_eq!(phase, Some(Phase::Running), "{point}");
        }
        failpoints::DELETE_MARKED => assert_eq!(phase, Some(Phase::Terminating), "{point}"),
        // It may have ended already.
        failpoints::DELETE_SIGNALLED => assert!(matches!(phase, None | Some(Phase::Terminating)), "{point}: {phase:?}"),
        other => panic!("no expectation for {other}"),
    }
}
