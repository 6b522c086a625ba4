//! The reclaims of a plan: it retires idle engines of tenants that borrow, for the requests that its round of admission left in
//! the queue.
//!
//! The choice needs all engines, also those that an incremental plan does not cover, so it is made only while a request waits
//! for what others can release. An engine that serves until another one is registered is not reclaimed, and neither is one whose
//! slot is given another engine by the same plan.
//!
//! A retirement is a request: the agent of an engine that is no longer idle refuses it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use model::engine_name::EngineName;
use model::ledger::{Moment, ScopeKey, reclaim_reason, reclaimed_for};
use model::name::TenantName;
use model::quota::Reclaim;

use crate::admit::{Cause, Headroom, Queued};
use crate::builder::{PlanBuilder, decide};
use crate::decision::{Action, Stage};
use crate::desired::DesiredState;
use crate::engine_request;
use crate::inventory::{Engine, Inventory};
use crate::observed::{EngineLoad, Instance};
use crate::reclaim::{self, Reclaimed, RunningEngine, reclaim};
use crate::role::{self, Engines, Role};
use model::fit::{NodeAmount, Pods};

/// The load of an engine that may agree to retire.
const IDLE: EngineLoad = EngineLoad { sessions: 0, running: 0 };

/// The tenants on pools for which engines were reclaimed that still drain.
pub(crate) fn awaiting(desired: &DesiredState, headroom: &Headroom) -> BTreeSet<ScopeKey> {
    let condemned = desired.snapshot.engines.iter().filter_map(|record| {
        let tenant = reclaimed_for(record.end_reason.as_deref()?)?;
        let reservation = headroom.ledger.reservation(record.name.as_str())?;
        reservation.state.is_charged().then(|| RunningEngine {
            id: reservation.id().clone(),
            is_idle: false,
            started_at_ms: 0,
            is_draining: true,
            reclaimed_for: Some(tenant),
            nodes: Vec::new(),
        })
    });
    reclaim::awaiting(headroom, &condemned.collect::<Vec<_>>())
}

/// Retires engines for the queued requests.
pub(crate) fn plan(
    builder: &mut PlanBuilder<'_>,
    engines: Engines<'_, '_>,
    headroom: Headroom,
    queued: &[Queued<'_>],
    at: Moment,
) {
    if !queued.iter().any(|queued| matches!(&queued.cause, Cause::Short(shortages) if shortages.are_of_pool())) {
        return;
    }
    if engines.is_complete {
        return retire(builder, engines.inventory, engines.roles, headroom, queued, at);
    }
    let (desired, observed) = (builder.desired, builder.observed);
    let inventory = Inventory::join(desired, observed, None);
    let roles = role::classify_all(desired, &inventory);
    retire(builder, &inventory, &roles, headroom, queued, at);
}

fn retire(
    builder: &mut PlanBuilder<'_>,
    inventory: &Inventory<'_>,
    roles: &[Role<'_>],
    headroom: Headroom,
    queued: &[Queued<'_>],
    at: Moment,
) {
    let renewed: HashSet<EngineName> = renewed(builder);
    let mut running = Vec::new();
    for (engine, role) in inventory.engines.iter().zip(roles) {
        let is_kept = builder.successions.has_kept(engine.name.as_str());
        let state = EngineState { role, is_renewed: renewed.contains(&engine.name), is_kept };
        running.extend(running_engine(builder.desired, &headroom, engine, state));
    }
    let spared = spared(builder.desired);
    let victims: BTreeMap<String, TenantName> = reclaim(headroom, queued, &running, &spared, at)
        .into_iter()
        .filter_map(|Reclaimed { engine, request }| {
            let tenant = TenantName::new(request.reservation.scopes.tenant_name()).ok()?;
            Some((engine.id.to_string(), tenant))
        })
        .collect();
    for engine in &inventory.engines {
        let Some(tenant) = victims.get(engine.name.as_str()) else { continue };
        let (Some(slot), Some(instance)) = (engine.current_of, engine.alive()) else { continue };
        let (uid, observed, reclaimed_for) = (instance.uid.clone(), slot.incarnation, tenant.clone());
        let because = reclaim_reason(tenant);
        builder.push(Stage::Renew, vec![decide(engine, Action::Retire { uid, observed, reclaimed_for }, because)]);
    }
}

/// The engines whose slots are given another one by this plan.
fn renewed(builder: &PlanBuilder<'_>) -> HashSet<EngineName> {
    let chains = builder.chains.iter().filter(|chain| chain.stage == Stage::Renew);
    chains.filter_map(|chain| chain.decisions.first()?.engine.clone()).collect()
}

/// The pools whose engines are not reclaimed.
fn spared(desired: &DesiredState) -> BTreeSet<String> {
    let pools = desired.snapshot.catalog.pools.iter();
    let none = pools.filter(|(_, pool)| pool.spec.reclaim == Some(Reclaim::None));
    none.map(|(name, _)| name.to_string()).collect()
}

/// What a plan knows of an engine.
struct EngineState<'p> {
    role: &'p Role<'p>,
    /// Whether its slot is given another engine by this plan.
    is_renewed: bool,
    /// Whether its charge passes to a successor.
    is_kept: bool,
}

/// The engine as reclaim sees it; `None` if it has no instance or is not charged.
fn running_engine(
    desired: &DesiredState,
    headroom: &Headroom,
    engine: &Engine<'_>,
    EngineState { role, is_renewed, is_kept }: EngineState<'_>,
) -> Option<RunningEngine> {
    let reservation = headroom.ledger.reservation(engine.name.as_str()).filter(|found| found.state.is_charged())?;
    let instance = engine.instance?;
    let stays = match role {
        Role::Current(_) => engine.alive().is_some() && engine.record?.end_reason.is_none() && engine.drain.is_none(),
        Role::StandIn(_) | Role::Untouched(_) => true,
        // Its charge is not returned: a successor takes it over.
        Role::Condemned(_) | Role::Gone => is_kept,
    };
    let may_retire = matches!(role, Role::Current(_)) && stays && !is_renewed && engine.is_ready();
    let started_at_ms = engine.record.and_then(|record| record.started_at_ms).or(instance.started_at_ms);
    Some(RunningEngine {
        id: reservation.id().clone(),
        is_idle: may_retire && engine.load == Some(IDLE),
        started_at_ms: started_at_ms.unwrap_or_default(),
        is_draining: !stays,
        reclaimed_for: engine.record.and_then(|record| reclaimed_for(record.end_reason.as_deref()?)),
        nodes: nodes_of(desired, headroom, engine, instance),
    })
}

/// What the nodes have for the engine, by name: its pods, and what is set aside for executors that are on no node. Without its
/// pods, its driver.
fn nodes_of(
    desired: &DesiredState,
    headroom: &Headroom,
    engine: &Engine<'_>,
    instance: &Instance,
) -> Vec<(String, NodeAmount)> {
    let Some(pods) = &instance.pods else {
        let driver = engine.slot.as_deref().and_then(|key| engine_request::charge(desired, &key.pool, &key.unit));
        let driver = driver.map_or(NodeAmount::ZERO, |charge| Pods::from(&charge).driver);
        return instance.node.iter().map(|node| (node.clone(), driver)).collect();
    };
    let Some(taken) = headroom.freed.get(engine.name.as_str()) else {
        return pods.on_nodes.iter().map(|(node, amount)| (node.clone(), *amount)).collect();
    };
    let mut nodes: BTreeMap<String, NodeAmount> = BTreeMap::new();
    for (node, amount) in headroom.nodes.named(taken) {
        let there = nodes.entry(node.to_owned()).or_default();
        *there = there.plus(amount);
    }
    nodes.into_iter().collect()
}
