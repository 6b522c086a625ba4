//! The opened state directory: its layout, its configuration, the clock, and what this process remembers of it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use model::clock::SharedClock;
use model::log_throttle::KeyedLogThrottle;
use parking_lot::Mutex;
use rustix::fs::{Access, access};
use tokio::sync::Notify;

use super::children::Children;
use super::config::Config;
use super::layout::Layout;
use crate::wake::Notifier;
use crate::{Error, Listing};

/// Where `setsid(1)` may be.
const SESSION_PROGRAMS: [&str; 3] = ["/usr/bin/setsid", "/bin/setsid", "/usr/local/bin/setsid"];

#[derive(Debug)]
pub(super) struct StateDir {
    pub(super) layout: Layout,
    pub(super) config: Config,
    pub(super) clock: SharedClock,
    pub(super) session_program: PathBuf,
    pub(super) children: Children,
    pub(super) notifier: Notifier,
    /// Whether nothing may be written, not even the exit of an engine that is found dead.
    pub(super) read_only: bool,
    nudges: Notify,
    /// Throttles the log of failed upkeep by task and by engine or path.
    pub(super) upkeep_log: Mutex<KeyedLogThrottle<(&'static str, String)>>,
    /// The last listing of this process, over all engines, whatever its caller selected.
    pub(super) last_listing: Mutex<Option<Listing>>,
}

impl StateDir {
    /// For a diagnosis: nothing is created, started, ended or written, and the directory need not exist.
    pub(super) fn read_only(config: Config, clock: SharedClock) -> Result<Self, Error> {
        let layout = Layout::new(root(&config)?);
        Ok(Self { read_only: true, ..Self::new(layout, config, clock, PathBuf::new()) })
    }

    pub(super) fn open(mut config: Config, clock: SharedClock) -> Result<Self, Error> {
        let session_program =
            SESSION_PROGRAMS.iter().map(PathBuf::from).find(|path| is_executable(path)).ok_or_else(|| {
                Error::refused(format!("none of the programs {} exists", SESSION_PROGRAMS.join(", ")))
            })?;
        if config.nodes.is_empty() {
            config.nodes = vec![rustix::system::uname().nodename().to_string_lossy().into_owned()];
        }
        let layout = Layout::new(root(&config)?);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(layout.engines())
            .map_err(|error| Error::refused(format!("directory {}", layout.engines().display())).caused_by(error))?;
        Ok(Self::new(layout, config, clock, session_program))
    }

    fn new(layout: Layout, config: Config, clock: SharedClock, session_program: PathBuf) -> Self {
        Self {
            layout,
            config,
            clock,
            session_program,
            children: Children::default(),
            notifier: Notifier::new(),
            read_only: false,
            nudges: Notify::new(),
            upkeep_log: Mutex::default(),
            last_listing: Mutex::default(),
        }
    }

    /// Makes the keeper read at once.
    pub(super) fn nudge(&self) {
        self.nudges.notify_one();
    }

    pub(super) async fn nudged(&self) {
        self.nudges.notified().await;
    }
}

fn root(config: &Config) -> Result<PathBuf, Error> {
    std::path::absolute(&config.state_dir)
        .map_err(|error| Error::refused(format!("state directory {}", config.state_dir.display())).caused_by(error))
}

/// Whether the path names a program that this process may execute.
pub(super) fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}
