//! The directory lock: serializes effects, and is the fence against deposed masters.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use model::Epoch;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Error;

/// Attempts to take the lock before an effect fails as *transient*: with the interval, about 5 s.
const ATTEMPTS: u32 = 1_000;
/// The interval between two attempts.
const INTERVAL: Duration = Duration::from_millis(5);
/// The longest content that can be an epoch.
pub(super) const MAX_EPOCH_BYTES: u64 = 64;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(super) struct DirLock {
    file: File,
    path: PathBuf,
}

impl DirLock {
    /// Waits for the lock, for a limited time.
    pub(super) fn acquire(path: &Path) -> Result<Self, Error> {
        Self::acquire_within(path, ATTEMPTS)
    }

    #[allow(clippy::disallowed_methods, reason = "called on a thread that may block")]
    fn acquire_within(path: &Path, attempts: u32) -> Result<Self, Error> {
        for _ in 0..attempts {
            if let Some(lock) = Self::try_acquire(path)? {
                return Ok(lock);
            }
            thread::sleep(INTERVAL);
        }
        Err(Error::transient(format!("another process holds the lock {}", path.display())))
    }

    /// Takes the lock if it is free.
    pub(super) fn try_acquire(path: &Path) -> Result<Option<Self>, Error> {
        let failed = |error: io::Error| Error::transient(format!("lock {}", path.display())).caused_by(error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { file, path: path.to_owned() })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Refuses an epoch below the highest one seen; records a higher one.
    pub(super) fn check(&self, epoch: Epoch) -> Result<(), Error> {
        let mut text = String::new();
        (&self.file)
            .take(MAX_EPOCH_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| self.damaged(&error.to_string()))?;
        let highest = match text.trim() {
            "" => None,
            digits => Some(Epoch(digits.parse().map_err(|_| self.damaged("it is not a number"))?)),
        };
        match highest {
            Some(highest) if epoch < highest => {
                // Logged, because the caller may have given up before it receives the error.
                tracing::info!(%epoch, %highest, "effect of a deposed master refused");
                Err(Error::Deposed { epoch, highest })
            }
            Some(highest) if epoch == highest => Ok(()),
            _ => self.record(epoch),
        }
    }

    // One write of a fixed width, so a process that is killed here leaves the old text or the new one. Synced, once for each
    // master: a power loss could leave zeros, which are not an epoch and would block every effect.
    fn record(&self, epoch: Epoch) -> Result<(), Error> {
        self.file
            .write_all_at(format!("{epoch:>20}\n").as_bytes(), 0)
            .and_then(|()| self.file.sync_data())
            .map_err(|error| Error::transient(format!("file {}", self.path.display())).caused_by(error))
    }

    // Treating a damaged file as "no epoch yet" would let a deposed master in.
    fn damaged(&self, why: &str) -> Error {
        Error::refused(format!(
            "could not read the epoch in {} ({why}); remove the file to start over",
            self.path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        (directory, path)
    }

    #[test]
    fn the_highest_epoch_stays_in_the_file() {
        let (_directory, path) = lock();
        DirLock::acquire(&path).unwrap().check(Epoch(7)).unwrap();
        DirLock::acquire(&path).unwrap().check(Epoch(7)).unwrap();
        assert_eq!(
            DirLock::acquire(&path).unwrap().check(Epoch(6)),
            Err(Error::Deposed { epoch: Epoch(6), highest: Epoch(7) })
        );
        DirLock::acquire(&path).unwrap().check(Epoch(i64::MAX)).unwrap();
        DirLock::acquire(&path).unwrap().check(Epoch(7)).unwrap_err();
    }

    #[test]
    fn the_lock_is_exclusive_even_within_a_process() {
        let (_directory, path) = lock();
        let held = DirLock::acquire(&path).unwrap();
        assert!(DirLock::try_acquire(&path).unwrap().is_none());
        drop(held);
        assert!(DirLock::try_acquire(&path).unwrap().is_some());
    }

    #[test]
    fn a_held_lock_is_transient_and_a_damaged_epoch_is_refused() {
        let (_directory, path) = lock();
        let held = DirLock::acquire(&path).unwrap();
        assert!(DirLock::acquire_within(&path, 3).unwrap_err().is_retryable());
        drop(held);
        std::fs::write(&path, "seven").unwrap();
        assert!(matches!(DirLock::acquire(&path).unwrap().check(Epoch(8)), Err(Error::Refused { .. })));
    }
}
