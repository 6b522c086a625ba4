//! Test support: a temporary state directory, whose engines are killed when it is dropped, and specs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::clock::SystemClock;
use model::labels::{self, LabelMap};
use model::{EngineName, Epoch};
use orchestrator::observed::DETAIL_PID;
use orchestrator::process::{Config, Process};
use orchestrator::{Listing, ObservedInstance, Orchestrator, Spec};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The limit of every wait of a test.
pub const DEADLINE: Duration = Duration::from_secs(20);
/// The epoch of tests that do not depend on it.
pub const EPOCH: Epoch = Epoch(1);
/// A grace that no test waits for.
pub const LONG: Duration = Duration::from_hours(1);

pub struct TestDir {
    directory: tempfile::TempDir,
}

impl TestDir {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub fn engine(&self, name: &str) -> PathBuf {
        self.state().join("engines").join(name)
    }

    pub fn open(&self) -> Process {
        open(&self.state())
    }

    /// Lists until no file of any engine is left; upkeep removes them.
    pub async fn cleared(&self, process: &Process) {
        let left = || fs::read_dir(self.state().join("engines")).unwrap().flatten().map(|entry| entry.path());
        let clearing = async {
            while left().count() > 0 {
                process.list(&LabelMap::new()).await.unwrap();
            }
        };
        let cleared = tokio::time::timeout(DEADLINE, clearing).await;
        assert!(cleared.is_ok(), "left: {:?}", left().collect::<Vec<_>>());
    }
}

pub fn open(state: &Path) -> Process {
    Process::open(Config::new(state), SystemClock::shared()).unwrap()
}

impl Drop for TestDir {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.state().join("engines")).into_iter().flatten().flatten() {
            if let Some(pid) = recorded_pid(&entry.path()) {
                // It may have ended already, or have no process group yet.
                let _ = kill_process_group(Pid::from_raw(pid).unwrap(), Signal::KILL);
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            }
        }
    }
}

/// The pid that is recorded in the directory of an engine.
pub fn recorded_pid(directory: &Path) -> Option<i32> {
    let process: serde_json::Value = serde_json::from_slice(&fs::read(directory.join("process.json")).ok()?).ok()?;
    Some(process["pid"].as_i64()? as i32)
}

pub fn name(text: &str) -> EngineName {
    EngineName::new(text).unwrap()
}

pub fn spec(text: &str, argv: &[&str]) -> Spec {
    let mut labels = labels::selector("test");
    labels.insert(labels::NAME.to_owned(), text.to_owned());
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    Spec { labels, grace: LONG, ..Spec::new(name(text), argv) }
}

/// An engine that does nothing until it is asked to end.
pub fn sleeper(text: &str) -> Spec {
    spec(text, &["/bin/sleep", "1000"])
}

pub fn shell(text: &str, script: &str) -> Spec {
    spec(text, &["/bin/sh", "-c", script])
}

/// Lists after every wake-up until the condition holds.
pub async fn eventually(process: &Process, what: &str, holds: impl Fn(&Listing) -> bool) -> Listing {
    let mut wake_ups = process.watch();
    let polling = async {
        loop {
            let listing = process.list(&LabelMap::new()).await.unwrap();
            if holds(&listing) {
                return listing;
            }
            wake_ups.wait().await;
        }
    };
    tokio::time::timeout(DEADLINE, polling).await.unwrap_or_else(|late| panic!("{late} ({DEADLINE:?}): {what}"))
}

pub async fn get(process: &Process, text: &str) -> Option<ObservedInstance> {
    process.get(&name(text), None).await.unwrap()
}

pub fn pid(engine: &ObservedInstance) -> i32 {
    engine.details[DETAIL_PID].parse().unwrap()
}

pub fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// The state of a process and its session; `None` if there is none.
pub fn stat(pid: i32) -> Option<(char, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some((fields[0].chars().next()?, fields[3].parse().ok()?))
}

pub fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _)| match state {
        // Others may run after the first thread has ended.
        'Z' => fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1),
        state => state != 'X',
    })
}
