//! A read-only diagnosis of the state directory, for a process that is not a candidate for master. Work that a keeper would
//! carry on (an overdue grace, the directory of a deleted engine that is dead) is reported instead.
//!
//! The lock of an engine is tested as by every other reader, shared and briefly; the directory lock, which serializes
//! effects, is not touched.

use std::io;
use std::path::{Path, PathBuf};

use model::Epoch;
use model::clock::SharedClock;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};

use super::config::Config;
use super::dir_lock::MAX_EPOCH_BYTES;
use super::engine_entry::{self, EngineEntry};
use super::layout::{self, MAX_ENTRIES};
use super::state_dir::StateDir;
use crate::{Error, Listing};

/// The state directory as it is.
#[derive(Debug, Clone)]
pub struct StateDirDiagnosis {
    pub state_dir: PathBuf,
    /// The engines of all installations, without those in `leftovers`.
    pub listing: Listing,
    /// Names of deleted engines that have ended: a keeper removes their files.
    pub leftovers: Vec<String>,
    /// Directories that are being created or removed; debris if no process is at it.
    pub hidden: usize,
    /// The highest epoch seen here; `None` before the first effect.
    pub epoch: Option<Epoch>,
    /// Whether this process may create files in it.
    pub writable: bool,
    pub disk: Disk,
}

/// A file system, from the point of view of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub read_only: bool,
    /// Free for this process.
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Free inodes; `None` if the file system has no such limit.
    pub free_files: Option<u64>,
}

impl Disk {
    /// The file system of a file or folder.
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

/// Reads the state directory. [`Error::Refused`] if it does not exist or cannot be read.
pub async fn diagnose(config: Config, clock: SharedClock) -> Result<StateDirDiagnosis, Error> {
    tokio::task::spawn_blocking(move || read(config, clock))
        .await
        .unwrap_or_else(|error| Err(Error::transient("state directory operation was aborted").caused_by(error)))
}

fn read(config: Config, clock: SharedClock) -> Result<StateDirDiagnosis, Error> {
    let state_dir = StateDir::read_only(config, clock)?;
    let engines = state_dir.layout.engines();
    let failed = |error: io::Error| Error::refused(format!("directory {}", engines.display())).caused_by(error);
    let disk = Disk::of(&engines).map_err(failed)?;
    let (entries, unreadable) = engine_entry::read_all(&state_dir)?;
    let (over, present): (Vec<_>, Vec<_>) = entries.into_iter().partition(EngineEntry::is_over);
    let hidden = state_dir.layout.all_hidden(MAX_ENTRIES).map_err(failed)?.len();
    Ok(StateDirDiagnosis {
        state_dir: engines.parent().map(PathBuf::from).unwrap_or_default(),
        listing: Listing {
            engines: present.into_iter().map(|entry| entry.observed.into()).collect(),
            unreadable,
            ..Listing::default()
        },
        leftovers: over.into_iter().map(|entry| entry.observed.name.to_string()).collect(),
        hidden,
        epoch: epoch(&state_dir)?,
        writable: access(&engines, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
        disk,
    })
}

fn epoch(state_dir: &StateDir) -> Result<Option<Epoch>, Error> {
    let path = state_dir.layout.dir_lock();
    let damaged = || Error::refused(format!("could not read the epoch in {}", path.display()));
    let content = layout::read_limited(&path, MAX_EPOCH_BYTES).map_err(|error| damaged().caused_by(error))?;
    let text = String::from_utf8_lossy(&content.unwrap_or_default()).trim().to_owned();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(|number| Some(Epoch(number))).map_err(|_| damaged().caused_by("it is not a number"))
}
