//! What the world of slots, permits and drains is made of.

use std::fmt;

/// What somebody says, once in a run and at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    /// START ENGINE: a slot at the lowest free ordinal.
    Start,
    /// STOP ENGINE of the slot's present engine.
    Stop(usize),
    /// RESTART ENGINE: the slot's engine stands in until the new one is ready.
    Restart(usize),
    /// RESTART ENGINE FORCE: no stand-in, no turn.
    Force(usize),
    /// ALTER of the unit: every slot gets another configuration.
    Alter,
    /// ALTER to a configuration whose engines never answer.
    AlterBroken,
    /// DROP of the unit: every slot goes.
    Drop,
}

/// How many faults of each kind may happen in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limits {
    /// Masters that lose the lock.
    pub depositions: u8,
    /// Engines' sessions that end while the engine lives.
    pub expiries: u8,
    /// Engines that end by themselves.
    pub deaths: u8,
    /// Pods that vanish.
    pub vanishings: u8,
    /// Permits that somebody deletes by hand.
    pub hand_deletions: u8,
    /// Times that ZooKeeper loses everything.
    pub losses: u8,
    /// Engines whose label somebody changes.
    pub relabelings: u8,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "2 ordinals, surge 1, masters deposed {}, engine expiries {}, engine deaths {}, pods vanished {}, permits \
             deleted by hand {}, losses of ZooKeeper {}, labels changed {}",
            self.depositions,
            self.expiries,
            self.deaths,
            self.vanishings,
            self.hand_deletions,
            self.losses,
            self.relabelings
        )
    }
}

/// The sentences of the design that are taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Without {
    /// The drain's multi does not check the lock.
    pub drain_lock: bool,
    /// The drain's multi does not check the newer engine's registration.
    pub newer_live: bool,
    /// The drain's multi deletes permit and registration whether they were seen or not.
    pub as_seen: bool,
    /// Drain fact, registration and permit are written in calls of their own.
    pub one_multi: bool,
    /// The epoch is checked in a statement of its own, before the write.
    pub epoch_in_transaction: bool,
    /// The snapshot is read before everything else.
    pub order: bool,
    /// A tick finishes the alteration although something is still to be done for it.
    pub converged_means: bool,
    /// *Converged* waits until engines are registered.
    pub no_readiness: bool,
    /// Pods from a newer snapshot are not left alone.
    pub newer_left_alone: bool,
    /// A new incarnation is drawn whatever incarnation the slot has.
    pub observed_incarnation: bool,
    /// An engine that is not registered is taken for one that ended.
    pub absence_ends_nothing: bool,
    /// What replaces an engine that ended is made under its name.
    pub names_once: bool,
    /// A condemned engine is deleted at once.
    pub fact_before_delete: bool,
    /// A permit admits whoever has its name.
    pub permit_uid: bool,
    /// A registration leaves no mark: whether an engine ever answered is what the last look says.
    pub mark: bool,
    /// The drain leaves the permit, and the agent takes its missing registration for an expired session.
    pub order_before_session: bool,
    /// The agent takes its expired session for the order to drain.
    pub order_only: bool,
    /// The master looks when it is woken, and at no other time; what wakes it may be missed.
    pub timer: bool,
}

/// A slot's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub incarnation: u8,
    pub forced: bool,
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
    /// The warm-up is not answered.
    Starting,
    /// It answers; registered or not.
    Warm,
    /// It has seen its permit and no fact, and is about to register.
    Registering,
    /// It has seen its fact.
    Draining,
    /// Its process is over, the orchestrator still lists it.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Pod {
    pub uid: u8,
    pub phase: Phase,
    pub was_registered: bool,
    /// The generation of the plan that made it.
    pub generation: u8,
    pub relabeled: bool,
    /// Its drain fact was written once.
    pub ordered: bool,
}

impl Pod {
    pub fn is_alive(self) -> bool {
        self.phase != Phase::Ended
    }
}

/// The registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Live {
    None,
    /// Of an engine whose session lives.
    Alive(u8),
    /// Of an engine that is no more; the session has not ended yet.
    Dead(u8),
}

impl Live {
    pub fn uid(self) -> Option<u8> {
        match self {
            Self::None => None,
            Self::Alive(uid) | Self::Dead(uid) => Some(uid),
        }
    }
}

/// What ZooKeeper has of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Nodes {
    /// The uid in it is 0 until it is written.
    pub permit: Option<u8>,
    pub live: Live,
    /// The mark below the permit: somebody registered there once, or that can't be known.
    pub answered: bool,
    pub fact: Option<u8>,
}

impl Nodes {
    /// What stands below the permit.
    pub fn below(self) -> Below {
        Below { live: self.live != Live::None, answered: self.answered }
    }

    /// Permit, registration and mark go.
    pub fn withdraw(&mut self) {
        (self.permit, self.live, self.answered) = (None, Live::None, false);
    }
}

/// What was seen below a permit: it is deleted with exactly that, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Below {
    pub live: bool,
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
    /// The catalog's generation when it lost its wish.
    pub condemned_at: Option<u8>,
    /// Its configuration is one that never answers its warm-up.
    pub broken: bool,
}

impl Engine {
    pub fn issued(slot: usize, incarnation: u8) -> Self {
        let record = Record { uid: 0, condemned: false, ended: false };
        let nodes = Nodes { permit: None, live: Live::None, answered: false, fact: None };
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
        }
    }

    /// One that runs and is registered.
    pub fn running(slot: usize, incarnation: u8) -> Self {
        let record = Record { uid: 1, condemned: false, ended: false };
        let nodes = Nodes { permit: Some(1), live: Live::Alive(1), answered: true, fact: None };
        let phase = Phase::Warm;
        let pod = Pod { uid: 1, phase, was_registered: true, generation: 1, relabeled: false, ordered: false };
        Self { record, nodes, pod: Some(pod), last_uid: 1, was_recorded: true, ..Self::issued(slot, incarnation) }
    }
}

/// The row of the last alteration. One at a time: the next is refused while this one converges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Alteration {
    /// The highest number that its transaction drew.
    pub generation: u8,
    pub converging: bool,
}

/// What the snapshot says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Snap {
    pub generation: u8,
    pub slots: [Option<Slot>; 2],
    pub records: Vec<Record>,
    pub alteration: Option<Alteration>,
}

/// What a tick has seen of each name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Seen {
    pub pods: Option<Vec<Option<Pod>>>,
    pub nodes: Option<Vec<Nodes>>,
    /// Read too early, in the variant that does so.
    pub early: Option<Snap>,
}

/// What is done to one engine or slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Effect {
    CreatePermit {
        uid: u8,
    },
    CreateEngine,
    /// The uid is 0 for the one that the create before it has answered; so below.
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
    Drain {
        uid: u8,
        newer: Option<usize>,
        permit: Option<Below>,
    },
    /// What a drain in several calls has left to do.
    Withdraw(Below),
    DeletePermit(Below),
    DeleteEngine {
        uid: u8,
    },
    RemoveFact,
    /// The alteration is converged.
    Finish,
}

/// An effect with the engine that it is about and the chain that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Decision {
    pub stage: u8,
    pub engine: usize,
    pub effect: Effect,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Tick {
    Idle,
    Observing(Seen),
    Planned { generation: u8, made: u8, decisions: Vec<Decision> },
}

/// Whoever holds the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Master {
    Nobody,
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

/// What a property needs to know of the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Past {
    pub name_made_again: bool,
    pub deposed_wrote: bool,
    pub drained_early: bool,
    pub drained_in_absence: bool,
    pub drained_wanted: bool,
    pub killed_without_fact: bool,
    pub converged_early: bool,
}

/// A state of the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) generation: u8,
    pub(super) epoch: u8,
    pub(super) slots: [Option<Slot>; 2],
    pub(super) engines: Vec<Engine>,
    pub(super) alteration: Option<Alteration>,
    pub(super) master: Master,
    pub(super) late: Option<Call>,
    /// Whether the master has a reason to look; always true where it looks by itself.
    pub(super) woken: bool,
    /// A bit for each request that was said.
    pub(super) said: u8,
    pub(super) used: Limits,
    pub(super) past: Past,
}

impl State {
    /// A world in which so many slots have a registered engine each.
    pub(super) fn with(slots: usize) -> Self {
        let mut state = Self {
            generation: 1,
            epoch: 0,
            slots: [None; 2],
            engines: Vec::new(),
            alteration: None,
            master: Master::Nobody,
            late: None,
            woken: true,
            said: 0,
            used: Limits::default(),
            past: Past::default(),
        };
        for slot in 0..slots {
            state.slots[slot] = Some(Slot { incarnation: 1, forced: false });
            state.engines.push(Engine::running(slot, 1));
        }
        state
    }

    pub(super) fn snapshot(&self) -> Snap {
        let records = self.engines.iter().map(|engine| engine.record).collect();
        let alteration = self.alteration;
        Snap { generation: self.generation, slots: self.slots, records, alteration }
    }

    /// Draws a number from the catalog's counter and issues the slot's next name.
    pub(super) fn issue(&mut self, slot: usize, forced: bool, broken: bool) {
        self.generation += 1;
        self.slots[slot] = Some(Slot { incarnation: self.generation, forced });
        self.engines.push(Engine { broken, ..Engine::issued(slot, self.generation) });
    }

    pub(super) fn condemn(&mut self, slot: usize) {
        self.generation += 1;
        for engine in self.engines.iter_mut().filter(|it| it.slot == slot && !it.record.ended) {
            engine.record.condemned = true;
            engine.condemned_at.get_or_insert(self.generation);
        }
    }

    /// Whether the master is between two ticks.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.master, Master::Acting { tick: Tick::Idle, .. })
    }

    /// Whether the engine is its slot's present one.
    pub(super) fn is_present(&self, engine: usize) -> bool {
        let engine = &self.engines[engine];
        self.slots[engine.slot].is_some_and(|slot| slot.incarnation == engine.incarnation)
    }
}
