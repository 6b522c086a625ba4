//! The state of the model of the ledger: rows, transactions, locks.

use super::Limits;
use super::data::{Data, Effect, Request, Reservation, Scope};
use super::parameters::Job;

/// The locks of single rows, as bits.
pub(super) const MASTER: u8 = 1;
pub(super) const CATALOG: u8 = 1 << 1;

/// The lock of a scope.
pub(super) const fn lock_of(scope: usize) -> u8 {
    1 << (2 + scope)
}

/// What a transaction writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    All,
    Scopes,
    Reservations,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Statement {
    /// Locks the row of the master if it has the job's epoch.
    LockMaster,
    /// Compares the epoch, without a lock.
    ReadEpoch,
    LockCatalog,
    /// The first SELECT of ALTER, under the catalog lock.
    ReadCatalog,
    /// A SELECT before the locks.
    SelectEarly,
    Lock(usize),
    /// Reads everything that the change depends on, and decides.
    Decide(Job),
    /// Reads the catalog and the row of the user.
    ReadUser,
    Write(Part),
    Commit(Part),
}

/// What a transaction has decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Decision {
    /// The new rows of scopes.
    pub scopes: [Option<Scope>; 4],
    pub reservations: Vec<Reservation>,
    /// The limit of the user and the guarantee of tenant A.
    pub catalog: Option<(u8, u8)>,
    /// What is granted, to compare it with the limits at COMMIT.
    pub granted: Option<(Request, (i8, i8, i8))>,
    /// The row of a new user.
    pub user: Option<Scope>,
}

impl Decision {
    pub fn grant(&mut self, request: Request, effect: Effect) {
        self.granted = Some((request, (effect.policy, effect.pool, effect.shared)));
    }

    pub fn inserts(&self) -> Option<Inserted> {
        let reservation = self.granted.map(|(request, _)| Inserted::Reservation(request.key));
        self.user.map(|_| Inserted::User).or(reservation)
    }

    pub fn effect(&self) -> Option<(Request, Effect)> {
        self.granted.map(|(request, (policy, pool, shared))| (request, Effect { policy, pool, shared }))
    }
}

/// An open transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Transaction {
    pub locks: u8,
    /// The locked rows whose newest version it reads, because it has changed them.
    pub changed: u8,
    /// The rows of its first SELECT.
    pub snapshot: Option<Box<Data>>,
    /// What the tenant held before its lock, in the variant that uses it.
    pub tenant_held: Option<u8>,
    pub decision: Decision,
    /// It has inserted its reservation, or the row of the user.
    pub inserted: bool,
}

/// What runs an open transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Job(usize),
    /// Its caller is gone; it waits for nothing.
    Orphan,
}

/// A row that a transaction inserts; a second insert of it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inserted {
    User,
    /// With its key.
    Reservation(u8),
}

/// What the caller of a transaction has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    /// The change has taken effect, now or by an earlier attempt.
    Done,
    Refused,
    Deposed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Progress {
    Idle,
    /// `at` statements have been run. `inserting`: it is the transaction that inserts the row of the user.
    Running {
        inserting: bool,
        at: usize,
        transaction: Transaction,
    },
    Ended(Answer),
}

/// A transaction whose COMMIT was sent and whose caller is gone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Orphan {
    pub part: Part,
    pub transaction: Transaction,
}

/// The history that properties need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct History {
    pub over_granted: bool,
    pub deposed_wrote: bool,
    pub audit_found: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The committed rows.
    pub(super) data: Data,
    /// By job.
    pub(super) progress: Vec<Progress>,
    /// By job.
    pub(super) orphans: Vec<Option<Orphan>>,
    pub(super) used: Limits,
    pub(super) history: History,
}

impl State {
    pub(super) fn new(data: Data, jobs: usize) -> Self {
        Self {
            data,
            progress: vec![Progress::Idle; jobs],
            orphans: vec![None; jobs],
            used: Limits::default(),
            history: History::default(),
        }
    }

    /// The open transactions.
    pub(super) fn open(&self) -> impl Iterator<Item = (Owner, &Transaction)> {
        let running = self.progress.iter().enumerate().filter_map(|(job, progress)| match progress {
            Progress::Running { transaction, .. } => Some((Owner::Job(job), transaction)),
            _ => None,
        });
        let orphans = self.orphans.iter().flatten();
        running.chain(orphans.map(|orphan| (Owner::Orphan, &orphan.transaction)))
    }
}
