//! The reconciler: each tick reads the desired and the observed state, plans the decisions that close the gap, and applies
//! them.
//!
//! A tick takes no input and reads everything again: a timer, a watch, an event of an instance and a won election all cause
//! the same tick (it is level-triggered), so a lost event delays a change and never loses it.
//!
//! The order is fixed: observe, settle, snapshot, record, plan, execute, release, publish, audit. The observation is older than
//! the snapshot, so that what a newer snapshot does not want is never wanted again. An alteration in doubt is settled before
//! the snapshot is read, so that the plan that finishes it knows its commit; its node is released after the plan was executed.
//! While sessions wait, and in the tick after that, the engines that they may use are polled after the snapshot, and the demand
//! is read again then. Measured capacities are recorded before the plan, which may return the charges of lost nodes; the queues
//! that its admission left are recorded after it was executed (`ledger_records`). If a plan adds slots for waiting sessions, they are
//! inserted before anything is created, and the snapshot is read and planned once more with the same observation: their engines
//! are created in the same tick. Slots without engines are removed as soon as fewer sessions wait, and sessions that try to open
//! their seats at this moment are not counted. Each phase has a module of its own, and what it returns is the input of the next one.

use std::time::Duration;

use coordination::Observation as Coordination;
use model::number::Epoch;
use model::snapshot::Snapshot;
use planner::Plan;
use tokio_util::sync::CancellationToken;

use crate::ctx::{BoundedCtx, ControllerCtx, Failure, FailureKind};
use crate::execute::{Executed, Executor};
use crate::failpoints;
use crate::ledger_records::{LedgerRecords, next_deadline};
use crate::memory::TickMemory;
use crate::observation_log::ObservationLog;
use crate::plan::{TickPlan, TickPlanner};
use crate::publisher::{Publisher, TickReport};
use crate::settings::Settings;
use crate::settle::Settler;
use crate::wait_log::WaitLog;

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
    planner: TickPlanner,
    executor: Executor,
    ledger: LedgerRecords,
    publisher: Publisher,
    observation_log: ObservationLog,
    wait_log: WaitLog,
}

impl Reconciler {
    /// The registry counts as complete one session timeout after `now`.
    pub fn new(settings: Settings, epoch: Epoch, now: Duration, shutdown: CancellationToken) -> Self {
        Self {
            settler: Settler::default(),
            planner: TickPlanner::new(TickMemory::new(now + settings.limits.session_timeout), now),
            executor: Executor::new(&settings, shutdown),
            ledger: LedgerRecords::new(settings.audit, now),
            publisher: Publisher::default(),
            observation_log: ObservationLog::default(),
            wait_log: WaitLog::default(),
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
        self.planner.memory.distrust_registry(now + self.settings.limits.session_timeout);
    }

    /// Reconciles once.
    pub async fn tick(&mut self, ctx: &dyn ControllerCtx) -> Ticked {
        let ctx = BoundedCtx::new(ctx, self.settings.effect_deadline);
        match self.reconcile(&ctx).await {
            Ok(ticked) => ticked,
            Err(failure) if failure.kind() == FailureKind::NotMaster => Ticked::Stopped(failure.to_string()),
            Err(failure) => {
                self.wait_log.update(ctx.clock(), Some(&failure.to_string()));
                Ticked::Done { progress: false, due: None }
            }
        }
    }

    /// The metadata, if this master's epoch is the newest.
    async fn snapshot(&self, ctx: &dyn ControllerCtx) -> Result<Snapshot, Failure> {
        let snapshot = ctx.snapshot().await?;
        if snapshot.master.epoch == self.epoch {
            Ok(snapshot)
        } else {
            Err(Failure::deposed_by(&snapshot.master, self.epoch))
        }
    }

    async fn execute(&self, ctx: &dyn ControllerCtx, nodes: &Coordination, plan: &Plan) -> Executed {
        self.executor.execute_plan(ctx, self.epoch, nodes, plan, &self.planner.backoff).await
    }

    async fn reconcile(&mut self, ctx: &dyn ControllerCtx) -> Result<Ticked, Failure> {
        ctx.lease().state().check()?;
        let observation = ctx.observe().await;
        model::failpoint!(failpoints::OBSERVED);
        let mut observation = observation?;
        let observed_at = ctx.clock();

        let settled =
            self.settler.settle_alteration(ctx, &self.settings, self.epoch, &observation.coordination).await?;
        model::failpoint!(failpoints::SETTLED);

        let mut snapshot = self.snapshot(ctx).await?;
        let tenants = self.planner.scaling.tenants(&snapshot.demand);
        if !tenants.is_empty() {
            snapshot.demand = ctx.demand(&mut observation, &tenants).await?;
        }
        model::failpoint!(failpoints::SNAPSHOT_READ);

        let coordination = &observation.coordination;
        let list = observation.instances.as_ref().ok();
        let nodes = list.and_then(|list| list.nodes.as_deref());
        let is_recorded = self.ledger.before_plan(ctx, self.epoch, &snapshot, nodes).await?;

        self.observation_log.observed(ctx.clock(), &snapshot.catalog, &observation);
        let observed = (&observation, observed_at);
        let mut planned = self.planner.plan(ctx, &self.settings, snapshot, observed).await;
        model::failpoint!(failpoints::PLANNED);
        let mut executed = Executed::default();
        if let Some(additions) = planned.plan.additions() {
            // Nothing of what was observed has changed, but there are slots now whose engines hold their reservations: they are
            // planned with the rest, as the next tick would.
            executed = self.execute(ctx, coordination, &additions).await;
            if let Some(failure) = executed.stop {
                return Err(failure);
            }
            let mut snapshot = self.snapshot(ctx).await?;
            // What has changed since is the next tick's: sessions that try to open their seats at this moment are not counted, and
            // the slots that were added for them would be removed before they have an engine.
            snapshot.demand.clone_from(&planned.delta.desired().snapshot.demand);
            planned = self.planner.plan(ctx, &self.settings, snapshot, observed).await;
        }
        let TickPlan { plan, delta, waits_for } = planned;
        let snapshot = &delta.desired().snapshot;

        executed.merge(self.execute(ctx, coordination, &plan).await);
        self.planner.backoff.update(ctx.clock(), &executed.created, &executed.failed_creates);
        model::failpoint!(failpoints::EXECUTED);
        if let Some(failure) = executed.stop {
            return Err(failure);
        }
        if let Some(queued) = &plan.queued {
            self.ledger.admission(ctx, self.epoch, snapshot, queued, &executed.ungranted).await?;
        }
        self.settler.release_node(ctx, coordination, snapshot, &executed.finished).await?;

        let of_plan = list.and_then(|_| [settled.due, plan.next_due(snapshot.now_ms)].into_iter().flatten().min());
        let of_demand = self.planner.scaling.next_change(ctx.clock(), &self.settings.limits);
        let due = of_plan.into_iter().chain(next_deadline(snapshot)).chain(of_demand).min();
        let unmet = plan.unmet;
        let published = settled.waits_for.or(plan.waits_for);
        let uses = &observation.uses;
        let report = TickReport { snapshot, rows: plan.rows, uses, unmet, waits_for: published, list };
        self.publisher.publish(ctx, self.epoch, self.settings.report_rows, report).await?;
        model::failpoint!(failpoints::REPORTED);
        self.ledger.audit(ctx, self.epoch).await?;

        self.wait_log.update(ctx.clock(), waits_for.as_deref());
        if list.is_some() {
            self.planner.incremental.keep(delta);
        }
        Ok(Ticked::Done { progress: executed.applied > 0 || is_recorded, due })
    }
}
