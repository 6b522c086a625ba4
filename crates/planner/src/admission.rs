//! The round of admission of a plan: it reserves for the engines that are to be created, and admits the external requests
//! that wait.
//!
//! All pools are decided in one round, in a copy of the ledger in which the plan's other changes of reservations are applied.
//! What is granted is created in the order of the grants. An engine that is queued or can never start waits with the reason,
//! and no alteration waits for it: otherwise the alteration that raises a limit would be blocked by the one before it.
//!
//! A slot that is replaced IN PLACE takes part before its engine can be created: in its turn it drains the older engine only if
//! what the new one needs in addition is granted, and while the older one ends the rest of the queue cannot take that part.
//!
//! Engines that demand wants and that have no slot yet take part with the age of their demand (`on_demand`).
//!
//! In a pool in which the plan adopts engines nothing is granted, because what is left is known only afterwards.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use model::engine_name::EngineName;
use model::ledger::{self, Change, Moment, Reservation, ScopeKey, ScopedChange, State};
use model::millis;
use model::name::PoolName;
use model::slot::{Link, Slot, SlotKey};

use crate::admit::{Admission, AdmissionRules, Cause, Headroom, Queued, Request, admit};
use crate::builder::{Candidate, Granted, PlanBuilder, decide};
use crate::creation;
use crate::decision::{Action, Decision, Stage};
use crate::desired::DesiredState;
use crate::engine_request;
use crate::free_nodes;
use crate::inventory::{Engine, Inventory};
use crate::on_demand::{self, OnDemand, ScaledLinks};
use crate::reclaiming;
use crate::role::Engines;
use crate::succession::Succession;
use crate::turns;

/// The request of a slot's current engine, which has this name; `None` if it can have none. With a predecessor it is a transfer.
pub(crate) fn request(
    desired: &DesiredState,
    slot: &Slot,
    name: &EngineName,
    predecessor: Option<&Arc<Reservation>>,
) -> Option<Request> {
    let (mut reservation, pods) = engine_request::of_engine(desired, &slot.key, slot.incarnation, Some(slot))?;
    // The same text, which lists of engines and reservations then share.
    Arc::make_mut(&mut reservation).id = name.clone().into();
    let priority = desired.snapshot.catalog.unit(&slot.key.unit).map_or(0, |unit| unit.priority);
    let replaces = predecessor.map(|predecessor| predecessor.id().clone());
    Some(Request { reservation, replaces, priority, asked_at_ms: slot.asked_at_ms, pods: Some(pods) })
}

/// The request for what the slot's current engine needs in addition to its predecessor, while that one still exists. Nothing of
/// the predecessor's charge is released in the copy, and no node is needed for an engine that is not larger. Where the executors
/// of the predecessor are is not known without its pods: then those of the successor refuse nothing.
pub(crate) fn request_of_successor(
    desired: &DesiredState,
    slot: &Slot,
    name: &EngineName,
    succession: Option<&Succession<'_>>,
) -> Option<Request> {
    let mut request = request(desired, slot, name, succession.and_then(|succession| succession.predecessor))?;
    if let Some(Succession { predecessor: Some(predecessor), pods: observed, .. }) = succession {
        let amounts = request.reservation.amounts.maximum(&predecessor.amounts);
        let is_larger = amounts.requests() != predecessor.amounts.requests();
        request.pods = request.pods.filter(|pods| match observed {
            Some(observed) => is_larger || pods.has_larger_than(observed),
            None => is_larger && pods.executors == 0,
        });
        request.reservation = Arc::new(ledger::Request { amounts, ..(*request.reservation).clone() });
    }
    Some(request)
}

/// Plans grants, waits and reclaims. Returns how many requests stay in the queue of each pool of the catalog, except of those
/// in `adopting`.
pub(crate) fn plan<'p>(
    builder: &mut PlanBuilder<'p>,
    engines: Engines<'_, 'p>,
    adopting: &BTreeSet<String>,
) -> BTreeMap<PoolName, i64> {
    let pools = builder.desired.snapshot.catalog.pools.keys().filter(|pool| !adopting.contains(pool.as_str()));
    let mut queued: BTreeMap<PoolName, i64> = pools.map(|pool| (pool.clone(), 0)).collect();
    let mut candidates = candidates(builder, engines.inventory, adopting);
    let external: Vec<Request> = external(builder.desired, adopting).collect();
    let scaled = on_demand::links(builder, engines);
    if candidates.is_empty() && external.is_empty() && scaled.is_none() {
        return queued;
    }
    let may_grant =
        !candidates.is_empty() || !external.is_empty() || scaled.as_ref().is_some_and(ScaledLinks::may_start);
    let mut headroom = headroom(builder, may_grant);
    if scaled.is_some() {
        on_demand::put_users(builder.desired, &mut headroom.ledger);
    }
    let rules = rules(builder.desired, &headroom);
    let waiting = waiting_for_turn(builder, engines.inventory, &candidates, &mut headroom, rules.at);
    for id in waiting {
        let Some(engine) = candidates.remove(&id).and_then(|each| engines.inventory.engine(&each.engine)) else {
            continue;
        };
        if let Some(slot) = engine.current_of {
            builder.wait(engine, turns::reason(builder.desired, &slot.key), None);
        }
    }
    let mut requests: Vec<Request> = candidates.values().map(|candidate| candidate.request.clone()).collect();
    requests.extend(external);
    let mut on_demand = scaled.map(|scaled| {
        // The round takes place among them alone first: seats of an engine that would be queued are no reason to start no other.
        let alone =
            if candidates.is_empty() { Admission::default() } else { admit(&requests, &mut headroom.clone(), &rules) };
        let granted: BTreeSet<&str> = alone.granted.iter().map(|request| request.id()).collect();
        OnDemand::new(builder, engines, &scaled, (&candidates, &granted), &mut headroom, adopting, rules.at)
    });
    requests.extend(on_demand.iter_mut().flat_map(OnDemand::take_requests));
    let admission = admit(&requests, &mut headroom, &rules);
    for granted in &admission.granted {
        match candidates.remove(granted.id()) {
            Some(candidate) => follow(builder, engines.inventory, candidate),
            None if on_demand.as_mut().is_some_and(|on_demand| on_demand.count_granted(granted.id())) => {}
            None => admit_external(builder, granted),
        }
    }
    if let Some(on_demand) = on_demand {
        on_demand.decide(builder, &admission);
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
    let reservations = ledger.has_external().then(|| ledger.reservations()).into_iter().flatten();
    let waiting = reservations.filter(move |reservation| {
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
fn headroom(builder: &PlanBuilder<'_>, may_grant: bool) -> Headroom {
    let desired = builder.desired;
    let (at, mut ledger) = (moment(desired), desired.snapshot.ledger.clone());
    for decision in builder.chains.iter().filter_map(|chain| chain.decisions.first()) {
        if let Action::Ledger(change) = &decision.action {
            // One that is refused here is refused by the database as well, and changes nothing.
            let _ = ledger.apply(&change.change, at);
        }
    }
    let of_nodes = may_grant.then(|| free_nodes::of(desired, builder.observed, &ledger, &builder.successions));
    let (nodes, freed) = of_nodes.unwrap_or_default();
    Headroom { ledger, nodes, weights: weights(desired), freed }
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

/// The candidates that are replaced IN PLACE and wait for others of their unit, by id. Those that have their turn are the first
/// for which all that they need in addition would be granted now; if there are too few, others have it and are queued. An
/// engine that does not serve is replaced before those that do.
fn waiting_for_turn(
    builder: &PlanBuilder<'_>,
    inventory: &Inventory<'_>,
    candidates: &BTreeMap<String, Candidate>,
    headroom: &mut Headroom,
    at: Moment,
) -> Vec<String> {
    let mut links: BTreeMap<Link, Vec<(bool, &SlotKey, &Candidate)>> = BTreeMap::new();
    for candidate in candidates.values() {
        let slot = inventory.engine(&candidate.engine).and_then(|engine| engine.current_of);
        if let (Granted::Turn { is_served }, Some(slot)) = (&candidate.granted, slot)
            && !builder.turns.has_begun(&slot.key)
        {
            links.entry(slot.key.link()).or_default().push((*is_served, &slot.key, candidate));
        }
    }
    let mut waiting = Vec::new();
    for (link, mut slots) in links {
        slots.sort_by_key(|(is_served, key, _)| (*is_served, *key));
        let free = builder.turns.free(&link);
        let mut behind = Vec::new();
        let mut chosen = 0;
        for (_, _, candidate) in slots {
            if chosen < free && headroom.has_capacity_for(&candidate.request, at) {
                chosen += 1;
            } else {
                behind.push(candidate.request.id().to_owned());
            }
        }
        waiting.extend(behind.into_iter().skip(free - chosen));
    }
    waiting
}

/// What follows from a grant.
fn follow(builder: &mut PlanBuilder<'_>, inventory: &Inventory<'_>, candidate: Candidate) {
    let Some(engine) = inventory.engine(&candidate.engine) else { return };
    let Candidate { request, granted, state, until_ms, .. } = candidate;
    match granted {
        Granted::Create { stand_in } => create(builder, engine, &request, stand_in.as_ref(), (state, until_ms)),
        Granted::Turn { .. } => {
            builder.taking_turn.extend(engine.current_of.map(|slot| slot.key.clone()));
            builder.wait(engine, state, until_ms);
        }
        Granted::Keep => builder.wait(engine, state, until_ms),
    }
}

/// Reserves for an engine and creates it.
fn create(
    builder: &mut PlanBuilder<'_>,
    engine: &Engine<'_>,
    request: &Request,
    stand_in: Option<&EngineName>,
    (state, until_ms): (String, Option<i64>),
) {
    builder.wait_for_create(engine, state, until_ms);
    let configuration = engine.current_of.and_then(|slot| Some((slot, builder.desired.configuration(&slot.key)?)));
    let Some((slot, configuration)) = configuration else { return };
    let chain = creation::chain(builder, engine, slot, stand_in, configuration);
    let because = chain.first().map(|decision| decision.reason.clone()).unwrap_or_default();
    let reserve = change(request, |reservation| match &request.replaces {
        Some(from) => Change::Transfer { from: Arc::clone(from), request: reservation },
        None => Change::Reserve(reservation),
    });
    let mut decisions = vec![decide(engine, reserve, because)];
    decisions.extend(chain);
    builder.push(Stage::Create, decisions);
}

fn admit_external(builder: &mut PlanBuilder<'_>, request: &Request) {
    let action = change(request, |request| Change::Admit { id: request.id.clone() });
    let reason = format!("resource pool \"{}\" has capacity for it", request.reservation.scopes.pool_name());
    builder.push(Stage::Create, vec![Decision { engine: None, slot: None, reason, action }]);
}

fn change(request: &Request, change: impl FnOnce(Arc<ledger::Request>) -> Change) -> Action {
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
