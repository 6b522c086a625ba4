//! What the judge has seen of the database: the slots and rows of engines as they were when it last looked, so that it checks
//! what has changed since. What is left out by that is compared as a whole now and then (`State::judge_whole`).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use foldhash::fast::RandomState;
use model::engine_name::EngineName;
use model::number::Incarnation;
use model::owner::Owner;
use model::shared::Shared;
use model::slot::{Link, Origin, Replacement, Slot, SlotKey};
use model::snapshot::EngineRecord;

use super::sums::Sums;
use crate::database::Database;

/// What was there.
#[derive(Debug, Default)]
pub struct Seen {
    /// [`Database::changes`](crate::database::Database::changes) at that time.
    pub(super) changes: u64,
    /// The slots and the rows of engines as they were read: most have not been touched since.
    pub(super) read: Read,
    pub(super) slots: Vec<SeenSlot>,
    /// The incarnations of the slots.
    pub(super) current: HashSet<Incarnation, RandomState>,
    pub(super) links: BTreeMap<Link, Slots>,
    pub(super) rows: Vec<SeenRow>,
    pub(super) sums: Sums,
    /// How often something had changed.
    pub(super) looks: u64,
}

/// What a look has read.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub slots: Vec<Shared<Slot>>,
    pub rows: Vec<Shared<EngineRecord>>,
}

impl Seen {
    /// What a database that was restored has.
    pub(super) fn new(database: &Database) -> Self {
        let snapshot = database.state();
        let mut seen = Self {
            changes: database.changes(),
            read: Read { slots: snapshot.slots.clone(), rows: snapshot.engines.clone() },
            slots: snapshot.slots.iter().map(|slot| SeenSlot::new(slot)).collect(),
            current: snapshot.slots.iter().map(|slot| slot.incarnation).collect(),
            rows: snapshot.engines.iter().map(|record| SeenRow::new(record)).collect(),
            sums: Sums::of(&snapshot.ledger),
            ..Self::default()
        };
        let links: BTreeSet<Link> = seen.slots.iter().map(|slot| slot.key.link()).collect();
        seen.links = links.into_iter().map(|link| (link.clone(), seen.slots_of(&link))).collect();
        seen
    }

    /// The slots of a link.
    pub(super) fn slots_of(&self, link: &Link) -> Slots {
        let mut of_link = Slots::default();
        for slot in self.slots.iter().filter(|slot| slot.key.is_of(link)) {
            let of_origin = if slot.origin == Origin::Demand { &mut of_link.on_demand } else { &mut of_link.others };
            of_origin.insert(slot.key.clone());
        }
        of_link
    }

    pub fn slots(&self) -> usize {
        self.slots.len()
    }
}

/// The slots of a link.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Slots {
    pub on_demand: BTreeSet<SlotKey>,
    pub others: BTreeSet<SlotKey>,
}

impl Slots {
    pub fn count(&self) -> usize {
        self.on_demand.len() + self.others.len()
    }
}

/// A slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenSlot {
    pub key: SlotKey,
    pub incarnation: Incarnation,
    pub origin: Origin,
    pub replacement: Replacement,
    pub owner: Option<Owner>,
    /// The name of its current engine.
    pub engine: EngineName,
}

impl SeenSlot {
    pub fn new(slot: &Slot) -> Self {
        Self {
            key: slot.key.clone(),
            incarnation: slot.incarnation,
            origin: slot.origin,
            replacement: slot.replacement,
            owner: slot.owner.clone(),
            engine: slot.engine(),
        }
    }

    /// Whether the slot is still like this. Its tenant, pool and unit are not compared: they change only together with its
    /// incarnation, which is used once.
    pub fn is(&self, slot: &Slot) -> bool {
        self.incarnation == slot.incarnation
            && self.key.ordinal == slot.key.ordinal
            && self.origin == slot.origin
            && self.replacement == slot.replacement
            && self.owner == slot.owner
    }
}

/// A row of an engine.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SeenRow {
    pub name: EngineName,
    pub has_uid: bool,
    /// It is to end and has not.
    pub is_condemned: bool,
}

impl SeenRow {
    pub fn new(record: &EngineRecord) -> Self {
        Self { name: record.name.clone(), has_uid: record.uid.is_some(), is_condemned: is_condemned(record) }
    }

    pub fn is(&self, record: &EngineRecord) -> bool {
        self.has_uid == record.uid.is_some() && self.is_condemned == is_condemned(record) && self.name == record.name
    }
}

fn is_condemned(record: &EngineRecord) -> bool {
    record.end_reason.is_some() && record.ended_at_ms.is_none()
}
