//! Several processes on one directory, the death of those that made engines, and what is foreign in it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::{Deleted, Error, Orchestrator};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::place::{DEADLINE, EPOCH, LONG, Place, eventually, get, kill, lives, name, open, pid, sleeper, stat};

/// Tells the test below that it is the parent that shall be killed, and where.
const PARENT_OF: &str = "ORCHESTRATOR_TEST_PARENT_OF";

/// By itself, a test that a process can make an engine and end it. With the variable set, the process that
/// [`kill_of_the_parent_leaves_its_engines`] kills: it makes the engine, says so, and waits for its death.
#[tokio::test]
async fn a_parent_makes_an_engine() {
    let given = std::env::var_os(PARENT_OF);
    let place = Place::new();
    let state = given.as_ref().map_or(place.state(), |given| Path::new(given).to_owned());
    let process = open(&state);
    let ensured = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    assert!(ensured.created);
    if given.is_some() {
        println!("\nmade");
        std::future::pending::<()>().await;
    }
    process.delete(&name("one"), &ensured.uid, LONG, EPOCH).await.unwrap();
    eventually(&process, "one is gone", |listing| listing.engines.is_empty()).await;
}

/// A process that has made the engine `one` in the place and waits for its death.
pub fn parent_of(place: &Place) -> Child {
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sharing::a_parent_makes_an_engine", "--nocapture"])
        .env(PARENT_OF, place.state())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "made"));
    parent
}

#[tokio::test]
async fn kill_of_the_parent_leaves_its_engines() {
    let place = Place::new();
    let mut parent = parent_of(&place);
    let process = place.open();
    let before = get(&process, "one").await.unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    let after = get(&process, "one").await.unwrap();
    assert_eq!((after.phase, &after), (Phase::Running, &before));
    // Adopted, watched and deleted by somebody whose child it is not.
    let again = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    assert_eq!((&again.uid, again.created), (&before.uid, false));
    assert_eq!(process.delete(&before.name, &before.uid, LONG, EPOCH).await, Ok(Deleted::Terminating));
    eventually(&process, "one is gone", |listing| listing.engines.is_empty()).await;
    assert!(!lives(pid(&before)));
}

#[tokio::test]
async fn the_end_of_an_engine_that_is_nobodys_child_is_noticed() {
    let place = Place::new();
    let mut parent = parent_of(&place);
    parent.kill().unwrap();
    parent.wait().unwrap();
    let process = place.open();
    kill(pid(&get(&process, "one").await.unwrap()));
    let listing = eventually(&process, "one has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
    let exit = listing.engines[0].exit.clone().unwrap();
    assert_eq!((exit.code, exit.signal), (None, None));
    // When it was noticed stays what it was, whoever looks.
    assert_eq!(get(&place.open(), "one").await.unwrap().exit, Some(exit));
}

#[tokio::test]
async fn a_zombie_is_an_ended_engine() {
    let place = Place::new();
    let mut parent = parent_of(&place);
    // A parent that is stopped waits for no child.
    kill_process(Pid::from_child(&parent), Signal::STOP).unwrap();
    let (_, status) = waitpid(Some(Pid::from_child(&parent)), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    let process = place.open();
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
async fn two_instances_racing_for_many_names_make_each_once() {
    let place = Place::new();
    let (one, other) = (place.open(), place.open());
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
async fn what_is_damaged_or_foreign_is_reported_and_hides_nothing() {
    let place = Place::new();
    let process = place.open();
    let ensured = process.ensure(&sleeper("good"), EPOCH).await.unwrap();
    let damaged = process.ensure(&sleeper("damaged"), EPOCH).await.unwrap();
    let record = place.engine("damaged").join("engine.json");
    let text = fs::read(&record).unwrap();
    fs::write(&record, &text[..text.len() / 2]).unwrap();
    fs::write(place.engine("a-file"), "hello").unwrap();
    fs::create_dir(place.engine("Empty_Dir")).unwrap();
    fs::create_dir(place.engine("other")).unwrap();
    fs::copy(place.engine("good").join("engine.json"), place.engine("other").join("engine.json")).unwrap();
    let listing = process.list(&LabelMap::new()).await.unwrap();
    assert_eq!(listing.engines.iter().map(|it| &it.uid).collect::<Vec<_>>(), [&ensured.uid]);
    let mut names: Vec<&str> = listing.unreadable.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["Empty_Dir", "a-file", "damaged", "other"]);
    // Neither present nor vanished: it is not made again, not deleted, and it can be repaired.
    assert!(matches!(process.get(&name("damaged")).await, Err(Error::Unreadable { .. })));
    assert!(matches!(process.ensure(&sleeper("damaged"), EPOCH).await, Err(Error::Conflict { .. })));
    let refused = process.delete(&name("damaged"), &damaged.uid, LONG, EPOCH).await;
    assert!(matches!(refused, Err(Error::Unreadable { .. })), "{refused:?}");
    fs::write(&record, &text).unwrap();
    assert_eq!(get(&process, "damaged").await.unwrap().uid, damaged.uid);
}

#[tokio::test]
async fn an_exit_that_was_cut_short_hides_no_death() {
    let place = Place::new();
    let process = place.open();
    process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    kill(pid(&get(&process, "one").await.unwrap()));
    eventually(&process, "one has ended", |listing| listing.engines[0].phase == Phase::Ended).await;
    // As a machine that goes down leaves a file that it had not written yet.
    fs::write(place.engine("one").join("exit.json"), "").unwrap();
    let ended = get(&process, "one").await.unwrap();
    let exit = ended.exit.unwrap();
    assert_eq!((ended.phase, exit.code, exit.signal), (Phase::Ended, None, None));
}

#[tokio::test]
async fn an_editor_that_replaces_the_file_does_not_end_the_engine() {
    let place = Place::new();
    let process = place.open();
    process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let record = place.engine("one").join("engine.json");
    let copy = place.engine("one").join("engine.json.new");
    fs::write(&copy, fs::read_to_string(&record).unwrap().replace("\"test\"", "\"edited\"")).unwrap();
    fs::rename(&copy, &record).unwrap();
    let engine = get(&process, "one").await.unwrap();
    assert_eq!(engine.phase, Phase::Running);
    assert_eq!(engine.labels.get(model::labels::CLUSTER).map(String::as_str), Some("edited"));
}
