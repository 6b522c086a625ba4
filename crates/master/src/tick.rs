//! The tick: observe, settle, snapshot, plan, execute, finish. It takes no input and reads everything afresh.
//!
//! The order is fixed. What is observed is older than the snapshot, so that what a successor snapshot does not want is
//! never wanted again; an alteration's outcome is settled before the snapshot is read, so that the plan that finishes
//! it knows its commit.

mod reporting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use coordination::Observation as Coordinated;
use futures::stream::{self, StreamExt};
use model::alteration::RequestId;
use model::engine_name::EngineName;
use model::log_throttle::{KeyedLogThrottle, LogThrottle};
use model::number::Epoch;
use model::observation::{ObservedNode, Publication};
use parking_lot::Mutex;
use planner::{Delta, DesiredState, EngineLoad, IncrementalPlanner, Instance, Plan};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::ctx::{ControllerCtx, Engines, Failure, FailureKind};
use crate::execute::{self, Executed, Execution, Failing};
use crate::failpoints;
use crate::made_in::MadeIn;
use crate::memory::TickMemory;
use crate::settings::Settings;
use crate::settle::{self, Settled};
use crate::stale_pods::StalePodProbe;
use crate::wait_log::WaitLog;

/// What engine agents last said, shared with whoever asks them.
#[derive(Debug, Default, Clone)]
pub struct Loads {
    said: Arc<Mutex<BTreeMap<EngineName, EngineLoad>>>,
    changed: Arc<Notify>,
}

impl Loads {
    /// What is known now; who did not answer is missing.
    pub fn said(&self) -> BTreeMap<EngineName, EngineLoad> {
        self.said.lock().clone()
    }

    /// Replaces what is known; wakes the master if that is something new.
    pub fn say(&self, said: BTreeMap<EngineName, EngineLoad>) {
        let mut known = self.said.lock();
        if *known != said {
            *known = said;
            self.changed.notify_one();
        }
    }

    /// Waits until something new was said.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// How soon a tick follows one that saw an undecided alteration: its commit rings no bell that is sure to be heard.
const UNDECIDED_PAUSE: Duration = Duration::from_millis(200);

/// How long reading everything from ZooKeeper may take, in effect deadlines: it takes up to four requests for each engine.
const READING_DEADLINES: u32 = 6;

/// How long the orchestrator is asked for single names in one tick, in effect deadlines; about the others it was silent.
const ASK_DEADLINES: u32 = 2;

/// How a tick ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ticked {
    /// It did what could be done.
    Done {
        /// Whether something took effect, so that there may be more to do at once.
        progress: bool,
        /// When something is due, from now on.
        due: Option<Duration>,
    },
    /// It stopped: the master may have been deposed.
    Stopped(String),
}

/// A master with its epoch: what ticks.
#[derive(Debug)]
pub struct Reconciler {
    settings: Settings,
    epoch: Epoch,
    memory: TickMemory,
    probe: StalePodProbe,
    loads: Loads,
    addresses: BTreeMap<EngineName, String>,
    wait_log: WaitLog,
    failing: Failing,
    throttles: Throttles,
    incremental: IncrementalPlanner,
    halt: CancellationToken,
}

/// The log throttles of failures that may recur in each tick.
#[derive(Debug, Default)]
struct Throttles {
    settling: LogThrottle,
    releasing: LogThrottle,
    unread: LogThrottle,
    asking: KeyedLogThrottle<EngineName>,
}

/// What was read before the snapshot.
struct Seen {
    coordinated: Coordinated,
    engines: Engines,
}

impl Reconciler {
    /// A driver that has just won its epoch.
    pub fn new(settings: Settings, epoch: Epoch, now: Duration, loads: Loads, halt: CancellationToken) -> Self {
        let memory = TickMemory::new(now + settings.session_timeout());
        Self {
            settings,
            epoch,
            memory,
            probe: StalePodProbe::default(),
            loads,
            addresses: BTreeMap::new(),
            wait_log: WaitLog::default(),
            failing: Failing::default(),
            throttles: Throttles::default(),
            incremental: IncrementalPlanner::default(),
            halt,
        }
    }

    /// The epoch that it acts under.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Takes a successor epoch.
    pub fn raised(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// The session was away for a while.
    pub fn distrust_registry(&mut self, now: Duration) {
        self.memory.distrust_registry(now + self.settings.session_timeout());
    }

    /// Where the registered engines can be asked for their load.
    pub fn addresses(&self) -> BTreeMap<EngineName, String> {
        self.addresses.clone()
    }

    /// Looks at everything and does what is to be done.
    pub async fn tick(&mut self, ctx: &dyn ControllerCtx) -> Ticked {
        if !ctx.holds_lease() {
            return Ticked::Stopped("too long without an answer of ZooKeeper".to_owned());
        }
        match self.reconcile(ctx).await {
            Ok(ticked) => ticked,
            Err(failure) if failure.kind() == FailureKind::NotMaster => Ticked::Stopped(failure.to_string()),
            Err(failure) => {
                self.wait_log.hit(ctx.now(), &failure.to_string());
                Ticked::Done { progress: false, due: None }
            }
        }
    }

    async fn reconcile(&mut self, ctx: &dyn ControllerCtx) -> Result<Ticked, Failure> {
        let limit = self.settings.effect_deadline();
        // Each of its many requests has a deadline of its own.
        let reading = bounded(limit * READING_DEADLINES, ctx.coordinated());
        let (coordinated, engines) = tokio::join!(reading, bounded(limit, ctx.engines()));
        model::failpoint!(failpoints::OBSERVED);
        let coordinated = coordinated?;
        self.log_unread(ctx.now(), &coordinated);
        let settled = self.settle(ctx, &coordinated).await?;
        model::failpoint!(failpoints::SETTLED);
        let snapshot = bounded(limit, ctx.snapshot()).await?;
        if snapshot.master.epoch != self.epoch {
            return Err(Failure::Deposed(format!(
                "the epoch is {} of {}, ours is {}",
                snapshot.master.epoch, snapshot.master.holder, self.epoch
            )));
        }
        model::failpoint!(failpoints::SNAPSHOT_READ);
        let desired = DesiredState {
            snapshot,
            cluster: self.settings.cluster.clone(),
            defaults: self.settings.defaults.clone(),
            limits: self.settings.limits,
        };
        let engines = match engines {
            Ok(engines) => engines,
            Err(failure) => return self.without_engines(ctx, &desired, &coordinated, &failure, settled).await,
        };
        self.tell_unreadable(&engines);
        let loads = self.loads.said();
        let now = ctx.now();
        let mut observed = self.memory.observe(now, &coordinated, &engines.instances, &loads, &desired.snapshot);
        if let Some(nodes) = &engines.nodes {
            observed.set_nodes(&desired.snapshot.catalog, nodes);
            self.tell_shared(&desired, nodes);
        }
        self.addresses = self.memory.reachable(&observed);
        let delta = self.incremental.compare(desired, observed);
        let mut delta = self.ask(ctx, delta).await;
        let plan = self.incremental.plan(&mut delta);
        model::failpoint!(failpoints::PLANNED);
        let seen = Seen { coordinated, engines };
        let ticked = self.carry_out(ctx, delta.desired(), &seen, plan, settled).await;
        self.incremental.keep(delta);
        ticked
    }

    async fn settle(&mut self, ctx: &dyn ControllerCtx, coordinated: &Coordinated) -> Result<Settled, Failure> {
        let settling = settle::settle(ctx, &self.settings, self.epoch, &mut self.memory, coordinated);
        match bounded(self.settings.effect_deadline(), settling).await {
            // What can't be decided now stays undecided, and holds up nobody but the next alteration.
            Err(failure) if failure.kind() != FailureKind::NotMaster => {
                if let Some(times) = self.throttles.settling.hit(ctx.now()) {
                    tracing::info!(%failure, times, "the alteration is not settled yet");
                }
                Ok(Settled::Stands((failure.kind() != FailureKind::Stale).then(|| failure.to_string())))
            }
            other => {
                if let Some(times) = self.throttles.settling.clear() {
                    tracing::info!(times, "settling works again");
                }
                other
            }
        }
    }

    /// Asks the orchestrator by name for what should be there and is in no list, and for what is in the list and may be
    /// gone. What it gives no answer about, or not in time, is not taken for vanished.
    async fn ask(&mut self, ctx: &dyn ControllerCtx, delta: Delta) -> Delta {
        let limit = self.settings.effect_deadline();
        let doubted = self.probe.probes(ctx.now(), self.settings.session_timeout(), delta.observed());
        let probes: Vec<_> = delta.probes().into_iter().chain(doubted).collect();
        if probes.is_empty() {
            return delta;
        }
        let made_in = MadeIn::new(delta.desired());
        let asked: Vec<_> = probes
            .into_iter()
            .map(|question| {
                let namespace = question.namespace.clone().or_else(|| made_in.of(&question.engine));
                async move {
                    let answer = bounded(limit, ctx.engine(&question.engine, namespace.as_deref())).await;
                    (question, answer)
                }
            })
            .collect();
        let answers = stream::iter(asked).buffer_unordered(self.settings.parallelism.max(1));
        let answers: Vec<_> = answers.take_until(sleep(limit * ASK_DEADLINES)).collect().await;
        let (mut found, mut vanished) = (BTreeMap::new(), BTreeSet::new());
        for (question, answer) in answers {
            if answer.is_ok()
                && let Some(times) = self.throttles.asking.clear(&question.engine)
            {
                tracing::info!(engine = %question.engine, times, "an answer about an engine at last");
            }
            match answer {
                Ok(Some(instance)) if instance.uid == question.uid => {
                    drop(found.insert(instance.uid.clone(), instance));
                }
                Ok(_) => drop(vanished.insert((question.engine, question.uid))),
                Err(failure) => {
                    if let Some(times) = self.throttles.asking.hit(question.engine.clone(), ctx.now()) {
                        tracing::info!(engine = %question.engine, %failure, times, "no answer about an engine");
                    }
                }
            }
        }
        if found.is_empty() && vanished.is_empty() {
            return delta;
        }
        let (desired, mut observed) = delta.into_parts();
        // What the list has of them is older than the answers.
        let is_older = |instance: &Instance| {
            found.contains_key(&instance.uid) || vanished.contains(&(instance.name.clone(), instance.uid.clone()))
        };
        observed.instances.retain(|instance| !is_older(instance));
        observed.instances.extend(found.into_values());
        observed.vanished = vanished;
        self.incremental.compare(desired, observed)
    }

    async fn carry_out(
        &mut self,
        ctx: &dyn ControllerCtx,
        desired: &DesiredState,
        seen: &Seen,
        plan: Plan,
        settled: Settled,
    ) -> Result<Ticked, Failure> {
        let executed = self.execute(ctx, &seen.coordinated, &plan).await;
        self.remember(ctx.now(), &executed);
        model::failpoint!(failpoints::EXECUTED);
        if let Some(failure) = executed.stop {
            return Err(failure);
        }
        self.release_node(ctx, desired, &seen.coordinated, &executed).await?;
        let undecided = matches!(settled, Settled::Stands(Some(_)));
        let waits_for = match settled {
            Settled::Stands(Some(what)) => Some(what),
            _ => plan.waits_for,
        };
        self.report(ctx, desired, plan.rows, waits_for, &seen.engines).await?;
        let now_ms = desired.snapshot.now_ms;
        let due = plan.waits.iter().filter_map(|wait| wait.until_ms).filter(|until_ms| *until_ms > now_ms).min();
        let mut due = due.map(|until_ms| Duration::from_millis((until_ms - now_ms) as u64));
        if undecided {
            due = Some(due.map_or(UNDECIDED_PAUSE, |due| due.min(UNDECIDED_PAUSE)));
        }
        Ok(Ticked::Done { progress: executed.applied > 0, due })
    }

    async fn execute(&self, ctx: &dyn ControllerCtx, coordinated: &Coordinated, plan: &Plan) -> Executed {
        let last_tried = |engine: &EngineName| self.memory.create_backoff.last_tried(engine);
        let (settings, halt, failing) = (&self.settings, &self.halt, &self.failing);
        let execution = Execution { ctx, settings, halt, failing, last_tried: &last_tried };
        execute::execute(execution, self.epoch, coordinated, plan).await
    }

    fn remember(&mut self, now: Duration, executed: &Executed) {
        for engine in &executed.made {
            self.memory.create_backoff.made(engine);
        }
        for failed in &executed.create_backoff {
            self.memory.create_backoff.failed(failed.clone(), now);
        }
    }

    /// The node goes after the first tick that acted on its alteration, so that other alterations wait for one tick and not
    /// for the engines: what is still missing then is known from the row, with or without the node.
    async fn release_node(
        &mut self,
        ctx: &dyn ControllerCtx,
        desired: &DesiredState,
        coordinated: &Coordinated,
        executed: &Executed,
    ) -> Result<(), Failure> {
        let Some(node) = &coordinated.alter else { return Ok(()) };
        let snapshot = &desired.snapshot;
        let acted_on = |id: &RequestId| {
            let known = snapshot.alterations.iter().find(|it| it.id == *id);
            known.is_some_and(|it| it.generation <= snapshot.catalog.generation) || executed.finished.contains(id)
        };
        if node.is_debris() || !node.children.iter().all(|child| acted_on(&child.id)) {
            return Ok(());
        }
        match bounded(self.settings.effect_deadline(), settle::delete_node(ctx, node)).await {
            Err(failure) if failure.kind() != FailureKind::NotMaster => {
                if let Some(times) = self.throttles.releasing.hit(ctx.now()) {
                    tracing::info!(%failure, times, "alter node stands until the next tick");
                }
                Ok(())
            }
            other => {
                self.throttles.releasing = LogThrottle::default();
                other
            }
        }
    }

    /// Without the list of engines none can be made or ended. The alteration on its way still comes to an end, and the
    /// master says that it lives and why it waits.
    async fn without_engines(
        &mut self,
        ctx: &dyn ControllerCtx,
        desired: &DesiredState,
        coordinated: &Coordinated,
        failure: &Failure,
        settled: Settled,
    ) -> Result<Ticked, Failure> {
        let reason = format!("the orchestrator: {failure}");
        self.wait_log.hit(ctx.now(), &reason);
        let plan = planner::plan_without_engines(desired, &reason);
        let executed = self.execute(ctx, coordinated, &plan).await;
        if let Some(failure) = executed.stop {
            return Err(failure);
        }
        self.release_node(ctx, desired, coordinated, &executed).await?;
        let waits_for = match settled {
            Settled::Stands(Some(what)) => what,
            _ => plan.waits_for.unwrap_or(reason),
        };
        let mut report = Publication {
            engines: plan.rows.into_iter().map(Arc::unwrap_or_clone).collect(),
            waits_for: Some(waits_for),
            after_tick_ms: Some(desired.snapshot.master.last_tick_ms),
            ..Publication::default()
        };
        // What these rows say is not what the next list is compared with: it is reported as a whole.
        self.memory.reported(None);
        self.send(ctx, &mut report).await?;
        Ok(Ticked::Done { progress: executed.applied > 0, due: None })
    }

    fn tell_shared(&mut self, desired: &DesiredState, nodes: &[ObservedNode]) {
        for (node, one, other) in self.memory.newly_shared(&desired.snapshot.catalog, nodes) {
            tracing::warn!(node, %one, %other, "a node is in two resource pools: NODE_LIST or NODE_SELECTOR of both mean it");
        }
    }

    fn log_unread(&mut self, now: Duration, coordinated: &Coordinated) {
        let (permits, drains) = (coordinated.unread.permits.len(), coordinated.unread.drains.len());
        if coordinated.unread.is_empty() {
            self.throttles.unread.clear();
        } else if let Some(times) = self.throttles.unread.hit(now) {
            let limit = coordination::MAX_CHILDREN;
            tracing::warn!(permits, drains, limit, times, "more permits or drain facts than are read in one tick");
        }
    }

    fn tell_unreadable(&mut self, engines: &Engines) {
        for (name, reason) in self.memory.newly_unreadable(&engines.unreadable) {
            tracing::warn!(name, reason, "an engine of the orchestrator can't be read");
        }
    }
}

/// Ends a call that takes too long: its outcome is unknown.
async fn bounded<T>(limit: Duration, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Err(Failure::Unknown(format!("no answer within {} s", limit.as_secs_f32())));
    timeout(limit, call).await.unwrap_or_else(late)
}
