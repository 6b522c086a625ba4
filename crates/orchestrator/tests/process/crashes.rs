//! A process is killed at every failpoint; another one on the same directory must find a state that it can go on from.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::{Observed, Orchestrator, failpoints};

use super::place::{DEADLINE, EPOCH, LONG, Place, eventually, get, lives, name, open, pid, sleeper};

/// Tells the test below that it is the process that shall die: where, and at which failpoint.
const STATE: &str = "ORCHESTRATOR_TEST_CRASH_IN";
const POINT: &str = "ORCHESTRATOR_TEST_CRASH_AT";

/// The points of the crate that processes pass.
fn points() -> impl Iterator<Item = &'static &'static str> {
    failpoints::ALL.iter().filter(|point| **point != failpoints::NAMESPACE_MADE)
}

/// By itself, a test that the walk passes every failpoint of the crate. With the variables set, the process that
/// [`a_crash_at_any_point_leaves_what_another_can_go_on_from`] lets die on that walk.
#[tokio::test]
async fn a_walk_passes_every_failpoint() {
    let scenario = fail::FailScenario::setup();
    let place = Place::new();
    let state = std::env::var_os(STATE).map_or(place.state(), |given| Path::new(&given).to_owned());
    let passed = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    for point in points() {
        let passed = std::sync::Arc::clone(&passed);
        let deadly = std::env::var(POINT).is_ok_and(|wanted| wanted == *point);
        fail::cfg_callback(*point, move || {
            if deadly {
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
    // The keeper passes the last ones.
    let walk = async {
        while !missing().is_empty() {
            process.list(&LabelMap::new()).await.unwrap();
        }
    };
    let walked = tokio::time::timeout(DEADLINE, walk).await;
    scenario.teardown();
    assert!(walked.is_ok(), "not passed: {:?}", missing());
}

#[tokio::test]
async fn a_crash_at_any_point_leaves_what_another_can_go_on_from() {
    for point in points() {
        let place = Place::new();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crashes::a_walk_passes_every_failpoint", "--nocapture"])
            .env(STATE, place.state())
            .env(POINT, point)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(!status.success(), "it must die at {point}");
        let process = place.open();
        let found = get(&process, "one").await;
        check(point, found.as_ref());
        if let Some(found) = &found {
            // Its end may have been asked for already; asking again is always right.
            process.delete(&found.name, &found.uid, LONG, EPOCH).await.unwrap();
        }
        eventually(&process, &format!("one is gone after {point}"), |listing| listing.engines.is_empty()).await;
        if let Some(pid) = found.as_ref().filter(|it| it.phase != Phase::Ended).map(pid) {
            assert!(!lives(pid), "{point} left a process");
        }
        // The name can be used, so nothing is left in its way, and a look clears what is hidden.
        let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
        assert!(ensured.created, "{point}");
        process.delete(&name("one"), &ensured.uid, Duration::ZERO, EPOCH).await.unwrap();
        eventually(&process, "one is gone", |listing| listing.engines.is_empty()).await;
        place.cleared(&process).await;
    }
}

/// What must be there after a crash at the point.
fn check(point: &str, found: Option<&Observed>) {
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
        // It may have obeyed already.
        failpoints::DELETE_SIGNALLED => assert!(matches!(phase, None | Some(Phase::Terminating)), "{point}: {phase:?}"),
        other => panic!("what must hold after {other}?"),
    }
}
