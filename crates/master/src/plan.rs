//! The planning of a tick: the inputs of the planner, from what was observed and what the term remembers, and the plan.
//!
//! The planner is a pure function ([`planner`]). Its inputs are the observation and what is kept here: the tick memory (ages),
//! recent demand, the back-off of failed creates, the probes of stale instances, and the cache of the incremental planner. All of it is only
//! a cache: a master that loses it waits longer and decides nothing wrong.

use std::time::Duration;

use model::snapshot::Snapshot;
use planner::{Delta, DesiredState, IncrementalPlanner, NodeCapacity, Plan};

use crate::create_backoff::CreateBackoff;
use crate::ctx::{ControllerCtx, Failure, Observation};
use crate::memory::TickMemory;
use crate::scaling_memory::ScalingMemory;
use crate::settings::Settings;
use crate::stale_pods::StalePodProbe;

/// A plan with its inputs.
#[derive(Debug)]
pub(crate) struct TickPlan {
    pub plan: Plan,
    /// The inputs, to be kept as the base of the next plan.
    pub delta: Delta,
    /// What the whole master waits for: the orchestrator did not return its list, so the plan is degraded, or most nodes failed.
    pub waits_for: Option<String>,
}

impl TickPlan {
    /// The plan without the list of engines: it creates and terminates none. The current alteration still makes progress,
    /// and the rows say why the master waits.
    fn degraded(desired: DesiredState, failure: &Failure) -> Self {
        let reason = format!("the orchestrator: {failure}");
        let mut plan = planner::plan_without_engines(&desired, &reason);
        plan.waits_for.get_or_insert_with(|| reason.clone());
        Self { plan, delta: Delta::without_engines(desired), waits_for: Some(reason) }
    }
}

/// The planner of one term.
#[derive(Debug)]
pub(crate) struct TickPlanner {
    pub memory: TickMemory,
    pub scaling: ScalingMemory,
    pub backoff: CreateBackoff,
    pub incremental: IncrementalPlanner,
    stale_pods: StalePodProbe,
}

impl TickPlanner {
    pub fn new(memory: TickMemory, now: Duration) -> Self {
        Self {
            memory,
            scaling: ScalingMemory::new(now),
            backoff: CreateBackoff::default(),
            incremental: IncrementalPlanner::default(),
            stale_pods: StalePodProbe::default(),
        }
    }

    /// Plans from what is listed, and from lookups by name of what should be listed or may be gone. What is missing has been missing
    /// until it was observed: the reads since then may have taken long.
    pub async fn plan(
        &mut self,
        ctx: &dyn ControllerCtx,
        settings: &Settings,
        snapshot: Snapshot,
        (observation, observed_at): (&Observation, Duration),
    ) -> TickPlan {
        let desired = DesiredState {
            snapshot,
            cluster: settings.cluster.clone(),
            defaults: settings.defaults.clone(),
            limits: settings.limits,
        };
        let list = match &observation.instances {
            Ok(list) => list,
            Err(failure) => return TickPlan::degraded(desired, failure),
        };
        let now = ctx.clock();
        let nodes = list.nodes.as_deref();
        let mut observed =
            self.memory.observe(observed_at, &observation.coordination, &list.instances, nodes, &observation.loads);
        observed.scaling = self.scaling.observed(now, &settings.limits);
        observed.scaling.uses = observation.uses.clone();
        self.backoff.retain_desired(&desired.snapshot.slots);
        observed.create_failures = self.backoff.failures(now);
        if let Some(nodes) = nodes {
            observed.set_nodes(&desired.snapshot.catalog, nodes);
            observed.capacity = nodes.iter().map(NodeCapacity::from).collect();
        }
        let mut delta = self.incremental.compare(desired, observed);
        let answers = self.stale_pods.probe(ctx, settings, &delta).await;
        if !answers.is_empty() {
            let (desired, mut observed) = delta.into_parts();
            answers.update(&mut observed);
            delta = self.incremental.compare(desired, observed);
        }
        let plan = self.incremental.plan(&mut delta);
        self.scaling.planned(now, &plan.assigned, &plan.released());
        let waits_for = plan.suspended.clone();
        TickPlan { plan, delta, waits_for }
    }
}
