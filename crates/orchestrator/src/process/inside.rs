//! The engine's own side: what the program that was started may ask and leave.
//!
//! An engine whose file is gone exits: the directory of an engine is the right to run, and somebody who removes it by
//! hand means it. What can't be read is taken for present: only absence, seen twice, ends an engine.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::EngineName;
use model::observation::{MAX_REASON_BYTES, cut};

use super::layout::{self, EngineDir, Layout};
use super::record::{self, Record};
use crate::UID_VARIABLE;

/// The variable of an engine's environment that holds its directory.
pub const DIRECTORY_VARIABLE: &str = "ENGINEHOUSE_ENGINE_DIR";
/// How often an engine looks whether it is still wanted.
pub const WANTED_PERIOD: Duration = Duration::from_secs(1);

/// The place of the engine that this process is.
#[derive(Debug, Clone)]
pub struct Inside {
    directory: EngineDir,
    uid: String,
}

impl Inside {
    /// What the environment says; `None` if this process was not started by the orchestrator of local processes.
    pub fn from_environment() -> Option<Self> {
        let directory = PathBuf::from(std::env::var_os(DIRECTORY_VARIABLE)?);
        Some(Self::new(directory, std::env::var(UID_VARIABLE).ok()?))
    }

    /// The engine with that directory and uid.
    pub fn new(directory: impl Into<PathBuf>, uid: impl Into<String>) -> Self {
        Self { directory: EngineDir(directory.into()), uid: uid.into() }
    }

    /// The engine's uid.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The variables for the environment of a child, so that what the child leaves behind is known as this engine's.
    pub fn marks(&self) -> Vec<(&'static str, OsString)> {
        vec![(DIRECTORY_VARIABLE, self.directory.0.clone().into()), (UID_VARIABLE, self.uid.clone().into())]
    }

    /// The file that the engine's standard output and error go to.
    pub fn log_file(&self) -> PathBuf {
        self.directory.log()
    }

    /// Whether the engine still has its place.
    pub fn still_wanted(&self) -> bool {
        match record::read::<Record>(&self.directory.record()) {
            Ok(Some(record)) => record.uid == self.uid,
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Returns when the engine has lost its place; its program exits then. Cheap: one small file is read each second.
    pub async fn until_unwanted(&self) {
        let mut absent = 0;
        let mut period = tokio::time::interval(WANTED_PERIOD);
        while absent < 2 {
            period.tick().await;
            absent = if self.still_wanted() { 0 } else { absent + 1 };
        }
    }

    /// Leaves the reason for which the program is about to exit; it becomes the reason of the ended engine.
    pub fn leave_reason(&self, reason: &str) -> io::Result<()> {
        layout::replace(&self.directory.last_words(), cut(reason, MAX_REASON_BYTES).as_bytes())
    }
}

/// Whether the engine of that name and uid still has its place in the state directory.
pub fn still_wanted(state_dir: &Path, name: &EngineName, uid: &str) -> bool {
    Inside::new(Layout::new(state_dir.to_owned()).engine(name.as_str()).0, uid).still_wanted()
}
