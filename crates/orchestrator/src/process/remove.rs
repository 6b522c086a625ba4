//! Removing the files of a dead engine.

use std::fs;
use std::io;

use model::failpoint;

use super::engine_entry::EngineEntry;
use super::layout::EngineDir;
use super::leftovers;
use super::state_dir::StateDir;
use crate::failpoints;

/// Removes the remains of a dead engine. The caller holds the directory lock.
pub(super) fn remove(state_dir: &StateDir, entry: &EngineEntry) -> io::Result<()> {
    leftovers::kill(&entry.directory, &entry.record.uid)?;
    remove_directory(state_dir, &entry.directory, &entry.record.uid)
}

/// Renames the directory to a hidden name, which takes it out of the list in one step, and removes it.
pub(super) fn remove_directory(state_dir: &StateDir, directory: &EngineDir, uid: &str) -> io::Result<()> {
    let hidden = state_dir.layout.hidden(&format!("{uid}.gone"));
    match fs::rename(&directory.0, &hidden.0) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed?,
    }
    failpoint!(failpoints::REMOVE_RENAMED);
    fs::remove_dir_all(&hidden.0)
}
