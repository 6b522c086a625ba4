//! The alteration: from the statement at a metadata agent to the alter node's end.
//!
//! Two agents, two objects, two ids; the holder of the master's lock and the late calls of its predecessors. An
//! object has one slot, whose incarnation is the number that the commit drew; its pods are told apart by incarnation.
//! What becomes of permits and drains is the other model's business: here a pod is made, or it goes, in one step.
//!
//! Invariants that the model is built on, each checked by tests of the crate that it is about: a multi of ZooKeeper
//! happens whole or not at all; a transaction of the database is atomic and its reads see what is committed; an
//! insert whose key an open transaction has inserted waits for it.

mod agent;
mod faults;
mod master;
mod properties;
mod state;

use std::fmt;

use stateright::{Model, Property};

pub use state::{Answer, Limits, State, Without, Workload};

/// The model: what the agents are asked, what may go wrong, and what is left out of the protocol.
#[derive(Debug, Clone, Copy)]
pub struct Alteration {
    /// What the two agents are asked.
    pub workload: Workload,
    /// How many faults may happen.
    pub limits: Limits,
    /// The sentences that are taken away.
    pub without: Without,
    /// The one property that is looked at; `None` for all of them.
    pub only: Option<&'static str>,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Agent: the id's outcome and the catalog are read, the statement is checked.
    Check(usize),
    /// Agent: the alter node is made, or found taken.
    MakeNode(usize),
    /// Agent, without atomic creation only: the child is made.
    MakeChild(usize),
    /// Agent: the node that it waited for is gone.
    Absent(usize),
    /// Agent: it has waited long enough.
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
    /// Database: a COMMIT arrives whose sender is not there any more.
    CommitArrives(usize),
    /// Database: the connection of such a sender breaks before that: rolled back.
    RollBack(usize),
    /// Master: the lock is won.
    Win,
    /// Master: the epoch is read.
    ReadEpoch,
    /// Master: the epoch is raised.
    RaiseEpoch,
    /// Master: a tick begins; orchestrator, registry and alter node are read.
    Observe,
    /// Master: the outcome of the node's alteration is read and thought about.
    Settle,
    /// Master: the grace of an undecided alteration is over.
    GraceOver,
    /// Master: the undecided alteration is aborted, unless it was committed.
    MasterAbort,
    /// Master: the alter node is deleted.
    DeleteNode,
    /// Master: the snapshot is read and the plan made; whether the alterations' deadline has passed.
    Snapshot(bool),
    /// Master: a missing pod is made.
    CreateEngine,
    /// Master: a condemned pod goes.
    DeleteEngine,
    /// Master: an alteration's progress is written.
    Finish,
    /// A late call of a deposed master arrives.
    LateCall,
    /// Or never does.
    LateCallLost,
    /// Orchestrator: it takes creates again.
    CreatesAccepted,
    /// Fault: an agent's process dies.
    Crash(usize),
    /// Fault: an agent's session ends, the process lives.
    AgentExpires(usize),
    /// Fault: an agent is not told how its COMMIT ended.
    UnknownCommit(usize),
    /// Fault: the master's session ends, or its process; whether the call that it was making is on its way.
    Depose(bool),
    /// Fault: somebody deletes the alter node.
    DeleteNodeByHand,
    /// Fault: somebody deletes the alter node's child.
    DeleteChildByHand,
    /// Fault: the orchestrator refuses creates for a while.
    RefuseCreates,
}

impl Action {
    /// One of each, for whoever compares names.
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

    /// The failpoint that stands at the step's end, or the function that does it, or the fault.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check(_) => "agent.alter.checked",
            Self::MakeNode(_) => "coordination.alter.made",
            Self::MakeChild(_) => "without: the child is made by a call of its own",
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
            Self::ReadEpoch => "master::term::raise_once",
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
            Self::UnknownCommit(_) => "fault: the agent is not told how its COMMIT ended",
            Self::Depose(_) => "fault: the master's session ends",
            Self::DeleteNodeByHand => "fault: somebody deletes the alter node",
            Self::DeleteChildByHand => "fault: somebody deletes the alter node's child",
            Self::RefuseCreates => "fault: the orchestrator refuses creates",
        }
    }

    /// Whether it is something that need not happen.
    pub fn is_fault(self) -> bool {
        self.name().starts_with("fault: ")
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
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
            | Self::UnknownCommit(agent) => write!(f, " (agent {agent})"),
            Self::Snapshot(true) => f.write_str(" (the deadline has passed)"),
            Self::Depose(true) => f.write_str(" (with a call on its way)"),
            _ => Ok(()),
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
    /// Does a step; false if it changes nothing now.
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
