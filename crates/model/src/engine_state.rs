//! The states of an engine: the phase of its instance, and the state that SHOW prints.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The phase that the orchestrator observes for a pod or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Desired; nothing runs yet.
    Pending,
    /// Created; the engine does not respond yet.
    Starting,
    /// The engine's program runs.
    Running,
    /// Termination was requested; it still runs.
    Terminating,
    /// It ended. Final.
    Ended,
}

impl Phase {
    /// In the order of an engine's life.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Starting, Self::Running, Self::Terminating, Self::Ended];

    /// The word that SHOW prints and the database stores.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Terminating => "terminating",
            Self::Ended => "ended",
        }
    }

    /// Parses the word in the database.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The state that SHOW prints: the phase combined with registration and drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineState {
    /// Desired, and nothing runs yet; the reason says why.
    Pending,
    /// It runs and is not registered yet.
    Starting,
    /// It is registered and takes statements.
    Ready,
    /// It was ready when last observed, and no master has observed it since: it may have ended.
    Unknown,
    /// It runs, was registered, and no longer is; the reason states for how long, and whether it responds.
    Lost,
    /// It accepts no new sessions, finishes what runs, then exits.
    Draining,
    /// Termination was requested; it still runs.
    Terminating,
    /// It ended.
    Ended,
}

impl EngineState {
    /// The word that SHOW prints.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Unknown => "unknown",
            Self::Lost => "lost",
            Self::Draining => "draining",
            Self::Terminating => "terminating",
            Self::Ended => "ended",
        }
    }
}

impl fmt::Display for EngineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
