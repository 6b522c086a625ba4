//! The state of the alteration model.

use super::Limits;

/// An object with its one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Object {
    pub exists: bool,
    pub generation: u8,
    /// A bit for each id that has changed it.
    pub content: u8,
    /// The slot's incarnation; 0 when there is no slot.
    pub slot: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Progress {
    Converging,
    Converged,
    Stalled,
    Superseded,
}

/// The row of an alteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Row {
    InDoubt,
    Aborted,
    Committed { object: usize, generation: u8, slot: u8, progress: Progress },
}

impl Row {
    pub fn is_converging(self) -> bool {
        matches!(self, Self::Committed { progress: Progress::Converging, .. })
    }

    pub fn is_committed(self) -> bool {
        matches!(self, Self::Committed { .. })
    }

    /// Whether the alteration has ended: a master that sees its node deletes it without acting on it.
    pub fn is_finished(self) -> bool {
        self == Self::Aborted || self.is_committed() && !self.is_converging()
    }

    /// Whether the alteration may lose its node.
    pub fn is_decided(self) -> bool {
        self != Self::InDoubt
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Database {
    pub generation: u8,
    pub epoch: u8,
    pub objects: [Object; 2],
    pub rows: [Row; 2],
}

/// The alter node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub child: Option<usize>,
    /// A second child, which only comes where the node is made in two calls.
    pub second: Option<usize>,
    /// The agent whose session the child names, while that session lives.
    pub agent: Option<usize>,
    /// The generation of the old object in it.
    pub base: u8,
}

impl Node {
    pub fn stands_for(self, id: usize) -> bool {
        self.child == Some(id) || self.second == Some(id)
    }

    /// The first child whose alteration is not finished, else the last.
    pub fn unsettled(self, rows: &[Row; 2]) -> Option<usize> {
        self.child.filter(|id| !rows[*id].is_finished() || self.second.is_none()).or(self.second)
    }
}

/// The pending writes of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Work {
    pub after: Object,
    /// The generation that the object has in the database.
    pub found: u8,
    /// The generation in the alter node.
    pub in_node: u8,
}

/// The answer of an agent to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It took effect.
    Committed,
    /// Nothing changed.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Agent {
    Asked,
    Checked { old: Object },
    NodeHalf { old: Object },
    Waiting,
    NodeMade { old: Object, in_node: u8 },
    Locked { old: Object, in_node: u8 },
    Validated(Work),
    Written(Work),
    Sent(Work),
    Settling,
    Done(Answer),
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Snapshot {
    pub generation: u8,
    pub slots: [u8; 2],
    pub rows: [Row; 2],
}

/// The observation of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Observed {
    pub node: Option<Node>,
    /// The pods of each object: a bit for each incarnation.
    pub pods: [u16; 2],
    /// Read too early, in the variant that does so.
    pub early: Option<Snapshot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    pub generation: u8,
    pub create: [u8; 2],
    pub delete: [u16; 2],
    pub finish: [Option<Progress>; 2],
    /// The node to delete when everything is done.
    pub release: Option<Node>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Tick {
    Idle,
    Observed(Observed),
    Aborting(Observed),
    Deleting(Observed),
    Settled(Observed),
    Planned(Plan),
}

/// The holder of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Master {
    Vacant,
    Won,
    Read(u8),
    Acting { epoch: u8, tick: Tick },
}

/// A call that a deposed master was making.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Call {
    Raise(u8),
    Abort(usize),
    Create(usize, u8),
    Delete(usize, u16),
    Finish { id: usize, progress: Progress, generation: u8, epoch: u8 },
}

/// The history that properties need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub(super) struct History {
    pub by_hand: bool,
    pub committed_without_node: bool,
    pub node_has_another_object: bool,
    pub node_lost_early: bool,
    pub deposed_wrote: bool,
    /// How often each id has changed an object.
    pub applied: [u8; 2],
    /// A bit for each incarnation that was ever created.
    pub made: u16,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) db: Database,
    pub(super) node: Option<Node>,
    pub(super) agents: [Agent; 2],
    /// Transactions whose COMMIT was sent and whose sender is gone.
    pub(super) open: [Option<Work>; 2],
    pub(super) pods: [u16; 2],
    pub(super) master: Master,
    pub(super) late: Option<Call>,
    pub(super) refusing: bool,
    pub(super) used: Limits,
    pub(super) history: History,
}

impl State {
    pub(super) fn new() -> Self {
        let object = Object { exists: true, generation: 1, content: 0, slot: 1 };
        Self {
            db: Database { generation: 1, epoch: 0, objects: [object; 2], rows: [Row::InDoubt; 2] },
            node: None,
            agents: [Agent::Asked; 2],
            open: [None; 2],
            pods: [1 << 1; 2],
            master: Master::Vacant,
            late: None,
            refusing: false,
            used: Limits::default(),
            history: History { made: 1 << 1, ..History::default() },
        }
    }
}
