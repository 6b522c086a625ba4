//! What each engine is to the desired state: present, stand-in, condemned, or nobody's business.

use std::collections::{BTreeMap, BTreeSet};

use model::engine_name::EngineName;
use model::labels::EngineLabels;
use model::slot::{Link, Slot, SlotKey};

use crate::census::{Census, Engine};
use crate::desired::Desired;

/// What an engine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing<'a> {
    /// Not to be touched in this plan.
    LeftAlone(String),
    /// The engine that its slot wants now.
    Present(&'a Slot),
    /// Its slot lives on under another incarnation, and this one serves until a newer one is registered.
    StandIn(&'a Slot),
    /// It runs and is to end.
    Condemned(Sentence),
    /// No slot's present engine, and nothing of it runs.
    Over,
}

/// How a condemned engine is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sentence {
    pub because: String,
    pub grace_ms: i64,
    /// The newer engine whose registration permits it.
    pub newer: Option<EngineName>,
}

/// The standing of every engine, in the order of the census.
pub(crate) fn all<'a>(desired: &'a Desired, census: &Census<'a>) -> Vec<Standing<'a>> {
    let newest_ready = newest_ready(census);
    let standing = |engine: &Engine<'a>| {
        let replacement = key_of_other(engine).and_then(|key| newest_ready.get(key)).copied();
        of(desired, engine, census, replacement)
    };
    census.engines.iter().map(standing).collect()
}

/// The slot of an engine that is not its present one.
fn key_of_other<'e>(engine: &'e Engine<'_>) -> Option<&'e SlotKey> {
    engine.slot.as_deref().filter(|_| engine.wish.is_none())
}

/// For each slot that has other engines than its present one the ready engine of the highest incarnation.
fn newest_ready<'e, 'a>(census: &'e Census<'a>) -> BTreeMap<&'e SlotKey, &'e Engine<'a>> {
    let asked: BTreeSet<&SlotKey> = census.engines.iter().filter_map(key_of_other).collect();
    let mut newest: BTreeMap<&SlotKey, &Engine<'a>> = BTreeMap::new();
    if asked.is_empty() {
        return newest;
    }
    for engine in census.engines.iter().filter(|it| it.is_ready()) {
        let Some(key) = engine.slot.as_deref().filter(|key| asked.contains(key)) else { continue };
        let best = newest.entry(key).or_insert(engine);
        if engine.incarnation > best.incarnation {
            *best = engine;
        }
    }
    newest
}

fn of<'a>(
    desired: &Desired,
    engine: &Engine<'a>,
    census: &Census<'a>,
    replacement: Option<&Engine<'a>>,
) -> Standing<'a> {
    if let Some(reason) = from_newer_snapshot(desired, engine) {
        return Standing::LeftAlone(reason);
    }
    if let Some(slot) = engine.wish {
        return Standing::Present(slot);
    }
    let Some(pod) = engine.alive() else { return Standing::Over };
    if let Some(fact) = engine.fact_of(&pod.uid) {
        let because = fact.reason.clone();
        return Standing::Condemned(Sentence { because, grace_ms: fact.grace_ms, newer: None });
    }
    let Some(record) = engine.record else {
        return match EngineLabels::decode(&pod.labels) {
            Ok(_) => condemned(desired, "it is an orphan: table engine has no row of it, or one that has ended", None),
            Err(error) => Standing::LeftAlone(format!("nobody knows whose it is: {error}")),
        };
    };
    if let Some(reason) = &record.end_reason {
        return condemned(desired, reason, record.end_grace_ms);
    }
    let Some(slot) = census.slot(&record.slot) else {
        return condemned(desired, "its slot is gone", record.end_grace_ms);
    };
    if slot.forced {
        return condemned(desired, "it was superseded with FORCE", Some(record.end_grace_ms.unwrap_or(0)));
    }
    if never_answered(engine) {
        return condemned(desired, "it was superseded before it ever answered", Some(0));
    }
    let newer = replacement.filter(|it| it.incarnation > engine.incarnation);
    newer.map_or(Standing::StandIn(slot), |newer| {
        Standing::Condemned(Sentence {
            because: format!("replaced by {}", newer.name),
            grace_ms: desired.limits.grace_ms(record.end_grace_ms),
            newer: Some(newer.name.clone()),
        })
    })
}

fn condemned<'a>(desired: &Desired, because: &str, grace_ms: Option<i64>) -> Standing<'a> {
    let grace_ms = desired.limits.grace_ms(grace_ms);
    Standing::Condemned(Sentence { because: because.to_owned(), grace_ms, newer: None })
}

/// A pod of which the table has no row and that was made from a newer generation: the database was restored from a backup,
/// say. Where there is a row, the row decides, because the snapshot is read after the list of pods: a pod's annotation can be
/// written by whatever may patch pods of its namespace.
fn from_newer_snapshot(desired: &Desired, engine: &Engine<'_>) -> Option<String> {
    if engine.record.is_some() {
        return None;
    }
    let generation = desired.snapshot.catalog.generation;
    let newer = engine.pods().find_map(|pod| pod.generation.filter(|made_from| *made_from > generation))?;
    Some(format!("it was made from generation {newer}, the snapshot is {generation}"))
}

/// Whether it is known that it never registered: its permit is there, with nothing below it. An engine that lost its
/// registration has left its mark; of one without a permit nobody knows. The drain deletes the permit as it was seen,
/// so it is refused if somebody registered since, even if he is gone again.
pub(crate) fn never_answered(engine: &Engine<'_>) -> bool {
    engine.live.is_none() && engine.permit.is_some_and(|permit| !permit.answered)
}

/// Whether nothing but what is known of the slot's present engine itself can change what is to be done about it: it runs under
/// its recorded uid, is registered, and nothing else bears its name. Time alone changes nothing about such an engine.
pub(crate) fn is_settled(engine: &Engine<'_>, slot: &Slot) -> bool {
    let (Some(pod), Some(record), Some(permit)) = (engine.alive(), engine.record, engine.permit) else { return false };
    let recorded = record.uid.as_deref() == Some(&pod.uid) && record.slot == slot.key;
    let permitted = permit.readable && permit.uid.as_deref() == Some(&pod.uid);
    recorded && permitted && engine.is_ready() && engine.fact.is_none() && engine.strays.is_empty()
}

/// The slots that have a stand-in, each with the name of its newest one.
pub(crate) fn stand_ins(census: &Census<'_>, standings: &[Standing<'_>]) -> BTreeMap<SlotKey, EngineName> {
    let mut found: BTreeMap<SlotKey, &Engine<'_>> = BTreeMap::new();
    for (engine, standing) in census.engines.iter().zip(standings) {
        let Standing::StandIn(slot) = standing else { continue };
        let newest = found.entry(slot.key.clone()).or_insert(engine);
        if engine.incarnation > newest.incarnation {
            *newest = engine;
        }
    }
    found.into_iter().map(|(key, engine)| (key, engine.name.clone())).collect()
}

/// The slots that wait for their turn: they have a stand-in and no engine yet, and `surge` others of their (tenant,
/// pool, unit) are being replaced already.
pub(crate) fn waiting_for_turn(
    desired: &Desired,
    census: &Census<'_>,
    stand_ins: &BTreeMap<SlotKey, EngineName>,
) -> BTreeSet<SlotKey> {
    if stand_ins.is_empty() {
        return BTreeSet::new();
    }
    let mut free: BTreeMap<Link, u32> = BTreeMap::new();
    let mut waiting = BTreeSet::new();
    let mut candidates = Vec::new();
    for (slot, at) in census.slots.iter().filter(|(it, _)| stand_ins.contains_key(&it.key)) {
        let left = free.entry(slot.key.link()).or_insert(desired.limits.surge);
        let engine = &census.engines[*at];
        if slot.forced || engine.is_ready() {
            continue;
        }
        if is_begun(engine) {
            *left = left.saturating_sub(1);
        } else {
            candidates.push(&slot.key);
        }
    }
    for key in candidates {
        match free.get_mut(&key.link()) {
            Some(left) if *left > 0 => *left -= 1,
            _ => drop(waiting.insert(key.clone())),
        }
    }
    waiting
}

/// Whether anything of the engine has been made.
fn is_begun(engine: &Engine<'_>) -> bool {
    engine.uid().is_some() || engine.permit.is_some()
}
