//! The plan: ordered decisions, waits with their reasons, and the rows for SHOW.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::demand::ScalingGroup;
use model::demand_report::UnmetDemand;
use model::engine_name::EngineName;
use model::millis;
use model::name::PoolName;
use model::number::Generation;
use model::observation::ObservedEngine;
use model::slot::Link;

use crate::admission;
use crate::builder::PlanBuilder;
use crate::current;
use crate::decision::{Action, Chain, Decision, Stage, Wait};
use crate::desired::DesiredState;
use crate::inventory::{Engine, Inventory, chosen};
use crate::link_cache::LabelCache;
use crate::name_set::NameSet;
use crate::observed::ObservedState;
use crate::role::{self, Engines, Role, Termination};
use crate::scope::Scope;
use crate::succession::Successions;
use crate::turns::Turns;
use crate::{alteration, report, reservations, teardown};

/// What to do, and what to report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The catalog's generation that it was made from.
    pub generation: Generation,
    /// In the order of their stages. The chains of one stage are independent of each other.
    pub chains: Vec<Chain>,
    pub waits: Vec<Wait>,
    /// One row for SHOW for every desired or observed engine.
    pub rows: Vec<Arc<ObservedEngine>>,
    /// Why the rule of unreachable engines is suspended, and what a converging alteration waits for: column `waits_for` of table
    /// `master`.
    pub waits_for: Option<String>,
    /// Why no engine is replaced because of its node, although nodes are not ready.
    pub suspended: Option<String>,
    /// The number of requests that the round of admission left in the queue of each pool whose engines all have a
    /// reservation; `None` if nothing was admitted, because the engines are unknown.
    pub queued: Option<BTreeMap<PoolName, i64>>,
    /// The waiting sessions that were assigned to each group.
    pub assigned: BTreeMap<ScalingGroup, u64>,
    /// The demand that no engine was found for; `None` if the engines are unknown.
    pub unmet: Option<Vec<UnmetDemand>>,
    /// The time until an idle engine reaches its timeout.
    pub idle_due: Option<Duration>,
}

impl Plan {
    /// The time from `now_ms`, in the database's clock, until the first wait that has an end is over.
    pub fn next_due(&self, now_ms: i64) -> Option<Duration> {
        let ends = self.waits.iter().filter_map(|wait| wait.until_ms).filter(|until_ms| *until_ms > now_ms);
        let waits = ends.min().map(|until_ms| millis::to_duration(until_ms - now_ms));
        waits.into_iter().chain(self.idle_due).min()
    }

    /// The links of which idle engines are released.
    pub fn released(&self) -> BTreeSet<Link> {
        let scaled = self.decisions().filter_map(|decision| match &decision.action {
            Action::Scale(scaling) if !scaling.release.is_empty() => Some(scaling.slots.link.clone()),
            _ => None,
        });
        scaled.collect()
    }

    /// The part of the plan that adds slots for waiting sessions, after the changes of the ledger that precede every grant. Once it is
    /// applied, the engines of these slots can be created without another observation. `None` if no slots are added.
    pub fn additions(&self) -> Option<Self> {
        let adds = |decision: &Decision| match &decision.action {
            Action::Scale(scaling) => {
                let (add, remove) = (&scaling.slots.add, &scaling.slots.remove);
                !add.is_empty() && remove.is_empty() && scaling.release.is_empty()
            }
            _ => false,
        };
        let is_added = |chain: &&Chain| chain.decisions.iter().all(adds);
        self.chains.iter().find(is_added)?;
        let chains = self.chains.iter().filter(|chain| chain.stage == Stage::Ledger || is_added(chain));
        Some(Self { generation: self.generation, chains: chains.cloned().collect(), ..Self::default() })
    }

    /// All decisions, in order.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.chains.iter().flat_map(|chain| &chain.decisions)
    }
}

/// A lookup by name of an expected uid that no list contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub engine: EngineName,
    /// The missing uid.
    pub uid: String,
    /// The namespace that it was last seen in, if known.
    pub namespace: Option<String>,
}

/// The lookups to make before [`plan`]. Their answers must be younger than the snapshot: a recorded uid that is absent
/// afterwards never comes back.
pub fn probes(desired: &DesiredState, observed: &ObservedState) -> Vec<Probe> {
    probes_in_scope(desired, observed, None)
}

/// The lookups for all engines, or for those in scope.
pub(crate) fn probes_in_scope(desired: &DesiredState, observed: &ObservedState, scope: Option<&Scope>) -> Vec<Probe> {
    let names = scope.map(|scope| &scope.names);
    let mut records = chosen(&desired.snapshot.engines, |record| &record.name, names).into_iter().peekable();
    let mut drains = chosen(&observed.drains, |drain| &drain.engine, names).into_iter().peekable();
    let mut instances = chosen(&observed.instances, |instance| &instance.name, names).into_iter().peekable();
    let mut probes = Vec::new();
    loop {
        let heads = [records.peek().map(|record| &record.name), drains.peek().map(|drain| &drain.engine)];
        let Some(name) = heads.into_iter().flatten().min().cloned() else { break };
        let (mut record, mut drain) = (None, None);
        while let Some(of_name) = records.next_if(|record| record.name == name) {
            record = Some(of_name);
        }
        while let Some(of_name) = drains.next_if(|drain| drain.engine == name) {
            drain = Some(of_name);
        }
        while instances.next_if(|instance| instance.name < name).is_some() {}
        let recorded = record.filter(|record| record.ended_at_ms.is_none()).and_then(|record| record.uid.as_ref());
        // The answer for a drain order counts only once its engine has not been seen for long enough.
        let drain = drain.filter(|drain| teardown::is_quiet(desired, observed, drain));
        let drained = drain.and_then(|drain| drain.uid.as_ref());
        let mut missing: BTreeSet<&String> = recorded.into_iter().chain(drained).collect();
        while let Some(instance) = instances.next_if(|instance| instance.name == name) {
            missing.remove(&instance.uid);
        }
        let namespace = drain.and_then(|drain| drain.namespace.as_ref());
        probes.extend(missing.into_iter().map(|uid| Probe {
            engine: name.clone(),
            uid: uid.clone(),
            namespace: namespace.filter(|_| drained == Some(uid)).cloned(),
        }));
    }
    probes
}

/// The decisions that bring the observed state closer to the desired one; none in a steady state.
pub fn plan(desired: &DesiredState, observed: &ObservedState) -> Plan {
    make(desired, observed, &mut LabelCache::default(), None).plan
}

/// A plan with the input of the next incremental one.
pub(crate) struct Planned {
    pub plan: Plan,
    /// The engines with decisions or waits, or for which time alone may cause some.
    pub unsteady: NameSet,
    /// The name of each slot's current engine, in the order of slots.
    pub current: Vec<EngineName>,
}

/// The plan for all engines, or for those in scope: it then has only their rows.
pub(crate) fn make(
    desired: &DesiredState,
    observed: &ObservedState,
    labels: &mut LabelCache,
    scope: Option<&Scope>,
) -> Planned {
    let inventory = Inventory::join(desired, observed, scope);
    let roles = role::classify_all(desired, &inventory);
    let mut builder = PlanBuilder::new(desired, observed, labels);
    builder.successions = Successions::new(observed, &inventory, &builder.failed_nodes);
    let adopting = reservations::plan(&mut builder, &inventory);
    let steady = plan_current(&mut builder, &inventory, &roles);
    let engines = Engines { inventory: &inventory, roles: &roles, is_complete: scope.is_none() };
    let queued = admission::plan(&mut builder, engines, &adopting);
    for (engine, role) in inventory.engines.iter().zip(&roles) {
        plan_other(&mut builder, engine, role);
        if !matches!(role, Role::Current(_)) {
            show_failed_node(&mut builder, engine);
        }
    }
    let waits_for = alteration::plan(&mut builder);
    let suspended = builder.failed_nodes.suspended().cloned();
    builder.chains.sort_by_key(|chain| chain.stage);
    let plan = Plan {
        generation: desired.snapshot.catalog.generation,
        rows: report::rows(&inventory, &roles, &builder.reasons),
        chains: builder.chains,
        waits: builder.waits,
        waits_for: suspended.iter().cloned().chain(waits_for).reduce(|one, other| format!("{one}; {other}")),
        suspended,
        queued: Some(queued),
        assigned: builder.demand.assigned,
        unmet: Some(builder.demand.unmet),
        idle_due: builder.demand.due,
    };
    let mut unsteady = NameSet::default();
    for (engine, _) in inventory.engines.iter().zip(steady).filter(|(_, steady)| !steady) {
        unsteady.insert(&engine.name);
    }
    let current = inventory.slots.iter().map(|(_, at)| inventory.engines[*at].name.clone()).collect();
    Planned { plan, unsteady, current }
}

/// Plans in the order of slots, which is the order of turns. Returns which engines are steady.
fn plan_current<'a>(builder: &mut PlanBuilder<'a>, inventory: &Inventory<'a>, roles: &[Role<'a>]) -> Vec<bool> {
    let mut steady = vec![false; inventory.engines.len()];
    let stand_ins = role::stand_ins(inventory, roles, None);
    let reachable = role::stand_ins(inventory, roles, Some(&builder.failed_nodes));
    builder.turns = Turns::new(builder.desired, inventory, &reachable, &builder.successions, &builder.failed_nodes);
    for &(slot, at) in &inventory.slots {
        if matches!(roles[at], Role::Current(_)) {
            let stand_in = stand_ins.get(&slot.key).and_then(|name| inventory.engine(name));
            let before = builder.sizes();
            current::plan(builder, &inventory.engines[at], slot, stand_in);
            steady[at] = builder.sizes() == before && role::is_steady(&inventory.engines[at], slot);
        }
    }
    steady
}

/// Names the node in the reason of an older engine, if that may be unreachable.
fn show_failed_node(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>) {
    let Some(shown) = builder.failed_nodes.assess(engine).map(|on| on.shown()) else { return };
    let reason = builder.reasons.remove(&engine.name).map_or(shown.clone(), |reason| format!("{shown}; {reason}"));
    builder.reasons.insert(engine.name.clone(), reason);
}

fn plan_other(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>, role: &Role<'_>) {
    match role {
        Role::Untouched(reason) => {
            builder.block_alterations(engine, format!("engine {} is left alone: {reason}", engine.name));
            return builder.wait(engine, format!("is left alone: {reason}"), None);
        }
        Role::Current(_) => {}
        Role::StandIn(slot) if builder.taking_turn.contains(&slot.key) => {
            let grace = builder.desired.limits.grace(engine.record.and_then(|record| record.end_grace_ms));
            let reason = format!("replaced in place by {}", slot.engine());
            teardown::condemned(builder, engine, &Termination { reason, grace, successor: None });
        }
        Role::StandIn(slot) => {
            let Some(instance) = engine.alive() else { return };
            let awaited = builder.reasons.get(&slot.engine()).map_or("it is not registered yet", String::as_str);
            let reason = format!("waits for replacement: {awaited}");
            builder.push(Stage::Keep, current::keep(engine, instance, slot, builder.desired.sessions(&slot.key)));
            builder.wait(engine, reason, None);
        }
        Role::Condemned(termination) => teardown::condemned(builder, engine, termination),
        Role::Gone => teardown::gone(builder, engine),
    }
    teardown::orphaned_registration(builder, engine);
    teardown::strays(builder, engine);
    teardown::obsolete_drain(builder, engine);
}
