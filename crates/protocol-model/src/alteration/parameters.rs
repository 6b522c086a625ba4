//! The parameters of the model of an alteration: the workload, limits of faults, removed rules.

use std::fmt;

/// The requests of the two agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Two ids, both ALTER of object 0, with different changes.
    SameObject,
    /// Id 0 drops object 0; id 1 alters object 1 so that it refers to object 0.
    Reference,
    /// Two ids, two independent objects.
    TwoObjects,
    /// One id at both agents: a proxy repeats a request while the first attempt may still be in flight.
    Repeated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Statement {
    pub id: usize,
    pub object: usize,
    pub drops: bool,
    /// Depends on object 0.
    pub refers: bool,
}

impl Workload {
    pub(super) fn statement(self, agent: usize) -> Statement {
        let statement = |id, object| Statement { id, object, drops: false, refers: false };
        match (self, agent) {
            (Self::Repeated, _) => statement(0, 0),
            (Self::SameObject, _) => statement(agent, 0),
            (Self::TwoObjects, _) => statement(agent, agent),
            (Self::Reference, 0) => Statement { drops: true, ..statement(0, 0) },
            (Self::Reference, _) => Statement { refers: true, ..statement(1, 1) },
        }
    }
}

/// How many faults of each kind may happen in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limits {
    /// Agents whose process dies.
    pub crashes: u8,
    /// Agents whose session ends while the process lives.
    pub agent_expiries: u8,
    /// COMMITs whose answer is lost.
    pub unknown_commits: u8,
    /// Masters that lose the lock.
    pub depositions: u8,
    /// Deletions of the alter node, or of its child, by hand.
    pub hand_deletions: u8,
    /// Times in which the orchestrator refuses creates.
    pub refusals: u8,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "2 agents, 2 objects, agent crashes {}, agent expiries {}, unknown COMMITs {}, masters deposed {}, \
             deletions by hand {}, times of refused creates {}",
            self.crashes,
            self.agent_expiries,
            self.unknown_commits,
            self.depositions,
            self.hand_deletions,
            self.refusals
        )
    }
}

/// The rules of the protocol that are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Without {
    /// A transaction does not lock the catalog.
    pub catalog_lock: bool,
    /// The transaction does not read again what the statement depends on.
    pub reread: bool,
    /// A commit leaves an open alteration of the same object as it is.
    pub superseding: bool,
    /// The base generation is not compared.
    pub base: bool,
    /// `abort` overwrites an existing row.
    pub abort_loses: bool,
    /// The node of an alteration in doubt is deleted instead of aborting the alteration.
    pub in_doubt_stays: bool,
    /// Debris is not deleted.
    pub debris_deleted: bool,
    /// The alter node and its child are created in two calls.
    pub atomic_node: bool,
    /// Only the node's alteration is finished.
    pub finish_without_node: bool,
    /// The snapshot is read before everything else, the alteration's row after it.
    pub order: bool,
    /// An alteration is finished by a plan of any generation.
    pub generation_rule: bool,
    /// The epoch is checked in a statement of its own, before the write.
    pub epoch_in_transaction: bool,
    /// The alter node is deleted whichever child it has.
    pub node_by_child: bool,
    /// *Nothing changed* is returned without an abort.
    pub abort_before_answer: bool,
    /// The master does not read the outcome: it deletes the node as soon as the engines match its snapshot.
    pub outcome: bool,
    /// The master ticks only when there is an alter node.
    pub level: bool,
}
