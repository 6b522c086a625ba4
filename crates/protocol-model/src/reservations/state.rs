//! The state of the model of reservations.

use super::{Limits, Pool};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Starting,
    Registered,
    /// It was deleted, and still occupies its node.
    Terminating,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Instance {
    pub uid: u8,
    pub phase: Phase,
    /// Created by a late call: no reservation is promised for it.
    pub late: bool,
    /// It was created with a reservation, or has been adopted.
    pub reserved: bool,
}

impl Instance {
    pub fn is_alive(self) -> bool {
        self.phase != Phase::Terminating
    }
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
pub(super) enum Reservation {
    /// Whether its deadline has passed.
    Locked {
        overdue: bool,
    },
    /// By the instance with that uid.
    Used(u8),
    Ended,
}

impl Reservation {
    pub fn is_charged(self) -> bool {
        self != Self::Ended
    }

    pub fn is_overdue(self) -> bool {
        self == Self::Locked { overdue: true }
    }
}

/// Everything under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Engine {
    pub slot: usize,
    pub record: Record,
    pub instance: Option<Instance>,
    /// The last uid that an instance of the name had.
    pub last_uid: u8,
    pub reservation: Option<Reservation>,
    /// Whether its reservation was ever used: it has registered, or was adopted.
    pub confirmed: bool,
}

impl Engine {
    pub fn issued(slot: usize) -> Self {
        let record = Record { uid: 0, condemned: false, ended: false };
        Self { slot, record, instance: None, last_uid: 0, reservation: None, confirmed: false }
    }

    pub fn running(slot: usize, reserved: bool) -> Self {
        let record = Record { uid: 1, condemned: false, ended: false };
        let instance = Some(Instance { uid: 1, phase: Phase::Registered, late: false, reserved });
        let reservation = reserved.then_some(Reservation::Used(1));
        Self { slot, record, instance, last_uid: 1, reservation, confirmed: reserved }
    }

    pub fn is_charged(&self) -> bool {
        self.reservation.is_some_and(Reservation::is_charged)
    }
}

/// A program of the external holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Program {
    Idle,
    Running,
    Done,
}

/// The external holder, once it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub reservation: Option<Reservation>,
    pub programs: [Program; 2],
}

/// An effect on an engine, its slot or its reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Effect {
    Adopt {
        uid: u8,
    },
    Confirm {
        uid: u8,
    },
    End,
    Reserve,
    /// The charge of another engine of the slot passes to this one.
    Transfer {
        from: usize,
    },
    /// The engine is replaced in place: it is to end, in the turn of its slot.
    Drain,
    CreateEngine,
    /// The uid is 0 for the one that the preceding create returned.
    RecordUid {
        uid: u8,
    },
    DrawIncarnation,
    DeleteEngine {
        uid: u8,
    },
    RecordEnd,
    /// Ends the reservation of the external holder.
    Expire,
    /// The engines of the pool have been counted.
    Count,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Decision {
    pub stage: u8,
    pub engine: usize,
    pub effect: Effect,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Tick {
    Idle,
    Listed(Vec<Option<Instance>>),
    Planned { made: u8, decisions: Vec<Decision> },
}

/// The holder of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Master {
    Vacant,
    Acting(Tick),
}

/// A call that its master has given up, or was making when it was deposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub decision: Decision,
    pub made: u8,
    pub epoch: u8,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) epoch: u8,
    /// The epoch whose master has counted the engines of the pool.
    pub(super) counted: u8,
    /// The current engine of each slot.
    pub(super) slots: [Option<usize>; 2],
    /// Whether the current engine of each slot replaces the older ones in place.
    pub(super) in_place: [bool; 2],
    /// History: the slots that were taken down, and of which no engine has registered since.
    pub(super) down: [bool; 2],
    pub(super) engines: Vec<Engine>,
    pub(super) holder: Option<Holder>,
    pub(super) master: Master,
    pub(super) late: Option<Call>,
    /// A bit for each request that was issued.
    pub(super) issued: u8,
    pub(super) used: Limits,
}

impl State {
    pub(super) fn with(pool: Pool) -> Self {
        let mut slots = [None; 2];
        for (slot, current) in slots.iter_mut().enumerate().take(pool.running) {
            *current = Some(slot);
        }
        Self {
            // Of a master that has ended.
            epoch: 1,
            counted: u8::from(pool.reserved),
            slots,
            in_place: [false; 2],
            down: [false; 2],
            engines: (0..pool.running).map(|slot| Engine::running(slot, pool.reserved)).collect(),
            holder: None,
            master: Master::Vacant,
            late: None,
            issued: 0,
            used: Limits::default(),
        }
    }

    /// Issues the slot's next name.
    pub(super) fn issue(&mut self, slot: usize) {
        self.slots[slot] = Some(self.engines.len());
        self.engines.push(Engine::issued(slot));
    }

    pub(super) fn is_current(&self, engine: usize) -> bool {
        self.slots[self.engines[engine].slot] == Some(engine)
    }

    /// Whether the external holder is charged.
    pub(super) fn holder_is_charged(&self) -> bool {
        self.holder.and_then(|holder| holder.reservation).is_some_and(Reservation::is_charged)
    }
}
