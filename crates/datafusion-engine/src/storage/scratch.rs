//! The scratch folder of an engine: `<scratch_dir>/<engine>`, removed with its engine.
//!
//! A killed engine cannot remove its folder, and its name is never used again, so its spill files would eventually fill
//! the disk. Each engine holds a lock in its folder while it runs, and a starting engine removes the folders whose lock is
//! free. A folder without a lock file is removed only if it is empty.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::EngineError;

/// The file in the folder that a running engine holds locked.
const LOCK: &str = "lock";
/// The subfolder of spill files.
const SPILL: &str = "spill";
/// How often the folder is created again if another engine's sweep removes it before it is locked.
const TRIES: usize = 10;
/// The most folders that one sweep removes; the next start removes the rest.
const SWEPT_AT_ONCE: usize = 1_000;

/// The locked scratch folder. Dropping it removes the folder.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Clears leftovers of a previous engine with this name, locks the folder, and removes the folders of engines that are
    /// no longer running.
    pub fn take(scratch_dir: &Path, engine: &str) -> Result<Self, EngineError> {
        let folder = scratch_dir.join(engine);
        fs::create_dir_all(scratch_dir).map_err(EngineError::io(format!("create {}", scratch_dir.display())))?;
        sweep(scratch_dir, engine);
        for _ in 0..TRIES {
            if let Some(lock) = locked(&folder).map_err(EngineError::io(format!("lock {}", folder.display())))? {
                let spill = folder.join(SPILL);
                match fs::remove_dir_all(&spill) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(EngineError::io(format!("empty {}", spill.display()))(error));
                    }
                    _ => {}
                }
                fs::create_dir(&spill).map_err(EngineError::io(format!("create {}", spill.display())))?;
                return Ok(Self { folder, _lock: lock });
            }
        }
        let taken = std::io::Error::other("another process holds its lock");
        Err(EngineError::io(format!("lock {}", folder.display()))(taken))
    }

    /// The folder of spill files.
    pub fn spill_dir(&self) -> PathBuf {
        self.folder.join(SPILL)
    }
}

/// Creates and locks the folder; `None` if it was removed in between, or another process holds the lock.
fn locked(folder: &Path) -> std::io::Result<Option<File>> {
    fs::create_dir_all(folder)?;
    let path = folder.join(LOCK);
    let file = match File::options().create(true).append(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // The locked file still exists, so no other process holds the lock to remove it.
    Ok((file.try_lock().is_ok() && path.exists()).then_some(file))
}

/// Removes the folders of dead engines. Unreadable folders are kept.
fn sweep(scratch_dir: &Path, own: &str) {
    let Ok(entries) = fs::read_dir(scratch_dir) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name() != own).take(SWEPT_AT_ONCE) {
        let folder = entry.path();
        match File::options().append(true).open(folder.join(LOCK)) {
            Ok(lock) if lock.try_lock().is_ok() => match fs::remove_dir_all(&folder) {
                Ok(()) => tracing::info!(folder = %folder.display(), "removed the scratch folder of a dead engine"),
                Err(error) => tracing::debug!(%error, folder = %folder.display(), "could not remove a scratch folder"),
            },
            Ok(_) => {}
            // Succeeds with an empty folder only.
            Err(_) => drop(fs::remove_dir(&folder)),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::debug!(%error, folder = %self.folder.display(), "could not remove a scratch folder");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn leftovers_of_dead_engines_are_removed_and_live_folders_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let dead = root.path().join("dead");
        fs::create_dir_all(dead.join(SPILL)).unwrap();
        fs::write(dead.join(SPILL).join("run"), "x").unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        let strange = root.path().join("strange");
        fs::create_dir_all(strange.join("anything")).unwrap();
        fs::create_dir_all(root.path().join("empty")).unwrap();
        let living = Scratch::take(root.path(), "living").unwrap();
        fs::write(living.spill_dir().join("run"), "x").unwrap();
        assert!(!dead.exists() && strange.exists() && !root.path().join("empty").exists());
        let other = Scratch::take(root.path(), "other").unwrap();
        assert!(living.spill_dir().join("run").exists());
        assert!(Scratch::take(root.path(), "living").is_err(), "it was locked twice");
        drop((living, other));
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["strange"]);
    }

    #[test]
    fn an_engine_of_the_same_name_begins_with_an_empty_folder() {
        let root = tempfile::tempdir().unwrap();
        let spill = root.path().join("engine").join(SPILL);
        fs::create_dir_all(&spill).unwrap();
        fs::write(spill.join("run"), "x").unwrap();
        let again = Scratch::take(root.path(), "engine").unwrap();
        assert!(again.spill_dir().is_dir() && !spill.join("run").exists());
    }
}
