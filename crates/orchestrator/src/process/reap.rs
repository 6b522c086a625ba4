//! Reaping of our own children: no zombies, and their exit is recorded for all candidates.
//!
//! The exit code of an engine that another process started is lost unless that process is alive and records it.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;

use tokio::process::Child;

use super::layout::{self, EngineDir};
use super::leftovers;
use super::record::{self, ExitRecord};
use super::state_dir::StateDir;

/// A child that was just started.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) child: Child,
    pub(super) uid: String,
    pub(super) directory: EngineDir,
}

/// Waits for the child's exit and records it.
pub(super) async fn reap(state_dir: Arc<StateDir>, mut spawned: Spawned) {
    let status = spawned.child.wait().await;
    let (code, signal) = match &status {
        Ok(status) => (status.code(), status.signal()),
        Err(error) => {
            tracing::warn!(uid = spawned.uid, %error, "could not wait for an engine; its exit status is lost");
            (None, None)
        }
    };
    let exit = ExitRecord { code, signal, ended_at_ms: state_dir.clock.wall_ms() };
    let uid = spawned.uid.clone();
    let recorded = tokio::task::spawn_blocking({
        let state_dir = Arc::clone(&state_dir);
        move || {
            // Before the exit is visible: readers rely on nothing being left.
            if let Err(error) = leftovers::kill(&spawned.directory, &spawned.uid) {
                tracing::warn!(uid = spawned.uid, %error, "could not kill the processes that an engine left behind");
            }
            // If the engine was deleted in the meantime, perhaps between two of our calls, its directory is gone and the
            // exit is of no interest.
            let written = record::text(&exit).and_then(|text| layout::replace(&spawned.directory.exit(), &text));
            if let Err(error) = written
                && spawned.directory.0.is_dir()
            {
                tracing::warn!(uid = spawned.uid, %error, "could not record the exit of an engine");
            }
            state_dir.children.remove(&spawned.uid);
            state_dir.nudge();
        }
    });
    if recorded.await.is_err() {
        state_dir.children.remove(&uid);
    }
}
