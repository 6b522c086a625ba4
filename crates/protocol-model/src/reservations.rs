//! The model of reservations: from the requests for engines and of an external holder to charges that are returned.
//!
//! One pool, of which each engine takes one unit; two ordinals; every issued name with its row, its instance and its
//! reservation; one external holder with two programs that both mean to use its reservation; the acting master and one
//! late call, of a deposed master or one that the acting master gave up. A change of the ledger is one step;
//! [`ledger`](crate::ledger) has its statements. Permits, registrations and drains are in
//! [`engines`](crate::engines): here an engine registers once its uid is recorded, and ends when it is deleted. Of drain orders
//! only that of a slot's turn in place is here, as a condemned row: like the multi of a drain, it is refused to a deposed master.
//!
//! The plan is that of `crates/planner`, reimplemented in a smaller form. A list of instances is read first, then
//! everything else; missing instances are probed at that time.

mod master;
mod outside;
mod parameters;
mod plan;
mod properties;
mod state;

use std::fmt;

use stateright::{Model, Property};

pub use parameters::{Limits, Pool, Request, Without};
use state::Effect;
pub use state::State;

/// The model: the pool, the requests, the faults and the removed rules.
#[derive(Debug, Clone)]
pub struct Reservations {
    pub pool: Pool,
    /// Each is issued once, in any order and at any time.
    pub requests: Vec<Request>,
    pub limits: Limits,
    pub without: Without,
    /// The one property to check; `None` for all.
    pub only: Option<&'static str>,
}

/// A step. The number is that of the engine, in the order in which names were issued, or of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A user issues a statement, or the holder its request.
    Issue(usize, Request),
    /// Master: the epoch is raised.
    RaiseEpoch,
    /// Master: the orchestrator's list is read.
    List,
    /// Master: the snapshot is read and the plan computed.
    Plan,
    /// Master: a running engine is charged.
    Adopt(usize),
    /// Master: the reservation of a registered engine is used.
    Confirm(usize),
    /// Master: a reservation ends, and its charge is returned.
    End(usize),
    /// Master: an engine is reserved for.
    Reserve(usize),
    /// Master: the charge of an older engine passes to an engine.
    Transfer(usize),
    /// Master: the engine is drained in the turn of its slot.
    Drain(usize),
    /// Master: an instance is created.
    CreateEngine(usize),
    /// Master: a uid is recorded.
    RecordUid(usize),
    /// Master: the engine's slot is given a new incarnation.
    DrawIncarnation(usize),
    /// Master: an instance is deleted.
    DeleteEngine(usize),
    /// Master: an end is recorded.
    RecordEnd(usize),
    /// Master: the overdue reservation of the external holder ends.
    Expire,
    /// Master: it has counted the engines of the pool.
    Count,
    /// Engine: it registers.
    Register(usize),
    /// Orchestrator: a deleted instance has terminated.
    Gone(usize),
    /// Holder: it is granted a reservation.
    Hold,
    /// Holder: one of its programs confirms.
    ConfirmProgram(usize),
    /// Holder: one of its programs ends, and releases.
    Release(usize),
    /// A late call arrives.
    LateCall,
    /// The late call is lost.
    LateCallLost,
    /// Fault: an instance vanishes.
    Vanish(usize),
    /// Time: the deadline of an engine's reservation passes.
    Deadline(usize),
    /// Time: the deadline of the holder's reservation passes.
    HolderDeadline,
    /// Fault: the master's session or process ends; whether its current call is still in flight.
    Depose(bool),
    /// Fault: the master gives up its current call.
    GiveUp,
}

impl Action {
    /// One of each, for tests that compare names.
    pub const EACH: &'static [Self] = &[
        Self::Issue(0, Request::Start),
        Self::Issue(0, Request::Stop(0)),
        Self::Issue(0, Request::Restart(0)),
        Self::Issue(0, Request::InPlace(0)),
        Self::Issue(0, Request::Hold),
        Self::RaiseEpoch,
        Self::List,
        Self::Plan,
        Self::Adopt(0),
        Self::Confirm(0),
        Self::End(0),
        Self::Reserve(0),
        Self::Transfer(0),
        Self::Drain(0),
        Self::CreateEngine(0),
        Self::RecordUid(0),
        Self::DrawIncarnation(0),
        Self::DeleteEngine(0),
        Self::RecordEnd(0),
        Self::Expire,
        Self::Count,
        Self::Register(0),
        Self::Gone(0),
        Self::Hold,
        Self::ConfirmProgram(0),
        Self::Release(0),
        Self::LateCall,
        Self::LateCallLost,
        Self::Vanish(0),
        Self::Deadline(0),
        Self::HolderDeadline,
        Self::Depose(false),
        Self::GiveUp,
    ];

    fn from_effect(effect: Effect, engine: usize) -> Self {
        match effect {
            Effect::Adopt { .. } => Self::Adopt(engine),
            Effect::Confirm { .. } => Self::Confirm(engine),
            Effect::End => Self::End(engine),
            Effect::Reserve => Self::Reserve(engine),
            Effect::Transfer { .. } => Self::Transfer(engine),
            Effect::Drain => Self::Drain(engine),
            Effect::CreateEngine => Self::CreateEngine(engine),
            Effect::RecordUid { .. } => Self::RecordUid(engine),
            Effect::DrawIncarnation => Self::DrawIncarnation(engine),
            Effect::DeleteEngine { .. } => Self::DeleteEngine(engine),
            Effect::RecordEnd => Self::RecordEnd(engine),
            Effect::Expire => Self::Expire,
            Effect::Count => Self::Count,
        }
    }

    /// The failpoint at the end of the step, or the function that performs it, or the fault.
    pub fn name(self) -> &'static str {
        match self {
            Self::Issue(_, Request::Start) => "metadata::start::start",
            Self::Issue(_, Request::Stop(_)) => "metadata::request::stop",
            Self::Issue(_, Request::Restart(_) | Request::InPlace(_)) => "metadata::request::restart",
            Self::Issue(_, Request::Hold) => "holder: it requests a reservation",
            Self::RaiseEpoch => "master.epoch.raised",
            Self::List => "master::ctx::live::observe_instances",
            Self::Plan => "master.tick.planned",
            Self::Adopt(_) | Self::Confirm(_) | Self::End(_) | Self::Reserve(_) | Self::Transfer(_) => {
                "master.after.ledger"
            }
            Self::Drain(_) => "master.after.drain",
            Self::CreateEngine(_) => "master.after.create_engine",
            Self::RecordUid(_) => "master.after.record_uid",
            Self::DrawIncarnation(_) => "master.after.draw_incarnation",
            Self::DeleteEngine(_) => "master.after.delete_engine",
            Self::RecordEnd(_) => "master.after.record_end",
            Self::Expire => "metadata::expire::expire",
            Self::Count => "metadata::ledger::record_admission",
            Self::Register(_) => "engine_agent.register.done",
            Self::Gone(_) => "orchestrator: a deleted instance has terminated",
            Self::Hold => "metadata::reserve::reserve",
            Self::ConfirmProgram(_) => "metadata::reserve::confirm",
            Self::Release(_) => "metadata::reserve::release",
            Self::LateCall => "late: a call of a master arrives",
            Self::LateCallLost => "late: a call of a master never arrives",
            Self::Vanish(_) => "fault: the instance vanishes",
            Self::Deadline(_) => "time: the deadline of an engine's reservation passes",
            Self::HolderDeadline => "time: the deadline of the holder's reservation passes",
            Self::Depose(_) => "fault: the master's session ends",
            Self::GiveUp => "fault: the master gives up a call",
        }
    }

    /// What is done with a reservation, where several steps have the name of one failpoint.
    fn change(self) -> Option<&'static str> {
        match self {
            Self::Adopt(_) => Some("adopt"),
            Self::Confirm(_) => Some("confirm"),
            Self::End(_) => Some("end"),
            Self::Reserve(_) => Some("reserve"),
            Self::Transfer(_) => Some("transfer"),
            _ => None,
        }
    }

    fn number(self) -> Option<(&'static str, usize)> {
        match self {
            Self::Adopt(engine)
            | Self::Confirm(engine)
            | Self::End(engine)
            | Self::Reserve(engine)
            | Self::Transfer(engine)
            | Self::Drain(engine)
            | Self::CreateEngine(engine)
            | Self::RecordUid(engine)
            | Self::DrawIncarnation(engine)
            | Self::DeleteEngine(engine)
            | Self::RecordEnd(engine)
            | Self::Register(engine)
            | Self::Gone(engine)
            | Self::Vanish(engine)
            | Self::Deadline(engine) => Some(("engine", engine)),
            Self::ConfirmProgram(program) | Self::Release(program) => Some(("program", program)),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Some(change) = self.change() {
            write!(f, ": {change}")?;
        }
        match self {
            Self::Issue(_, request) => write!(f, " ({request:?})"),
            Self::Depose(true) => f.write_str(" (with a call in flight)"),
            _ => self.number().map_or(Ok(()), |(kind, number)| write!(f, " ({kind} {number})")),
        }
    }
}

impl Model for Reservations {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::with(self.pool)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        Self::master_actions(state, actions);
        Self::outside_actions(state, actions);
        self.request_actions(state, actions);
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

impl Reservations {
    /// Performs a step; returns false if it is not enabled.
    fn apply(&self, state: &mut State, action: Action) -> bool {
        match action {
            Action::Issue(index, request) => Self::request(state, index, request),
            Action::Register(_)
            | Action::Gone(_)
            | Action::Hold
            | Action::ConfirmProgram(_)
            | Action::Release(_)
            | Action::LateCall
            | Action::LateCallLost
            | Action::Vanish(_)
            | Action::Deadline(_)
            | Action::HolderDeadline
            | Action::Depose(_)
            | Action::GiveUp => self.outside(state, action),
            _ => self.master(state, action),
        }
    }
}
