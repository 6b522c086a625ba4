//! The read-only diagnosis of a state directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use model::Epoch;
use model::clock::SystemClock;
use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::observed::DETAIL_PID;
use orchestrator::process::{Config, StateDirDiagnosis, diagnose};
use orchestrator::{Error, Orchestrator};

use super::sharing::parent_of;
use super::support::{DEADLINE, EPOCH, LONG, TestDir, eventually, kill, name, pid, shell, sleeper};

async fn diagnosis(dir: &TestDir) -> StateDirDiagnosis {
    diagnose(Config::new(dir.state()), SystemClock::shared()).await.unwrap()
}

/// Starts the engine `one` and kills its parent: no keeper reads the directory, and no process waits for its exit.
fn orphaned(dir: &TestDir) {
    let mut parent = parent_of(dir);
    parent.kill().unwrap();
    parent.wait().unwrap();
}

/// Polls until the condition holds: a diagnosis has no wake-ups.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let polling = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, polling).await.is_ok(), "not within {DEADLINE:?}: {what}");
}

/// Every file with its content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            found.append(&mut files(&entry.path()));
        } else {
            found.insert(entry.path(), fs::read(entry.path()).unwrap());
        }
    }
    found
}

#[tokio::test]
async fn a_diagnosis_agrees_with_a_listing_and_changes_nothing() {
    let dir = TestDir::new();
    let process = dir.open();
    process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    process.ensure(&shell("two", "exit 3"), Epoch(7)).await.unwrap();
    eventually(&process, "two has ended", |listing| listing.engines[1].phase == Phase::Ended).await;
    let listed = process.list(&LabelMap::new()).await.unwrap();
    let found = diagnosis(&dir).await;
    assert_eq!(found.listing, listed);
    assert_eq!((found.epoch, found.leftovers.len(), found.hidden), (Some(Epoch(7)), 0, 0));
    let disk = found.disk;
    assert!(found.writable && !disk.read_only && disk.free_bytes > 0 && disk.free_bytes <= disk.total_bytes);
    let details = &found.listing.engines[1].details;
    assert_eq!(details["process state"], "ended: exit code 3");
    assert_eq!(found.listing.engines[0].details["process state"], "running");
}

#[tokio::test]
async fn a_diagnosis_does_not_record_an_exit() {
    let dir = TestDir::new();
    orphaned(&dir);
    let one = diagnosis(&dir).await.listing.engines.remove(0);
    kill(pid(&one));
    until("it has ended", async || diagnosis(&dir).await.listing.engines[0].phase == Phase::Ended).await;
    let before = files(&dir.state());
    let found = diagnosis(&dir).await;
    assert_eq!(found.listing.engines[0].details["process state"], "ended: exit status unknown");
    assert_eq!(found.listing.engines[0].details[DETAIL_PID], one.details[DETAIL_PID]);
    assert_eq!(files(&dir.state()), before, "a diagnosis changed a file");
    assert!(!dir.engine("one").join("exit.json").exists());
}

#[tokio::test]
async fn a_deleted_engine_that_is_dead_is_reported_and_not_removed() {
    let dir = TestDir::new();
    orphaned(&dir);
    let one = diagnosis(&dir).await.listing.engines.remove(0);
    let deletion = dir.engine("one").join("ending.json");
    fs::write(
        &deletion,
        format!("{{\"asked_at_ms\": 1, \"asked_boottime_ms\": 1, \"grace_ms\": {}}}", LONG.as_millis()),
    )
    .unwrap();
    kill(pid(&one));
    until("it is a leftover", async || diagnosis(&dir).await.leftovers == ["one"]).await;
    assert!(dir.engine("one").join("engine.json").exists());
    let process = dir.open();
    assert!(process.get(&name("one"), None).await.unwrap().is_none());
    dir.cleared(&process).await;
}

#[tokio::test]
async fn a_missing_state_directory_is_refused_and_not_created() {
    let dir = TestDir::new();
    let error = diagnose(Config::new(dir.state()), SystemClock::shared()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(!dir.state().exists());
}
