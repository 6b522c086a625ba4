//! The inventory: rows, reservations, permits, registrations, drain orders and instances, joined by engine name.
//!
//! Identity comes from table `engine`: names are looked up, never parsed. Labels identify an engine only if it has no row,
//! because they may have been changed by hand.
//!
//! There may be thousands of engines: the join is one pass over lists in the order of names, a name is computed only for a
//! slot whose engine has no row, and in most ticks only a few engines are in scope.

use std::borrow::Cow;
use std::collections::HashMap;
use std::iter::Peekable;
use std::sync::Arc;

use foldhash::fast::RandomState;
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::ledger::{Reservation, State};
use model::number::Incarnation;
use model::slot::{Slot, SlotKey};
use model::snapshot::EngineRecord;

use crate::desired::DesiredState;
use crate::name_set::NameSet;
use crate::observed::{DrainOrder, EngineLoad, Instance, ObservedState, Permit, Registration};
use crate::scope::Scope;

/// All engines and slots in scope.
#[derive(Debug)]
pub(crate) struct Inventory<'a> {
    /// By name, each once.
    pub engines: Vec<Engine<'a>>,
    /// By key, each with the index of its current engine.
    pub slots: Vec<(&'a Slot, usize)>,
}

impl<'a> Inventory<'a> {
    pub fn engine(&self, name: &EngineName) -> Option<&Engine<'a>> {
        let at = self.engines.binary_search_by(|engine| engine.name.cmp(name)).ok()?;
        Some(&self.engines[at])
    }

    pub fn slot(&self, key: &SlotKey) -> Option<&'a Slot> {
        let at = self.slots.binary_search_by(|(slot, _)| slot.key.cmp(key)).ok()?;
        Some(self.slots[at].0)
    }
}

/// One name with everything that has it.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    pub name: EngineName,
    /// From its row, else from the slot that wants it, else from the instance's labels.
    pub slot: Option<Cow<'a, SlotKey>>,
    pub incarnation: Option<Incarnation>,
    /// The slot whose current engine it is.
    pub current_of: Option<&'a Slot>,
    pub record: Option<&'a EngineRecord>,
    /// The instance with the recorded uid, or with the name while no uid is recorded.
    pub instance: Option<&'a Instance>,
    /// Other instances with the name, such as a late create of a deposed master.
    pub strays: Vec<&'a Instance>,
    pub permit: Option<&'a Permit>,
    pub registration: Option<&'a Registration>,
    pub drain: Option<&'a DrainOrder>,
    pub load: Option<EngineLoad>,
    /// The reservation with its name, in whatever state.
    pub reservation: Option<&'a Arc<Reservation>>,
}

impl<'a> Engine<'a> {
    fn new(name: EngineName) -> Self {
        Self {
            name,
            slot: None,
            incarnation: None,
            current_of: None,
            record: None,
            instance: None,
            strays: Vec::new(),
            permit: None,
            registration: None,
            drain: None,
            load: None,
            reservation: None,
        }
    }

    /// Its reservation, if that is charged.
    pub fn charged(&self) -> Option<&'a Arc<Reservation>> {
        self.reservation.filter(|reservation| reservation.state.is_charged())
    }

    /// Its reservation, if that is not confirmed yet.
    pub fn locked(&self) -> Option<&'a Arc<Reservation>> {
        self.reservation.filter(|reservation| reservation.state == State::Locked)
    }

    /// Its instance, if that is neither ended nor being deleted.
    pub fn alive(&self) -> Option<&'a Instance> {
        self.instance.filter(|instance| instance.is_alive())
    }

    /// The recorded uid, else the instance's.
    pub fn uid(&self) -> Option<&'a str> {
        self.record.and_then(|record| record.uid.as_deref()).or(self.instance.map(|instance| instance.uid.as_str()))
    }

    /// The drain order, if it has this uid.
    pub fn drain_of(&self, uid: &str) -> Option<&'a DrainOrder> {
        self.drain.filter(|drain| drain.uid.as_deref() == Some(uid))
    }

    /// Whether it is registered under the uid of its own instance.
    pub fn is_registered(&self) -> bool {
        match (self.alive(), self.registration) {
            (Some(instance), Some(registration)) => registration.uid.as_deref() == Some(&instance.uid),
            _ => false,
        }
    }

    /// Whether it is registered and stays: a replacement for which a stand-in may be drained.
    pub fn is_ready(&self) -> bool {
        let staying = self.record.is_some_and(|record| record.end_reason.is_none() && record.ended_at_ms.is_none());
        staying && self.is_registered() && self.alive().is_some_and(|instance| self.drain_of(&instance.uid).is_none())
    }

    /// Whether it is registered or has been: its reservation was confirmed.
    pub fn has_registered(&self) -> bool {
        self.is_registered() || self.reservation.is_some_and(|reservation| reservation.used_at_ms.is_some())
    }

    /// Every instance with the name.
    pub fn instances(&self) -> impl Iterator<Item = &'a Instance> {
        self.instance.into_iter().chain(self.strays.iter().copied())
    }
}

impl<'a> Inventory<'a> {
    /// Joins everything by name, for all engines or for those in scope.
    pub fn join(desired: &'a DesiredState, observed: &'a ObservedState, scope: Option<&Scope>) -> Self {
        let names = scope.map(|scope| &scope.names);
        let records = chosen(&desired.snapshot.engines, |record| &record.name, names);
        let slots = &desired.snapshot.slots;
        let slots_in_scope: Vec<&Slot> = match scope {
            None => slots.iter().map(AsRef::as_ref).collect(),
            Some(scope) => scope.slots.iter().map(|at| &*slots[*at]).collect(),
        };
        let slots_in_scope = sorted(slots_in_scope, |slot| &slot.key);
        // An incarnation is drawn once, for one slot.
        let numbers: HashMap<Incarnation, usize, RandomState> =
            records.iter().enumerate().map(|(at, record)| (record.incarnation, at)).collect();
        let issued: Vec<Option<usize>> = slots_in_scope
            .iter()
            .map(|slot| numbers.get(&slot.incarnation).copied().filter(|at| records[*at].slot == slot.key))
            .collect();
        let mut unissued: Vec<(EngineName, usize)> = (0..slots_in_scope.len())
            .filter(|at| issued[*at].is_none())
            .map(|at| (slots_in_scope[at].engine(), at))
            .collect();
        unissued.sort();
        let (mut of_records, mut of_slots) = (vec![0; records.len()], vec![0; slots_in_scope.len()]);
        let mut engines = Vec::with_capacity(records.len() + unissued.len());
        let mut records = records.into_iter().enumerate().peekable();
        let mut unissued = unissued.into_iter().peekable();
        let mut permits = chosen(&observed.permits, |permit| &permit.engine, names).into_iter().peekable();
        let mut registrations =
            chosen(&observed.registrations, |registration| &registration.engine, names).into_iter().peekable();
        let mut drains = chosen(&observed.drains, |drain| &drain.engine, names).into_iter().peekable();
        let mut instances = chosen(&observed.instances, |instance| &instance.name, names).into_iter().peekable();
        let mut reservations = reservations(desired, names).into_iter().peekable();
        let mut loads = names.is_none().then(|| observed.loads.iter().peekable());
        loop {
            let heads = [
                records.peek().map(|(_, record)| &record.name),
                unissued.peek().map(|(name, _)| name),
                permits.peek().map(|permit| &permit.engine),
                registrations.peek().map(|registration| &registration.engine),
                drains.peek().map(|drain| &drain.engine),
                instances.peek().map(|instance| &instance.name),
            ];
            let named = heads.into_iter().flatten().min();
            let Some(name) = first_name(named, &mut reservations) else { break };
            let mut engine = Engine::new(name);
            while let Some((at, record)) = records.next_if(|(_, record)| record.name == engine.name) {
                of_records[at] = engines.len();
                engine.slot = Some(Cow::Borrowed(&record.slot));
                engine.incarnation = Some(record.incarnation);
                engine.record = Some(record);
            }
            while let Some((_, at)) = unissued.next_if(|(name, _)| *name == engine.name) {
                of_slots[at] = engines.len();
            }
            while let Some(permit) = permits.next_if(|permit| permit.engine == engine.name) {
                engine.permit = Some(permit);
            }
            while let Some(registration) = registrations.next_if(|registration| registration.engine == engine.name) {
                engine.registration = Some(registration);
            }
            while let Some(drain) = drains.next_if(|drain| drain.engine == engine.name) {
                engine.drain = Some(drain);
            }
            while let Some(instance) = instances.next_if(|instance| instance.name == engine.name) {
                assign(&mut engine, instance);
            }
            while let Some(reservation) =
                reservations.next_if(|reservation| **reservation.id() <= *engine.name.as_str())
            {
                engine.reservation =
                    Some(reservation).filter(|reservation| **reservation.id() == *engine.name.as_str());
            }
            // A load never creates an entry: only engines with an instance are polled.
            engine.load = if let Some(loads) = &mut loads {
                while loads.next_if(|(name, _)| **name < engine.name).is_some() {}
                loads.next_if(|(name, _)| **name == engine.name).map(|(_, load)| *load)
            } else {
                observed.loads.get(&engine.name).copied()
            };
            // In an order that does not depend on the list's.
            engine.strays.sort_by_key(|instance| &instance.uid);
            engines.push(engine);
        }
        let slots: Vec<(&Slot, usize)> = slots_in_scope
            .into_iter()
            .enumerate()
            .map(|(at, slot)| (slot, issued[at].map_or(of_slots[at], |record| of_records[record])))
            .collect();
        for (slot, at) in &slots {
            mark_current(&mut engines[*at], slot);
        }
        engines.iter_mut().for_each(identify_by_labels);
        Self { engines, slots }
    }
}

/// The reservations of engines with these names, or of all engines, in the order of names.
fn reservations<'a>(desired: &'a DesiredState, names: Option<&NameSet>) -> Vec<&'a Arc<Reservation>> {
    let ledger = &desired.snapshot.ledger;
    let is_of_engine = |reservation: &&Arc<Reservation>| !reservation.request.holder.is_external();
    match names {
        None => ledger.reservations().filter(is_of_engine).collect(),
        Some(names) if names.is_empty() => Vec::new(),
        Some(names) => {
            let found = names.sorted().into_iter().filter_map(|name| ledger.reservation(name.as_str()));
            found.filter(is_of_engine).collect()
        }
    }
}

/// The first name of all lists; `named` is that of the other ones. A reservation whose id is no name of an engine has no entry.
fn first_name<'a>(
    named: Option<&EngineName>,
    reservations: &mut Peekable<impl Iterator<Item = &'a Arc<Reservation>>>,
) -> Option<EngineName> {
    while let Some(reservation) = reservations.peek() {
        let id: &str = reservation.id();
        if named.is_some_and(|name| name.as_str() <= id) {
            break;
        }
        match EngineName::new(id) {
            Ok(name) => return Some(name),
            Err(_) => drop(reservations.next()),
        }
    }
    named.cloned()
}

/// The items with these names, or all, in the order of names.
pub(crate) fn chosen<'a, T>(items: &'a [T], name: impl Fn(&T) -> &EngineName, names: Option<&NameSet>) -> Vec<&'a T> {
    let chosen = match names {
        None => items.iter().collect(),
        Some(names) if names.is_empty() => Vec::new(),
        Some(names) => items.iter().filter(|item| names.contains(name(item))).collect(),
    };
    sorted(chosen, name)
}

/// Sorts by key; a stable sort, and one pass over a list that is already in order.
pub(crate) fn sorted<T, K: Ord>(mut items: Vec<&T>, key: impl Fn(&T) -> &K) -> Vec<&T> {
    items.sort_by(|one, other| key(one).cmp(key(other)));
    items
}

/// The instance with the recorded uid is the engine's; while no uid is recorded, the first one with the name is.
fn assign<'a>(engine: &mut Engine<'a>, instance: &'a Instance) {
    let recorded = engine.record.and_then(|record| record.uid.as_ref());
    let is_it = recorded.map_or(engine.instance.is_none(), |uid| *uid == instance.uid);
    if is_it {
        engine.instance = Some(instance);
    } else {
        engine.strays.push(instance);
    }
}

fn mark_current<'a>(engine: &mut Engine<'a>, slot: &'a Slot) {
    engine.current_of = Some(slot);
    if engine.record.is_none() {
        engine.slot = Some(Cow::Borrowed(&slot.key));
        engine.incarnation = Some(slot.incarnation);
    }
}

/// Falls back to the labels of an engine without row and slot.
fn identify_by_labels(engine: &mut Engine<'_>) {
    if engine.slot.is_none()
        && let Some(Ok(labels)) = engine.instance.map(|instance| EngineLabels::decode(&instance.labels))
    {
        engine.slot = Some(Cow::Owned(labels.slot));
        engine.incarnation = Some(labels.incarnation);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::engine_state::Phase;
    use model::shared::Shared;
    use model::slot::{Origin, Replacement};
    use model::{PoolName, TenantName, UnitName};

    use super::*;

    fn slot(ordinal: u32, incarnation: i64) -> Slot {
        let key = SlotKey {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            unit: UnitName::new("uc_1").unwrap(),
            ordinal,
        };
        Slot {
            key,
            incarnation: Incarnation(incarnation),
            origin: Origin::Minimum,
            failures: 0,
            replacement: Replacement::StandIn,
            born: Incarnation(0),
            started_for: None,
            owner: None,
            asked_at_ms: 0,
        }
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
            ended_word: None,
            retryable: None,
            log_tail: None,
            failure_before: None,
        }
    }

    fn instance(name: &EngineName, uid: &str) -> Shared<Instance> {
        let instance = Instance {
            name: name.clone(),
            uid: uid.to_owned(),
            labels: Arc::default(),
            phase: Phase::Running,
            incomplete: false,
            generation: None,
            node: None,
            reason: None,
            started_at_ms: None,
            log_tail: None,
            fault: None,
            pods: None,
            details: Arc::default(),
        };
        instance.into()
    }

    #[test]
    fn the_join_does_not_depend_on_the_order_of_the_lists() {
        let (old, kept, unissued) = (slot(0, 3), slot(1, 900), slot(2, 50));
        let current = slot(0, 1_000);
        let mut desired = DesiredState::default();
        desired.snapshot.slots = [&unissued, &current, &kept].map(|slot| slot.clone().into()).into();
        let records = [record(&kept, Some("k")), record(&old, Some("o")), record(&current, None)];
        desired.snapshot.engines = records.map(Shared::from).into();
        let other = EngineName::new("unrelated").unwrap();
        let mut observed = ObservedState {
            instances: vec![
                instance(&kept.engine(), "z"),
                instance(&current.engine(), "first"),
                instance(&other, "n"),
                instance(&current.engine(), "second"),
                instance(&kept.engine(), "k"),
                instance(&kept.engine(), "a"),
                instance(&old.engine(), "o"),
            ],
            ..ObservedState::default()
        };
        let permit = |engine: EngineName| {
            Shared::from(Permit { engine, uid: None, readable: true, answered: false, sessions: None, owner: None })
        };
        observed.permits = vec![permit(unissued.engine()), permit(kept.engine()), permit(other.clone())];
        let inventory = Inventory::join(&desired, &observed, None);
        assert!(inventory.engines.is_sorted_by(|one, next| one.name < next.name), "each name once, in order");
        let joined = |name: &EngineName| {
            let engine = inventory.engines.iter().find(|engine| engine.name == *name).unwrap();
            let strays = engine.strays.iter().map(|instance| instance.uid.as_str()).collect::<Vec<_>>().join(" ");
            (
                engine.instance.map(|instance| instance.uid.as_str()),
                strays,
                engine.permit.is_some(),
                engine.current_of.is_some(),
            )
        };
        assert_eq!(joined(&kept.engine()), (Some("k"), "a z".to_owned(), true, true));
        assert_eq!(joined(&current.engine()), (Some("first"), "second".to_owned(), false, true));
        assert_eq!(joined(&old.engine()), (Some("o"), String::new(), false, false));
        assert_eq!(joined(&unissued.engine()), (None, String::new(), true, true));
        assert_eq!(joined(&other), (Some("n"), String::new(), true, false));
        let slots: Vec<_> =
            inventory.slots.iter().map(|(slot, at)| (slot.key.ordinal, &inventory.engines[*at].name)).collect();
        assert_eq!(slots, [(0, &current.engine()), (1, &kept.engine()), (2, &unissued.engine())]);
        assert_eq!(inventory.slot(&kept.key), Some(&kept));
        assert_eq!(inventory.slot(&slot(3, 1).key), None);
    }

    #[test]
    fn a_row_of_another_slot_with_the_same_number_is_not_current() {
        let (desired_by, odd) = (slot(0, 7), slot(1, 7));
        let mut desired = DesiredState::default();
        desired.snapshot.slots = vec![desired_by.clone().into()];
        desired.snapshot.engines = vec![record(&odd, None).into()];
        let observed = ObservedState::default();
        let inventory = Inventory::join(&desired, &observed, None);
        let (slot, at) = inventory.slots[0];
        assert_eq!((slot, &inventory.engines[at].name), (&desired_by, &desired_by.engine()));
        assert_eq!(inventory.engines.len(), 2);
    }
}
