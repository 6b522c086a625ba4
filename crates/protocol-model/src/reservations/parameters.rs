//! The parameters of the model of reservations: the pool, requests, limits of faults, removed rules.

use std::fmt;

/// A request, once in a run and at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    /// START ENGINE: a slot at the lowest free ordinal.
    Start,
    /// STOP ENGINE of the slot's engines.
    Stop(usize),
    /// RESTART ENGINE: the slot's engine stands in until the new one is ready.
    Restart(usize),
    /// RESTART ENGINE IN PLACE: the slot's engine ends in the slot's turn, and its charge passes to the new one.
    InPlace(usize),
    /// An external holder reserves, for one of two programs that both mean to use it.
    Hold,
}

/// What is there at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pool {
    /// How many engines and programs fit.
    pub capacity: u8,
    /// The number of slots with a registered engine.
    pub running: usize,
    /// Whether these have reservations, or were started by a version that had none.
    pub reserved: bool,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reserved = if self.reserved { "" } else { " without reservations" };
        write!(f, "reservations: pool of {}, {} running{reserved}", self.capacity, self.running)
    }
}

/// How many faults of each kind may happen in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limits {
    /// Masters that lose the lock.
    pub depositions: u8,
    /// Calls that a master gives up and that arrive later, or never.
    pub given_up: u8,
    /// Instances that vanish.
    pub vanishings: u8,
    /// Deadlines that pass before the reservation is confirmed.
    pub deadlines: u8,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "2 ordinals, masters deposed {}, calls given up {}, instances vanished {}, deadlines passed {}",
            self.depositions, self.given_up, self.vanishings, self.deadlines
        )
    }
}

/// The rules of the protocol that are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Without {
    /// An engine is reserved for after it was created.
    pub reserved_first: bool,
    /// The charge is returned when the engine is condemned or its deadline has passed.
    pub charge_until_gone: bool,
    /// A terminating instance counts as gone.
    pub terminating_is_charged: bool,
    /// The plan sees only the reservations of engines that have not ended.
    pub all_charged_are_planned: bool,
    /// A reservation ends in the chain that records the end of its engine, and in no other.
    pub end_is_repeated: bool,
    /// A reservation whose deadline has passed ends before its slot is renewed.
    pub renewed_before_end: bool,
    /// An ended reservation does not renew its slot.
    pub ended_renews: bool,
    /// A tick that adopts admits as well, and reserves first.
    pub adopt_before_admit: bool,
    /// A tick that adopts admits as well.
    pub adopting_admits_nothing: bool,
    /// An external holder is granted before the engines of the pool have been counted.
    pub counted_before_grants: bool,
    /// A confirmation compares no uid.
    pub confirm_uid: bool,
    /// A confirmation compares no state.
    pub confirm_state: bool,
    /// The pool is charged once for the engines of a slot.
    pub pool_for_both: bool,
    /// The charge of an engine that is replaced in place is returned when the engine is gone.
    pub transferred: bool,
    /// What replaces an engine in place is created while the instance of the older one terminates.
    pub older_is_gone: bool,
    /// The incarnation that follows a failed start is not in place any more.
    pub in_place_is_kept: bool,
    /// Every slot that is replaced in place has its turn at once.
    pub turns: bool,
}
