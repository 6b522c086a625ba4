//! The engine's own side.

use std::fs;

use model::engine_state::Phase;
use orchestrator::Orchestrator;
use orchestrator::process::{Inside, still_wanted};

use super::place::{DEADLINE, EPOCH, Place, eventually, kill, name, pid, sleeper};

#[tokio::test]
async fn an_engine_is_wanted_as_long_as_its_file_is_there() {
    let place = Place::new();
    let process = place.open();
    let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let wanted = |uid: &str| still_wanted(&place.state(), &name("one"), uid);
    assert!(wanted(&ensured.uid));
    assert!(!wanted("another"));
    let record = place.engine("one").join("engine.json");
    fs::write(&record, "half of somethi").unwrap();
    assert!(wanted(&ensured.uid), "what can't be read is no order to end");
    fs::remove_file(&record).unwrap();
    assert!(!wanted(&ensured.uid));
    let inside = Inside::new(place.engine("one"), ensured.uid);
    tokio::time::timeout(DEADLINE, inside.until_unwanted()).await.unwrap();
}

#[tokio::test]
async fn the_last_words_of_an_engine_are_the_reason_of_its_end() {
    let place = Place::new();
    let process = place.open();
    let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let inside = Inside::new(place.engine("one"), ensured.uid);
    inside.leave_reason("the warm-up query was not answered").unwrap();
    inside.leave_reason("the engine behind it has died").unwrap();
    kill(pid(&process.get(&name("one")).await.unwrap().unwrap()));
    let listing = eventually(&process, "one has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
    assert_eq!(listing.engines[0].reason.as_deref(), Some("the engine behind it has died (killed by signal 9)"));
}
