//! The round of admission of a plan: it reserves for the engines that are to be created, and admits the external requests
//! that wait.
//!
//! All pools are decided in one round, in a copy of the ledger in which the plan's other changes of reservations are applied.
//! What is granted is created in the order of the grants. An engine that is queued or can never start waits with the reason,
//! and no alteration waits for it: otherwise the alteration that raises a limit would be blocked by the one before it.
//!
//! In a pool in which the plan adopts engines nothing is granted, because what is left is known only afterwards.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use model::ledger::{self, Change, Moment, ScopeKey, ScopedChange, State};
use model::millis;
use model::name::PoolName;
use model::slot::Slot;

use crate::admit::{Admission, AdmissionRules, Cause, Headroom, Queued, Request, admit};
use crate::builder::{Candidate, PlanBuilder, decide};
use crate::decision::{Action, Decision, Stage};
use crate::desired::DesiredState;
use crate::engine_request;
use crate::free_nodes;
use crate::inventory::{Engine, Inventory};
use crate::reclaiming;
use crate::role::Engines;

/// The request of a slot's current engine; `None` if it can have none.
pub(crate) fn request(desired: &DesiredState, slot: &Slot) -> Option<Request> {
    let (reservation, pods) = engine_request::of_engine(desired, &slot.key, slot.incarnation, Some(slot))?;
    let priority = desired.snapshot.catalog.unit(&slot.key.unit).map_or(0, |unit| unit.priority);
    Some(Request { reservation, replaces: None, priority, asked_at_ms: slot.asked_at_ms, pods: Some(pods) })
}

/// Plans grants, waits and reclaims. Returns how many requests stay in the queue of each pool of the catalog, except of those
/// in `adopting`.
pub(crate) fn plan(
    builder: &mut PlanBuilder<'_>,
    engines: Engines<'_, '_>,
    adopting: &BTreeSet<String>,
) -> BTreeMap<PoolName, i64> {
    let pools = builder.desired.snapshot.catalog.pools.keys().filter(|pool| !adopting.contains(pool.as_str()));
    let mut queued: BTreeMap<PoolName, i64> = pools.map(|pool| (pool.clone(), 0)).collect();
    let mut candidates = candidates(builder, engines.inventory, adopting);
    let mut requests: Vec<Request> = candidates.values().map(|candidate| candidate.request.clone()).collect();
    requests.extend(external(builder.desired, adopting));
    if requests.is_empty() {
        return queued;
    }
    let mut headroom = headroom(builder);
    let rules = rules(builder.desired, &headroom);
    let admission = admit(&requests, &mut headroom, &rules);
    for granted in &admission.granted {
        match candidates.remove(granted.id()) {
            Some(candidate) => create(builder, engines.inventory, candidate),
            None => admit_external(builder, granted),
        }
    }
    wait(builder, engines.inventory, &admission, rules.at.now_ms);
    for each in &admission.queued {
        let pool = PoolName::new(each.request.reservation.scopes.pool_name()).ok();
        if let Some(count) = pool.and_then(|pool| queued.get_mut(&pool)) {
            *count += 1;
        }
    }
    reclaiming::plan(builder, engines, headroom, &admission.queued, rules.at);
    queued
}

/// The engines that take part, by id. The others wait.
fn candidates(
    builder: &mut PlanBuilder<'_>,
    inventory: &Inventory<'_>,
    adopting: &BTreeSet<String>,
) -> BTreeMap<String, Candidate> {
    let mut taking_part = BTreeMap::new();
    for candidate in std::mem::take(&mut builder.candidates) {
        let Some(engine) = inventory.engine(&candidate.engine) else { continue };
        let scopes = &candidate.request.reservation.scopes;
        if let Some(key) = builder.desired.snapshot.ledger.missing(scopes) {
            builder.queue(engine, format!("cannot start: the ledger has no row of {key}"), None);
        } else if adopting.contains(scopes.pool_name()) {
            let pool = scopes.pool_name();
            builder.wait_for_create(
                engine,
                format!("waits until resource pool \"{pool}\" has counted its engines"),
                None,
            );
        } else {
            taking_part.insert(candidate.request.id().to_owned(), candidate);
        }
    }
    taking_part
}

/// The requests of external programs whose wait has not ended.
fn external<'a>(desired: &'a DesiredState, adopting: &'a BTreeSet<String>) -> impl Iterator<Item = Request> + 'a {
    let (ledger, now_ms) = (&desired.snapshot.ledger, desired.snapshot.now_ms);
    let waiting = ledger.reservations().filter(move |reservation| {
        let scopes = &reservation.request.scopes;
        reservation.state == State::Waiting
            && !reservation.is_overdue(now_ms)
            && !adopting.contains(scopes.pool_name())
            && ledger.missing(scopes).is_none()
    });
    waiting.map(|reservation| Request {
        reservation: reservation.request.clone(),
        replaces: None,
        priority: 0,
        asked_at_ms: reservation.asked_at_ms,
        pods: None,
    })
}

/// What is left after the plan's other changes of reservations.
fn headroom(builder: &PlanBuilder<'_>) -> Headroom {
    let desired = builder.desired;
    let (at, mut ledger) = (moment(desired), desired.snapshot.ledger.clone());
    for decision in builder.chains.iter().filter_map(|chain| chain.decisions.first()) {
        if let Action::Ledger(change) = &decision.action {
            // One that is refused here is refused by the database as well, and changes nothing.
            let _ = ledger.apply(&change.change, at);
        }
    }
    let nodes = free_nodes::of(desired, builder.observed, &ledger);
    Headroom { ledger, nodes, weights: weights(desired) }
}

fn moment(desired: &DesiredState) -> Moment {
    Moment { now_ms: desired.snapshot.now_ms, epoch: desired.snapshot.master.epoch }
}

fn weights(desired: &DesiredState) -> BTreeMap<ScopeKey, u32> {
    let quotas = desired.snapshot.catalog.quotas.values().filter_map(|quota| quota.spec.of_tenant());
    quotas.map(|quota| (ScopeKey::tenant(&quota.tenant, &quota.pool), quota.weight)).collect()
}

fn rules(desired: &DesiredState, headroom: &Headroom) -> AdmissionRules {
    let awaiting = reclaiming::awaiting(desired, headroom);
    AdmissionRules { at: moment(desired), patience: desired.limits.patience, awaiting }
}

/// Reserves for an engine and creates it.
fn create(builder: &mut PlanBuilder<'_>, inventory: &Inventory<'_>, candidate: Candidate) {
    let Some(engine) = inventory.engine(&candidate.engine) else { return };
    builder.wait_for_create(engine, candidate.state, candidate.until_ms);
    let because = candidate.chain.first().map(|decision| decision.reason.clone()).unwrap_or_default();
    let mut chain = vec![decide(engine, change(&candidate.request, Change::Reserve), because)];
    chain.extend(candidate.chain);
    builder.push(Stage::Create, chain);
}

fn admit_external(builder: &mut PlanBuilder<'_>, request: &Request) {
    let action = change(request, |request| Change::Admit { id: request.id.clone() });
    let reason = format!("resource pool \"{}\" has capacity for it", request.reservation.scopes.pool_name());
    builder.push(Stage::Create, vec![Decision { engine: None, slot: None, reason, action }]);
}

fn change(request: &Request, change: impl FnOnce(std::sync::Arc<ledger::Request>) -> Change) -> Action {
    let (scopes, change) = (request.reservation.scopes.clone(), change(request.reservation.clone()));
    Action::Ledger(Box::new(ScopedChange { scopes, change }))
}

/// Adds why the other engines wait, in the order of their names.
fn wait(builder: &mut PlanBuilder<'_>, inventory: &Inventory<'_>, admission: &Admission<'_>, now_ms: i64) {
    let patience_ms = millis::from_duration(builder.desired.limits.patience);
    let queued = admission.queued.iter().map(|queued| {
        let ends_ms = queued.request.asked_at_ms.saturating_add(patience_ms);
        let until_ms = Some(ends_ms).filter(|ends_ms| is_passed(queued) && *ends_ms > now_ms);
        (queued.request.id(), (queued.reason(), until_ms))
    });
    let rejected = admission.rejected.iter().map(|rejected| (rejected.request.id(), (rejected.reason(), None)));
    let reasons: HashMap<&str, (String, Option<i64>)> = queued.chain(rejected).collect();
    let waiting = inventory.engines.iter().filter_map(|engine| Some((engine, reasons.get(engine.name.as_str())?)));
    for (engine, (reason, until_ms)) in waiting.collect::<Vec<(&Engine<'_>, _)>>() {
        builder.queue(engine, reason.clone(), *until_ms);
    }
}

/// Whether smaller requests of its tenant pass the request until its patience has ended.
fn is_passed(queued: &Queued<'_>) -> bool {
    match &queued.cause {
        Cause::Short(shortages) => shortages.amounts.iter().any(|shortage| !shortage.is_of_pool()),
        Cause::Behind { .. } | Cause::Yields { .. } | Cause::Refused(_) => false,
    }
}
