//! The reconciler: each tick reads the desired and the observed state, plans the decisions that close the gap, and applies
//! them.
//!
//! A tick takes no input and reads everything again: a timer, a watch, an event of an instance and a won election all cause
//! the same tick (it is level-triggered), so a lost event delays a change and never loses it.
//!
//! The order is fixed: observe, settle, snapshot, plan, execute, publish. The observation is older than the snapshot, so that
//! what a newer snapshot does not want is never wanted again. An alteration in doubt is settled before the snapshot is read,
//! so that the plan that finishes it knows its commit.

mod log;

use std::time::Duration;

use model::millis;
use model::number::Epoch;
use model::snapshot::Snapshot;
use planner::{Delta, DesiredState, IncrementalPlanner, Plan};
use tokio_util::sync::CancellationToken;

use crate::create_backoff::CreateBackoff;
use crate::ctx::{BoundedCtx, ControllerCtx, Failure, FailureKind, InstanceList, Observation};
use crate::execute::Executor;
use crate::failpoints;
use crate::memory::TickMemory;
use crate::publisher::{Publisher, TickReport};
use crate::settings::Settings;
use crate::settle::{Settled, Settler};
use crate::stale_pods::StalePodProbe;
use crate::turns::in_turns;
use log::TickLog;

/// How soon a tick follows one with an alteration in doubt: no event is certain to report its commit.
const IN_DOUBT_PAUSE: Duration = Duration::from_millis(200);

/// How a tick ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ticked {
    /// It did what could be done.
    Done {
        /// Whether something took effect, so that the next tick may find more to do.
        progress: bool,
        /// When the next decision is due, from now on.
        due: Option<Duration>,
    },
    /// It stopped: the master may have been deposed.
    Stopped(String),
}

/// The reconciler of one term. What it remembers between ticks is only a cache: a successor without it waits longer and
/// decides nothing wrong.
#[derive(Debug)]
pub struct Reconciler {
    settings: Settings,
    epoch: Epoch,
    settler: Settler,
    memory: TickMemory,
    backoff: CreateBackoff,
    stale_pods: StalePodProbe,
    planner: IncrementalPlanner,
    executor: Executor,
    publisher: Publisher,
    log: TickLog,
}

impl Reconciler {
    /// The registry counts as complete one session timeout after `now`.
    pub fn new(settings: Settings, epoch: Epoch, now: Duration, shutdown: CancellationToken) -> Self {
        Self {
            settler: Settler::default(),
            memory: TickMemory::new(now + settings.limits.session_timeout),
            backoff: CreateBackoff::default(),
            stale_pods: StalePodProbe::default(),
            planner: IncrementalPlanner::default(),
            executor: Executor::new(&settings, shutdown),
            publisher: Publisher::default(),
            log: TickLog::default(),
            settings,
            epoch,
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Continues under a newer epoch.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// Distrusts the registry for a session timeout: engines may have lost their sessions together with the master.
    pub fn distrust_registry(&mut self, now: Duration) {
        self.memory.distrust_registry(now + self.settings.limits.session_timeout);
    }

    /// Reconciles once.
    pub async fn tick(&mut self, ctx: &dyn ControllerCtx) -> Ticked {
        let ctx = BoundedCtx::new(ctx, self.settings.effect_deadline);
        let ticked = match ctx.lease().state().check() {
            Ok(()) => self.reconcile(&ctx).await,
            Err(lost) => Err(lost),
        };
        match ticked {
            Ok(ticked) => ticked,
            Err(failure) if failure.kind() == FailureKind::NotMaster => Ticked::Stopped(failure.to_string()),
            Err(failure) => {
                self.log.waits.hit(ctx.clock(), &failure.to_string());
                Ticked::Done { progress: false, due: None }
            }
        }
    }

    async fn reconcile(&mut self, ctx: &dyn ControllerCtx) -> Result<Ticked, Failure> {
        let observation = ctx.observe().await;
        model::failpoint!(failpoints::OBSERVED);
        let observation = observation?;
        let coordination = &observation.coordination;

        let settled = self.settler.settle_alteration(ctx, &self.settings, self.epoch, coordination).await?;
        model::failpoint!(failpoints::SETTLED);

        let snapshot = ctx.snapshot().await?;
        self.check_epoch(&snapshot)?;
        model::failpoint!(failpoints::SNAPSHOT_READ);

        self.log.observation(ctx.clock(), &snapshot.catalog, &observation);
        let desired = self.desired(snapshot);
        let (delta, plan) = match &observation.instances {
            Ok(list) => self.plan(ctx, desired, &observation, list).await,
            Err(failure) => plan_degraded(desired, failure),
        };
        model::failpoint!(failpoints::PLANNED);

        let mut executed = self.executor.execute_plan(ctx, self.epoch, coordination, &plan).await;
        self.backoff.update(ctx.clock(), &executed.created, std::mem::take(&mut executed.failed_creates));
        model::failpoint!(failpoints::EXECUTED);
        if let Some(failure) = executed.stop {
            return Err(failure);
        }
        let snapshot = &delta.desired().snapshot;
        self.settler.release_node(ctx, coordination, snapshot, &executed.finished).await?;

        let list = observation.instances.as_ref().ok();
        let due = list.and_then(|_| due(&plan, snapshot.now_ms, &settled));
        let report = TickReport { snapshot, rows: plan.rows, waits_for: settled.waits_for().or(plan.waits_for), list };
        self.publisher.publish(ctx, self.epoch, self.settings.report_rows, report).await?;
        model::failpoint!(failpoints::REPORTED);

        if list.is_some() {
            self.log.waits.clear(ctx.clock());
            self.planner.keep(delta);
        }
        Ok(Ticked::Done { progress: executed.applied > 0, due })
    }

    fn check_epoch(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        let master = &snapshot.master;
        if master.epoch == self.epoch {
            return Ok(());
        }
        Err(Failure::Deposed(format!("the epoch is {} of {}, ours is {}", master.epoch, master.holder, self.epoch)))
    }

    fn desired(&self, snapshot: Snapshot) -> DesiredState {
        DesiredState {
            snapshot,
            cluster: self.settings.cluster.clone(),
            defaults: self.settings.defaults.clone(),
            limits: self.settings.limits,
        }
    }

    /// Plans from what is listed, and from lookups by name of what should be listed or may be gone.
    async fn plan(
        &mut self,
        ctx: &dyn ControllerCtx,
        desired: DesiredState,
        observation: &Observation,
        list: &InstanceList,
    ) -> (Delta, Plan) {
        let now = ctx.clock();
        self.backoff.retain_desired(&desired.snapshot.slots);
        let mut observed = self.memory.observe(now, &observation.coordination, &list.instances, &observation.loads);
        observed.create_failures = self.backoff.failures(now);
        if let Some(nodes) = &list.nodes {
            observed.set_nodes(&desired.snapshot.catalog, nodes);
        }
        let mut delta = self.planner.compare(desired, observed);
        let answers = self.stale_pods.probe(ctx, &self.settings, &delta).await;
        if !answers.is_empty() {
            let (desired, mut observed) = delta.into_parts();
            answers.update(&mut observed);
            delta = self.planner.compare(desired, observed);
        }
        let mut plan = self.planner.plan(&mut delta);
        plan.chains = in_turns(plan.chains, |engine| self.backoff.last_tried(engine));
        (delta, plan)
    }
}

/// The plan of a tick without the list of engines: creates and terminates none. The current alteration still makes progress,
/// and the rows say why the master waits.
fn plan_degraded(desired: DesiredState, failure: &Failure) -> (Delta, Plan) {
    let reason = orchestrator_away(failure);
    let mut plan = planner::plan_without_engines(&desired, &reason);
    plan.waits_for.get_or_insert(reason);
    (Delta::without_engines(desired), plan)
}

/// What a master without the list of engines waits for.
fn orchestrator_away(failure: &Failure) -> String {
    format!("the orchestrator: {failure}")
}

/// When the next decision is due, from now on.
fn due(plan: &Plan, now_ms: i64, settled: &Settled) -> Option<Duration> {
    let due = plan.waits.iter().filter_map(|wait| wait.until_ms).filter(|until_ms| *until_ms > now_ms).min();
    let due = due.map(|until_ms| millis::to_duration(until_ms - now_ms));
    if settled.is_in_doubt() { Some(due.map_or(IN_DOUBT_PAUSE, |due| due.min(IN_DOUBT_PAUSE))) } else { due }
}
