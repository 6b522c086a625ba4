//! The dependencies of a candidate for master, and the state that it reports.

use std::fmt;
use std::sync::Arc;

use agent_api::ClusterTls;
use coordination::{Identity, Logins};
use keys::{Current, MasterKeys};
use model::clock::SharedClock;
use model::engine_name::EngineName;
use model::number::Epoch;
use orchestrator::Orchestrator;

use crate::ctx::Launcher;

/// The ZooKeeper identity of masters with these keys.
pub fn identity(keys: &Current<MasterKeys>) -> Identity {
    Identity::changing(keys.map(|keys| {
        let (passwords, roles) = (keys.zookeeper_passwords(), keys.digests());
        let engines = keys.engine_secrets();
        Logins::master(passwords, &roles, Arc::new(move |engine: &EngineName| engines.passwords(engine)))
    }))
}

/// The dependencies of a candidate.
pub struct Parts {
    /// The session settings; the identity must be the master's.
    pub coordination: coordination::SessionSettings,
    /// For calls of metadata agents and engine agents.
    pub keys: Current<MasterKeys>,
    /// Whether it reaches agents by TLS.
    pub cluster_tls: ClusterTls,
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
