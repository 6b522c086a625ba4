//! The role of each engine in the desired state: current, stand-in, condemned, gone, or not ours to touch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::ledger::State;
use model::slot::{Replacement, Slot, SlotKey};

use crate::desired::DesiredState;
use crate::inventory::{Engine, Inventory};
use crate::unreachable::FailedNodes;

/// The role of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role<'a> {
    /// Not to be touched by this plan, for this reason.
    Untouched(String),
    /// The engine that its slot wants now.
    Current(&'a Slot),
    /// Its slot has a newer incarnation; it serves until a newer engine has registered.
    StandIn(&'a Slot),
    /// It runs and is to end.
    Condemned(Termination),
    /// No slot's current engine, and it does not run.
    Gone,
}

/// Why and how a condemned engine is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Termination {
    pub reason: String,
    pub grace: Duration,
    /// The newer engine that must be registered first.
    pub successor: Option<EngineName>,
}

/// The engines of a plan with their roles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Engines<'p, 'a> {
    pub inventory: &'p Inventory<'a>,
    /// In the order of the inventory.
    pub roles: &'p [Role<'a>],
    /// Whether it has all engines.
    pub is_complete: bool,
}

/// The role of every engine, in the order of the inventory.
pub(crate) fn classify_all<'a>(desired: &'a DesiredState, inventory: &Inventory<'a>) -> Vec<Role<'a>> {
    let newest_ready = newest_ready(inventory);
    let role = |engine: &Engine<'a>| {
        let replacement = superseded_key(engine).and_then(|key| newest_ready.get(key)).copied();
        classify(desired, engine, inventory, replacement)
    };
    inventory.engines.iter().map(role).collect()
}

/// The slot of an engine that is not its current one.
fn superseded_key<'e>(engine: &'e Engine<'_>) -> Option<&'e SlotKey> {
    engine.slot.as_deref().filter(|_| engine.current_of.is_none())
}

/// The ready engine of the highest incarnation, for each slot that has engines other than its current one.
fn newest_ready<'e, 'a>(inventory: &'e Inventory<'a>) -> BTreeMap<&'e SlotKey, &'e Engine<'a>> {
    let superseded: BTreeSet<&SlotKey> = inventory.engines.iter().filter_map(superseded_key).collect();
    let mut newest: BTreeMap<&SlotKey, &Engine<'a>> = BTreeMap::new();
    if superseded.is_empty() {
        return newest;
    }
    for engine in inventory.engines.iter().filter(|engine| engine.is_ready()) {
        let Some(key) = engine.slot.as_deref().filter(|key| superseded.contains(key)) else { continue };
        let best = newest.entry(key).or_insert(engine);
        if engine.incarnation > best.incarnation {
            *best = engine;
        }
    }
    newest
}

fn classify<'a>(
    desired: &DesiredState,
    engine: &Engine<'a>,
    inventory: &Inventory<'a>,
    replacement: Option<&Engine<'a>>,
) -> Role<'a> {
    if let Some(reason) = from_newer_snapshot(desired, engine) {
        return Role::Untouched(reason);
    }
    if let Some(slot) = engine.current_of {
        return Role::Current(slot);
    }
    let Some(instance) = engine.alive() else { return Role::Gone };
    if let Some(drain) = engine.drain_of(&instance.uid) {
        let reason = drain.reason.clone();
        return Role::Condemned(Termination { reason, grace: drain.grace, successor: None });
    }
    let Some(record) = engine.record else {
        return match EngineLabels::decode(&instance.labels) {
            Ok(_) => condemned(desired, "it is an orphan: table engine has no row for it, or its row has ended", None),
            Err(error) => Role::Untouched(format!("its labels cannot be read: {error}")),
        };
    };
    if let Some(reason) = &record.end_reason {
        return condemned(desired, reason, record.end_grace_ms);
    }
    let Some(slot) = inventory.slot(&record.slot) else {
        return condemned(desired, "its slot is gone", record.end_grace_ms);
    };
    if slot.replacement == Replacement::Force {
        return condemned(desired, "it was superseded with FORCE", Some(record.end_grace_ms.unwrap_or(0)));
    }
    if never_registered(engine) {
        return condemned(desired, "it was superseded before it ever registered", Some(0));
    }
    let successor = replacement.filter(|newer| newer.incarnation > engine.incarnation);
    successor.map_or(Role::StandIn(slot), |successor| {
        Role::Condemned(Termination {
            reason: format!("replaced by {}", successor.name),
            grace: desired.limits.grace(record.end_grace_ms),
            successor: Some(successor.name.clone()),
        })
    })
}

fn condemned<'a>(desired: &DesiredState, reason: &str, grace_ms: Option<i64>) -> Role<'a> {
    let grace = desired.limits.grace(grace_ms);
    Role::Condemned(Termination { reason: reason.to_owned(), grace, successor: None })
}

/// Detects an instance without a row that was created from a newer generation, for example after the database was restored
/// from a backup. If there is a row, the row decides: the snapshot is read after the list of instances, and anyone who may
/// patch pods in the namespace can write the annotation.
fn from_newer_snapshot(desired: &DesiredState, engine: &Engine<'_>) -> Option<String> {
    if engine.record.is_some() {
        return None;
    }
    let generation = desired.snapshot.catalog.generation;
    let newer = engine
        .instances()
        .find_map(|instance| instance.generation.filter(|created_from| *created_from > generation))?;
    Some(format!("it was created from generation {newer}, the snapshot is {generation}"))
}

/// Whether the engine is known to have never registered: its permit exists with nothing below it. An engine that lost its
/// registration has left the mark; without a permit nothing is known. The drain deletes the permit as it was observed, so
/// it is rejected if the engine has registered since, even if it has since left.
pub(crate) fn never_registered(engine: &Engine<'_>) -> bool {
    engine.registration.is_none() && engine.permit.is_some_and(|permit| !permit.answered)
}

/// Whether the slot's current engine can be left alone until something observed of it changes: it runs under its recorded
/// uid, is registered, its reservation is confirmed, and nothing else has its name. Time alone changes nothing about such an
/// engine.
pub(crate) fn is_steady(engine: &Engine<'_>, slot: &Slot) -> bool {
    let (Some(instance), Some(record), Some(permit)) = (engine.alive(), engine.record, engine.permit) else {
        return false;
    };
    let recorded = record.uid.as_deref() == Some(&instance.uid) && record.slot == slot.key;
    let permitted = permit.readable && permit.uid.as_deref() == Some(&instance.uid);
    let reserved = engine.reservation.is_some_and(|reservation| reservation.state == State::Used);
    reserved && recorded && permitted && engine.is_ready() && engine.drain.is_none() && engine.strays.is_empty()
}

/// The slots that have a stand-in, each with the name of its newest one. With `failed_nodes`, without those that are unreachable.
pub(crate) fn stand_ins(
    inventory: &Inventory<'_>,
    roles: &[Role<'_>],
    failed_nodes: Option<&FailedNodes<'_>>,
) -> BTreeMap<SlotKey, EngineName> {
    let mut found: BTreeMap<SlotKey, &Engine<'_>> = BTreeMap::new();
    for (engine, role) in inventory.engines.iter().zip(roles) {
        let Role::StandIn(slot) = role else { continue };
        if failed_nodes.is_some_and(|failed_nodes| failed_nodes.is_unreachable(engine)) {
            continue;
        }
        let newest = found.entry(slot.key.clone()).or_insert(engine);
        if engine.incarnation > newest.incarnation {
            *newest = engine;
        }
    }
    found.into_iter().map(|(key, engine)| (key, engine.name.clone())).collect()
}
