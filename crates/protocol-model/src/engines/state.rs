//! The state of the model of slots, permits and drains.

use super::Limits;

/// A slot's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub incarnation: u8,
    pub replacement: Replacement,
}

/// How the slot's engine replaces the older ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Replacement {
    StandIn,
    Force,
    InPlace,
}

/// The row of table `engine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Record {
    /// 0: none is recorded.
    pub uid: u8,
    pub condemned: bool,
    pub ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// The warm-up has not succeeded.
    Starting,
    /// It serves; registered or not.
    Warm,
    /// It has read its permit and no drain order, and is about to register.
    Registering,
    /// It has read its drain order.
    Draining,
    /// Its process has ended; the orchestrator still lists it.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Pod {
    pub uid: u8,
    pub phase: Phase,
    pub was_registered: bool,
    /// The generation of the plan that created it.
    pub generation: u8,
    pub relabeled: bool,
    /// Its drain order was written once.
    pub ordered: bool,
}

impl Pod {
    pub fn is_alive(self) -> bool {
        self.phase != Phase::Ended
    }
}

/// The registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Registration {
    None,
    /// Of an engine whose session lives.
    Alive(u8),
    /// Of an ended engine whose session has not expired.
    Dead(u8),
}

impl Registration {
    pub fn uid(self) -> Option<u8> {
        match self {
            Self::None => None,
            Self::Alive(uid) | Self::Dead(uid) => Some(uid),
        }
    }
}

/// The nodes of an engine in ZooKeeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Nodes {
    /// The uid is 0 until it is written.
    pub permit: Option<u8>,
    pub registration: Registration,
    /// The mark below the permit: an engine has registered there, or that is unknown.
    pub answered: bool,
    pub drain_order: Option<u8>,
}

impl Nodes {
    /// The children of the permit.
    pub fn below(self) -> Below {
        Below { registration: self.registration != Registration::None, answered: self.answered }
    }

    /// Deletes permit, registration and mark.
    pub fn withdraw(&mut self) {
        (self.permit, self.registration, self.answered) = (None, Registration::None, false);
    }
}

/// The children of a permit as they were read: it is deleted with exactly these, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Below {
    pub registration: bool,
    pub answered: bool,
}

/// Everything under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Engine {
    pub slot: usize,
    pub incarnation: u8,
    pub record: Record,
    pub nodes: Nodes,
    pub pod: Option<Pod>,
    /// The last uid that a pod of the name had.
    pub last_uid: u8,
    /// Whether a uid was ever recorded for it.
    pub was_recorded: bool,
    /// The generation of the catalog when it was condemned.
    pub condemned_at: Option<u8>,
    /// Its configuration is one that never answers its warm-up.
    pub broken: bool,
    /// Its reservation is confirmed: a master has observed its registration. Only of slots in place, which need no other part
    /// of the ledger here.
    pub confirmed: bool,
}

impl Engine {
    pub fn issued(slot: usize, incarnation: u8) -> Self {
        let record = Record { uid: 0, condemned: false, ended: false };
        let nodes = Nodes { permit: None, registration: Registration::None, answered: false, drain_order: None };
        Self {
            slot,
            incarnation,
            record,
            nodes,
            pod: None,
            last_uid: 0,
            was_recorded: false,
            condemned_at: None,
            broken: false,
            confirmed: false,
        }
    }

    /// One that runs and is registered.
    pub fn running(slot: usize, incarnation: u8) -> Self {
        let record = Record { uid: 1, condemned: false, ended: false };
        let nodes = Nodes { permit: Some(1), registration: Registration::Alive(1), answered: true, drain_order: None };
        let phase = Phase::Warm;
        let pod = Pod { uid: 1, phase, was_registered: true, generation: 1, relabeled: false, ordered: false };
        Self { record, nodes, pod: Some(pod), last_uid: 1, was_recorded: true, ..Self::issued(slot, incarnation) }
    }

    /// The process has ended. Its registration exists until its session expires.
    pub fn end(&mut self) {
        let Some(pod) = &mut self.pod else { return };
        pod.phase = Phase::Ended;
        if self.nodes.registration == Registration::Alive(pod.uid) {
            self.nodes.registration = Registration::Dead(pod.uid);
        }
    }
}

/// The row of the last alteration. One at a time: the next is refused while this one converges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Alteration {
    /// The highest number that its transaction drew.
    pub generation: u8,
    pub converging: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Snapshot {
    pub generation: u8,
    pub slots: [Option<Slot>; 2],
    pub records: Vec<Record>,
    /// By engine: whether its reservation is confirmed.
    pub confirmed: Vec<bool>,
    pub alteration: Option<Alteration>,
}

/// The observation of a tick.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Observed {
    pub pods: Option<Vec<Option<Pod>>>,
    pub nodes: Option<Vec<Nodes>>,
    /// Read too early, in the variant that does so.
    pub early: Option<Snapshot>,
}

/// An effect on an engine or a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Effect {
    CreatePermit {
        uid: u8,
    },
    CreateEngine,
    /// The uid is 0 for the one that the preceding create returned; also below.
    RecordUid {
        uid: u8,
    },
    WritePermitUid {
        uid: u8,
    },
    DrawIncarnation {
        observed: u8,
    },
    RecordEnd,
    /// The reservation of a registered engine is confirmed.
    Confirm,
    Drain {
        uid: u8,
        newer: Option<usize>,
        permit: Option<Below>,
        /// In the turn of its slot, IN PLACE.
        in_place: bool,
    },
    /// The rest of a drain in several calls.
    Withdraw(Below),
    DeletePermit(Below),
    DeleteEngine {
        uid: u8,
    },
    RemoveDrainOrder,
    /// The alteration is converged.
    Finish,
}

/// An effect with its engine and the chain that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Decision {
    pub stage: u8,
    pub engine: usize,
    pub effect: Effect,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Tick {
    Idle,
    Observing(Observed),
    Planned { generation: u8, made: u8, decisions: Vec<Decision> },
}

/// The holder of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Master {
    Vacant,
    Won,
    Read(u8),
    Acting { epoch: u8, tick: Tick },
}

/// A call that a deposed master was making.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Call {
    Raise(u8),
    Effect { decision: Decision, epoch: u8, generation: u8, made: u8 },
}

/// The history that properties need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
pub(super) struct History {
    pub name_made_again: bool,
    pub deposed_wrote: bool,
    pub drained_early: bool,
    pub drained_in_absence: bool,
    pub drained_desired: bool,
    pub killed_without_drain_order: bool,
    pub converged_early: bool,
    /// By ordinal: its engine was drained in place, and none has registered since.
    pub down: [bool; 2],
    pub both_down: bool,
    pub created_before_end_of_older: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) generation: u8,
    pub(super) epoch: u8,
    pub(super) slots: [Option<Slot>; 2],
    pub(super) engines: Vec<Engine>,
    pub(super) alteration: Option<Alteration>,
    pub(super) master: Master,
    pub(super) late: Option<Call>,
    /// Whether the master has a reason to tick; always true with a timer.
    pub(super) woken: bool,
    /// A bit for each request that was issued.
    pub(super) issued: u8,
    pub(super) used: Limits,
    pub(super) history: History,
}

impl State {
    /// The initial state with that many slots, each with a registered engine.
    pub(super) fn with(slots: usize) -> Self {
        let mut state = Self {
            generation: 1,
            epoch: 0,
            slots: [None; 2],
            engines: Vec::new(),
            alteration: None,
            master: Master::Vacant,
            late: None,
            woken: true,
            issued: 0,
            used: Limits::default(),
            history: History::default(),
        };
        for slot in 0..slots {
            state.slots[slot] = Some(Slot { incarnation: 1, replacement: Replacement::StandIn });
            state.engines.push(Engine::running(slot, 1));
        }
        state
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let records = self.engines.iter().map(|engine| engine.record).collect();
        let confirmed = self.engines.iter().map(|engine| engine.confirmed).collect();
        let alteration = self.alteration;
        Snapshot { generation: self.generation, slots: self.slots, records, confirmed, alteration }
    }

    /// Draws a number from the catalog's counter and issues the slot's next name.
    pub(super) fn issue(&mut self, slot: usize, replacement: Replacement, broken: bool) {
        self.generation += 1;
        self.history.down[slot] &= replacement == Replacement::InPlace;
        self.slots[slot] = Some(Slot { incarnation: self.generation, replacement });
        self.engines.push(Engine { broken, ..Engine::issued(slot, self.generation) });
    }

    pub(super) fn condemn(&mut self, slot: usize) {
        self.generation += 1;
        self.history.down[slot] = false;
        for engine in self.engines.iter_mut().filter(|engine| engine.slot == slot && !engine.record.ended) {
            engine.record.condemned = true;
            engine.condemned_at.get_or_insert(self.generation);
        }
    }

    /// Whether the master is between two ticks.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.master, Master::Acting { tick: Tick::Idle, .. })
    }

    /// Whether the engine is the current one of its slot.
    pub(super) fn is_current(&self, engine: usize) -> bool {
        let engine = &self.engines[engine];
        self.slots[engine.slot].is_some_and(|slot| slot.incarnation == engine.incarnation)
    }
}
