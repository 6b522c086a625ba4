//! Engines as local processes. **For one machine and for tests**: engines share its kernel, its files and its user.
//!
//! A state directory, shared by all candidates of the machine, holds one directory for each engine. Invariants:
//!
//! - **The lock is the life.** A directory is filled under a hidden name, its file `lock` is flocked, and only then it
//!   gets the engine's name by a rename that replaces nothing. The engine inherits the locked file *as its standard
//!   input*: an engine whose lock is free is dead, whoever made it and whatever became of its maker. A name can thus be
//!   taken once, and a maker that dies half-way leaves either nothing (a hidden name), an engine that never started
//!   (its lock is free) or one that runs (its lock is not). Standard input, because it is the one way to hand an open file to
//!   a child that needs no unsafe code and can't leak to another child that is started at the same moment.
//! - **The pid is an address**, used only together with the start time of the process, through a pidfd, and never when
//!   it names a zombie. A process whose pid was never written down is found by the lock that it holds.
//! - **Effects are serialised** by a lock on the state directory's own file `lock`, which holds the highest epoch that was
//!   seen: a lower one is refused. A candidate that is stopped in just that moment delays the others; they answer
//!   *transient* after a limited time.
//! - **A session of its own**: the engine is started through `setsid(1)`, which replaces itself by the engine without
//!   another process in between. (The standard library can't call `setsid` in a child without unsafe code, and a process
//!   that was made the leader of a group can't do it any more itself.) So no signal from a terminal reaches it.
//! - **A deletion is written down before it is carried out**, and every look carries it on: told to end, killed
//!   with its process group after the grace, its directory removed.
//! - **A loss of power leaves what can be read.** Every process that is kept here dies with the machine, so nothing but
//!   what names a directory must outlive it: `engine.json` and the epoch are on the disk before anything follows from
//!   them. Of the other files half of one is as good as none. It costs two syncs for each engine that is made, under the
//!   directory lock: 10 ms, at most 39, on a busy ext4.
//! - **Labels can be edited by hand** in `engine.json`, which is written once. What is damaged or foreign is reported.
//!
//! What a stale caller can do: nothing that the epoch or the uid would not refuse. The keeper, a task that lives as
//! long as the [`Process`], looks twice a second, so that changes by others, deaths of engines that are nobody's children and
//! overdue graces wake whoever watches.

mod child;
mod end;
mod gate;
mod identity;
mod inside;
mod inspect;
mod launch;
mod layout;
mod log;
mod look;
mod record;
mod state;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::clock::SharedClock;
use model::labels::LabelMap;
use model::{EngineName, Epoch};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::{Capacity, Deleted, Ensured, Error, Listing, Observed, Orchestrator, Spec, WakeUps};

pub use inside::{DIRECTORY_VARIABLE, Inside, still_wanted};
pub use inspect::{Disk, Inspection, inspect};

use identity::{Identity, Stop};
use state::State;

/// Engines at most, when the configuration says nothing else.
pub const DEFAULT_MAX_ENGINES: usize = 64;
/// The highest limit of engines that can be kept: it leaves room among the entries that are looked at.
pub const MOST_ENGINES: usize = state::MAX_ENTRIES - 96;
/// How often the keeper looks.
pub const KEEPER_PERIOD: Duration = Duration::from_millis(500);
/// The variables that pass from the master's environment to engines, when the configuration says nothing else.
pub const DEFAULT_INHERIT: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Why a process of this machine does not run although it lives, in the words of `ps`: it is stopped by a signal, or by a
/// debugger. `None` if it runs or is gone.
pub fn stopped(pid: i32) -> Option<&'static str> {
    Identity::of(pid)?.stop().map(Stop::name)
}

/// Where the engines of this machine are kept, and how many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The state directory; made if it is not there. The same for all candidates of the machine.
    pub state_dir: PathBuf,
    /// The logical nodes that a spec may name; empty: one, called like the host.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Engines at most, ended ones that were not deleted included.
    #[serde(default = "default_max_engines")]
    pub max_engines: usize,
    /// The variables that pass from this process's environment to engines; all others don't.
    #[serde(default = "default_inherit")]
    pub inherit: Vec<String>,
}

fn default_max_engines() -> usize {
    DEFAULT_MAX_ENGINES
}

fn default_inherit() -> Vec<String> {
    DEFAULT_INHERIT.map(str::to_owned).to_vec()
}

impl Config {
    /// The state directory, and everything else as it is when nothing is said.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: state_dir.into(),
            nodes: Vec::new(),
            max_engines: DEFAULT_MAX_ENGINES,
            inherit: default_inherit(),
        }
    }
}

/// The orchestrator of local processes. Dropping it ends no engine.
#[derive(Debug)]
pub struct Process {
    state: Arc<State>,
    keeper: JoinHandle<()>,
}

impl Process {
    /// Opens the state directory and starts the keeper; must be called inside a tokio runtime.
    pub fn open(config: Config, clock: SharedClock) -> Result<Self, Error> {
        let state = Arc::new(State::open(config, clock)?);
        let keeper = tokio::spawn(keep(Arc::clone(&state)));
        Ok(Self { state, keeper })
    }

    /// Runs file work where it blocks nobody.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<State>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let state = Arc::clone(&self.state);
        match tokio::task::spawn_blocking(move || work(&state)).await {
            Ok(result) => result,
            Err(error) => Err(Error::transient(format!("the work on the state directory was cut off: {error}"))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Looks, carries deletions on, and thereby rings when anything is not as it was; after what this process did itself
/// it rings in any case.
async fn keep(state: Arc<State>) {
    let mut period = tokio::time::interval(KEEPER_PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut told = None;
    loop {
        let nudged = tokio::select! {
            _ = period.tick() => false,
            () = state.nudged() => true,
        };
        let looking = Arc::clone(&state);
        let looked = tokio::task::spawn_blocking(move || looking.list(&LabelMap::new())).await;
        // Once, and again when the reason is another: it would be twice a second for as long as it lasts.
        match looked {
            Ok(Err(error)) if told.as_ref() == Some(&error) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the keeper can't read the state directory");
                told = Some(error);
            }
            Ok(Ok(_)) if told.take().is_some() => tracing::info!("the keeper reads the state directory again"),
            _ => {}
        }
        if nudged {
            state.ringer.ring();
        }
    }
}

#[async_trait]
impl Orchestrator for Process {
    async fn list(&self, selector: &LabelMap) -> Result<Listing, Error> {
        let selector = selector.clone();
        self.blocking(move |state| state.list(&selector)).await
    }

    async fn get(&self, name: &EngineName) -> Result<Option<Observed>, Error> {
        let name = name.clone();
        self.blocking(move |state| state.get(&name)).await
    }

    async fn ensure(&self, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
        let spec = spec.clone();
        let ensured = self.blocking(move |state| launch::ensure(state, &spec, epoch)).await;
        self.state.nudge();
        ensured
    }

    async fn delete(&self, name: &EngineName, uid: &str, grace: Duration, epoch: Epoch) -> Result<Deleted, Error> {
        let (name, uid) = (name.clone(), uid.to_owned());
        let deleted = self.blocking(move |state| end::delete(state, &name, &uid, grace, epoch)).await;
        self.state.nudge();
        deleted
    }

    fn watch(&self) -> WakeUps {
        self.state.ringer.watch()
    }

    async fn capacity(&self) -> Result<Capacity, Error> {
        Ok(Capacity { engines: Some(self.state.config.max_engines), nodes: self.state.config.nodes.clone() })
    }
}
