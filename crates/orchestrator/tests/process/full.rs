//! A disk that takes nothing more: what can't be written down is refused with the reason and leaves nothing, and goes on
//! when there is room.
//!
//! In place of the disk, the process may make no file longer than nothing (`RLIMIT_FSIZE`): every write to a file fails, for
//! root too. So each of these tests runs in a process of its own.

use std::fs;
use std::process::{Command, Stdio};

use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::{Error, Orchestrator};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use super::place::{EPOCH, LONG, Place, eventually, get, kill, name, pid, sleeper};

/// Tells the test below that it has its process to itself.
const ALONE: &str = "ORCHESTRATOR_TEST_ALONE";

fn may_write(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum }).unwrap();
}

#[tokio::test]
async fn what_can_not_be_written_down_is_refused_and_goes_on_when_there_is_room() {
    if std::env::var_os(ALONE).is_none() {
        let test = "full::what_can_not_be_written_down_is_refused_and_goes_on_when_there_is_room";
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", test, "--nocapture"]).env(ALONE, "1").stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = alone.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    // Caught, it is the write that fails, and not the process.
    let _caught = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).unwrap();
    let room = getrlimit(Resource::Fsize).current;
    let place = Place::new();
    let process = place.open();
    let one = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let running = get(&process, "one").await.unwrap();
    may_write(Some(0));
    let refused = process.ensure(&sleeper("two"), EPOCH).await;
    assert!(matches!(&refused, Err(Error::Transient { reason }) if reason.contains("File too large")), "{refused:?}");
    assert_eq!(fs::read_dir(place.state().join("engines")).unwrap().count(), 1, "it has left something");
    // What runs is seen, and not ended half-way: that it must end can't be written down.
    assert_eq!(get(&process, "one").await, Some(running.clone()));
    let refused = process.delete(&running.name, &one.uid, LONG, EPOCH).await;
    assert!(matches!(&refused, Err(Error::Transient { reason }) if reason.contains("File too large")), "{refused:?}");
    assert_eq!(get(&process, "one").await.unwrap().phase, Phase::Running);
    // That it has ended can't be written down either: it is neither there nor gone.
    kill(pid(&running));
    eventually(&process, "one can't be read", |listing| {
        listing.engines.is_empty() && listing.unreadable.iter().any(|it| it.reason.contains("File too large"))
    })
    .await;
    may_write(room);
    eventually(&process, "one has ended", |listing| listing.engines.iter().any(|it| it.phase == Phase::Ended)).await;
    let two = process.ensure(&sleeper("two"), EPOCH).await.unwrap();
    assert!(two.created);
    process.delete(&running.name, &one.uid, LONG, EPOCH).await.unwrap();
    process.delete(&name("two"), &two.uid, LONG, EPOCH).await.unwrap();
    eventually(&process, "both are gone", |listing| *listing == orchestrator::Listing::default()).await;
    assert_eq!(process.list(&LabelMap::new()).await.unwrap().engines.len(), 0);
}
