//! The state of the model of demand.

use super::{Limits, Link};

/// The phase of a client's session. Each client has a proxy of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Its client has not come yet.
    Outside,
    /// It waits for an engine, and is counted.
    Waiting,
    /// It has left the count, to be opened on that engine.
    Leaving(usize),
    /// It is open on that engine.
    Open(usize),
    /// Its client has stopped waiting, and comes again.
    Away,
    /// It was closed.
    Closed,
    /// Its proxy died.
    Dead,
}

/// A session with what its proxy reports of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub phase: Phase,
    /// The number of the last report.
    pub seq: u8,
    /// What was recorded last as far as the proxy knows; `None` if that is unknown.
    pub recorded: Option<bool>,
    /// A report that the proxy has given up.
    pub late: Option<Report>,
    /// Its row in table `demand`.
    pub row: Report,
    /// Whether the lease of the row has not ended.
    pub leased: bool,
}

/// A report with its number: whether the session waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Report {
    pub seq: u8,
    pub waits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Life {
    /// It has a name.
    Issued,
    /// Its instance runs and has not registered yet.
    Starting,
    /// It has registered.
    Running,
    Gone,
}

/// Why a slot was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Why {
    Idle,
    Unneeded,
    /// It has no reservation.
    Queued,
}

/// Everything under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one engine")]
pub(super) struct Engine {
    pub ordinal: usize,
    pub life: Life,
    pub registered: bool,
    /// No session has been open for the idle timeout.
    pub idle: bool,
    /// How many sessions have been opened.
    pub opened: u8,
    /// The agent has agreed to open no sessions.
    pub consent: bool,
    /// The agent does not answer the master.
    pub silent: bool,
    /// It never registers.
    pub hung: bool,
    /// It has a reservation.
    pub charged: bool,
    /// Its slot was removed.
    pub removed: Option<Why>,
    /// It has a drain order.
    pub ordered: bool,
    /// Its consent has ended after its slot was removed for being idle: no master has acted in time.
    pub overdue: bool,
}

impl Engine {
    pub fn issued(ordinal: usize) -> Self {
        Self {
            ordinal,
            life: Life::Issued,
            registered: false,
            idle: false,
            opened: 0,
            consent: false,
            silent: false,
            hung: false,
            charged: false,
            removed: None,
            ordered: false,
            overdue: false,
        }
    }

    pub fn is_alive(&self) -> bool {
        matches!(self.life, Life::Starting | Life::Running)
    }
}

/// The row of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    /// Its current engine, of which the number is the incarnation.
    pub engine: usize,
    pub on_demand: bool,
}

/// The node that the first engines run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Node {
    /// Kubernetes reports it as not ready.
    pub unready: bool,
    /// Nothing reaches it, and it reaches nothing.
    pub cut: bool,
}

/// The slots as a plan saw them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Expected {
    pub count: usize,
    pub newest: usize,
    /// The number of names that were issued.
    pub issued: usize,
}

/// A change of the link's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Scale {
    pub expected: Expected,
    pub add: usize,
    pub remove: Option<(usize, Why)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Effect {
    /// Ask the agent of an idle engine that has opened so many sessions; the scale that follows depends on it.
    Retire {
        engine: usize,
        opened: u8,
    },
    Scale(Scale),
    Reserve(usize),
    Create(usize),
    Draw(usize),
    Drain(usize),
    /// In a variant: withdraw a consent.
    Withdraw(usize),
}

/// An engine as the master observed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    pub engine: Engine,
    /// Its taken seats, of one.
    pub taken: u8,
    pub unready: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Tick {
    Idle,
    Observed(Vec<Seen>),
    /// The slots and the waiting sessions, and whether the engines are polled now.
    Read {
        seen: Vec<Seen>,
        slots: [Option<Slot>; 2],
        issued: usize,
        waiting: u8,
        polls: bool,
    },
    Planned(Vec<Effect>),
}

/// What has been true since the tick began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct History {
    /// The most sessions without a seat, free or on its way.
    pub short: u8,
    /// The fewest seats.
    pub seats: u8,
    /// The engines, a bit each, that have had an open session all the time.
    pub busy: u16,
    /// Those of which an instance has existed all the time.
    pub created: u16,
    /// Those that have been registered all the time.
    pub registered: u16,
    /// Those whose node has been ready all the time.
    pub ready: u16,
    /// A client has waited or been about to come again all the time.
    pub sought: bool,
}

/// The holder of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Master {
    Vacant,
    Acting(Tick, History),
}

/// A call that its master has given up, or was making when it was deposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub effect: Effect,
    pub epoch: u8,
    pub history: History,
}

/// What must never happen, and has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each property")]
pub(super) struct Broken {
    pub too_many: bool,
    pub busy_removed: bool,
    pub opened_on_released: bool,
    pub below_min: bool,
    pub started_removed: bool,
    pub queued: bool,
    pub sought_cancelled: bool,
    pub wasted: bool,
    pub replaced_too_early: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) epoch: u8,
    /// `MIN_ENGINES`.
    pub(super) min: usize,
    /// The units that the pool has left.
    pub(super) free: u8,
    pub(super) slots: [Option<Slot>; 2],
    pub(super) engines: Vec<Engine>,
    pub(super) sessions: Vec<Session>,
    pub(super) node: Node,
    /// Demand has been absent for `master.cancel_after`.
    pub(super) lapsed: bool,
    pub(super) master: Master,
    pub(super) late: Option<Call>,
    /// A bit for each request that was issued.
    pub(super) issued: u8,
    pub(super) used: Limits,
    pub(super) broken: Broken,
}

impl State {
    pub(super) fn with(link: Link) -> Self {
        let mut slots = [None; 2];
        for (engine, slot) in slots.iter_mut().enumerate().take(link.running) {
            *slot = Some(Slot { engine, on_demand: link.on_demand });
        }
        let running =
            |ordinal| Engine { life: Life::Running, registered: true, charged: true, ..Engine::issued(ordinal) };
        let none = Report { seq: 0, waits: false };
        let session =
            Session { phase: Phase::Outside, seq: 0, recorded: Some(false), late: None, row: none, leased: true };
        Self {
            epoch: 0,
            min: 0,
            free: link.free,
            slots,
            engines: (0..link.running).map(running).collect(),
            sessions: vec![session; link.sessions],
            node: Node::default(),
            lapsed: false,
            master: Master::Vacant,
            late: None,
            issued: 0,
            used: Limits::default(),
            broken: Broken::default(),
        }
    }

    /// Issues the next name of an ordinal.
    pub(super) fn issue(&mut self, ordinal: usize) -> usize {
        self.engines.push(Engine::issued(ordinal));
        self.engines.len() - 1
    }

    pub(super) fn slot_of(&self, engine: usize) -> Option<&Slot> {
        self.slots[self.engines[engine].ordinal].as_ref().filter(|slot| slot.engine == engine)
    }

    pub(super) fn expected(&self) -> Expected {
        Expected::of(&self.slots, self.engines.len())
    }

    /// The taken seats of an engine, of one.
    pub(super) fn taken(&self, engine: usize) -> u8 {
        u8::from(self.sessions.iter().any(|session| session.phase == Phase::Open(engine)))
    }

    /// Whether the engine runs on the node that may fail: the first names do.
    const fn is_on_node(engine: usize, link: Link) -> bool {
        engine == 0 || engine < link.running
    }

    pub(super) fn is_cut(&self, engine: usize, link: Link) -> bool {
        self.node.cut && Self::is_on_node(engine, link)
    }

    pub(super) fn is_unready(&self, engine: usize, link: Link) -> bool {
        self.node.unready && Self::is_on_node(engine, link)
    }
}

impl Expected {
    pub fn of(slots: &[Option<Slot>; 2], issued: usize) -> Self {
        let present = slots.iter().flatten();
        Self { count: present.clone().count(), newest: present.map(|slot| slot.engine + 1).max().unwrap_or(0), issued }
    }
}

impl Session {
    /// Whether its proxy counts it.
    pub fn is_counted(self, leaves_late: bool) -> bool {
        match self.phase {
            Phase::Waiting => true,
            Phase::Leaving(_) => leaves_late,
            _ => false,
        }
    }
}
