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

use super::place::{EPOCH, LONG, Place, eventually, get, kill, name, pid, shell, sleeper};

async fn look(place: &Place) -> Inspection {
    inspect(Config::new(place.state()), SystemClock::shared()).await.unwrap()
}

/// Every file with its content; a log may grow, so it is left out.
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
    assert!(seen.writable && !seen.read_only && seen.free_bytes > 0 && seen.free_bytes <= seen.total_bytes);
    let details = &seen.listing.engines[1].details;
    assert_eq!(details["process state"], "ended: exit code 3");
    assert_eq!(seen.listing.engines[0].details["process state"], "runs");
    // Nobody has written down how it ended: a look from outside does not do it either. (Its parent does, and is undone.)
    let one = get(&process, "one").await.unwrap();
    drop(process);
    kill(pid(&one));
    let exit = place.engine("one").join("exit.json");
    while !exit.exists() {
        tokio::task::yield_now().await;
    }
    fs::remove_file(&exit).unwrap();
    let before = files(&place.state());
    let seen = look(&place).await;
    assert_eq!(seen.listing.engines[0].details["process state"], "ended: ended when nobody watched");
    assert_eq!(seen.listing.engines[0].details[DETAIL_PID], one.details[DETAIL_PID]);
    assert_eq!(files(&place.state()), before, "a look has changed something");
    assert!(!exit.exists());
}

#[tokio::test]
async fn what_was_told_to_end_and_has_ended_is_told_and_not_taken_away() {
    let place = Place::new();
    let process = place.open();
    let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let one = get(&process, "one").await.unwrap();
    let mark = place.engine("one").join("ending.json");
    // The keeper of this process is stopped, so that nobody carries the deletion on.
    drop(process);
    fs::write(&mark, format!("{{\"asked_at_ms\": 1, \"asked_boottime_ms\": 1, \"grace_ms\": {}}}", LONG.as_millis()))
        .unwrap();
    kill(pid(&one));
    while look(&place).await.leftovers.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(look(&place).await.leftovers, ["one"]);
    assert!(place.engine("one").join("engine.json").exists());
    let process = place.open();
    assert!(!ensured.uid.is_empty() && process.get(&name("one")).await.unwrap().is_none());
    place.cleared(&process).await;
}

#[tokio::test]
async fn a_state_directory_that_is_not_there_is_refused_and_not_made() {
    let place = Place::new();
    let error = inspect(Config::new(place.state()), SystemClock::shared()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(!place.state().exists());
}
