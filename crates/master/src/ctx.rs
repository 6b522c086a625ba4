//! Everything that a master touches, as one trait: the driver does nothing but through it.
//!
//! [`LiveCtx`] is the real one (ZooKeeper under the lock, metadata agents, the orchestrator, engine agents); the
//! tests have others. Failures are told apart by what the driver does next, and no call is repeated within a tick.

mod agents;
mod apply;
mod batch;
mod launch;
mod live;
mod loads;

use std::time::Duration;

use async_trait::async_trait;
use coordination::{AlterNode, Observation as Coordinated};
use model::alteration::{Abort, AlterationProgress, AlterationRecord, RequestId};
use model::engine_name::EngineName;
use model::number::{Epoch, Generation};
use model::observation::{ClusterWarnings, ForeignEngine, ObservedNode, Publication};
use model::snapshot::{MasterRecord, Snapshot};
use orchestrator::{Listing, ObservedInstance};
use planner::{Decision, EngineLoad, Instance};
use thiserror::Error;

pub use launch::{Launch, Launcher};
pub(crate) use live::{Deps, LiveCtx};

/// What a master acts on. Every call ends within the deadline of one effect, or the driver ends it.
#[async_trait]
pub trait ControllerCtx: Send + Sync + 'static {
    /// Time that counts suspension: for every comparison of lengths of time.
    fn now(&self) -> Duration;

    /// Whether the lock can't have gone to somebody else yet: less than two thirds of the session timeout have passed
    /// since ZooKeeper last answered. Asked before every effect.
    fn holds_lease(&self) -> bool;

    /// Whether the lock's session is gone for good.
    fn session_expired(&self) -> bool;

    /// Waits until something may have changed. May wait for ever: it is used beside a timer.
    async fn woken(&self);

    /// Whether the lock is still ours, asked after a sync.
    async fn still_held(&self) -> Result<bool, Failure>;

    /// The row `master`.
    async fn master(&self) -> Result<MasterRecord, Failure>;

    /// Raises the epoch to one above the one that was read. A repetition by the same holder is a success.
    async fn raise_epoch(&self, read: Epoch) -> Result<MasterRecord, Failure>;

    /// Reads alter node, agents, permits, registrations and drains, after a sync.
    async fn coordinated(&self) -> Result<Coordinated, Failure>;

    /// Lists the pods or processes of the installation.
    async fn engines(&self) -> Result<Engines, Failure>;

    /// Asks the orchestrator for a name, not a cache; with the namespace that its engine was made in, where that is known.
    async fn engine(&self, name: &EngineName, namespace: Option<&str>) -> Result<Option<Instance>, Failure>;

    /// What the database says became of an alteration; `None` if nothing yet.
    async fn outcome(&self, id: &RequestId) -> Result<Option<AlterationRecord>, Failure>;

    /// Aborts an alteration unless it is committed; answers what it has become.
    async fn abort(&self, abort: &Abort) -> Result<AlterationRecord, Failure>;

    /// Deletes the alter node as it was seen, in a multi with the check of the lock.
    async fn delete_alter_node(&self, seen: &AlterNode) -> Result<(), Failure>;

    /// Everything that the database knows, in one read-only transaction of the primary.
    async fn snapshot(&self) -> Result<Snapshot, Failure>;

    /// Lets one decision take effect, guarded where it takes effect.
    async fn apply(&self, decision: &Decision, expected: &Expected<'_>) -> Result<Effect, Failure>;

    /// Publishes the rows for SHOW.
    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), Failure>;

    /// Asks an engine agent for its load.
    async fn status(&self, engine: &EngineName, address: &str) -> Result<EngineLoad, Failure>;
}

/// What the orchestrator lists.
#[derive(Debug, Clone, Default)]
pub struct Engines {
    /// Pods and processes.
    pub instances: Vec<Instance>,
    /// Names of what can't be read, each with the reason: neither there nor vanished.
    pub unreadable: Vec<(String, String)>,
    /// The nodes; empty where the orchestrator knows none, `None` when it could not say.
    pub nodes: Option<Vec<ObservedNode>>,
    /// What is around them.
    pub cluster_warnings: ClusterWarnings,
}

impl Engines {
    /// What was listed, in the words of the planner.
    pub fn of(listing: Listing, nodes: Option<Vec<ObservedNode>>) -> Self {
        let foreign = listing.foreign.into_iter().map(|it| ForeignEngine {
            namespace: it.namespace,
            name: it.name,
            uid: it.uid,
            reason: it.reason,
        });
        Self {
            nodes,
            cluster_warnings: ClusterWarnings::new(foreign.collect(), &listing.missing_permissions),
            instances: listing.engines.into_iter().map(instance).collect(),
            unreadable: listing.unreadable.into_iter().map(|it| (it.name, it.reason)).collect(),
        }
    }
}

fn instance(it: ObservedInstance) -> Instance {
    let generation = it.generation();
    Instance {
        name: it.name,
        uid: it.uid,
        labels: it.labels,
        phase: it.phase,
        incomplete: it.incomplete,
        generation,
        node: it.node,
        reason: it.reason,
        started_at_ms: it.started_at_ms,
        log_tail: it.log_tail,
        details: it.details,
    }
}

/// What a decision was derived from, as far as it is not part of it.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The master's epoch.
    pub epoch: Epoch,
    /// The generation of the plan.
    pub generation: Generation,
    /// What was read from ZooKeeper: nodes with their versions.
    pub seen: &'a Coordinated,
    /// The uid that the create of the chain has answered.
    pub made: Option<&'a str>,
}

/// What an effect answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It is as decided.
    Done,
    /// The pod or process is there.
    Made {
        /// Its uid.
        uid: String,
    },
    /// The alteration has this progress now.
    Progress(AlterationProgress),
}

/// Why a call had no effect, or may have had none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// What it was derived from has moved: the next tick plans anew.
    #[error("it has moved: {0}")]
    Moved(String),
    /// Refused until somebody changes something.
    #[error("{0}")]
    Refused(String),
    /// Nobody there who could do it; nothing happened.
    #[error("{0}")]
    Unavailable(String),
    /// It may have happened; the next tick sees.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// Another master has taken over.
    #[error("deposed: {0}")]
    Deposed(String),
    /// The lock is lost, or may be.
    #[error("the lock is lost: {0}")]
    Lost(String),
}

/// What kind of failure it is: whose fault, and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Nobody's: plan anew.
    Stale,
    /// The ctx's: it stays refused until somebody acts.
    Refused,
    /// The ctx's, for now.
    Away,
    /// Ours no longer: stop acting.
    NotMaster,
}

impl Failure {
    /// Its kind.
    pub const fn kind(&self) -> FailureKind {
        match self {
            Self::Moved(_) => FailureKind::Stale,
            Self::Refused(_) => FailureKind::Refused,
            Self::Unavailable(_) | Self::Unknown(_) => FailureKind::Away,
            Self::Deposed(_) | Self::Lost(_) => FailureKind::NotMaster,
        }
    }
}
