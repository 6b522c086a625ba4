//! The dependencies of a candidate for master, and the state that it reports.

use std::fmt;
use std::sync::Arc;

use model::clock::SharedClock;
use model::credential::ClusterSecret;
use model::number::Epoch;
use orchestrator::Orchestrator;

use crate::ctx::Launcher;

/// The dependencies of a candidate.
pub struct Parts {
    /// The session settings; the identity must be the master's.
    pub coordination: coordination::SessionSettings,
    /// The cluster secret, for the keys of metadata agents and engine agents.
    pub secret: ClusterSecret,
    pub orchestrator: Arc<dyn Orchestrator>,
    pub launcher: Arc<dyn Launcher>,
    pub clock: SharedClock,
    /// The candidate's name, for people.
    pub holder: String,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// The state of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CandidateState {
    /// It does not stand for election, or is shut down.
    Idle,
    /// It waits for the lock.
    Candidate,
    /// It has the lock, and no epoch yet.
    Elected,
    /// It acts as master.
    Acting {
        epoch: Epoch,
        /// The number of completed ticks of this term.
        ticks: u64,
    },
}
