//! The ctx of a master that holds the lock.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use agent_api::AgentApi;
use async_trait::async_trait;
use coordination::permit_batch::UidUpdate;
use coordination::{
    AlterNode, Lock, Observation as Coordinated, Permit, SessionState, Wakeups, ZkErrorKind, alter_node, observe,
};
use model::alteration::{Abort, AlterationRecord, RequestId};
use model::clock::SharedClock;
use model::credential::Purpose;
use model::engine_name::EngineName;
use model::labels::{LabelMap, selector};
use model::number::Epoch;
use model::observation::{CreatedEngine, EndedEngine, EngineFacts, Publication, Recorded};
use model::slot::Renewal;
use model::snapshot::{MasterRecord, Snapshot};
use orchestrator::Orchestrator;
use parking_lot::Mutex;
use planner::{Decision, EngineLoad, Instance};
use tokio::time::timeout;

use super::agents::Agents;
use super::batch::Batcher;
use super::launch::Launcher;
use super::loads::Statuses;
use super::{ControllerCtx, Effect, Engines, Expected, Failure, instance};
use crate::failpoints;
use crate::master::Parts;
use crate::settings::Settings;

/// A call to a metadata agent gets this part of an effect's time, so that there is time for another agent.
const PART_OF_EFFECT: u32 = 3;

/// The least time between the beginnings of two batches in the database: each holds the master's row, and waits for the disk.
const BATCH_INTERVAL: Duration = Duration::from_millis(100);

/// What a candidate has for all its terms.
pub(crate) struct Deps {
    pub(super) orchestrator: Arc<dyn Orchestrator>,
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) agents: Agents,
    pub(super) limits: planner::Limits,
    clock: SharedClock,
    /// How long the orchestrator may take to tell of its nodes.
    nodes_deadline: Duration,
    statuses: Statuses,
    selector: LabelMap,
}

impl Deps {
    pub fn new(settings: &Settings, parts: &Parts) -> Self {
        let key = parts.secret.derive(&Purpose::MetadataAgent);
        let status_deadline = Duration::from_millis(settings.status_deadline_ms.max(1));
        Self {
            orchestrator: Arc::clone(&parts.orchestrator),
            launcher: Arc::clone(&parts.launcher),
            agents: Agents::new(key, settings.effect_deadline() / PART_OF_EFFECT),
            limits: settings.limits,
            clock: Arc::clone(&parts.clock),
            nodes_deadline: settings.effect_deadline() / PART_OF_EFFECT,
            statuses: Statuses::new(parts.secret.clone(), status_deadline),
            selector: selector(&settings.cluster),
        }
    }
}

/// What is written for each engine that is made, by those that write it at the same time together.
pub(super) struct Writing {
    pub(super) permits: Batcher<(EngineName, Permit), ()>,
    pub(super) uids: Batcher<CreatedEngine, Recorded>,
    pub(super) ends: Batcher<EndedEngine, ()>,
    pub(super) incarnations: Batcher<Renewal, ()>,
    pub(super) uids_of_permits: Batcher<UidUpdate, ()>,
}

impl Writing {
    fn new() -> Self {
        let at_once = Duration::ZERO;
        Self {
            permits: Batcher::new(at_once),
            uids: Batcher::new(BATCH_INTERVAL),
            ends: Batcher::new(BATCH_INTERVAL),
            incarnations: Batcher::new(BATCH_INTERVAL),
            uids_of_permits: Batcher::new(at_once),
        }
    }
}

/// The ctx under one lock.
pub(crate) struct LiveCtx {
    pub(super) deps: Arc<Deps>,
    /// `None` once it was given up.
    lock: Mutex<Option<Arc<Lock>>>,
    wakeups: Wakeups,
    instances: tokio::sync::Mutex<orchestrator::WakeUps>,
    pub(super) writing: Writing,
}

impl LiveCtx {
    pub fn new(deps: Arc<Deps>, lock: Lock) -> Self {
        let wakeups = Wakeups::start(lock.session());
        let instances = tokio::sync::Mutex::new(deps.orchestrator.watch());
        Self { deps, lock: Mutex::new(Some(Arc::new(lock))), wakeups, instances, writing: Writing::new() }
    }

    pub(super) fn lock(&self) -> Result<Arc<Lock>, Failure> {
        let lock = self.lock.lock().clone();
        lock.ok_or_else(|| Failure::Lost("it was given up".to_owned()))
    }

    /// Gives the lock up. Whoever is still waiting for something in this ctx finds it lost.
    pub async fn give_up(&self) {
        let lock = self.lock.lock().take();
        match lock.map(Arc::try_unwrap) {
            Some(Ok(lock)) => lock.resign().await,
            // A call that is still on its way holds it; the session is closed all the same.
            Some(Err(lock)) => lock.session().close().await,
            None => {}
        }
    }

    /// Records uids and ends.
    pub(super) async fn record(&self, epoch: Epoch, facts: &EngineFacts) -> Result<Recorded, Failure> {
        model::failpoint!(failpoints::WRITE_SENDING);
        self.deps.agents.call(|agent| async move { agent.record(epoch, facts).await }).await
    }
}

#[async_trait]
impl ControllerCtx for LiveCtx {
    fn now(&self) -> Duration {
        self.deps.clock.boottime()
    }

    fn holds_lease(&self) -> bool {
        self.lock().is_ok_and(|lock| lock.lease_valid())
    }

    fn session_expired(&self) -> bool {
        self.lock().map_or(true, |lock| lock.session().state() == SessionState::Expired)
    }

    async fn woken(&self) {
        let mut instances = self.instances.lock().await;
        tokio::select! {
            () = self.wakeups.next() => {}
            () = instances.wait() => {}
        }
    }

    async fn still_held(&self) -> Result<bool, Failure> {
        self.lock()?.still_held().await.map_err(|error| coordination(&error))
    }

    async fn master(&self) -> Result<MasterRecord, Failure> {
        // A master that has just won knows no agent yet.
        let lock = self.lock()?;
        let agents = coordination::agents::list(lock.session()).await.map_err(|error| coordination(&error))?;
        self.deps.agents.registered(&agents);
        self.deps.agents.read(|agent| async move { agent.master().await }).await
    }

    async fn raise_epoch(&self, read: Epoch) -> Result<MasterRecord, Failure> {
        let holder = self.lock()?.holder();
        let holder = holder.as_str();
        self.deps.agents.call(|agent| async move { agent.raise_epoch(read, holder).await }).await
    }

    async fn coordinated(&self) -> Result<Coordinated, Failure> {
        let lock = self.lock()?;
        let seen = observe(lock.session()).await.map_err(|error| coordination(&error))?;
        self.deps.agents.registered(&seen.agents);
        let permitted = seen.permits.iter().map(|it| &it.engine);
        let there: HashSet<&EngineName> = permitted.chain(seen.drains.iter().map(|it| &it.engine)).collect();
        self.deps.statuses.only(|engine| there.contains(engine));
        Ok(seen)
    }

    async fn engines(&self) -> Result<Engines, Failure> {
        let listing = self.deps.orchestrator.list(&self.deps.selector).await.map_err(|error| orchestration(&error))?;
        // Nothing waits for what is known of nodes.
        let nodes = match timeout(self.deps.nodes_deadline, self.deps.orchestrator.nodes()).await {
            Ok(Ok(nodes)) => Some(nodes),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the nodes can't be read");
                None
            }
            Err(_) => {
                tracing::debug!("the nodes were not told in time");
                None
            }
        };
        Ok(Engines::of(listing, nodes))
    }

    async fn engine(&self, name: &EngineName, namespace: Option<&str>) -> Result<Option<Instance>, Failure> {
        let found = self.deps.orchestrator.get(name, namespace).await;
        Ok(found.map_err(|error| orchestration(&error))?.map(instance))
    }

    async fn outcome(&self, id: &RequestId) -> Result<Option<AlterationRecord>, Failure> {
        self.deps.agents.read(|agent| async move { agent.outcome(id).await }).await
    }

    async fn abort(&self, abort: &Abort) -> Result<AlterationRecord, Failure> {
        self.deps.agents.call(|agent| async move { agent.abort(abort).await }).await
    }

    async fn delete_alter_node(&self, seen: &AlterNode) -> Result<(), Failure> {
        let lock = self.lock()?;
        alter_node::delete(&lock, seen).await.map_err(|error| coordination(&error))
    }

    async fn snapshot(&self) -> Result<Snapshot, Failure> {
        self.deps.agents.read(|agent| async move { agent.snapshot().await }).await
    }

    async fn apply(&self, decision: &Decision, expected: &Expected<'_>) -> Result<Effect, Failure> {
        self.take_effect(decision, expected).await
    }

    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), Failure> {
        self.deps.agents.call(|agent| async move { agent.publish(epoch, publication).await }).await
    }

    async fn status(&self, engine: &EngineName, address: &str) -> Result<EngineLoad, Failure> {
        self.deps.statuses.ask(engine, address).await
    }
}

/// What a failed request to ZooKeeper means to the driver.
pub(super) fn coordination(error: &coordination::Error) -> Failure {
    let text = error.to_string();
    match error.kind() {
        ZkErrorKind::Conflict => Failure::Moved(text),
        ZkErrorKind::Lost => Failure::Lost(text),
        ZkErrorKind::Denied | ZkErrorKind::Invalid => Failure::Refused(text),
        ZkErrorKind::Unavailable => Failure::Unavailable(text),
        ZkErrorKind::Unknown => Failure::Unknown(text),
    }
}

/// What a failed verb of the orchestrator means to the driver.
pub(super) fn orchestration(error: &orchestrator::Error) -> Failure {
    use orchestrator::Error;
    let text = error.to_string();
    match error {
        Error::Conflict { .. } | Error::Gone { .. } => Failure::Moved(text),
        Error::Refused { .. } | Error::Unreadable { .. } => Failure::Refused(text),
        Error::Deposed { .. } => Failure::Deposed(text),
        Error::Transient { .. } => Failure::Unknown(text),
    }
}
