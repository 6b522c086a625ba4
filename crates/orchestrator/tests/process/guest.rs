//! The engine's own side.

use std::fs;

use model::engine_state::Phase;
use orchestrator::Orchestrator;
use orchestrator::process::{Guest, still_wanted};

use super::support::{DEADLINE, EPOCH, TestDir, eventually, kill, name, pid, sleeper};

#[tokio::test]
async fn an_engine_is_wanted_while_its_record_exists() {
    let dir = TestDir::new();
    let process = dir.open();
    let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let wanted = |uid: &str| still_wanted(&dir.state(), &name("one"), uid);
    assert!(wanted(&ensured.uid));
    assert!(!wanted("another"));
    let record = dir.engine("one").join("engine.json");
    fs::write(&record, "half a recor").unwrap();
    assert!(wanted(&ensured.uid), "an unreadable record does not end the engine");
    fs::remove_file(&record).unwrap();
    assert!(!wanted(&ensured.uid));
    let guest = Guest::new(dir.engine("one"), ensured.uid);
    tokio::time::timeout(DEADLINE, guest.until_unwanted()).await.unwrap();
}

#[tokio::test]
async fn the_last_words_of_an_engine_become_its_reason() {
    let dir = TestDir::new();
    let process = dir.open();
    let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let guest = Guest::new(dir.engine("one"), ensured.uid);
    guest.leave_reason("the warm-up query failed").unwrap();
    guest.leave_reason("the engine process has died").unwrap();
    kill(pid(&process.get(&name("one"), None).await.unwrap().unwrap()));
    let listing = eventually(&process, "one has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
    assert_eq!(listing.engines[0].reason.as_deref(), Some("the engine process has died (killed by signal 9)"));
}
