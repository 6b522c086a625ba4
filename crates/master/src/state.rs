//! What a candidate is just now, for whoever composes the process and for tests.

use model::number::Epoch;

/// The state of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It does not stand for election, or was shut down.
    Idle,
    /// It waits for the lock.
    Candidate,
    /// It has the lock and no epoch yet.
    Elected,
    /// It acts as master.
    Acting {
        /// Its epoch.
        epoch: Epoch,
        /// How many ticks of this term have ended.
        ticks: u64,
    },
}
