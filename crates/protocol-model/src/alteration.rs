//! The model of an alteration: from the statement at a metadata agent to the deletion of the alter node.
//!
//! Two agents, two objects, two ids; the holder of the master's lock and the late calls of its predecessors. An object has one
//! slot, whose incarnation is the number that the commit drew and identifies its pod. Permits and drains belong to the other
//! model: here a pod is created or deleted in one step.
//!
//! The model assumes, and tests of the crates concerned check, that a multi of ZooKeeper is atomic, that a transaction of the
//! database is atomic and reads committed rows, and that an insert waits for an open transaction with the same key.

mod agent;
mod faults;
mod master;
mod parameters;
mod properties;
mod state;

use std::fmt;

use stateright::{Model, Property};

pub use parameters::{Limits, Without, Workload};
pub use state::{Answer, State};

/// The model: the requests, the faults and the removed rules.
#[derive(Debug, Clone, Copy)]
pub struct Alteration {
    pub workload: Workload,
    pub limits: Limits,
    pub without: Without,
    /// The one property to check; `None` for all.
    pub only: Option<&'static str>,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Agent: the id's outcome and the catalog are read, the statement is checked.
    Check(usize),
    /// Agent: the alter node is created, or belongs to another alteration.
    MakeNode(usize),
    /// Agent, without atomic creation only: the child is created.
    MakeChild(usize),
    /// Agent: the node that it waited for is deleted.
    Absent(usize),
    /// Agent: its wait times out.
    GiveUp(usize),
    /// Agent: the transaction begins and locks the catalog.
    Lock(usize),
    /// Agent: everything is read again and validated.
    Validate(usize),
    /// Agent: row, object and slots are written in the transaction.
    Write(usize),
    /// Agent: COMMIT is sent.
    Send(usize),
    /// Agent: COMMIT is answered.
    Commit(usize),
    /// Agent: the id is aborted, unless it was committed.
    Abort(usize),
    /// Database: a COMMIT arrives whose sender is gone.
    CommitArrives(usize),
    /// Database: the connection of such a sender breaks first: rollback.
    RollBack(usize),
    /// Master: the lock is won.
    Win,
    /// Master: the epoch is read.
    ReadEpoch,
    /// Master: the epoch is raised.
    RaiseEpoch,
    /// Master: a tick begins; orchestrator, registry and alter node are read.
    Observe,
    /// Master: the outcome of the node's alteration is read and evaluated.
    Settle,
    /// Master: the grace of an alteration in doubt has expired.
    GraceOver,
    /// Master: the alteration in doubt is aborted, unless it was committed.
    MasterAbort,
    /// Master: the alter node is deleted.
    DeleteNode,
    /// Master: the snapshot is read and the plan computed; whether the deadline of the alterations has passed.
    Snapshot(bool),
    /// Master: a missing pod is created.
    CreateEngine,
    /// Master: a condemned pod is deleted.
    DeleteEngine,
    /// Master: an alteration's progress is written.
    Finish,
    /// A late call of a deposed master arrives.
    LateCall,
    /// The late call is lost.
    LateCallLost,
    /// Orchestrator: it accepts creates again.
    CreatesAccepted,
    /// Fault: an agent's process dies.
    Crash(usize),
    /// Fault: an agent's session ends while the process lives.
    AgentExpires(usize),
    /// Fault: the answer to an agent's COMMIT is lost.
    UnknownCommit(usize),
    /// Fault: the master's session or process ends; whether its current call is still in flight.
    Depose(bool),
    /// Fault: the alter node is deleted by hand.
    DeleteNodeByHand,
    /// Fault: the alter node's child is deleted by hand.
    DeleteChildByHand,
    /// Fault: the orchestrator refuses creates for a while.
    RefuseCreates,
}

impl Action {
    /// One of each, for tests that compare names.
    pub const EACH: &'static [Self] = &[
        Self::Check(0),
        Self::MakeNode(0),
        Self::MakeChild(0),
        Self::Absent(0),
        Self::GiveUp(0),
        Self::Lock(0),
        Self::Validate(0),
        Self::Write(0),
        Self::Send(0),
        Self::Commit(0),
        Self::Abort(0),
        Self::CommitArrives(0),
        Self::RollBack(0),
        Self::Win,
        Self::ReadEpoch,
        Self::RaiseEpoch,
        Self::Observe,
        Self::Settle,
        Self::GraceOver,
        Self::MasterAbort,
        Self::DeleteNode,
        Self::Snapshot(false),
        Self::CreateEngine,
        Self::DeleteEngine,
        Self::Finish,
        Self::LateCall,
        Self::LateCallLost,
        Self::CreatesAccepted,
        Self::Crash(0),
        Self::AgentExpires(0),
        Self::UnknownCommit(0),
        Self::Depose(false),
        Self::DeleteNodeByHand,
        Self::DeleteChildByHand,
        Self::RefuseCreates,
    ];

    /// The failpoint at the end of the step, or the function that performs it, or the fault.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check(_) => "agent.alter.checked",
            Self::MakeNode(_) => "coordination.alter.made",
            Self::MakeChild(_) => "without: the child is created by a separate call",
            Self::Absent(_) => "coordination::alter_node::wait_absent",
            Self::GiveUp(_) => "engine-agent::metadata::alter::busy",
            Self::Lock(_) => "metadata.commit.locked",
            Self::Validate(_) => "metadata.commit.validated",
            Self::Write(_) => "metadata.commit.slots_written",
            Self::Send(_) => "metadata.commit.before_commit",
            Self::Commit(_) => "agent.alter.committed",
            Self::Abort(_) => "agent.alter.aborted",
            Self::CommitArrives(_) => "metadata.commit.after_commit",
            Self::RollBack(_) => "metadata::transaction::roll_back",
            Self::Win => "master.lock.won",
            Self::ReadEpoch => "master::term::raise",
            Self::RaiseEpoch => "master.epoch.raised",
            Self::Observe => "master.tick.observed",
            Self::Settle => "master.tick.settled",
            Self::GraceOver => "master::settle::abort_reason",
            Self::MasterAbort => "metadata.abort.after_insert",
            Self::DeleteNode => "master.node.deleted",
            Self::Snapshot(_) => "master.tick.snapshot_read",
            Self::CreateEngine => "master.after.create_engine",
            Self::DeleteEngine => "master.after.delete_engine",
            Self::Finish => "master.after.finish",
            Self::LateCall => "late: the call of a deposed master arrives",
            Self::LateCallLost => "late: the call of a deposed master never arrives",
            Self::CreatesAccepted => "orchestrator: creates are accepted again",
            Self::Crash(_) => "fault: the agent's process dies",
            Self::AgentExpires(_) => "fault: the agent's session ends",
            Self::UnknownCommit(_) => "fault: the answer to the agent's COMMIT is lost",
            Self::Depose(_) => "fault: the master's session ends",
            Self::DeleteNodeByHand => "fault: the alter node is deleted by hand",
            Self::DeleteChildByHand => "fault: the alter node's child is deleted by hand",
            Self::RefuseCreates => "fault: the orchestrator refuses creates",
        }
    }

    /// Whether the action need not happen.
    pub fn is_fault(self) -> bool {
        self.name().starts_with("fault: ")
    }

    fn agent(self) -> Option<usize> {
        match self {
            Self::Check(agent)
            | Self::MakeNode(agent)
            | Self::MakeChild(agent)
            | Self::Absent(agent)
            | Self::GiveUp(agent)
            | Self::Lock(agent)
            | Self::Validate(agent)
            | Self::Write(agent)
            | Self::Send(agent)
            | Self::Commit(agent)
            | Self::Abort(agent)
            | Self::CommitArrives(agent)
            | Self::RollBack(agent)
            | Self::Crash(agent)
            | Self::AgentExpires(agent)
            | Self::UnknownCommit(agent) => Some(agent),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Snapshot(true) => f.write_str(" (the deadline has passed)"),
            Self::Depose(true) => f.write_str(" (with a call in flight)"),
            _ => self.agent().map_or(Ok(()), |agent| write!(f, " (agent {agent})")),
        }
    }
}

impl Model for Alteration {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for agent in 0..2 {
            Self::agent_actions(state, agent, actions);
        }
        Self::master_actions(state, actions);
        self.fault_actions(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.apply(&mut next, action).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

impl Alteration {
    /// Performs a step; returns false if it is not enabled.
    pub(crate) fn apply(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Crash(_)
            | Action::AgentExpires(_)
            | Action::UnknownCommit(_)
            | Action::Depose(_)
            | Action::DeleteNodeByHand
            | Action::DeleteChildByHand
            | Action::RefuseCreates
            | Action::CreatesAccepted
            | Action::LateCall
            | Action::LateCallLost => self.fault(state, action),
            Action::Win
            | Action::ReadEpoch
            | Action::RaiseEpoch
            | Action::Observe
            | Action::Settle
            | Action::GraceOver
            | Action::MasterAbort
            | Action::DeleteNode
            | Action::Snapshot(_)
            | Action::CreateEngine
            | Action::DeleteEngine
            | Action::Finish => self.master(state, action),
            _ => self.agent(state, action),
        }
    }
}
