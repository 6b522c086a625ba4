//! Our own children: no zombies, and their exit is written down for everybody.
//!
//! Engines that an earlier or another process started are nobody's children here: their exit code is lost, unless the
//! process that started them lives and writes it down.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::process::Child;

use super::layout::EngineDir;
use super::record::{self, Ended};
use super::state::State;

/// How long a look waits for the exit of our own child, whose lock is free already, to be written down: on a machine that
/// is busy, the file may take its time.
const EXIT_WAIT: Duration = Duration::from_secs(3);

/// The uids of the engines that we started and whose exit is not written down.
#[derive(Debug, Default)]
pub(super) struct Children {
    running: Mutex<HashSet<String>>,
    reaped: Condvar,
}

impl Children {
    pub(super) fn add(&self, uid: &str) {
        self.lock().insert(uid.to_owned());
    }

    fn remove(&self, uid: &str) {
        self.lock().remove(uid);
        self.reaped.notify_all();
    }

    /// Waits until the exit of the engine is written down if that is ours to do; on timeout the exit stays unknown.
    pub(super) fn wait_for_exit(&self, uid: &str) {
        self.reaped.wait_while_for(&mut self.lock(), |running| running.contains(uid), EXIT_WAIT);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.running.lock()
    }
}

/// A child that was just started.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) child: Child,
    pub(super) uid: String,
    pub(super) directory: EngineDir,
}

/// Waits for the child's end and writes down how it was.
pub(super) async fn reap(state: Arc<State>, mut spawned: Spawned) {
    let status = spawned.child.wait().await;
    let (code, signal) = match &status {
        Ok(status) => (status.code(), status.signal()),
        Err(error) => {
            tracing::warn!(uid = spawned.uid, %error, "the exit of an engine is lost");
            (None, None)
        }
    };
    let ended = Ended { code, signal, ended_at_ms: state.clock.wall_ms() };
    let uid = spawned.uid.clone();
    let written = tokio::task::spawn_blocking({
        let state = Arc::clone(&state);
        move || {
            // Before its end is known: a reader relies on nothing being left.
            if let Err(error) = super::end::kill_leftovers(&spawned.directory, &spawned.uid) {
                tracing::warn!(uid = spawned.uid, %error, "what an engine left behind can't be killed");
            }
            // Its directory is gone if it was deleted meanwhile, perhaps between two of our calls; then nobody asks how it
            // ended.
            let written =
                record::text(&ended).and_then(|text| super::layout::replace(&spawned.directory.exit(), &text));
            if let Err(error) = written
                && spawned.directory.0.is_dir()
            {
                tracing::warn!(uid = spawned.uid, %error, "the exit of an engine could not be written down");
            }
            state.children.remove(&spawned.uid);
            state.nudge();
        }
    });
    if written.await.is_err() {
        state.children.remove(&uid);
    }
}
