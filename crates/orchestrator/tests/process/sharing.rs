//! Several processes on one directory, the death of the process that started an engine, and foreign entries.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::{Deleted, Error, Orchestrator};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::support::{DEADLINE, EPOCH, LONG, TestDir, eventually, get, is_alive, kill, name, open, pid, sleeper, stat};

/// Set in the parent process that is killed: its state directory.
const PARENT_OF: &str = "ORCHESTRATOR_TEST_PARENT_OF";

/// By itself, a test that a process can start an engine and end it. With the variable set, the process that
/// [`kill_of_the_parent_leaves_its_engines`] kills: it starts the engine, reports it, and waits to be killed.
#[tokio::test]
async fn a_parent_starts_an_engine() {
    let given = std::env::var_os(PARENT_OF);
    let dir = TestDir::new();
    let state = given.as_ref().map_or(dir.state(), |given| Path::new(given).to_owned());
    let process = open(&state);
    let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    assert!(ensured.created);
    if given.is_some() {
        println!("\nstarted");
        std::future::pending::<()>().await;
    }
    process.delete(&name("one"), &ensured.uid, LONG, EPOCH).await.unwrap();
    eventually(&process, "one is gone", |listing| listing.engines.is_empty()).await;
}

/// A process that has started the engine `one` and waits to be killed.
pub fn parent_of(dir: &TestDir) -> Child {
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sharing::a_parent_starts_an_engine", "--nocapture"])
        .env(PARENT_OF, dir.state())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "started"));
    parent
}

#[tokio::test]
async fn kill_of_the_parent_leaves_its_engines() {
    let dir = TestDir::new();
    let mut parent = parent_of(&dir);
    let process = dir.open();
    let before = get(&process, "one").await.unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    let after = get(&process, "one").await.unwrap();
    assert_eq!((after.phase, &after), (Phase::Running, &before));
    // Adopted, watched and deleted by a process that is not its parent.
    let again = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    assert_eq!((&again.uid, again.created), (&before.uid, false));
    assert_eq!(process.delete(&before.name, &before.uid, LONG, EPOCH).await, Ok(Deleted::Terminating));
    eventually(&process, "one is gone", |listing| listing.engines.is_empty()).await;
    assert!(!is_alive(pid(&before)));
}

#[tokio::test]
async fn the_exit_of_an_adopted_engine_is_noticed() {
    let dir = TestDir::new();
    let mut parent = parent_of(&dir);
    parent.kill().unwrap();
    parent.wait().unwrap();
    let process = dir.open();
    kill(pid(&get(&process, "one").await.unwrap()));
    let listing = eventually(&process, "one has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
    let exit = listing.engines[0].exit.clone().unwrap();
    assert_eq!((exit.code, exit.signal), (None, None));
    // Every later read reports the time at which it was noticed first.
    assert_eq!(get(&dir.open(), "one").await.unwrap().exit, Some(exit));
}

#[tokio::test]
async fn a_zombie_is_an_ended_engine() {
    let dir = TestDir::new();
    let mut parent = parent_of(&dir);
    // A stopped parent does not reap its children.
    kill_process(Pid::from_child(&parent), Signal::STOP).unwrap();
    let (_, status) = waitpid(Some(Pid::from_child(&parent)), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    let process = dir.open();
    let pid = pid(&get(&process, "one").await.unwrap());
    kill(pid);
    let dying = async {
        while stat(pid).unwrap().0 != 'Z' {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, dying).await.unwrap();
    assert_eq!(get(&process, "one").await.unwrap().phase, Phase::Ended);
    assert_eq!(stat(pid).unwrap().0, 'Z');
    parent.kill().unwrap();
    parent.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_racing_instances_create_each_engine_once() {
    let dir = TestDir::new();
    let (one, other) = (dir.open(), dir.open());
    let mut created = 0;
    for engine in 0..10 {
        let spec = sleeper(&format!("engine-{engine}"));
        let (first, second) = tokio::join!(one.ensure(&spec, EPOCH), other.ensure(&spec, EPOCH));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(first.uid, second.uid);
        created += usize::from(first.created) + usize::from(second.created);
    }
    let listing = one.list(&LabelMap::new()).await.unwrap();
    assert_eq!((created, listing.engines.len()), (10, 10));
    assert_eq!(listing, other.list(&LabelMap::new()).await.unwrap());
}

#[tokio::test]
async fn damaged_and_foreign_entries_are_reported_and_hide_nothing() {
    let dir = TestDir::new();
    let process = dir.open();
    let ensured = process.ensure(&sleeper("good"), EPOCH).await.unwrap();
    let damaged = process.ensure(&sleeper("damaged"), EPOCH).await.unwrap();
    let record = dir.engine("damaged").join("engine.json");
    let text = fs::read(&record).unwrap();
    fs::write(&record, &text[..text.len() / 2]).unwrap();
    fs::write(dir.engine("a-file"), "hello").unwrap();
    fs::create_dir(dir.engine("Empty_Dir")).unwrap();
    fs::create_dir(dir.engine("other")).unwrap();
    fs::copy(dir.engine("good").join("engine.json"), dir.engine("other").join("engine.json")).unwrap();
    let listing = process.list(&LabelMap::new()).await.unwrap();
    assert_eq!(listing.engines.iter().map(|engine| &engine.uid).collect::<Vec<_>>(), [&ensured.uid]);
    let mut names: Vec<&str> = listing.unreadable.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["Empty_Dir", "a-file", "damaged", "other"]);
    // Neither present nor vanished: it is neither created again nor deleted, and it can be repaired.
    assert!(matches!(process.get(&name("damaged"), None).await, Err(Error::Unreadable { .. })));
    assert!(matches!(process.ensure(&sleeper("damaged"), EPOCH).await, Err(Error::Conflict { .. })));
    let refused = process.delete(&name("damaged"), &damaged.uid, LONG, EPOCH).await;
    assert!(matches!(refused, Err(Error::Unreadable { .. })), "{refused:?}");
    fs::write(&record, &text).unwrap();
    assert_eq!(get(&process, "damaged").await.unwrap().uid, damaged.uid);
}

#[tokio::test]
async fn a_truncated_exit_record_does_not_hide_an_exit() {
    let dir = TestDir::new();
    let process = dir.open();
    process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    kill(pid(&get(&process, "one").await.unwrap()));
    eventually(&process, "one has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
    // As a power loss leaves a file that was not synced.
    fs::write(dir.engine("one").join("exit.json"), "").unwrap();
    let ended = get(&process, "one").await.unwrap();
    let exit = ended.exit.unwrap();
    assert_eq!((ended.phase, exit.code, exit.signal), (Phase::Ended, None, None));
}

#[tokio::test]
async fn an_editor_that_replaces_the_file_does_not_end_the_engine() {
    let dir = TestDir::new();
    let process = dir.open();
    process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let record = dir.engine("one").join("engine.json");
    let copy = dir.engine("one").join("engine.json.new");
    fs::write(&copy, fs::read_to_string(&record).unwrap().replace("\"test\"", "\"edited\"")).unwrap();
    fs::rename(&copy, &record).unwrap();
    let engine = get(&process, "one").await.unwrap();
    assert_eq!(engine.phase, Phase::Running);
    assert_eq!(engine.labels.get(model::labels::CLUSTER).map(String::as_str), Some("edited"));
}
