//! An alteration on its way through a metadata agent, and how agents fail.

use std::time::Duration;

use model::change::{Change, Object};
use model::number::Generation;
use model::slot::Replacement;

/// An alteration that is not decided yet.
#[derive(Debug, Clone)]
pub struct Alteration {
    pub change: Change,
    pub replacement: Replacement,
    /// The metadata agent that executes it.
    pub agent: usize,
    pub begun: Duration,
    /// What was computed before the node was created.
    pub computed: Option<(Generation, Option<Object>)>,
    /// Whether its agent is to look at the catalog, and whether the node is free.
    pub waits: bool,
    /// Whether its COMMIT is on its way.
    pub is_sent: bool,
    /// Whether its agent is gone.
    pub is_orphan: bool,
}

/// How the agent of the next alteration fails.
#[derive(Debug, Clone, Copy)]
pub enum AgentFault {
    /// It dies after it has created the node. Its session expires after the first time; its COMMIT arrives after the second.
    Dies { expires: Duration, commits: Option<Duration> },
    /// It gets no reply to its COMMIT, which arrives after this time.
    NoReply { commits: Duration },
    /// It pauses for so long before it creates the node and after that.
    Pauses { before: Duration, after: Duration },
}
