//! The controller's boundary: everything that a reconciler reads and changes, as one trait.
//!
//! [`LiveCtx`] is the real context (ZooKeeper under the lease, metadata agents, the orchestrator, engine agents); the unit
//! tests have a fake. Failures are classified by what the reconciler does next. No call is repeated within a tick.

mod agents;
mod apply;
mod batch;
mod bounded;
mod failure;
mod launch;
mod live;
mod loads;
mod observation;
mod retire;
mod scale;

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use coordination::{AlterNode, Observation as Coordination};
use model::alteration::{Abort, AlterationProgress, AlterationRecord, RequestId};
use model::demand::Demand;
use model::ledger::{Decided, LedgerRecord, LedgerRecorded, ScopedChange};
use model::name::TenantName;
use model::number::{Epoch, Generation};
use model::observation::Publication;
use model::snapshot::{MasterRecord, Snapshot};
use planner::{Decision, Instance, Probe};

pub(crate) use bounded::{BoundedCtx, bounded};
pub use failure::{Failure, FailureKind};
pub use launch::{Launch, Launcher};
pub(crate) use live::{Deps, LiveCtx};
pub use observation::{InstanceCache, InstanceList, Observation};

/// The context of a reconciler, which bounds every call in time, and every effect by the lease.
#[async_trait]
pub trait ControllerCtx: Send + Sync {
    /// Monotonic time that includes suspension: for all comparisons of durations.
    fn clock(&self) -> Duration;

    /// The right to act as master.
    fn lease(&self) -> &dyn Lease;

    /// Waits until something may have changed: a watch, an event of an instance, a new load. May wait forever.
    async fn wait(&self);

    /// Reads ZooKeeper (after a sync) and the orchestrator at the same time, and adds the polled loads.
    async fn observe(&self) -> Result<Observation, Failure>;

    /// Looks an instance up by name, bypassing any cache; in the namespace that it was created in, if known.
    async fn probe(&self, probe: &Probe) -> Result<Option<Instance>, Failure>;

    /// Reads the database in one read-only transaction of the primary.
    async fn snapshot(&self) -> Result<Snapshot, Failure>;

    /// Polls the engines of the tenants, and adds their loads to the observation; then reads the demand again. A session that is
    /// opened in between is counted by its engine's load or as demand, and never by both.
    async fn demand(
        &self,
        observation: &mut Observation,
        tenants: &BTreeSet<TenantName>,
    ) -> Result<Vec<Demand>, Failure>;

    /// Reads the outcome of an alteration, `None` if it is in doubt; with an abort, aborts it unless it was committed.
    async fn settle(&self, id: &RequestId, abort: Option<&Abort>) -> Result<Option<AlterationRecord>, Failure>;

    /// Applies one effect, guarded where it takes effect.
    async fn apply(&self, effect: Effect<'_>) -> Result<Applied, Failure>;

    /// Records capacities or the end of an admission round in the ledger, or runs its expiry or its audit, under the epoch.
    async fn record(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, Failure>;

    /// Publishes the rows for SHOW, and the end of the tick.
    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), Failure>;
}

/// The lock with its session, and the epoch that fences every effect in the database and at the orchestrator.
#[async_trait]
pub trait Lease: Send + Sync {
    /// Whether this process may act as master now. Checked before every effect, and during it.
    fn state(&self) -> LeaseState;

    /// Checks that the lock is still held and raises the epoch above the stored one. [`Failure::Lost`]: the lock is lost.
    async fn raise_epoch(&self) -> Result<MasterRecord, Failure>;
}

/// The state of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// No other candidate can have the lock: ZooKeeper answered within two thirds of the session timeout.
    Valid,
    /// Another candidate may have the lock; the session decides.
    InDoubt,
    /// The session is gone for good.
    Expired,
}

impl LeaseState {
    pub fn is_valid(self) -> bool {
        self == Self::Valid
    }

    /// [`Failure::Lost`] unless the lease is valid.
    pub(crate) fn check(self) -> Result<(), Failure> {
        if self.is_valid() { Ok(()) } else { Err(Failure::Lost("too long without an answer of ZooKeeper".to_owned())) }
    }
}

/// One effect with its precondition.
#[derive(Debug, Clone, Copy)]
pub enum Effect<'a> {
    Decision(GuardedDecision<'a>),
    /// Changes reservations in one transaction under the master's epoch, in this order.
    Ledger {
        epoch: Epoch,
        changes: &'a [ScopedChange],
    },
    /// Deletes the alter node as it was observed, in a multi that checks the lock.
    DeleteAlterNode(&'a AlterNode),
}

/// A decision with what it expects where it takes effect.
#[derive(Debug, Clone, Copy)]
pub struct GuardedDecision<'a> {
    pub decision: &'a Decision,
    pub expected: Expected<'a>,
}

/// The precondition of a decision, as far as the decision does not contain it.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The master's epoch.
    pub epoch: Epoch,
    /// The generation of the plan.
    pub generation: Generation,
    /// The nodes in ZooKeeper with their versions.
    pub nodes: &'a Coordination,
    /// The uid that the create of the chain returned.
    pub created: Option<&'a str>,
}

/// The result of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    Done,
    /// The instance exists.
    Created {
        uid: String,
    },
    /// The alteration has this progress now.
    Progress(AlterationProgress),
    /// The result of each change of the ledger, in order. One that was refused changed nothing.
    Decided(Vec<Decided>),
    /// The engine agent did not agree to retire, because the engine is no longer idle; nothing changed.
    Declined,
}
