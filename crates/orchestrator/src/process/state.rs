//! What every part of this module works on: the directory, its configuration, the clock, our own children.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use model::EngineName;
use model::clock::SharedClock;
use model::engine_state::Phase;
use model::labels::LabelMap;
use model::log_throttle::KeyedLogThrottle;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Config;
use super::child::Children;
use super::layout::Layout;
use super::look::Look;
use super::{end, launch};
use crate::wake::Ringer;
use crate::{Error, Listing, Observed, Unreadable};

/// Entries of the state directory that are looked at, at most; engines, foreign ones and those on their way in or out.
pub(super) const MAX_ENTRIES: usize = 4_096;
/// Where `setsid(1)` may be.
const SESSION_PROGRAMS: [&str; 3] = ["/usr/bin/setsid", "/bin/setsid", "/usr/local/bin/setsid"];

/// The state directory, opened.
#[derive(Debug)]
pub(super) struct State {
    pub(super) layout: Layout,
    pub(super) config: Config,
    pub(super) clock: SharedClock,
    pub(super) session_program: PathBuf,
    pub(super) children: Children,
    pub(super) ringer: Ringer,
    /// Whether nothing is written, not even what a look notices first.
    pub(super) only_looks: bool,
    nudges: Notify,
    /// What could not be carried on: what, and of which engine or path.
    pub(super) throttles: Mutex<KeyedLogThrottle<(&'static str, String)>>,
    /// What the last look of this process saw, whoever it was for.
    seen: Mutex<Option<Listing>>,
}

impl State {
    /// For looking only: nothing is made, started, ended or written, and the directory need not be there.
    pub(super) fn looking(config: Config, clock: SharedClock) -> Result<Self, Error> {
        let layout = Layout::new(root_of(&config)?);
        Ok(Self { only_looks: true, ..Self::with(layout, config, clock, PathBuf::new()) })
    }

    pub(super) fn open(mut config: Config, clock: SharedClock) -> Result<Self, Error> {
        let session_program =
            SESSION_PROGRAMS.iter().map(PathBuf::from).find(|path| launch::is_executable(path)).ok_or_else(|| {
                Error::refused(format!("none of the programs {} is there", SESSION_PROGRAMS.join(", ")))
            })?;
        if config.nodes.is_empty() {
            config.nodes = vec![rustix::system::uname().nodename().to_string_lossy().into_owned()];
        }
        let layout = Layout::new(root_of(&config)?);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(layout.engines())
            .map_err(|error| Error::refused(format!("directory {}: {error}", layout.engines().display())))?;
        Ok(Self::with(layout, config, clock, session_program))
    }

    fn with(layout: Layout, config: Config, clock: SharedClock, session_program: PathBuf) -> Self {
        Self {
            layout,
            config,
            clock,
            session_program,
            children: Children::default(),
            ringer: Ringer::new(),
            only_looks: false,
            nudges: Notify::new(),
            throttles: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    /// Tells the keeper to look at once.
    pub(super) fn nudge(&self) {
        self.nudges.notify_one();
    }

    pub(super) async fn nudged(&self) {
        self.nudges.notified().await;
    }

    /// Everything that is there, after carrying on what is due.
    pub(super) fn look_at_all(&self) -> Result<(Vec<Look>, Vec<Unreadable>), Error> {
        let (mut looks, mut unreadable) = (Vec::new(), Vec::new());
        let names = self
            .layout
            .names(MAX_ENTRIES)
            .map_err(|error| Error::transient(format!("directory {}: {error}", self.layout.engines().display())))?;
        for name in names {
            match self.look(&name) {
                Ok(Some(look)) => looks.push(look),
                Ok(None) => {}
                Err(error) => unreadable.push(error),
            }
        }
        Ok((looks, unreadable))
    }

    /// The engines with the selector's labels. Rings if anything, selected or not, is not as the last look saw it:
    /// were only the keeper's looks compared, a change and its way back between two of them would wake nobody, though
    /// somebody's own look has seen it half-way.
    pub(super) fn list(&self, selector: &LabelMap) -> Result<Listing, Error> {
        let (mut looks, mut unreadable) = self.look_at_all()?;
        if end::carry_on(self, &looks) {
            (looks, unreadable) = self.look_at_all()?;
        }
        let engines = looks.into_iter().filter(|look| !look.is_over()).map(|look| look.observed).collect();
        let mut listing = Listing { engines, unreadable, ..Listing::default() };
        let mut seen = self.seen.lock();
        if seen.as_ref() != Some(&listing) {
            *seen = Some(listing.clone());
            self.ringer.ring();
        }
        drop(seen);
        listing.engines.retain(|engine| engine.matches(selector));
        Ok(listing)
    }

    pub(super) fn get(&self, name: &EngineName) -> Result<Option<Observed>, Error> {
        let mut look = self.look(name.as_str()).map_err(into_error)?;
        if let Some(seen) = look.take_if(|look| look.ending.is_some()) {
            end::carry_on(self, &[seen]);
            look = self.look(name.as_str()).map_err(into_error)?;
        }
        Ok(look.filter(|look| !look.is_over()).map(|look| look.observed))
    }

    /// How many engines of a node live or wait for their removal.
    pub(super) fn load_of(looks: &[Look], node: &str) -> usize {
        let lives = |look: &&Look| look.observed.phase != Phase::Ended && look.record.node == node;
        looks.iter().filter(lives).count()
    }
}

fn root_of(config: &Config) -> Result<PathBuf, Error> {
    std::path::absolute(&config.state_dir)
        .map_err(|error| Error::refused(format!("state directory {}: {error}", config.state_dir.display())))
}

pub(super) fn into_error(unreadable: Unreadable) -> Error {
    Error::Unreadable { name: unreadable.name, reason: unreadable.reason }
}

/// Whether somebody else holds the lock on the file. The question is asked by taking it shared, so that two who
/// ask don't see each other.
pub(super) fn is_held(file: &File) -> rustix::io::Result<bool> {
    use rustix::fs::{FlockOperation, flock};
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error),
    }
}
