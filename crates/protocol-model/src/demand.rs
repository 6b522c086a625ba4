//! The model of demand: from sessions that wait to engines that start, are released when idle, and are replaced when their machine fails.
//!
//! One link with two ordinals and engines of one seat; clients, each with a session and a proxy of its own that reports whether it waits;
//! the acting master and one late call, of a deposed master or one that the acting master gave up. The first engines run on one
//! node, which can be reported as not ready, or be cut off. A transaction is one step: [`ledger`](crate::ledger) has its statements.
//! Permits and drains are in [`engines`](crate::engines), and here a permit allows every engine without a drain order to register.
//!
//! A plan is judged by what was true at some time since its tick began: what was right then may be outdated when it takes effect.
//!
//! Time passes at any moment, with these exceptions: demand lapses, and an engine becomes idle, only while no session waits or is being
//! opened; demand does not lapse within a tick; and a consent to retire does not end while a slot may still be removed because of it.

mod agents;
mod clients;
mod history;
mod master;
mod parameters;
mod plan;
mod properties;
mod state;

use std::fmt;

use stateright::{Model, Property};

pub use parameters::{Limits, Link, Request, Without};
use state::History;
pub use state::State;
use state::{Effect, Master, Tick};

/// The model: the link, the requests, the faults and the removed rules.
#[derive(Debug, Clone)]
pub struct Demand {
    pub link: Link,
    /// Each is issued once, in any order and at any time.
    pub requests: Vec<Request>,
    pub limits: Limits,
    pub without: Without,
    /// The one property to check; `None` for all.
    pub only: Option<&'static str>,
}

/// A step. The number is that of the session, or of the engine in the order in which names were issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A user or the external holder issues a request.
    Issue(usize, Request),
    /// Proxy: a session begins to wait, and is counted.
    Wait(usize),
    /// Proxy: a report is sent and recorded.
    Report(usize),
    /// Proxy: a session leaves the count, to be opened on an engine.
    Leave(usize, usize),
    /// Agent: the session is opened or refused.
    Open(usize),
    /// Proxy: a session has lost its engine.
    Lose(usize),
    /// Client: it closes its session.
    Close(usize),
    /// Client: it waits no longer, and whether it comes again.
    Stop(usize, bool),
    /// Time: the lease of a proxy that died ends.
    LeaseEnds(usize),
    /// Master: the epoch is raised.
    RaiseEpoch,
    /// Master: registrations, instances and nodes are observed, with the last loads.
    Observe,
    /// Master: slots and demand are read.
    Snapshot,
    /// Master: the engines are polled, because sessions wait.
    Poll,
    /// Master: the demand is read again if engines were polled, and the plan computed.
    Plan,
    /// Agent: it agrees to retire, or declines.
    Retire(usize),
    /// Master: slots are added or removed.
    Scale,
    /// Master: in a variant, a slot is reserved for.
    Reserve(usize),
    /// Master: an instance is created.
    Create(usize),
    /// Master: the engine's slot is given a new incarnation.
    Draw(usize),
    /// Master: an engine is drained.
    Drain(usize),
    /// Master: in a variant, a consent is withdrawn.
    Withdraw(usize),
    /// Engine: it registers.
    Register(usize),
    /// Engine: it has drained, and exits.
    Exit(usize),
    /// ZooKeeper: the session of an engine expires.
    Expire(usize),
    /// Time: no session has been open at the engine for long enough.
    IdleTimeout(usize),
    /// Time: the consent to retire ends.
    ConsentEnds(usize),
    /// Time: demand has been absent for long enough.
    Lapse,
    /// Orchestrator: the node is reported as not ready.
    NodeReported,
    /// Fault: a proxy dies.
    Die(usize),
    /// Fault: a proxy gives up a report.
    GiveUpReport(usize),
    /// A report arrives late.
    LateReport(usize),
    /// The late report is lost.
    LateReportLost(usize),
    /// Fault: the agent stops to answer the master.
    Silence(usize),
    /// Fault: the engine never registers.
    Hang(usize),
    /// Fault: the node is cut off.
    Cut,
    /// The node returns.
    NodeReturns,
    /// A late call arrives.
    LateCall,
    /// The late call is lost.
    LateCallLost,
    /// Fault: the master's session or process ends; whether its current call is still in flight.
    Depose(bool),
    /// Fault: the master gives up its current call.
    GiveUp,
}

impl Action {
    /// One of each, for tests that compare names.
    pub const EACH: &'static [Self] = &[
        Self::Issue(0, Request::RaiseMin),
        Self::Issue(0, Request::Hold),
        Self::Wait(0),
        Self::Report(0),
        Self::Leave(0, 0),
        Self::Open(0),
        Self::Lose(0),
        Self::Close(0),
        Self::Stop(0, true),
        Self::LeaseEnds(0),
        Self::RaiseEpoch,
        Self::Observe,
        Self::Snapshot,
        Self::Poll,
        Self::Plan,
        Self::Retire(0),
        Self::Scale,
        Self::Reserve(0),
        Self::Create(0),
        Self::Draw(0),
        Self::Drain(0),
        Self::Withdraw(0),
        Self::Register(0),
        Self::Exit(0),
        Self::Expire(0),
        Self::IdleTimeout(0),
        Self::ConsentEnds(0),
        Self::Lapse,
        Self::NodeReported,
        Self::Die(0),
        Self::GiveUpReport(0),
        Self::LateReport(0),
        Self::LateReportLost(0),
        Self::Silence(0),
        Self::Hang(0),
        Self::Cut,
        Self::NodeReturns,
        Self::LateCall,
        Self::LateCallLost,
        Self::Depose(false),
        Self::GiveUp,
    ];

    fn from_effect(effect: Effect) -> Self {
        match effect {
            Effect::Retire { engine, .. } => Self::Retire(engine),
            Effect::Scale(_) => Self::Scale,
            Effect::Reserve(engine) => Self::Reserve(engine),
            Effect::Create(engine) => Self::Create(engine),
            Effect::Draw(engine) => Self::Draw(engine),
            Effect::Drain(engine) => Self::Drain(engine),
            Effect::Withdraw(engine) => Self::Withdraw(engine),
        }
    }

    /// The failpoint at the end of the step, or the function that performs it, or the fault.
    pub fn name(self) -> &'static str {
        match self {
            Self::Issue(_, Request::RaiseMin) => "metadata::commit::commit",
            Self::Issue(_, Request::Hold) => "metadata::reserve::reserve",
            Self::Wait(_) => "proxy::demand::add",
            Self::Report(_) => "metadata.demand.after_commit",
            Self::Leave(..) => "proxy::demand::leave",
            Self::Open(_) => "engine-agent::engine::sessions::begin_open",
            Self::Lose(_) => "proxy::relay::lost",
            Self::Close(_) => "engine-agent::engine::sessions::close",
            Self::Stop(..) => "client: it waits no longer",
            Self::LeaseEnds(_) => "time: the lease of a proxy that died ends",
            Self::RaiseEpoch => "master.epoch.raised",
            Self::Observe => "master.tick.observed",
            Self::Snapshot => "master.tick.snapshot_read",
            Self::Poll => "master::ctx::loads::poll_now",
            Self::Plan => "master.tick.planned",
            Self::Retire(_) => "engine-agent::engine::idleness::retire",
            Self::Scale => "master.after.scale",
            Self::Reserve(_) => "without: the slot is reserved for later",
            Self::Create(_) => "master.after.create_engine",
            Self::Draw(_) => "master.after.draw_incarnation",
            Self::Drain(_) => "master.after.drain",
            Self::Withdraw(_) => "without: the consent is withdrawn",
            Self::Register(_) => "engine_agent.register.done",
            Self::Exit(_) => "engine-agent::engine::drain::finished",
            Self::Expire(_) => "zookeeper: an engine's session expires",
            Self::IdleTimeout(_) => "time: an engine reaches the idle timeout",
            Self::ConsentEnds(_) => "time: the consent to retire ends",
            Self::Lapse => "time: demand has been absent for long enough",
            Self::NodeReported => "orchestrator: the node is not ready",
            Self::Die(_) => "fault: a proxy dies",
            Self::GiveUpReport(_) => "fault: a proxy gives up a report",
            Self::LateReport(_) => "late: a report of a proxy arrives",
            Self::LateReportLost(_) => "late: a report of a proxy never arrives",
            Self::Silence(_) => "fault: an agent does not answer",
            Self::Hang(_) => "fault: an engine never registers",
            Self::Cut => "fault: the node is cut off",
            Self::NodeReturns => "orchestrator: the node returns",
            Self::LateCall => "late: a call of a master arrives",
            Self::LateCallLost => "late: a call of a master never arrives",
            Self::Depose(_) => "fault: the master's session ends",
            Self::GiveUp => "fault: the master gives up a call",
        }
    }

    fn number(self) -> Option<(&'static str, usize)> {
        match self {
            Self::Retire(engine)
            | Self::Reserve(engine)
            | Self::Create(engine)
            | Self::Draw(engine)
            | Self::Drain(engine)
            | Self::Withdraw(engine)
            | Self::Register(engine)
            | Self::Exit(engine)
            | Self::Expire(engine)
            | Self::IdleTimeout(engine)
            | Self::ConsentEnds(engine)
            | Self::Silence(engine)
            | Self::Hang(engine) => Some(("engine", engine)),
            Self::Wait(session)
            | Self::Report(session)
            | Self::Open(session)
            | Self::Lose(session)
            | Self::Close(session)
            | Self::LeaseEnds(session)
            | Self::Die(session)
            | Self::GiveUpReport(session)
            | Self::LateReport(session)
            | Self::LateReportLost(session) => Some(("session", session)),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Issue(_, request) => write!(f, " ({request:?})"),
            Self::Leave(session, engine) => write!(f, " (session {session} for engine {engine})"),
            Self::Stop(session, true) => write!(f, " and comes again (session {session})"),
            Self::Stop(session, false) => write!(f, " (session {session})"),
            Self::Depose(true) => f.write_str(" (with a call in flight)"),
            _ => self.number().map_or(Ok(()), |(kind, number)| write!(f, " ({kind} {number})")),
        }
    }
}

impl Model for Demand {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::with(self.link)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        Self::master_actions(state, actions);
        self.proxy_actions(state, actions);
        self.engine_actions(state, actions);
        self.client_actions(state, actions);
        self.fault_actions(state, actions);
        for (index, request) in self.requests.iter().enumerate() {
            if state.issued & 1 << index == 0 {
                actions.push(Action::Issue(index, *request));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.apply(&mut next, action).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

impl Demand {
    /// Performs a step; returns false if it is not enabled.
    fn apply(&self, state: &mut State, action: Action) -> bool {
        let is_done = match action {
            Action::Issue(index, request) => Self::request(state, index, request),
            Action::Wait(_)
            | Action::Report(_)
            | Action::Leave(..)
            | Action::Open(_)
            | Action::Lose(_)
            | Action::Close(_)
            | Action::Stop(..)
            | Action::LeaseEnds(_)
            | Action::Die(_)
            | Action::GiveUpReport(_)
            | Action::LateReport(_)
            | Action::LateReportLost(_) => self.client(state, action),
            Action::LateCall => self.arrive(state),
            Action::LateCallLost => state.late.take().is_some(),
            Action::Depose(in_flight) => Self::depose(state, in_flight),
            Action::GiveUp => self.give_up(state),
            Action::Register(_)
            | Action::Exit(_)
            | Action::Expire(_)
            | Action::IdleTimeout(_)
            | Action::ConsentEnds(_)
            | Action::Lapse
            | Action::NodeReported
            | Action::Silence(_)
            | Action::Hang(_)
            | Action::Cut
            | Action::NodeReturns => self.engine(state, action),
            _ => self.master(state, action),
        };
        if is_done {
            self.extend_histories(state);
        }
        is_done
    }

    /// What is true now becomes a part of the time since the tick began.
    fn extend_histories(&self, state: &mut State) {
        let (now, unserved) = (History::now(state, self), history::unserved(state));
        match &mut state.master {
            // A tick that begins has no history.
            Master::Acting(Tick::Idle, history) => *history = History::default(),
            Master::Acting(_, history) => history.extend(now, unserved),
            Master::Vacant => {}
        }
        if let Some(late) = &mut state.late {
            late.history.extend(now, unserved);
        }
    }

    /// One transaction each.
    fn request(state: &mut State, index: usize, request: Request) -> bool {
        match request {
            Request::RaiseMin => {
                let count = state.slots.iter().flatten().count();
                if count == 0 {
                    return false;
                }
                state.min = count;
            }
            Request::Hold => {
                if state.free == 0 {
                    return false;
                }
                state.free -= 1;
            }
        }
        state.issued |= 1 << index;
        true
    }
}
