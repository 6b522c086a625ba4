//! The engine's own side: its identity, whether it may still run, and the reason that it leaves when it exits.
//!
//! An engine may run while its directory exists; removing the directory by hand ends it. An unreadable record counts as
//! present: only absence, seen twice, ends an engine.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::EngineName;
use model::observation::MAX_REASON_BYTES;
use model::text::cut;

use super::layout::{self, EngineDir, Layout};
use super::record::{self, EngineRecord};
use crate::UID_VARIABLE;

/// The variable of an engine's environment that holds its directory.
pub const DIRECTORY_VARIABLE: &str = "ENGINEHOUSE_ENGINE_DIR";
/// How often an engine checks whether it is still wanted.
pub const WANTED_PERIOD: Duration = Duration::from_secs(1);

/// The directory and the uid of the engine that this process is.
#[derive(Debug, Clone)]
pub struct Guest {
    directory: EngineDir,
    uid: String,
}

impl Guest {
    /// Reads the environment; `None` if this process was not started by the orchestrator of local processes.
    pub fn from_environment() -> Option<Self> {
        let directory = PathBuf::from(std::env::var_os(DIRECTORY_VARIABLE)?);
        Some(Self::new(directory, std::env::var(UID_VARIABLE).ok()?))
    }

    pub fn new(directory: impl Into<PathBuf>, uid: impl Into<String>) -> Self {
        Self { directory: EngineDir(directory.into()), uid: uid.into() }
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The variables for the environment of a child, by which its leftovers are recognized as this engine's.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        vec![(DIRECTORY_VARIABLE, self.directory.0.clone().into()), (UID_VARIABLE, self.uid.clone().into())]
    }

    /// The file that receives the engine's standard output and error.
    pub fn log_file(&self) -> PathBuf {
        self.directory.log()
    }

    /// Whether the engine still has its directory.
    pub fn still_wanted(&self) -> bool {
        match record::read::<EngineRecord>(&self.directory.record()) {
            Ok(Some(record)) => record.uid == self.uid,
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Returns when the engine has lost its directory; its program then exits. Cheap: reads one small file each second.
    pub async fn until_unwanted(&self) {
        let mut absent = 0;
        let mut period = tokio::time::interval(WANTED_PERIOD);
        while absent < 2 {
            period.tick().await;
            absent = if self.still_wanted() { 0 } else { absent + 1 };
        }
    }

    /// Records why the program is about to exit; this becomes the reason of the ended engine.
    pub fn leave_reason(&self, reason: &str) -> io::Result<()> {
        layout::replace(&self.directory.last_words(), cut(reason, MAX_REASON_BYTES).as_bytes())
    }
}

/// Whether the engine with this name and uid still has its directory.
pub fn still_wanted(state_dir: &Path, name: &EngineName, uid: &str) -> bool {
    Guest::new(Layout::new(state_dir.to_owned()).engine(name.as_str()).0, uid).still_wanted()
}
