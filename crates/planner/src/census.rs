//! Everything that is known of each engine, brought together under its name.
//!
//! Identity comes from table `engine`: names are looked up, never parsed. Labels say what an engine is only where the
//! table knows nothing of it, because somebody may have changed them by hand.

use std::collections::BTreeMap;

use model::engine_name::EngineName;
use model::labels::EngineLabels;
use model::number::Incarnation;
use model::slot::{Slot, SlotKey};
use model::snapshot::EngineRecord;

use crate::desired::Desired;
use crate::observed::{Fact, Live, Observed, Permit, Pod};

/// One name with everything that bears it.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    pub name: EngineName,
    /// From the table, else from the pod's labels.
    pub slot: Option<SlotKey>,
    pub incarnation: Option<Incarnation>,
    pub record: Option<&'a EngineRecord>,
    /// The engine: the pod of the recorded uid, or of the name while no uid is recorded.
    pub pod: Option<&'a Pod>,
    /// Other pods of the name, such as a late create of a deposed master.
    pub strays: Vec<&'a Pod>,
    pub permit: Option<&'a Permit>,
    pub live: Option<&'a Live>,
    pub fact: Option<&'a Fact>,
}

impl<'a> Engine<'a> {
    fn of(name: &EngineName) -> Self {
        Self {
            name: name.clone(),
            slot: None,
            incarnation: None,
            record: None,
            pod: None,
            strays: Vec::new(),
            permit: None,
            live: None,
            fact: None,
        }
    }

    /// Its pod, if it is neither ended nor being deleted.
    pub fn alive(&self) -> Option<&'a Pod> {
        self.pod.filter(|pod| pod.is_alive())
    }

    /// The recorded uid, else the pod's.
    pub fn uid(&self) -> Option<&'a str> {
        self.record.and_then(|record| record.uid.as_deref()).or(self.pod.map(|pod| pod.uid.as_str()))
    }

    /// The drain fact, if it is about this uid.
    pub fn fact_of(&self, uid: &str) -> Option<&'a Fact> {
        self.fact.filter(|fact| fact.uid.as_deref() == Some(uid))
    }

    /// Whether it is registered under the uid of its own pod.
    pub fn is_registered(&self) -> bool {
        match (self.alive(), self.live) {
            (Some(pod), Some(live)) => live.uid.as_deref() == Some(&pod.uid),
            _ => false,
        }
    }

    /// Registered and not on its way out: a replacement that a stand-in may be drained for.
    pub fn is_ready(&self) -> bool {
        let staying = self.record.is_some_and(|it| it.end_reason.is_none() && it.ended_at_ms.is_none());
        staying && self.is_registered() && self.alive().is_some_and(|pod| self.fact_of(&pod.uid).is_none())
    }

    /// Every pod that bears the name.
    pub fn pods(&self) -> impl Iterator<Item = &'a Pod> {
        self.pod.into_iter().chain(self.strays.iter().copied())
    }
}

/// All engines by name.
pub(crate) fn take<'a>(desired: &'a Desired, observed: &'a Observed) -> BTreeMap<EngineName, Engine<'a>> {
    let mut engines: BTreeMap<EngineName, Engine<'a>> = BTreeMap::new();
    for slot in &desired.snapshot.slots {
        let engine = entry(&mut engines, &slot.engine());
        identify(engine, slot);
    }
    for record in &desired.snapshot.engines {
        let engine = entry(&mut engines, &record.name);
        engine.slot = Some(record.slot.clone());
        engine.incarnation = Some(record.incarnation);
        engine.record = Some(record);
    }
    for permit in &observed.permits {
        entry(&mut engines, &permit.engine).permit = Some(permit);
    }
    for live in &observed.lives {
        entry(&mut engines, &live.engine).live = Some(live);
    }
    for fact in &observed.facts {
        entry(&mut engines, &fact.engine).fact = Some(fact);
    }
    for pod in &observed.pods {
        place(entry(&mut engines, &pod.name), pod);
    }
    // In an order that does not hang on the list's.
    for engine in engines.values_mut() {
        engine.strays.sort_by_key(|pod| &pod.uid);
    }
    engines
}

fn entry<'e, 'a>(engines: &'e mut BTreeMap<EngineName, Engine<'a>>, name: &EngineName) -> &'e mut Engine<'a> {
    engines.entry(name.clone()).or_insert_with(|| Engine::of(name))
}

fn identify(engine: &mut Engine<'_>, slot: &Slot) {
    engine.slot = Some(slot.key.clone());
    engine.incarnation = Some(slot.incarnation);
}

/// The pod of the recorded uid is the engine; while no uid is recorded the first pod of the name is.
fn place<'a>(engine: &mut Engine<'a>, pod: &'a Pod) {
    let recorded = engine.record.and_then(|record| record.uid.as_ref());
    let is_it = recorded.map_or(engine.pod.is_none(), |uid| *uid == pod.uid);
    if !is_it {
        engine.strays.push(pod);
        return;
    }
    engine.pod = Some(pod);
    if engine.slot.is_none()
        && let Ok(labels) = EngineLabels::decode(&pod.labels)
    {
        engine.slot = Some(labels.slot);
        engine.incarnation = Some(labels.incarnation);
    }
}
