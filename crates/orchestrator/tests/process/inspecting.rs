//! A look from outside, by somebody who is no candidate for master.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use model::Epoch;
use model::clock::SystemClock;
use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::observed::DETAIL_PID;
use orchestrator::process::{Config, Inspection, inspect};
use orchestrator::{Error, Orchestrator};

use super::place::{DEADLINE, EPOCH, LONG, Place, eventually, kill, name, pid, shell, sleeper};
use super::sharing::parent_of;

async fn look(place: &Place) -> Inspection {
    inspect(Config::new(place.state()), SystemClock::shared()).await.unwrap()
}

/// Makes the engine `one` whose maker is dead: no keeper looks after it, and nobody waits for its end.
fn orphaned(place: &Place) {
    let mut parent = parent_of(place);
    parent.kill().unwrap();
    parent.wait().unwrap();
}

/// Asks until the answer is yes; nobody tells somebody who only looks.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let asking = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, asking).await.is_ok(), "not within {DEADLINE:?}: {what}");
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
async fn an_inspection_sees_what_a_candidate_sees_and_leaves_everything_as_it_was() {
    let place = Place::new();
    let process = place.open();
    process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    process.ensure(&shell("two", "exit 3"), Epoch(7)).await.unwrap();
    eventually(&process, "two has ended", |listing| listing.engines[1].phase == Phase::Ended).await;
    let listed = process.list(&LabelMap::new()).await.unwrap();
    let seen = look(&place).await;
    assert_eq!(seen.listing, listed);
    assert_eq!((seen.epoch, seen.leftovers.len(), seen.hidden), (Some(Epoch(7)), 0, 0));
    let disk = seen.disk;
    assert!(seen.writable && !disk.read_only && disk.free_bytes > 0 && disk.free_bytes <= disk.total_bytes);
    let details = &seen.listing.engines[1].details;
    assert_eq!(details["process state"], "ended: exit code 3");
    assert_eq!(seen.listing.engines[0].details["process state"], "runs");
}

#[tokio::test]
async fn nobody_has_written_down_how_an_engine_ended_and_neither_does_a_look_from_outside() {
    let place = Place::new();
    orphaned(&place);
    let one = look(&place).await.listing.engines.remove(0);
    kill(pid(&one));
    until("it has ended", async || look(&place).await.listing.engines[0].phase == Phase::Ended).await;
    let before = files(&place.state());
    let seen = look(&place).await;
    assert_eq!(seen.listing.engines[0].details["process state"], "ended: ended when nobody watched");
    assert_eq!(seen.listing.engines[0].details[DETAIL_PID], one.details[DETAIL_PID]);
    assert_eq!(files(&place.state()), before, "a look has changed something");
    assert!(!place.engine("one").join("exit.json").exists());
}

#[tokio::test]
async fn what_was_told_to_end_and_has_ended_is_told_and_not_taken_away() {
    let place = Place::new();
    orphaned(&place);
    let one = look(&place).await.listing.engines.remove(0);
    let mark = place.engine("one").join("ending.json");
    fs::write(&mark, format!("{{\"asked_at_ms\": 1, \"asked_boottime_ms\": 1, \"grace_ms\": {}}}", LONG.as_millis()))
        .unwrap();
    kill(pid(&one));
    until("it is a leftover", async || look(&place).await.leftovers == ["one"]).await;
    assert!(place.engine("one").join("engine.json").exists());
    let process = place.open();
    assert!(process.get(&name("one")).await.unwrap().is_none());
    place.cleared(&process).await;
}

#[tokio::test]
async fn a_state_directory_that_is_not_there_is_refused_and_not_made() {
    let place = Place::new();
    let error = inspect(Config::new(place.state()), SystemClock::shared()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(!place.state().exists());
}
