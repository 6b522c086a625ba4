//! The engines that this process started and whose exit is not recorded yet.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// How long a reader waits for the exit of our own child, whose lock is already free, to be recorded; on a busy machine the
/// write may take a while.
const EXIT_WAIT: Duration = Duration::from_secs(3);

/// Their uids.
#[derive(Debug, Default)]
pub(super) struct Children {
    running: Mutex<HashSet<String>>,
    reaped: Condvar,
}

impl Children {
    pub(super) fn add(&self, uid: &str) {
        self.lock().insert(uid.to_owned());
    }

    pub(super) fn remove(&self, uid: &str) {
        self.lock().remove(uid);
        self.reaped.notify_all();
    }

    /// Waits until the exit of the engine is recorded if this process records it; on timeout the exit stays unknown.
    pub(super) fn wait_for_exit(&self, uid: &str) {
        self.reaped.wait_while_for(&mut self.lock(), |running| running.contains(uid), EXIT_WAIT);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.running.lock()
    }
}
