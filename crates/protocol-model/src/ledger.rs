//! The model of the ledger: concurrent transactions on scopes and reservations, statement by statement, with row locks.
//!
//! One component; one user, two tenants and their pool; requests of one unit. Each job is a transaction that some agent
//! issues at any time and repeats under its key until it knows the outcome. A statement that needs a locked row waits.
//! Connections break at every statement, and a COMMIT whose reply was lost arrives later, or never.
//!
//! A transaction has the form of `crates/metadata`: lock all rows, read, decide, write the difference, COMMIT. The
//! writes are visible from COMMIT on. The search runs under both isolation levels of the databases; on SQLite
//! transactions do not interleave.

mod data;
mod decide;
mod faults;
mod parameters;
mod properties;
mod state;
mod transaction;

use std::fmt;

use stateright::{Model, Property};

pub use parameters::{Isolation, Limits, Without, Workload};
pub use state::State;

use data::{A, B, USER};
use parameters::Job;
use state::Statement;

/// The model: the jobs, the isolation level, the faults and the removed rules.
#[derive(Debug, Clone)]
pub struct Ledger {
    initial: data::Data,
    jobs: Vec<Job>,
    isolation: Isolation,
    limits: Limits,
    without: Without,
    /// The one property to check; `None` for all.
    only: Option<&'static str>,
}

/// The transaction that a statement belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A change of a holder.
    Holder,
    /// A change of a master.
    Master,
    /// ALTER.
    Alter,
    /// The audit.
    Audit,
    /// The insertion of a user.
    User,
}

/// A step. The first number is that of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The row of the master is locked if it has the epoch of the job.
    LockMaster(usize),
    /// Without the check in the transaction only: the epoch is read.
    ReadEpoch(usize),
    /// The catalog is locked.
    LockCatalog(usize),
    /// The catalog is read.
    ReadCatalog(usize),
    /// In variants only: a SELECT before the locks.
    SelectEarly(usize),
    /// A scope is locked.
    Lock(usize, usize),
    /// Scopes and reservations are read, and the change is decided.
    Decide(usize, Kind),
    /// The difference is written.
    Write(usize, Kind),
    /// COMMIT.
    Commit(usize, Kind),
    /// The next master raises the epoch.
    Raise,
    /// A COMMIT arrives after its caller has given up.
    CommitArrives(usize),
    /// Its connection breaks before that.
    RollBack(usize),
    /// Fault: the connection breaks, or the agent dies.
    Break(usize),
    /// Fault: COMMIT is sent and its reply is lost.
    LoseReply(usize),
}

impl Action {
    /// One of each, for tests that compare names.
    pub const EACH: &'static [Self] = &[
        Self::LockMaster(0),
        Self::ReadEpoch(0),
        Self::LockCatalog(0),
        Self::ReadCatalog(0),
        Self::SelectEarly(0),
        Self::Lock(0, 0),
        Self::Decide(0, Kind::Holder),
        Self::Decide(0, Kind::Alter),
        Self::Decide(0, Kind::Audit),
        Self::Decide(0, Kind::User),
        Self::Write(0, Kind::Holder),
        Self::Write(0, Kind::Master),
        Self::Write(0, Kind::Alter),
        Self::Write(0, Kind::Audit),
        Self::Write(0, Kind::User),
        Self::Commit(0, Kind::Holder),
        Self::Commit(0, Kind::Master),
        Self::Commit(0, Kind::Alter),
        Self::Commit(0, Kind::Audit),
        Self::Commit(0, Kind::User),
        Self::Raise,
        Self::CommitArrives(0),
        Self::RollBack(0),
        Self::Break(0),
        Self::LoseReply(0),
    ];

    /// The failpoint at the end of the step, or the function that performs it, or the fault.
    pub fn name(self) -> &'static str {
        match self {
            Self::LockMaster(_) => "metadata.master.locked",
            Self::ReadEpoch(_) => "without: the epoch is read before the transaction",
            Self::LockCatalog(_) => "metadata::catalog_lock::lock_catalog",
            Self::ReadCatalog(_) => "metadata::read::catalog",
            Self::SelectEarly(_) => "without: a SELECT precedes the locks",
            Self::Lock(..) => "metadata::ledger::lock_scopes",
            Self::Decide(_, Kind::Holder | Kind::Master) => "metadata::ledger::decide",
            Self::Decide(_, Kind::Alter) => "metadata::limits::set_limits",
            Self::Decide(_, Kind::Audit) => "metadata::audit_ledger::audit",
            Self::Decide(_, Kind::User) => "metadata::reserve::insert",
            Self::Write(_, Kind::Holder) => "metadata.reserve.before_commit",
            Self::Write(_, Kind::Master) => "metadata.ledger.before_commit",
            Self::Write(_, Kind::Alter) => "metadata.commit.before_commit",
            Self::Write(_, Kind::Audit) => "metadata.master.before_commit",
            Self::Write(_, Kind::User) => "metadata.scopes.before_commit",
            Self::Commit(_, Kind::Holder) => "metadata.reserve.after_commit",
            Self::Commit(_, Kind::Master) => "metadata.ledger.after_commit",
            Self::Commit(_, Kind::Alter) => "metadata.commit.after_commit",
            Self::Commit(_, Kind::Audit) => "metadata.master.after_commit",
            Self::Commit(_, Kind::User) => "metadata.scopes.after_commit",
            Self::Raise => "master.epoch.raised",
            Self::CommitArrives(_) => "late: a COMMIT of the ledger arrives",
            Self::RollBack(_) => "metadata::transaction::roll_back",
            Self::Break(_) => "fault: the connection breaks before COMMIT",
            Self::LoseReply(_) => "fault: the reply to COMMIT is lost",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Raise => Ok(()),
            Self::Lock(job, scope) => {
                let scope = match *scope {
                    USER => "user",
                    A => "tenant A",
                    B => "tenant B",
                    _ => "pool",
                };
                write!(f, " (job {job}, {scope})")
            }
            Self::LockMaster(job)
            | Self::ReadEpoch(job)
            | Self::LockCatalog(job)
            | Self::ReadCatalog(job)
            | Self::SelectEarly(job)
            | Self::Decide(job, _)
            | Self::Write(job, _)
            | Self::Commit(job, _)
            | Self::CommitArrives(job)
            | Self::RollBack(job)
            | Self::Break(job)
            | Self::LoseReply(job) => write!(f, " (job {job})"),
        }
    }
}

impl Ledger {
    pub fn new(
        workload: Workload,
        isolation: Isolation,
        limits: Limits,
        without: Without,
        only: Option<&'static str>,
    ) -> Self {
        let (initial, jobs) = workload.setup();
        Self { initial, jobs, isolation, limits, without, only }
    }

    /// The step that runs the next statement of a job.
    fn step(&self, state: &State, job: usize) -> Option<Action> {
        let statement = self.next_statement(state, job)?;
        let inserting = matches!(state.progress[job], state::Progress::Running { inserting: true, .. });
        let kind = match self.jobs[job] {
            _ if inserting => Kind::User,
            Job::AlterGuarantee(_) | Job::AlterUser(_) => Kind::Alter,
            Job::Audit { .. } => Kind::Audit,
            other if other.epoch().is_some() => Kind::Master,
            _ => Kind::Holder,
        };
        Some(match statement {
            Statement::LockMaster => Action::LockMaster(job),
            Statement::ReadEpoch => Action::ReadEpoch(job),
            Statement::LockCatalog => Action::LockCatalog(job),
            Statement::ReadCatalog => Action::ReadCatalog(job),
            Statement::SelectEarly => Action::SelectEarly(job),
            Statement::Lock(scope) => Action::Lock(job, scope),
            Statement::Decide(_) | Statement::ReadUser => Action::Decide(job, kind),
            Statement::Write(_) => Action::Write(job, kind),
            Statement::Commit(_) => Action::Commit(job, kind),
        })
    }
}

impl Model for Ledger {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.initial.clone(), self.jobs.len())]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((0..self.jobs.len()).filter_map(|job| self.step(state, job)));
        self.fault_actions(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let is_enabled = match action {
            Action::LockMaster(job)
            | Action::ReadEpoch(job)
            | Action::LockCatalog(job)
            | Action::ReadCatalog(job)
            | Action::SelectEarly(job)
            | Action::Lock(job, _)
            | Action::Decide(job, _)
            | Action::Write(job, _)
            | Action::Commit(job, _) => self.run(&mut next, job),
            _ => self.fault(&mut next, action),
        };
        is_enabled.then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}
