//! A look at the state directory for an operator, by somebody who is no candidate for master: it reads, and leaves
//! everything as it is. What a keeper would carry on (an overdue grace, a directory of a dead engine that was told to
//! end) is told instead.
//!
//! The lock of an engine is asked for as every look does it, shared and for a moment; the directory lock, behind which
//! effects stand, is not touched.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::Epoch;
use model::clock::SharedClock;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};

use super::Config;
use super::layout;
use super::state::{MAX_ENTRIES, State};
use crate::{Error, Listing};

/// The longest content of the directory lock that can be an epoch.
const MAX_EPOCH_BYTES: u64 = 64;

/// What is there.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// Where.
    pub state_dir: PathBuf,
    /// Every engine, of whatever installation; those that were told to end and are dead are in `leftovers`.
    pub listing: Listing,
    /// Names of engines that were told to end and have ended: a keeper takes their files away.
    pub leftovers: Vec<String>,
    /// Directories on their way in or out; debris if nobody is at it.
    pub hidden: usize,
    /// The highest epoch that was seen here; `None` before the first effect.
    pub epoch: Option<Epoch>,
    /// Whether this process may create files there.
    pub writable: bool,
    /// The file system.
    pub disk: Disk,
}

/// A file system, as it is for this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// Whether it is mounted read-only.
    pub read_only: bool,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Its bytes.
    pub total_bytes: u64,
    /// Files that can still be made; `None` where it has no such limit.
    pub free_files: Option<u64>,
}

impl Disk {
    /// The one that a file or folder is on.
    pub fn of(path: &Path) -> io::Result<Self> {
        let disk = statvfs(path)?;
        Ok(Self {
            read_only: disk.f_flag.contains(StatVfsMountFlags::RDONLY),
            free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
            total_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
            free_files: (disk.f_files > 0).then_some(disk.f_favail),
        })
    }
}

/// Looks at the state directory. [`Error::Refused`] if it is not there or can't be read.
pub async fn inspect(config: Config, clock: SharedClock) -> Result<Inspection, Error> {
    let looked = tokio::task::spawn_blocking(move || look(config, clock)).await;
    looked
        .unwrap_or_else(|error| Err(Error::transient(format!("the look at the state directory was cut off: {error}"))))
}

fn look(config: Config, clock: SharedClock) -> Result<Inspection, Error> {
    let state = Arc::new(State::looking(config, clock)?);
    let engines = state.layout.engines();
    let failed = |error: &dyn std::fmt::Display| Error::refused(format!("directory {}: {error}", engines.display()));
    let disk = Disk::of(&engines).map_err(|error| failed(&error))?;
    let (looks, unreadable) = state.look_at_all()?;
    let (over, there): (Vec<_>, Vec<_>) = looks.into_iter().partition(super::look::Look::is_over);
    let hidden = state.layout.all_hidden(MAX_ENTRIES).map_err(|error| failed(&error))?.len();
    Ok(Inspection {
        state_dir: engines.parent().map(PathBuf::from).unwrap_or_default(),
        listing: Listing {
            engines: there.into_iter().map(|look| look.observed).collect(),
            unreadable,
            ..Listing::default()
        },
        leftovers: over.into_iter().map(|look| look.observed.name.to_string()).collect(),
        hidden,
        epoch: epoch(&state)?,
        writable: access(&engines, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
        disk,
    })
}

fn epoch(state: &State) -> Result<Option<Epoch>, Error> {
    let path = state.layout.gate();
    let damaged = |why: String| Error::refused(format!("the epoch in {} can't be read ({why})", path.display()));
    let content = layout::read_limited(&path, MAX_EPOCH_BYTES).map_err(|error| damaged(error.to_string()))?;
    let text = String::from_utf8_lossy(&content.unwrap_or_default()).trim().to_owned();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(|number| Some(Epoch(number))).map_err(|_| damaged("it holds none".to_owned()))
}
