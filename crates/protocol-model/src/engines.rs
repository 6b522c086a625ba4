//! The model of slots, permits and drains: from the rows of the desired state to running engines and their end.
//!
//! One (tenant, pool, unit) with two ordinals and a surge of one; every issued name with its row, its nodes in ZooKeeper and its
//! pod; the holder of the master's lock and the late calls of its predecessors. A request is one transaction under the catalog
//! lock, so it is one step; the other model covers the need for that lock and idempotent requests. The orchestrator keeps no
//! epoch, like Kubernetes: a late create or delete takes effect.
//!
//! The plan is that of `crates/planner`, reimplemented in a smaller form. A tick reads orchestrator and ZooKeeper in either order,
//! then the snapshot, and probes missing uids at that time.

mod faults;
mod master;
mod parameters;
mod plan;
mod pods;
mod properties;
mod requests;
mod state;
mod turns;
mod view;

use std::fmt;

use stateright::{Model, Property};

pub use parameters::{Limits, Request, Without};
use state::Effect;
pub use state::State;

/// The model: the initial engines, the requests, the faults and the removed rules.
#[derive(Debug, Clone)]
pub struct Engines {
    /// The number of slots with a registered engine in the initial state.
    pub slots: usize,
    /// Each is issued once, in any order and at any time.
    pub requests: Vec<Request>,
    pub limits: Limits,
    pub without: Without,
    /// The one property to check; `None` for all.
    pub only: Option<&'static str>,
}

/// A step. The number is that of the engine, in the order in which names were issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A user issues a statement.
    Issue(usize, Request),
    /// Master: the lock is won.
    Win,
    /// Master: the epoch is read.
    ReadEpoch,
    /// Master: the epoch is raised.
    RaiseEpoch,
    /// Master: the orchestrator's list is read.
    List,
    /// Master: permits, registrations and drain orders are read.
    Observe,
    /// Master: the snapshot is read and the plan computed; whether the grace of the drains has expired.
    Snapshot(bool),
    /// Master: a permit is created.
    CreatePermit(usize),
    /// Master: a pod is created.
    CreateEngine(usize),
    /// Master: a uid is recorded in the database.
    RecordUid(usize),
    /// Master: a uid is written into its permit.
    WritePermitUid(usize),
    /// Master: the engine's slot is given a new incarnation.
    DrawIncarnation(usize),
    /// Master: an end is recorded.
    RecordEnd(usize),
    /// Master: the reservation of a registered engine is confirmed.
    Confirm(usize),
    /// Master: a drain order is written, permit and registration go.
    Drain(usize),
    /// Master, without the one multi only: permit and registration are deleted.
    Withdraw(usize),
    /// Master: a permit is deleted.
    DeletePermit(usize),
    /// Master: a pod is deleted.
    DeleteEngine(usize),
    /// Master: a drain order is removed.
    RemoveDrainOrder(usize),
    /// Master: the alteration is finished.
    Finish,
    /// Engine: it has answered its warm-up.
    WarmUp(usize),
    /// Engine: it reads its permit and no drain order.
    ReadPermit(usize),
    /// Engine: it registers.
    Register(usize),
    /// Engine: it reads its drain order.
    BeginDrain(usize),
    /// Engine: no statement is left, or its grace has expired; it exits.
    Drained(usize),
    /// Engine: it has had no permit for one start deadline; it exits.
    Unwanted(usize),
    /// ZooKeeper: the session of an ended engine expires.
    RegistrationExpires(usize),
    /// A late call of a deposed master arrives.
    LateCall,
    /// The late call is lost.
    LateCallLost,
    /// Fault: an engine's session ends while the engine lives.
    Expire(usize),
    /// Fault: an engine ends by itself.
    Die(usize),
    /// Fault: a pod vanishes.
    Vanish(usize),
    /// Fault: a permit is deleted by hand.
    DeletePermitByHand(usize),
    /// Fault: a label is changed by hand.
    Relabel(usize),
    /// Fault: the master's session or process ends; whether its current call is still in flight.
    Depose(bool),
    /// Fault: ZooKeeper loses everything.
    LoseZooKeeper,
    /// Fault, for a master without a timer: the wake-up is lost.
    MissWatch,
}

impl Action {
    /// One of each, for tests that compare names.
    pub const EACH: &'static [Self] = &[
        Self::Issue(0, Request::Start),
        Self::Issue(0, Request::Stop(0)),
        Self::Issue(0, Request::Restart(0)),
        Self::Issue(0, Request::Force(0)),
        Self::Issue(0, Request::InPlace(0)),
        Self::Issue(0, Request::Alter),
        Self::Issue(0, Request::AlterBroken),
        Self::Issue(0, Request::AlterInPlace),
        Self::Issue(0, Request::AlterBrokenInPlace),
        Self::Issue(0, Request::Drop),
        Self::Win,
        Self::ReadEpoch,
        Self::RaiseEpoch,
        Self::List,
        Self::Observe,
        Self::Snapshot(false),
        Self::CreatePermit(0),
        Self::CreateEngine(0),
        Self::RecordUid(0),
        Self::WritePermitUid(0),
        Self::DrawIncarnation(0),
        Self::RecordEnd(0),
        Self::Confirm(0),
        Self::Drain(0),
        Self::Withdraw(0),
        Self::DeletePermit(0),
        Self::DeleteEngine(0),
        Self::RemoveDrainOrder(0),
        Self::Finish,
        Self::WarmUp(0),
        Self::ReadPermit(0),
        Self::Register(0),
        Self::BeginDrain(0),
        Self::Drained(0),
        Self::Unwanted(0),
        Self::RegistrationExpires(0),
        Self::LateCall,
        Self::LateCallLost,
        Self::Expire(0),
        Self::Die(0),
        Self::Vanish(0),
        Self::DeletePermitByHand(0),
        Self::Relabel(0),
        Self::Depose(false),
        Self::LoseZooKeeper,
        Self::MissWatch,
    ];

    fn from_effect(effect: Effect, engine: usize) -> Self {
        match effect {
            Effect::CreatePermit { .. } => Self::CreatePermit(engine),
            Effect::CreateEngine => Self::CreateEngine(engine),
            Effect::RecordUid { .. } => Self::RecordUid(engine),
            Effect::WritePermitUid { .. } => Self::WritePermitUid(engine),
            Effect::DrawIncarnation { .. } => Self::DrawIncarnation(engine),
            Effect::RecordEnd => Self::RecordEnd(engine),
            Effect::Confirm => Self::Confirm(engine),
            Effect::Drain { .. } => Self::Drain(engine),
            Effect::Withdraw(_) => Self::Withdraw(engine),
            Effect::DeletePermit(_) => Self::DeletePermit(engine),
            Effect::DeleteEngine { .. } => Self::DeleteEngine(engine),
            Effect::RemoveDrainOrder => Self::RemoveDrainOrder(engine),
            Effect::Finish => Self::Finish,
        }
    }

    /// The failpoint at the end of the step, or the function that performs it, or the fault.
    pub fn name(self) -> &'static str {
        match self {
            Self::Issue(_, Request::Start) => "metadata::start::start",
            Self::Issue(_, Request::Stop(_)) => "metadata::request::stop",
            Self::Issue(_, Request::Restart(_) | Request::Force(_) | Request::InPlace(_)) => {
                "metadata::request::restart"
            }
            Self::Issue(
                _,
                Request::Alter
                | Request::AlterBroken
                | Request::AlterInPlace
                | Request::AlterBrokenInPlace
                | Request::Drop,
            ) => "metadata::commit::commit",
            Self::Win => "master.lock.won",
            Self::ReadEpoch => "master::term::raise",
            Self::RaiseEpoch => "master.epoch.raised",
            Self::List => "master::ctx::live::observe_instances",
            Self::Observe => "master::ctx::live::observe_coordination",
            Self::Snapshot(_) => "master.tick.planned",
            Self::CreatePermit(_) => "master.after.create_permit",
            Self::CreateEngine(_) => "master.after.create_engine",
            Self::RecordUid(_) => "master.after.record_uid",
            Self::WritePermitUid(_) => "master.after.write_permit_uid",
            Self::DrawIncarnation(_) => "master.after.draw_incarnation",
            Self::RecordEnd(_) => "master.after.record_end",
            Self::Confirm(_) => "master.after.ledger",
            Self::Drain(_) => "master.after.drain",
            Self::Withdraw(_) => "without: permit and registration are deleted by a separate call",
            Self::DeletePermit(_) => "master.after.delete_permit",
            Self::DeleteEngine(_) => "master.after.delete_engine",
            Self::RemoveDrainOrder(_) => "master.after.remove_fact",
            Self::Finish => "master.after.finish",
            Self::WarmUp(_) => "engine-agent::engine::warm_up::succeeded",
            Self::ReadPermit(_) => "engine_agent.register.before",
            Self::Register(_) => "engine_agent.register.done",
            Self::BeginDrain(_) => "engine_agent.drain.begun",
            Self::Drained(_) => "engine-agent::engine::drain::finished",
            Self::Unwanted(_) => "engine-agent::engine::membership::exit_reason",
            Self::RegistrationExpires(_) => "zookeeper: the session of an ended engine expires",
            Self::LateCall => "late: the call of a deposed master arrives",
            Self::LateCallLost => "late: the call of a deposed master never arrives",
            Self::Expire(_) => "fault: the engine's session ends",
            Self::Die(_) => "fault: the engine ends by itself",
            Self::Vanish(_) => "fault: the pod vanishes",
            Self::DeletePermitByHand(_) => "fault: the permit is deleted by hand",
            Self::Relabel(_) => "fault: the engine's label is changed by hand",
            Self::Depose(_) => "fault: the master's session ends",
            Self::LoseZooKeeper => "fault: ZooKeeper loses everything",
            Self::MissWatch => "fault: the event of a watch is lost",
        }
    }

    fn engine(self) -> Option<usize> {
        match self {
            Self::CreatePermit(engine)
            | Self::CreateEngine(engine)
            | Self::RecordUid(engine)
            | Self::WritePermitUid(engine)
            | Self::DrawIncarnation(engine)
            | Self::RecordEnd(engine)
            | Self::Confirm(engine)
            | Self::Drain(engine)
            | Self::Withdraw(engine)
            | Self::DeletePermit(engine)
            | Self::DeleteEngine(engine)
            | Self::RemoveDrainOrder(engine)
            | Self::WarmUp(engine)
            | Self::ReadPermit(engine)
            | Self::Register(engine)
            | Self::BeginDrain(engine)
            | Self::Drained(engine)
            | Self::Unwanted(engine)
            | Self::RegistrationExpires(engine)
            | Self::Expire(engine)
            | Self::Die(engine)
            | Self::Vanish(engine)
            | Self::DeletePermitByHand(engine)
            | Self::Relabel(engine) => Some(engine),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Issue(_, request) => write!(f, " ({request:?})"),
            Self::Snapshot(true) => f.write_str(" (the grace has expired)"),
            Self::Depose(true) => f.write_str(" (with a call in flight)"),
            _ => self.engine().map_or(Ok(()), |engine| write!(f, " (engine {engine})")),
        }
    }
}

impl Model for Engines {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::with(self.slots)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        Self::master_actions(state, actions);
        Self::pod_actions(state, actions);
        self.request_actions(state, actions);
        self.fault_actions(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        if !self.apply(&mut next, action) {
            return None;
        }
        if self.without.timer {
            next.woken = match action {
                Action::MissWatch => false,
                Action::List | Action::Observe if state.is_idle() => false,
                Action::List | Action::Observe | Action::Snapshot(_) => state.woken,
                _ => true,
            };
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

impl Engines {
    /// Performs a step; returns false if it is not enabled.
    fn apply(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Issue(index, request) => Self::request(state, index, request),
            Action::WarmUp(_)
            | Action::ReadPermit(_)
            | Action::Register(_)
            | Action::BeginDrain(_)
            | Action::Drained(_)
            | Action::Unwanted(_)
            | Action::RegistrationExpires(_) => self.pod(state, action),
            Action::Expire(_)
            | Action::Die(_)
            | Action::Vanish(_)
            | Action::DeletePermitByHand(_)
            | Action::Relabel(_)
            | Action::Depose(_)
            | Action::LoseZooKeeper
            | Action::MissWatch
            | Action::LateCall
            | Action::LateCallLost => self.fault(state, action),
            _ => self.master(state, action),
        }
    }
}
