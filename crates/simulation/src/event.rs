//! The events of a run. Those of the script are drawn before the run begins; the others follow from them.

use std::time::Duration;

use model::alteration::RequestId;
use model::demand::DemandKey;
use model::demand_report::DemandReport;
use model::engine_name::EngineName;

use crate::alteration::AgentFault;
use crate::backup::Backup;
use crate::database::Statement;
use crate::late_call::LateCall;
use crate::machine::{Failing, FailureEnd};

/// The process of a proxy that waits for the answer to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    pub proxy: usize,
    pub process: u64,
    pub seq: i64,
}

/// What happens at a moment.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "most events are of the script")]
pub enum Event {
    /// An event of the script.
    Scripted(Scripted),
    /// An agent tries to register with this uid.
    Register(EngineName, String),
    /// The registration of an engine that has ended expires.
    Expire(EngineName),
    /// An agent reads the drain order of its engine.
    DrainRead(EngineName),
    ExitIfDrained(EngineName),
    Exit(EngineName),
    /// A session looks for an engine.
    Retry(u64),
    /// A waiting session looks for an engine again after a second.
    RetryLater(u64),
    /// A session was not opened although it has left the count, with this version, for so long.
    LeaveDeadline(u64, u64),
    /// A session arrives at an engine.
    OpenAt(u64, EngineName),
    /// A session leaves an engine that drains.
    Leave(u64),
    Close(u64),
    GiveUp(u64),
    /// A proxy reports its demand, if that is due.
    Report(usize),
    /// A report arrives at the database, from the proxy that waits for the answer.
    Reported(Box<DemandReport>, Option<Sender>),
    /// The answer to a report arrives at the proxy, and whether it was recorded.
    Answered(Sender, bool),
    /// A call of a deposed master arrives.
    Late(Box<LateCall>),
    /// The orchestrator accepts requests again.
    CreatesAccepted,
    /// The list of instances is up to date again.
    ListThawed,
    /// The loads may have changed.
    Polled,
    /// The proxies read the catalog.
    CatalogRead,
    /// A metadata agent reads the catalog for an alteration.
    AlterCheck(RequestId),
    /// It creates the alter node.
    AlterNode(RequestId),
    /// COMMIT arrives in the database.
    AlterCommit(RequestId),
    /// The agent gets no reply and aborts the alteration.
    AlterAbort(RequestId),
    /// The session of a metadata agent expires.
    AgentExpires(usize),
    /// A machine is reported as ready or not.
    Reachable(usize, bool),
    MachineReturns(usize, FailureEnd),
    /// The database is restored to this state.
    Restore(Box<Backup>),
    Tick,
    Elect,
}

/// An event of the script.
#[derive(Debug, Clone)]
pub enum Scripted {
    Statement(Statement),
    /// Sessions of one user and client application connect at the same time.
    Arrive {
        proxy: usize,
        /// Tenant, pool, unit and client application.
        key: DemandKey,
        user: String,
        sessions: u64,
        open_for: Duration,
        patience: Duration,
        repeats: bool,
    },
    Fault(Fault),
}

/// What happens to the registrations that a drain relies on.
#[derive(Debug, Clone, Copy)]
pub enum Racing {
    /// The successor of the engine loses its session.
    SuccessorLost,
    /// The engine registers.
    EngineRegisters,
}

/// A fault. An index means the engine or proxy at this place in the list, wherever it is then.
#[derive(Debug, Clone)]
pub enum Fault {
    CreatesRefused(Duration),
    CreateFails,
    CreateReplyLost,
    SlowStarts(Duration),
    NextNeverRegisters,
    NextExitsEarly,
    NextIsStubborn,
    Killed(usize),
    Vanished(usize),
    /// Every second instance vanishes with its machine.
    MachinesGone,
    MachineFails(usize, Failing),
    /// So many machines fail at the same time.
    ManyFail(usize, Failing),
    /// A machine is reported as not ready, and works.
    MachineUnready(usize, Duration),
    Muted(usize, Duration),
    SessionLost(usize, Duration),
    ProxyDied(usize),
    /// A proxy sends sessions to engines of other owners.
    OwnersIgnored(usize, Duration),
    LateReport,
    SlowReports(Duration),
    LostReports(Duration),
    /// After so many effects the master is deposed. The next effect arrives late, or never.
    Deposed {
        effects: u64,
        late: Option<Duration>,
    },
    /// An agent dies after the commit: the answer to one of the next effects is lost.
    ReplyLost(u64),
    /// The same, and the call is repeated later.
    Repeated(u64, Duration),
    AgentsAway(Duration),
    ListFrozen(Duration),
    /// The database is backed up, and restored to that state after this time.
    DatabaseRestored(Duration),
    ClockShifted(i64),
    WakesLost(Duration),
    /// This happens between the look of a master and its next drain.
    BeforeDrain(Racing),
    /// The agent of the next alteration fails.
    Agent(AgentFault),
    /// An alter node without an alteration, by hand.
    AlterDebris,
    /// This happens between the answers of agents and the next transaction that adds and removes slots.
    BeforeScaling(Box<Scripted>),
}
