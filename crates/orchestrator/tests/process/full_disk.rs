//! A full disk: an effect that cannot be recorded fails with the reason and leaves nothing behind, and succeeds again once
//! there is space.
//!
//! The full disk is simulated with a file size limit of zero (`RLIMIT_FSIZE`), so that every write to a file fails, also for
//! root. Each of these tests therefore runs in a separate process.

use std::fs;
use std::process::{Command, Stdio};

use model::cause::chain;
use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::{Error, Orchestrator};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use super::support::{EPOCH, LONG, TestDir, eventually, get, kill, name, pid, sleeper};

/// Set in the separate process.
const SEPARATE: &str = "ORCHESTRATOR_TEST_ALONE";

fn limit_file_size(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum }).unwrap();
}

fn assert_file_too_large(error: &Error) {
    assert!(error.is_retryable() && chain(error).to_string().contains("File too large"), "{error:?}");
}

#[tokio::test]
async fn effects_on_a_full_disk_fail_and_succeed_again_with_space() {
    if std::env::var_os(SEPARATE).is_none() {
        let test = "full_disk::effects_on_a_full_disk_fail_and_succeed_again_with_space";
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", test, "--nocapture"]).env(SEPARATE, "1").stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = alone.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
        return;
    }
    // With a handler, the write fails instead of killing the process.
    let _caught = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).unwrap();
    let limit = getrlimit(Resource::Fsize).current;
    let dir = TestDir::new();
    let process = dir.open();
    let one = process.ensure(&sleeper("one"), EPOCH).await.unwrap();
    let running = get(&process, "one").await.unwrap();
    limit_file_size(Some(0));
    let refused = process.ensure(&sleeper("two"), EPOCH).await;
    assert_file_too_large(&refused.unwrap_err());
    assert_eq!(fs::read_dir(dir.state().join("engines")).unwrap().count(), 1, "it left files behind");
    // A running engine is listed, and not ended half-way: its deletion cannot be recorded.
    assert_eq!(get(&process, "one").await, Some(running.clone()));
    let refused = process.delete(&running.name, &one.uid, LONG, EPOCH).await;
    assert_file_too_large(&refused.unwrap_err());
    assert_eq!(get(&process, "one").await.unwrap().phase, Phase::Running);
    // Its exit cannot be recorded either: it counts neither as present nor as gone.
    kill(pid(&running));
    eventually(&process, "one is unreadable", |listing| {
        listing.engines.is_empty() && listing.unreadable.iter().any(|entry| entry.reason.contains("File too large"))
    })
    .await;
    limit_file_size(limit);
    eventually(&process, "one has ended", |listing| listing.engines.iter().any(|engine| engine.phase == Phase::Ended))
        .await;
    let two = process.ensure(&sleeper("two"), EPOCH).await.unwrap();
    assert!(two.created);
    process.delete(&running.name, &one.uid, LONG, EPOCH).await.unwrap();
    process.delete(&name("two"), &two.uid, LONG, EPOCH).await.unwrap();
    eventually(&process, "both are gone", |listing| *listing == orchestrator::Listing::default()).await;
    assert_eq!(process.list(&LabelMap::new()).await.unwrap().engines.len(), 0);
}
