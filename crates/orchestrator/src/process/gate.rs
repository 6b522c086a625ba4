//! The directory lock: one effect at a time, and none by a deposed master.

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

/// How often the lock is tried before an effect gives up as *transient*: with the pause, for about 5 s.
const TRIES: u32 = 1_000;
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest content that can be an epoch.
const MAX_BYTES: u64 = 64;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub(super) struct Gate {
    file: File,
    path: PathBuf,
}

impl Gate {
    /// Waits for the lock, for a limited time.
    pub(super) fn enter(path: &Path) -> Result<Self, Error> {
        Self::enter_within(path, TRIES)
    }

    #[allow(clippy::disallowed_methods, reason = "called on a thread that may block")]
    fn enter_within(path: &Path, tries: u32) -> Result<Self, Error> {
        for _ in 0..tries {
            if let Some(gate) = Self::try_enter(path)? {
                return Ok(gate);
            }
            thread::sleep(PAUSE);
        }
        Err(Error::transient(format!("another process holds the lock {}", path.display())))
    }

    /// Takes the lock if it is free.
    pub(super) fn try_enter(path: &Path) -> Result<Option<Self>, Error> {
        let failed = |error: io::Error| Error::transient(format!("lock {}: {error}", path.display()));
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

    /// Refuses an epoch below the highest one seen; remembers a higher one.
    pub(super) fn admit(&self, epoch: Epoch) -> Result<(), Error> {
        let mut text = String::new();
        (&self.file).take(MAX_BYTES).read_to_string(&mut text).map_err(|error| self.damaged(&error.to_string()))?;
        let highest = match text.trim() {
            "" => None,
            digits => Some(Epoch(digits.parse().map_err(|_| self.damaged("it holds no epoch"))?)),
        };
        match highest {
            Some(highest) if epoch < highest => {
                // The caller may have given the effect up before it learns this.
                tracing::info!(%epoch, %highest, "effect of a deposed master refused");
                Err(Error::Deposed { epoch, highest })
            }
            Some(highest) if epoch == highest => Ok(()),
            _ => self.remember(epoch),
        }
    }

    // One write of a fixed width: whoever is killed here leaves the old text or the new one. Synced, once for each master:
    // a loss of power could leave zeros, which are no epoch and let nobody in.
    fn remember(&self, epoch: Epoch) -> Result<(), Error> {
        self.file
            .write_all_at(format!("{epoch:>20}\n").as_bytes(), 0)
            .and_then(|()| self.file.sync_data())
            .map_err(|error| Error::transient(format!("file {}: {error}", self.path.display())))
    }

    // Taking a damaged file for "no epoch yet" would let a deposed master in.
    fn damaged(&self, why: &str) -> Error {
        Error::refused(format!(
            "the epoch in {} can't be read ({why}); remove the file to begin anew",
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
        Gate::enter(&path).unwrap().admit(Epoch(7)).unwrap();
        Gate::enter(&path).unwrap().admit(Epoch(7)).unwrap();
        assert_eq!(
            Gate::enter(&path).unwrap().admit(Epoch(6)),
            Err(Error::Deposed { epoch: Epoch(6), highest: Epoch(7) })
        );
        Gate::enter(&path).unwrap().admit(Epoch(i64::MAX)).unwrap();
        Gate::enter(&path).unwrap().admit(Epoch(7)).unwrap_err();
    }

    #[test]
    fn one_at_a_time_even_within_a_process() {
        let (_directory, path) = lock();
        let held = Gate::enter(&path).unwrap();
        assert!(Gate::try_enter(&path).unwrap().is_none());
        drop(held);
        assert!(Gate::try_enter(&path).unwrap().is_some());
    }

    #[test]
    fn a_lock_that_stays_taken_is_a_transient_failure_and_a_damaged_epoch_a_refusal() {
        let (_directory, path) = lock();
        let held = Gate::enter(&path).unwrap();
        assert!(Gate::enter_within(&path, 3).unwrap_err().is_retryable());
        drop(held);
        std::fs::write(&path, "seven").unwrap();
        assert!(matches!(Gate::enter(&path).unwrap().admit(Epoch(8)), Err(Error::Refused { .. })));
    }
}
