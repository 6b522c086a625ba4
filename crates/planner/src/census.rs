//! Everything that is known of each engine, brought together under its name.
//!
//! Identity comes from table `engine`: names are looked up, never parsed. Labels say what an engine is only where the
//! table knows nothing of it, because somebody may have changed them by hand.
//!
//! There may be thousands of engines: a census is one walk through lists in the order of names, a name is worked out only for
//! a slot whose engine the table does not have, and in most ticks it is taken of a few engines only.

use std::borrow::Cow;
use std::collections::HashMap;

use model::engine_name::EngineName;
use model::labels::EngineLabels;
use model::number::Incarnation;
use model::slot::{Slot, SlotKey};
use model::snapshot::EngineRecord;

use crate::desired::Desired;
use crate::memo::Part;
use crate::names::Names;
use crate::observed::{Fact, Live, Observed, Permit, Pod, Status};

/// All engines, and the slots.
#[derive(Debug)]
pub(crate) struct Census<'a> {
    /// By name, each once.
    pub engines: Vec<Engine<'a>>,
    /// By key, each with the place of its present engine among the engines.
    pub slots: Vec<(&'a Slot, usize)>,
}

impl<'a> Census<'a> {
    /// The slot of that key.
    pub fn slot(&self, key: &SlotKey) -> Option<&'a Slot> {
        let at = self.slots.binary_search_by(|(slot, _)| slot.key.cmp(key)).ok()?;
        Some(self.slots[at].0)
    }
}

/// One name with everything that bears it.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    pub name: EngineName,
    /// From the table, else the slot that wants it, else from the pod's labels.
    pub slot: Option<Cow<'a, SlotKey>>,
    pub incarnation: Option<Incarnation>,
    /// The slot whose present engine it is.
    pub wish: Option<&'a Slot>,
    pub record: Option<&'a EngineRecord>,
    /// The engine: the pod of the recorded uid, or of the name while no uid is recorded.
    pub pod: Option<&'a Pod>,
    /// Other pods of the name, such as a late create of a deposed master.
    pub strays: Vec<&'a Pod>,
    pub permit: Option<&'a Permit>,
    pub live: Option<&'a Live>,
    pub fact: Option<&'a Fact>,
    pub status: Option<Status>,
}

impl<'a> Engine<'a> {
    fn of(name: EngineName) -> Self {
        Self {
            name,
            slot: None,
            incarnation: None,
            wish: None,
            record: None,
            pod: None,
            strays: Vec::new(),
            permit: None,
            live: None,
            fact: None,
            status: None,
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

/// Takes the census, of all engines or of a part of them.
pub(crate) fn take<'a>(desired: &'a Desired, observed: &'a Observed, part: Option<&Part>) -> Census<'a> {
    let names = part.map(|part| &part.names);
    let records = chosen(&desired.snapshot.engines, |it| &it.name, names);
    let slots = &desired.snapshot.slots;
    let wishes = part.map_or_else(|| slots.iter().collect(), |part| part.slots.iter().map(|at| &slots[*at]).collect());
    let wishes = sorted(wishes, |it| &it.key);
    // An incarnation is drawn once, for one slot.
    let numbers: HashMap<Incarnation, usize> =
        records.iter().enumerate().map(|(at, record)| (record.incarnation, at)).collect();
    let issued: Vec<Option<usize>> = wishes
        .iter()
        .map(|slot| numbers.get(&slot.incarnation).copied().filter(|at| records[*at].slot == slot.key))
        .collect();
    let mut unissued: Vec<(EngineName, usize)> =
        (0..wishes.len()).filter(|at| issued[*at].is_none()).map(|at| (wishes[at].engine(), at)).collect();
    unissued.sort();
    let (mut of_records, mut of_wishes) = (vec![0; records.len()], vec![0; wishes.len()]);
    let mut engines = Vec::with_capacity(records.len() + unissued.len());
    let mut records = records.into_iter().enumerate().peekable();
    let mut unissued = unissued.into_iter().peekable();
    let mut permits = chosen(&observed.permits, |it| &it.engine, names).into_iter().peekable();
    let mut lives = chosen(&observed.lives, |it| &it.engine, names).into_iter().peekable();
    let mut facts = chosen(&observed.facts, |it| &it.engine, names).into_iter().peekable();
    let mut pods = chosen(&observed.pods, |it| &it.name, names).into_iter().peekable();
    let mut status = names.is_none().then(|| observed.status.iter().peekable());
    loop {
        let heads = [
            records.peek().map(|(_, it)| &it.name),
            unissued.peek().map(|(name, _)| name),
            permits.peek().map(|it| &it.engine),
            lives.peek().map(|it| &it.engine),
            facts.peek().map(|it| &it.engine),
            pods.peek().map(|it| &it.name),
        ];
        let Some(name) = heads.into_iter().flatten().min().cloned() else { break };
        let mut engine = Engine::of(name);
        while let Some((at, record)) = records.next_if(|(_, it)| it.name == engine.name) {
            of_records[at] = engines.len();
            engine.slot = Some(Cow::Borrowed(&record.slot));
            engine.incarnation = Some(record.incarnation);
            engine.record = Some(record);
        }
        while let Some((_, at)) = unissued.next_if(|(name, _)| *name == engine.name) {
            of_wishes[at] = engines.len();
        }
        while let Some(permit) = permits.next_if(|it| it.engine == engine.name) {
            engine.permit = Some(permit);
        }
        while let Some(live) = lives.next_if(|it| it.engine == engine.name) {
            engine.live = Some(live);
        }
        while let Some(fact) = facts.next_if(|it| it.engine == engine.name) {
            engine.fact = Some(fact);
        }
        while let Some(pod) = pods.next_if(|it| it.name == engine.name) {
            place(&mut engine, pod);
        }
        // It makes nobody an engine: who is asked for his load has a pod.
        engine.status = if let Some(status) = &mut status {
            while status.next_if(|(name, _)| **name < engine.name).is_some() {}
            status.next_if(|(name, _)| **name == engine.name).map(|(_, it)| *it)
        } else {
            observed.status.get(&engine.name).copied()
        };
        // In an order that does not hang on the list's.
        engine.strays.sort_by_key(|pod| &pod.uid);
        engines.push(engine);
    }
    let slots: Vec<(&Slot, usize)> = wishes
        .into_iter()
        .enumerate()
        .map(|(at, slot)| (slot, issued[at].map_or(of_wishes[at], |record| of_records[record])))
        .collect();
    for (slot, at) in &slots {
        wanted(&mut engines[*at], slot);
    }
    engines.iter_mut().for_each(by_labels);
    Census { engines, slots }
}

/// The items of these names, of all where none are said, in the order of names.
fn chosen<'a, T>(items: &'a [T], name: impl Fn(&T) -> &EngineName, names: Option<&Names>) -> Vec<&'a T> {
    let chosen = match names {
        None => items.iter().collect(),
        Some(names) if names.is_empty() => Vec::new(),
        Some(names) => items.iter().filter(|it| names.contains(name(it))).collect(),
    };
    sorted(chosen, name)
}

/// In the order of the key, and of the list where keys are equal. Lists that come in order cost one walk.
fn sorted<T, K: Ord>(mut items: Vec<&T>, key: impl Fn(&T) -> &K) -> Vec<&T> {
    items.sort_by(|one, other| key(one).cmp(key(other)));
    items
}

/// The pod of the recorded uid is the engine; while no uid is recorded the first pod of the name is.
fn place<'a>(engine: &mut Engine<'a>, pod: &'a Pod) {
    let recorded = engine.record.and_then(|record| record.uid.as_ref());
    let is_it = recorded.map_or(engine.pod.is_none(), |uid| *uid == pod.uid);
    if is_it {
        engine.pod = Some(pod);
    } else {
        engine.strays.push(pod);
    }
}

fn wanted<'a>(engine: &mut Engine<'a>, slot: &'a Slot) {
    engine.wish = Some(slot);
    if engine.record.is_none() {
        engine.slot = Some(Cow::Borrowed(&slot.key));
        engine.incarnation = Some(slot.incarnation);
    }
}

/// What only its labels say.
fn by_labels(engine: &mut Engine<'_>) {
    if engine.slot.is_none()
        && let Some(Ok(labels)) = engine.pod.map(|pod| EngineLabels::decode(&pod.labels))
    {
        engine.slot = Some(Cow::Owned(labels.slot));
        engine.incarnation = Some(labels.incarnation);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::engine_state::Phase;
    use model::slot::Origin;
    use model::{PoolName, TenantName, UnitName};

    use super::*;

    fn slot(ordinal: u32, incarnation: i64) -> Slot {
        let key = SlotKey {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            unit: UnitName::new("uc_1").unwrap(),
            ordinal,
        };
        Slot { key, incarnation: Incarnation(incarnation), origin: Origin::Minimum, failures: 0, forced: false }
    }

    fn record(slot: &Slot, uid: Option<&str>) -> EngineRecord {
        EngineRecord {
            name: slot.engine(),
            slot: slot.key.clone(),
            incarnation: slot.incarnation,
            uid: uid.map(str::to_owned),
            config: String::new(),
            issued_at_ms: 0,
            started_at_ms: None,
            end_grace_ms: None,
            end_reason: None,
            ended_at_ms: None,
            ended_reason: None,
            log_tail: None,
            failure_before: None,
        }
    }

    fn pod(name: &EngineName, uid: &str) -> Pod {
        Pod {
            name: name.clone(),
            uid: uid.to_owned(),
            labels: std::sync::Arc::default(),
            phase: Phase::Running,
            incomplete: false,
            generation: None,
            node: None,
            reason: None,
            started_at_ms: None,
            log_tail: None,
            details: std::sync::Arc::default(),
        }
    }

    #[test]
    fn everything_of_a_name_comes_together_in_whatever_order_the_lists_are() {
        let (old, kept, unissued) = (slot(0, 3), slot(1, 900), slot(2, 50));
        let present = slot(0, 1_000);
        let mut desired = Desired::default();
        desired.snapshot.slots = vec![unissued.clone(), present.clone(), kept.clone()];
        desired.snapshot.engines = vec![record(&kept, Some("k")), record(&old, Some("o")), record(&present, None)];
        let other = EngineName::new("nobodys").unwrap();
        let mut observed = Observed {
            pods: vec![
                pod(&kept.engine(), "z"),
                pod(&present.engine(), "first"),
                pod(&other, "n"),
                pod(&present.engine(), "second"),
                pod(&kept.engine(), "k"),
                pod(&kept.engine(), "a"),
                pod(&old.engine(), "o"),
            ],
            ..Observed::default()
        };
        let permit = |engine: EngineName| Permit { engine, uid: None, readable: true, answered: false };
        observed.permits = vec![permit(unissued.engine()), permit(kept.engine()), permit(other.clone())];
        let census = take(&desired, &observed, None);
        assert!(census.engines.is_sorted_by(|one, next| one.name < next.name), "each name once, in order");
        let told = |name: &EngineName| {
            let engine = census.engines.iter().find(|it| it.name == *name).unwrap();
            let strays = engine.strays.iter().map(|it| it.uid.as_str()).collect::<Vec<_>>().join(" ");
            (engine.pod.map(|it| it.uid.as_str()), strays, engine.permit.is_some(), engine.wish.is_some())
        };
        assert_eq!(told(&kept.engine()), (Some("k"), "a z".to_owned(), true, true));
        assert_eq!(told(&present.engine()), (Some("first"), "second".to_owned(), false, true));
        assert_eq!(told(&old.engine()), (Some("o"), String::new(), false, false));
        assert_eq!(told(&unissued.engine()), (None, String::new(), true, true));
        assert_eq!(told(&other), (Some("n"), String::new(), true, false));
        let places: Vec<_> = census.slots.iter().map(|(it, at)| (it.key.ordinal, &census.engines[*at].name)).collect();
        assert_eq!(places, [(0, &present.engine()), (1, &kept.engine()), (2, &unissued.engine())]);
        assert_eq!(census.slot(&kept.key), Some(&kept));
        assert_eq!(census.slot(&slot(3, 1).key), None);
    }

    #[test]
    fn a_row_of_another_slot_with_the_same_number_is_not_the_present_engine() {
        let (wanted, odd) = (slot(0, 7), slot(1, 7));
        let mut desired = Desired::default();
        desired.snapshot.slots = vec![wanted.clone()];
        desired.snapshot.engines = vec![record(&odd, None)];
        let observed = Observed::default();
        let census = take(&desired, &observed, None);
        let (slot, at) = census.slots[0];
        assert_eq!((slot, &census.engines[at].name), (&wanted, &wanted.engine()));
        assert_eq!(census.engines.len(), 2);
    }
}
