//! The configuration of the orchestrator of local processes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::layout::MAX_ENTRIES;

/// The default limit of engines.
pub const DEFAULT_MAX_ENGINES: usize = 64;
/// The highest limit of engines that can be enforced: the state directory also holds foreign and hidden entries.
pub const MAX_ENGINES_LIMIT: usize = MAX_ENTRIES - 96;
/// The default lowest uid of accounts that engines run as, with which most systems begin those of users.
pub const DEFAULT_MIN_UID: u32 = 1_000;
/// The variables that engines inherit from the master's environment by default.
pub const DEFAULT_INHERIT: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// Where the engines of this machine are kept, and how many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The state directory; created if it does not exist. The same for all candidates of the machine.
    pub state_dir: PathBuf,
    /// The logical nodes that a spec may name; if empty, there is one, named like the host.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// The limit of engines. Ended engines count until they are deleted.
    #[serde(default = "default_max_engines")]
    pub max_engines: usize,
    /// The variables that engines inherit from this process's environment; all others are withheld.
    #[serde(default = "default_inherit")]
    pub inherit: Vec<String>,
    /// The lowest uid of an account that engines run as: below are accounts of the system. Never 0.
    #[serde(default = "default_min_uid")]
    pub min_uid: u32,
}

fn default_max_engines() -> usize {
    DEFAULT_MAX_ENGINES
}

fn default_min_uid() -> u32 {
    DEFAULT_MIN_UID
}

fn default_inherit() -> Vec<String> {
    DEFAULT_INHERIT.map(str::to_owned).to_vec()
}

impl Config {
    /// The given state directory, and defaults for the rest.
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: state_dir.into(),
            nodes: Vec::new(),
            max_engines: DEFAULT_MAX_ENGINES,
            inherit: default_inherit(),
            min_uid: DEFAULT_MIN_UID,
        }
    }
}
