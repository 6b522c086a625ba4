//! The harness of local processes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::EngineName;
use model::clock::{Clock, ManualClock};
use orchestrator::observed::DETAIL_PID;
use orchestrator::process::{Config, Process};
use orchestrator::{ObservedInstance, Orchestrator};
use parking_lot::Mutex;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::harness::{DEADLINE, Harness, Program};

struct Processes {
    directory: tempfile::TempDir,
    clock: Arc<ManualClock>,
    orphans: Mutex<Vec<i32>>,
}

pub fn make() -> Arc<dyn Harness> {
    Arc::new(Processes {
        directory: tempfile::tempdir().unwrap(),
        clock: ManualClock::at(1_700_000_000_000),
        orphans: Mutex::new(Vec::new()),
    })
}

impl Processes {
    fn engine(&self, name: &str) -> PathBuf {
        self.directory.path().join("state/engines").join(name)
    }

    fn pipe(&self, name: &EngineName) -> PathBuf {
        self.directory.path().join(format!("{name}.pipe"))
    }
}

fn pid(engine: &ObservedInstance) -> i32 {
    engine.details[DETAIL_PID].parse().unwrap()
}

#[async_trait]
impl Harness for Processes {
    fn instance(&self) -> Arc<dyn Orchestrator> {
        let mut config = Config::new(self.directory.path().join("state"));
        config.nodes = vec!["node-1".to_owned(), "node-2".to_owned()];
        config.max_engines = 6;
        Arc::new(Process::open(config, self.clock.clone()).unwrap())
    }

    fn program(&self, name: &EngineName, program: Program) -> (Vec<String>, BTreeMap<String, String>) {
        let shell = |script: &str| ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let mut environment = BTreeMap::new();
        let argv = match program {
            Program::Obedient => vec!["/bin/sleep".to_owned(), "1000".to_owned()],
            Program::Stubborn => {
                let _ = mknodat(CWD, self.pipe(name), FileType::Fifo, Mode::from_raw_mode(0o600), 0);
                environment.insert("PIPE".to_owned(), self.pipe(name).display().to_string());
                // An ignored signal stays ignored in the program that replaces the shell.
                shell("trap '' TERM; echo ready > \"$PIPE\"; exec sleep 1000")
            }
            Program::Fails => shell("echo a line; echo went wrong >&2; exit 3"),
        };
        (argv, environment)
    }

    async fn wait_until_ready(&self, name: &EngineName) {
        let pipe = self.pipe(name);
        let ready = tokio::task::spawn_blocking(move || fs::read_to_string(pipe).unwrap());
        assert_eq!(tokio::time::timeout(DEADLINE, ready).await.unwrap().unwrap(), "ready\n");
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn now_ms(&self) -> i64 {
        self.clock.wall_ms()
    }

    fn kill(&self, engine: &ObservedInstance) {
        kill_process(Pid::from_raw(pid(engine)).unwrap(), Signal::KILL).unwrap();
    }

    fn edit_label(&self, name: &EngineName, label: &str, value: &str) {
        let path = self.engine(name.as_str()).join("engine.json");
        let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        record["labels"][label] = value.into();
        fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    }

    fn remove_by_hand(&self, engine: &ObservedInstance) {
        self.orphans.lock().push(pid(engine));
        fs::remove_dir_all(self.engine(engine.name.as_str())).unwrap();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let mut pids = std::mem::take(&mut *self.orphans.lock());
        for entry in fs::read_dir(self.directory.path().join("state/engines")).unwrap().flatten() {
            if let Ok(process) = fs::read(entry.path().join("process.json")) {
                let process: serde_json::Value = serde_json::from_slice(&process).unwrap();
                pids.push(process["pid"].as_i64().unwrap() as i32);
            }
        }
        for pid in pids {
            // It may have ended already, or have no process group yet.
            let _ = kill_process_group(Pid::from_raw(pid).unwrap(), Signal::KILL);
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}
