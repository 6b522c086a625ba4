//! The live context: ZooKeeper under one lease, metadata agents, the orchestrator and engine agents.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use agent_api::{AgentApi, Caller, EngineEndpoint};
use async_trait::async_trait;
use coordination::permit_batch::UidUpdate;
use coordination::{Lock, Observer, Permit, SessionState, Wakeups, ZkErrorKind, access_renewal, alter_node};
use model::alteration::{Abort, AlterationRecord, RequestId};
use model::cause::chain;
use model::clock::SharedClock;
use model::demand::Demand;
use model::engine_name::EngineName;
use model::labels::{LabelMap, selector};
use model::ledger::{LedgerRecord, LedgerRecorded, ScopedChange};
use model::log_throttle::LogThrottle;
use model::name::TenantName;
use model::number::Epoch;
use model::observation::{CreatedEngine, EndedEngine, EngineFacts, Publication, Recorded};
use model::scaling::{LinkScale, LinkScaled};
use model::slot::Renewal;
use model::snapshot::{MasterRecord, Snapshot};
use orchestrator::Orchestrator;
use parking_lot::Mutex;
use planner::{Instance, Probe};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::agents::Agents;
use super::batch::Batcher;
use super::bounded::bounded;
use super::launch::Launcher;
use super::loads::{LoadPoller, Loads, StatusClient, endpoint};
use super::observation::instance;
use super::{Applied, ControllerCtx, Effect, Failure, InstanceCache, InstanceList, Lease, LeaseState, Observation};
use crate::candidate::Parts;
use crate::failpoints;
use crate::settings::Settings;

/// A call to a metadata agent has this part of an effect's deadline, so that there is time for another agent.
const PART_OF_EFFECT: u32 = 3;

/// The least time between two batches to the database: each locks the master's row and waits for the disk.
const BATCH_INTERVAL: Duration = Duration::from_millis(100);

/// The dependencies of a candidate in all its terms.
pub(crate) struct Deps {
    pub(super) orchestrator: Arc<dyn Orchestrator>,
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) agents: Agents,
    settings: Settings,
    clock: SharedClock,
    statuses: Arc<StatusClient>,
    selector: LabelMap,
}

impl Deps {
    pub fn new(settings: &Settings, parts: &Parts) -> Self {
        let caller = Caller::new(parts.keys.clone(), parts.cluster_tls);
        Self {
            orchestrator: Arc::clone(&parts.orchestrator),
            launcher: Arc::clone(&parts.launcher),
            agents: Agents::new(caller.clone(), settings.effect_deadline / PART_OF_EFFECT),
            settings: settings.clone(),
            clock: Arc::clone(&parts.clock),
            statuses: Arc::new(StatusClient::new(caller, settings.status_deadline)),
            selector: selector(&settings.cluster),
        }
    }

    pub(super) fn alter_deadline(&self) -> Duration {
        self.settings.limits.alter_deadline
    }
}

/// One batcher for each kind of write that is made for every engine.
pub(super) struct Batchers {
    pub(super) permits: Batcher<(EngineName, Permit), ()>,
    pub(super) permit_uids: Batcher<UidUpdate, ()>,
    pub(super) uids: Batcher<CreatedEngine, Recorded>,
    pub(super) ends: Batcher<EndedEngine, ()>,
    pub(super) incarnations: Batcher<Renewal, ()>,
    pub(super) scaling: Batcher<LinkScale, LinkScaled>,
}

impl Batchers {
    fn new() -> Self {
        Self {
            permits: Batcher::new(Duration::ZERO),
            permit_uids: Batcher::new(Duration::ZERO),
            uids: Batcher::new(BATCH_INTERVAL),
            ends: Batcher::new(BATCH_INTERVAL),
            incarnations: Batcher::new(BATCH_INTERVAL),
            scaling: Batcher::new(Duration::ZERO),
        }
    }
}

/// The context under one lock.
pub(crate) struct LiveCtx {
    pub(super) deps: Arc<Deps>,
    /// `None` once it was given up.
    lock: Mutex<Option<Arc<Lock>>>,
    observer: Observer,
    instances: Mutex<InstanceCache>,
    unchecked: Mutex<LogThrottle>,
    wakeups: Wakeups,
    events: tokio::sync::Mutex<orchestrator::WakeUps>,
    pub(super) batchers: Batchers,
    poller: LoadPoller,
    _renewal: AbortOnDropHandle<()>,
}

impl LiveCtx {
    pub fn new(deps: Arc<Deps>, lock: Lock) -> Self {
        let statuses = Arc::clone(&deps.statuses);
        let ask = move |engine: EngineName, endpoint: EngineEndpoint| {
            let statuses = Arc::clone(&statuses);
            async move { statuses.ask(&engine, &endpoint).await }
        };
        let wakeups = Wakeups::start(lock.session());
        let events = tokio::sync::Mutex::new(deps.orchestrator.watch());
        let poller = LoadPoller::start(&deps.settings, Loads::default(), ask);
        let lock = Arc::new(lock);
        let renewal = tokio::spawn(access_renewal::keep_renewed(Arc::downgrade(&lock)));
        Self {
            deps,
            lock: Mutex::new(Some(lock)),
            observer: Observer::default(),
            instances: Mutex::default(),
            unchecked: Mutex::default(),
            wakeups,
            events,
            batchers: Batchers::new(),
            poller,
            _renewal: AbortOnDropHandle::new(renewal),
        }
    }

    pub(super) fn limits(&self) -> &planner::Limits {
        &self.deps.settings.limits
    }

    pub(super) fn statuses(&self) -> &StatusClient {
        &self.deps.statuses
    }

    pub(super) fn lock(&self) -> Result<Arc<Lock>, Failure> {
        let lock = self.lock.lock().clone();
        lock.ok_or_else(|| Failure::Lost("it was given up".to_owned()))
    }

    /// Gives the lock up. Later calls on this context fail as lost.
    pub async fn give_up(&self) {
        let lock = self.lock.lock().take();
        match lock.map(Arc::try_unwrap) {
            Some(Ok(lock)) => lock.resign().await,
            // A call in progress holds the lock; the session is closed all the same.
            Some(Err(lock)) => lock.session().close().await,
            None => {}
        }
    }

    /// Records uids and ends.
    pub(super) async fn record_facts(&self, epoch: Epoch, facts: &EngineFacts) -> Result<Recorded, Failure> {
        model::failpoint!(failpoints::WRITE_SENDING);
        self.deps.agents.call(|agent| async move { agent.record(epoch, facts).await }).await
    }

    async fn change_ledger(&self, epoch: Epoch, changes: &[ScopedChange]) -> Result<Applied, Failure> {
        model::failpoint!(failpoints::WRITE_SENDING);
        let decided = self.deps.agents.call(|agent| async move { agent.ledger(epoch, changes).await }).await?;
        Ok(Applied::Decided(decided))
    }

    async fn observe_coordination(&self) -> Result<coordination::Observation, Failure> {
        let lock = self.lock()?;
        let seen = self.observer.observe(lock.session()).await.map_err(|error| coordination(&error))?;
        self.deps.agents.registered(&seen.agents);
        let permitted = seen.permits.iter().map(|permit| &permit.engine);
        let known: HashSet<&EngineName> = permitted.chain(seen.drains.iter().map(|drain| &drain.engine)).collect();
        self.deps.statuses.retain(|engine| known.contains(engine));
        Ok(seen)
    }

    async fn observe_instances(&self) -> Result<InstanceList, Failure> {
        let listing = self.deps.orchestrator.list(&self.deps.selector);
        let listing =
            bounded(self.deps.settings.effect_deadline, async { listing.await.map_err(|error| orchestration(&error)) });
        let listing = listing.await?;
        // No effect depends on the nodes.
        let nodes_deadline = self.deps.settings.effect_deadline / PART_OF_EFFECT;
        let nodes = match timeout(nodes_deadline, self.deps.orchestrator.nodes()).await {
            Ok(Ok(nodes)) => Some(nodes),
            Ok(Err(error)) => {
                tracing::debug!(error = %chain(&error), "could not read the nodes");
                None
            }
            Err(_) => {
                tracing::debug!("could not read the nodes in time");
                None
            }
        };
        Ok(InstanceList::new(listing, nodes, &mut self.instances.lock()))
    }

    /// Logs that the lock could not be checked; the epoch is raised all the same, because the database arbitrates.
    fn log_unchecked(&self, failure: &Failure) {
        if let Some(times) = self.unchecked.lock().hit(self.clock()) {
            tracing::info!(%failure, times, "could not check the lock");
        }
    }
}

#[async_trait]
impl Lease for LiveCtx {
    fn state(&self) -> LeaseState {
        match self.lock() {
            Ok(lock) if lock.session().state() == SessionState::Expired => LeaseState::Expired,
            Ok(lock) if lock.lease_valid() => LeaseState::Valid,
            Ok(_) => LeaseState::InDoubt,
            Err(_) => LeaseState::Expired,
        }
    }

    async fn raise_epoch(&self) -> Result<MasterRecord, Failure> {
        let lock = self.lock()?;
        match lock.still_held().await {
            Ok(true) => drop(self.unchecked.lock().clear()),
            Ok(false) => return Err(Failure::Lost("another candidate has it".to_owned())),
            Err(error) => self.log_unchecked(&coordination(&error)),
        }
        // A master that has just won knows no agent yet.
        let agents = coordination::agents::list(lock.session()).await.map_err(|error| coordination(&error))?;
        self.deps.agents.registered(&agents);
        let read = self.deps.agents.read(|agent| async move { agent.master().await }).await?.epoch;
        let holder = lock.holder();
        let holder = holder.as_str();
        self.deps.agents.call(|agent| async move { agent.raise_epoch(read, holder).await }).await
    }
}

#[async_trait]
impl ControllerCtx for LiveCtx {
    fn clock(&self) -> Duration {
        self.deps.clock.boottime()
    }

    fn lease(&self) -> &dyn Lease {
        self
    }

    async fn wait(&self) {
        let mut events = self.events.lock().await;
        tokio::select! {
            () = self.wakeups.next() => {}
            () = events.wait() => {}
            () = self.poller.changed() => {}
        }
    }

    async fn observe(&self) -> Result<Observation, Failure> {
        let (coordination, instances) = tokio::join!(self.observe_coordination(), self.observe_instances());
        let coordination = coordination?;
        if let Ok(list) = &instances {
            self.poller.retarget(&coordination, &list.instances);
        }
        let uses = self.deps.statuses.uses();
        Ok(Observation { coordination, instances, loads: self.poller.loads(), uses: uses.into() })
    }

    async fn probe(&self, probe: &Probe) -> Result<Option<Instance>, Failure> {
        let found = self.deps.orchestrator.get(&probe.engine, probe.namespace.as_deref()).await;
        Ok(found.map_err(|error| orchestration(&error))?.as_ref().map(instance))
    }

    async fn snapshot(&self) -> Result<Snapshot, Failure> {
        self.deps.agents.read(|agent| async move { agent.snapshot().await }).await
    }

    async fn demand(
        &self,
        observation: &mut Observation,
        tenants: &BTreeSet<TenantName>,
    ) -> Result<Vec<Demand>, Failure> {
        let targets = load_targets(&observation.coordination, tenants);
        self.poller.poll_now(targets, |engine, endpoint| self.deps.statuses.ask_within(engine, endpoint)).await;
        (observation.loads, observation.uses) = (self.poller.loads(), self.deps.statuses.uses().into());
        self.deps.agents.read(|agent| async move { agent.demand().await }).await
    }

    async fn settle(&self, id: &RequestId, abort: Option<&Abort>) -> Result<Option<AlterationRecord>, Failure> {
        match abort {
            None => self.deps.agents.read(|agent| async move { agent.outcome(id).await }).await,
            Some(abort) => self.deps.agents.call(|agent| async move { agent.abort(abort).await }).await.map(Some),
        }
    }

    async fn apply(&self, effect: Effect<'_>) -> Result<Applied, Failure> {
        match effect {
            Effect::Decision(guarded) => self.apply_decision(guarded.decision, &guarded.expected).await,
            Effect::Ledger { epoch, changes } => self.change_ledger(epoch, changes).await,
            Effect::DeleteAlterNode(node) => {
                let lock = self.lock()?;
                alter_node::delete(&lock, node).await.map_err(|error| coordination(&error))?;
                Ok(Applied::Done)
            }
        }
    }

    async fn record(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, Failure> {
        model::failpoint!(failpoints::WRITE_SENDING);
        self.deps.agents.call(|agent| async move { agent.record_ledger(epoch, record).await }).await
    }

    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), Failure> {
        self.deps.agents.call(|agent| async move { agent.publish(epoch, publication).await }).await
    }
}

/// The registered engines of the tenants that don't drain, with their addresses.
fn load_targets(seen: &coordination::Observation, tenants: &BTreeSet<TenantName>) -> Vec<(EngineName, EngineEndpoint)> {
    let draining: HashSet<&EngineName> = seen.drains.iter().map(|drain| &drain.engine).collect();
    let permits = seen.permits.iter().filter(|permit| !draining.contains(&permit.engine));
    let of_tenants = permits.filter(|permit| permit.content.as_ref().is_ok_and(|it| tenants.contains(&it.tenant)));
    let registered = of_tenants.filter_map(|permit| {
        let registration = permit.registration.as_ref()?.content.as_ref().ok()?;
        Some((permit.engine.clone(), endpoint(registration)))
    });
    registered.collect()
}

/// Classifies an error of ZooKeeper.
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

/// Classifies an error of the orchestrator.
pub(super) fn orchestration(error: &orchestrator::Error) -> Failure {
    use orchestrator::Error;
    let text = chain(error).to_string();
    match error {
        Error::Conflict { .. } | Error::Gone { .. } => Failure::Moved(text),
        Error::Refused { .. } => Failure::Refused(text),
        Error::Limit { .. } | Error::Unreadable { .. } => Failure::Blocked(text),
        Error::Deposed { .. } => Failure::Deposed(text),
        Error::Transient { .. } => Failure::Unknown(text),
    }
}
