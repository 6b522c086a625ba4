//! Engines as local processes. **For one machine and for tests**: engines share its kernel, its files and its user.
//!
//! A state directory, shared by all candidates of the machine, holds one directory for each engine. Invariants:
//!
//! - **An engine is alive while its lock is held.** A directory is filled under a hidden name, its file `lock` is flocked,
//!   and only then is it renamed to the engine's name; the rename replaces nothing. The engine inherits the locked file
//!   *as its standard input*, so an engine whose lock is free is dead, regardless of which process started it and what
//!   became of that process. A name can therefore be taken only once, and a creator that dies half-way leaves nothing
//!   (a hidden name), an engine that never started (its lock is free) or a running one (its lock is held). Standard input
//!   is the one way to hand an open file to a child without unsafe code and without leaking it to another child that is
//!   started at the same moment.
//! - **The pid is an address**: it is used only together with the start time of the process, through a pidfd, and only while
//!   a thread of it runs (a zombie whose other threads have not ended is alive). A process whose pid was not recorded is
//!   found by the lock that it holds.
//! - **Effects are serialized** by a lock on the state directory's own file `lock`, which holds the highest epoch seen; a
//!   lower one is refused. A candidate that is stopped while it holds the lock blocks the others, whose effects fail as
//!   *transient* after a limited time.
//! - **Each engine leads its own session**: it is started through `setsid(1)`, which replaces itself by the engine without
//!   an intermediate process. (The standard library cannot call `setsid` in a child without unsafe code, and a process
//!   that already leads a group can no longer call it.) No signal from a terminal reaches the engine.
//! - **A deletion is recorded before it is carried out**, and every later read carries it on: SIGTERM, then SIGKILL to the
//!   process group when the grace is over, then the removal of the directory.
//! - **A power loss leaves a readable state.** Every process here dies with the machine, so only the files that identify a
//!   directory must survive: `engine.json` and the epoch are on disk before anything depends on them. A truncated version
//!   of any other file is treated as absent. This costs two syncs for each new engine, under the directory lock: 10 ms, at
//!   most 39, on a busy ext4.
//! - **Labels can be edited by hand** in `engine.json`, which is written once. Damaged and foreign entries are reported.
//!
//! A stale caller can do nothing that the epoch or the uid would not refuse. The keeper, a task that lives as long as the
//! [`Process`], reads the directory twice a second, so that changes by others, deaths of engines that are not our children
//! and overdue graces wake the watchers.
//!
//! | file | concern |
//! | --- | --- |
//! | `list`, `get`, `ensure`, `delete`, `diagnose` | one verb each |
//! | `keeper`, `upkeep`, `reap`, `remove` | carrying on deletions, limiting logs, recording exits |
//! | `account` | the account that an engine runs as |
//! | `engine_entry` | reading one engine: its files, its lock, its process |
//! | `state_dir`, `dir_lock`, `layout`, `record`, `log`, `identity`, `children`, `leftovers` | the directory, its files, processes |
//! | `guest` | the engine's own side |

mod account;
mod children;
mod config;
mod delete;
mod diagnose;
mod dir_lock;
mod engine_entry;
mod ensure;
mod get;
mod guest;
mod identity;
mod keeper;
mod layout;
mod leftovers;
mod list;
mod log;
mod reap;
mod record;
mod remove;
mod state_dir;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::clock::SharedClock;
use model::labels::LabelMap;
use model::{EngineName, Epoch};
use tokio::task::JoinHandle;

use crate::{Deleted, Ensured, Error, Listing, ObservedInstance, Orchestrator, Spec, WakeUps};

pub use config::{Config, DEFAULT_INHERIT, DEFAULT_MAX_ENGINES, DEFAULT_MIN_UID, MAX_ENGINES_LIMIT};
pub use diagnose::{Disk, StateDirDiagnosis, diagnose};
pub use guest::{DIRECTORY_VARIABLE, Guest, still_wanted};
pub use keeper::KEEPER_PERIOD;

use identity::{Identity, Stop};
use state_dir::StateDir;

/// Why a process of this machine does not run although it is alive, in the words of `ps`: a signal or a debugger stopped
/// it. `None` if it runs or is gone.
pub fn stopped(pid: i32) -> Option<&'static str> {
    Identity::of_pid(pid)?.stop().map(Stop::name)
}

/// The orchestrator of local processes. Dropping it ends no engine.
#[derive(Debug)]
pub struct Process {
    state_dir: Arc<StateDir>,
    keeper: JoinHandle<()>,
}

impl Process {
    /// Opens the state directory and starts the keeper; must be called inside a tokio runtime.
    pub fn open(config: Config, clock: SharedClock) -> Result<Self, Error> {
        let state_dir = Arc::new(StateDir::open(config, clock)?);
        let keeper = tokio::spawn(keeper::run(Arc::clone(&state_dir)));
        Ok(Self { state_dir, keeper })
    }

    /// Runs blocking file operations on the blocking pool.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<StateDir>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let state_dir = Arc::clone(&self.state_dir);
        match tokio::task::spawn_blocking(move || work(&state_dir)).await {
            Ok(result) => result,
            Err(error) => Err(Error::transient("state directory operation was aborted").caused_by(error)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

#[async_trait]
impl Orchestrator for Process {
    async fn list(&self, selector: &LabelMap) -> Result<Listing, Error> {
        let selector = selector.clone();
        self.blocking(move |state_dir| list::list(state_dir, &selector)).await
    }

    async fn get(&self, name: &EngineName, _locality: Option<&str>) -> Result<Option<ObservedInstance>, Error> {
        let name = name.clone();
        self.blocking(move |state_dir| get::get(state_dir, &name)).await
    }

    async fn ensure(&self, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
        let spec = spec.clone();
        let ensured = self.blocking(move |state_dir| ensure::ensure(state_dir, &spec, epoch)).await;
        self.state_dir.nudge();
        ensured
    }

    async fn delete(&self, name: &EngineName, uid: &str, grace: Duration, epoch: Epoch) -> Result<Deleted, Error> {
        let (name, uid) = (name.clone(), uid.to_owned());
        let deleted = self.blocking(move |state_dir| delete::delete(state_dir, &name, &uid, grace, epoch)).await;
        self.state_dir.nudge();
        deleted
    }

    fn watch(&self) -> WakeUps {
        self.state_dir.notifier.watch()
    }
}
