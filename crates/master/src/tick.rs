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
mod publish;

use std::collections::BTreeMap;
use std::time::Duration;

use coordination::Observation as Coordination;
use model::engine_name::EngineName;
use model::number::Epoch;
use model::snapshot::Snapshot;
use planner::{Delta, DesiredState, EngineLoad, IncrementalPlanner, ObservedState, Plan};
use tokio_util::sync::CancellationToken;

use crate::create_backoff::CreateBackoff;
use crate::ctx::{ControllerCtx, Failure, FailureKind, InstanceList, Observation};
use crate::execute::{self, Executed, Execution, FailedDecisions};
use crate::failpoints;
use crate::memory::TickMemory;
use crate::node_reporter::NodeReporter;
use crate::settings::{Settings, bounded};
use crate::settle::{self, Settled};
use crate::stale_pods::StalePodProbe;
use log::TickLog;

/// How soon a tick follows one with an alteration in doubt: no event is certain to report its commit.
const IN_DOUBT_PAUSE: Duration = Duration::from_millis(200);

/// The deadline of an observation, in effect deadlines: it takes up to four requests for each engine.
const OBSERVE_DEADLINES: u32 = 6;

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
    shutdown: CancellationToken,
    memory: TickMemory,
    backoff: CreateBackoff,
    stale_pods: StalePodProbe,
    nodes: NodeReporter,
    planner: IncrementalPlanner,
    failed: FailedDecisions,
    log: TickLog,
}

impl Reconciler {
    /// The registry counts as complete one session timeout after `now`.
    pub fn new(settings: Settings, epoch: Epoch, now: Duration, shutdown: CancellationToken) -> Self {
        Self {
            memory: TickMemory::new(now + settings.session_timeout()),
            settings,
            epoch,
            shutdown,
            backoff: CreateBackoff::default(),
            stale_pods: StalePodProbe::default(),
            nodes: NodeReporter::default(),
            planner: IncrementalPlanner::default(),
            failed: FailedDecisions::default(),
            log: TickLog::default(),
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
        self.memory.distrust_registry(now + self.settings.session_timeout());
    }

    /// Reconciles once.
    pub async fn tick(&mut self, ctx: &dyn ControllerCtx) -> Ticked {
        let ticked = match ctx.lease().state().check() {
            Ok(()) => self.reconcile(ctx).await,
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
        let limit = self.settings.effect_deadline();
        let observation = bounded(limit * OBSERVE_DEADLINES, ctx.observe()).await;
        model::failpoint!(failpoints::OBSERVED);
        let Observation { coordination, instances, loads } = observation?;
        self.log.unread_nodes(ctx.clock(), &coordination);

        let settled = self.settle(ctx, &coordination).await?;
        model::failpoint!(failpoints::SETTLED);

        let snapshot = bounded(limit, ctx.snapshot()).await?;
        self.check_epoch(&snapshot)?;
        model::failpoint!(failpoints::SNAPSHOT_READ);

        let desired = self.desired(snapshot);
        let list = match instances {
            Ok(list) => list,
            Err(failure) => return self.reconcile_degraded(ctx, &desired, &coordination, &failure, settled).await,
        };
        let observed = self.observed(ctx.clock(), &desired, &coordination, &list, &loads);
        let delta = self.planner.compare(desired, observed);
        let mut delta = self.probe(ctx, delta).await;
        let plan = self.planner.plan(&mut delta);
        model::failpoint!(failpoints::PLANNED);

        let ticked = self.carry_out(ctx, delta.desired(), &coordination, &list, plan, settled).await;
        self.planner.keep(delta);
        ticked
    }

    /// Executes the plan, releases the alter node and publishes the rows.
    async fn carry_out(
        &mut self,
        ctx: &dyn ControllerCtx,
        desired: &DesiredState,
        coordination: &Coordination,
        list: &InstanceList,
        plan: Plan,
        settled: Settled,
    ) -> Result<Ticked, Failure> {
        let executed = self.execute(ctx, coordination, &plan).await;
        model::failpoint!(failpoints::EXECUTED);
        let executed = executed?;
        self.release_alter_node(ctx, desired, coordination, &executed).await?;
        let due = due(&plan, desired.snapshot.now_ms, &settled);
        let waits_for = settled.waits_for().or(plan.waits_for);
        self.publish(ctx, desired, plan.rows, waits_for, list).await?;
        Ok(Ticked::Done { progress: executed.applied > 0, due })
    }

    /// A tick without the list of engines: creates and terminates none. The current alteration still makes progress, and the
    /// rows say why the master waits.
    async fn reconcile_degraded(
        &mut self,
        ctx: &dyn ControllerCtx,
        desired: &DesiredState,
        coordination: &Coordination,
        failure: &Failure,
        settled: Settled,
    ) -> Result<Ticked, Failure> {
        let reason = format!("the orchestrator: {failure}");
        self.log.waits.hit(ctx.clock(), &reason);
        let plan = planner::plan_without_engines(desired, &reason);
        let executed = self.execute(ctx, coordination, &plan).await?;
        self.release_alter_node(ctx, desired, coordination, &executed).await?;
        let waits_for = settled.waits_for().or(plan.waits_for).unwrap_or(reason);
        self.publish_degraded(ctx, desired, plan.rows, waits_for).await?;
        Ok(Ticked::Done { progress: executed.applied > 0, due: None })
    }

    /// Settles the alteration in doubt. What cannot be settled now blocks only the next alteration.
    async fn settle(&mut self, ctx: &dyn ControllerCtx, coordination: &Coordination) -> Result<Settled, Failure> {
        let settling = settle::settle(ctx, &self.settings, self.epoch, &mut self.memory, coordination);
        let settled = bounded(self.settings.effect_deadline(), settling).await;
        self.log.settled(ctx.clock(), &settled);
        settled.or_else(Settled::from_failure)
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

    fn observed(
        &mut self,
        now: Duration,
        desired: &DesiredState,
        coordination: &Coordination,
        list: &InstanceList,
        loads: &BTreeMap<EngineName, EngineLoad>,
    ) -> ObservedState {
        self.backoff.retain_desired(&desired.snapshot.slots);
        let mut observed = self.memory.observe(now, coordination, &list.instances, loads);
        observed.create_failures = self.backoff.failures(now);
        if let Some(nodes) = &list.nodes {
            observed.set_nodes(&desired.snapshot.catalog, nodes);
        }
        self.log.warnings(&desired.snapshot.catalog, list);
        observed
    }

    /// Looks up by name what should exist and is in no list, and what is listed and may be gone.
    async fn probe(&mut self, ctx: &dyn ControllerCtx, delta: Delta) -> Delta {
        let mut probes = delta.probes();
        probes.extend(self.stale_pods.suspects(ctx.clock(), self.settings.session_timeout(), delta.observed()));
        let answers = self.stale_pods.probe(ctx, &self.settings, delta.desired(), probes).await;
        if answers.is_empty() {
            return delta;
        }
        let (desired, mut observed) = delta.into_parts();
        answers.update(&mut observed);
        self.planner.compare(desired, observed)
    }

    async fn execute(
        &mut self,
        ctx: &dyn ControllerCtx,
        coordination: &Coordination,
        plan: &Plan,
    ) -> Result<Executed, Failure> {
        let last_tried = |engine: &EngineName| self.backoff.last_tried(engine);
        let (settings, shutdown, failed) = (&self.settings, &self.shutdown, &self.failed);
        let execution = Execution { ctx, settings, shutdown, failed, last_tried: &last_tried };
        let mut executed = execute::execute(execution, self.epoch, coordination, plan).await;
        self.backoff.update(ctx.clock(), &executed.created, std::mem::take(&mut executed.failed_creates));
        match executed.stop.take() {
            Some(failure) => Err(failure),
            None => Ok(executed),
        }
    }

    /// Deletes the alter node after the first tick that acted on its alteration, so that other alterations wait for one tick
    /// and not for the engines: the row has what is still missing.
    async fn release_alter_node(
        &mut self,
        ctx: &dyn ControllerCtx,
        desired: &DesiredState,
        coordination: &Coordination,
        executed: &Executed,
    ) -> Result<(), Failure> {
        let Some(node) = settle::releasable_node(coordination, &desired.snapshot, &executed.finished) else {
            return Ok(());
        };
        let released = bounded(self.settings.effect_deadline(), settle::delete_node(ctx, node)).await;
        self.log.released(ctx.clock(), &released);
        released.or_else(|failure| if failure.kind() == FailureKind::NotMaster { Err(failure) } else { Ok(()) })
    }
}

/// When the next decision is due, from now on.
fn due(plan: &Plan, now_ms: i64, settled: &Settled) -> Option<Duration> {
    let due = plan.waits.iter().filter_map(|wait| wait.until_ms).filter(|until_ms| *until_ms > now_ms).min();
    let due = due.map(|until_ms| Duration::from_millis((until_ms - now_ms).unsigned_abs()));
    if settled.is_in_doubt() { Some(due.map_or(IN_DOUBT_PAUSE, |due| due.min(IN_DOUBT_PAUSE))) } else { due }
}
