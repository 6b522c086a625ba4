//! The folder in which one engine spills: `<scratch_dir>/<engine>`, gone with its engine.
//!
//! An engine that is killed can't tidy up, and its name is never used again, so what it spilled would fill the disk one
//! day. Each engine holds a lock in its folder for as long as it lives, and whoever starts removes the folders whose
//! lock is free. A folder without a lock file is left alone unless it is empty.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::EngineError;

/// The file in the folder that a living engine holds locked.
const LOCK: &str = "lock";
/// The part of the folder that is spilled to.
const SPILL: &str = "spill";
/// How often the folder is made again when one that tidies up took it for a dead engine's before it was locked.
const TRIES: usize = 10;
/// Folders of dead engines that one start removes at most: the rest is the next one's.
const SWEPT_AT_ONCE: usize = 1_000;

/// The folder, for as long as this lives.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes an empty folder and takes it. What lay in it was a dead engine's of the same name; what lies beside it and
    /// belongs to nobody who lives is removed.
    pub fn take(scratch_dir: &Path, engine: &str) -> Result<Self, EngineError> {
        let folder = scratch_dir.join(engine);
        fs::create_dir_all(scratch_dir).map_err(EngineError::io(format!("make {}", scratch_dir.display())))?;
        sweep(scratch_dir, engine);
        for _ in 0..TRIES {
            if let Some(lock) = locked(&folder).map_err(EngineError::io(format!("take {}", folder.display())))? {
                let spill = folder.join(SPILL);
                match fs::remove_dir_all(&spill) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(EngineError::io(format!("empty {}", spill.display()))(error));
                    }
                    _ => {}
                }
                fs::create_dir(&spill).map_err(EngineError::io(format!("make {}", spill.display())))?;
                return Ok(Self { folder, _lock: lock });
            }
        }
        let taken = std::io::Error::other("another process holds it");
        Err(EngineError::io(format!("take {}", folder.display()))(taken))
    }

    /// Where to spill.
    pub fn spill_dir(&self) -> PathBuf {
        self.folder.join(SPILL)
    }
}

/// Makes the folder and locks it; `None` if somebody removed it in between, or has it.
fn locked(folder: &Path) -> std::io::Result<Option<File>> {
    fs::create_dir_all(folder)?;
    let path = folder.join(LOCK);
    let file = match File::options().create(true).append(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // Locked and still there: nobody else can have locked it to remove it.
    Ok((file.try_lock().is_ok() && path.exists()).then_some(file))
}

/// Removes the folders of engines that are dead. Whatever can't be looked at stays.
fn sweep(scratch_dir: &Path, own: &str) {
    let Ok(entries) = fs::read_dir(scratch_dir) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name() != own).take(SWEPT_AT_ONCE) {
        let folder = entry.path();
        match File::options().append(true).open(folder.join(LOCK)) {
            Ok(lock) if lock.try_lock().is_ok() => match fs::remove_dir_all(&folder) {
                Ok(()) => tracing::info!(folder = %folder.display(), "scratch folder of a dead engine removed"),
                Err(error) => tracing::debug!(%error, folder = %folder.display(), "scratch folder not removed"),
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
            tracing::debug!(%error, folder = %self.folder.display(), "scratch folder not removed");
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
        assert!(Scratch::take(root.path(), "living").is_err(), "it was taken twice");
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
