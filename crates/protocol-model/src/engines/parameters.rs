//! The parameters of the model of slots, permits and drains: requests, limits of faults, removed rules.

use std::fmt;

/// A request of a user, once in a run and at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    /// START ENGINE: a slot at the lowest free ordinal.
    Start,
    /// STOP ENGINE of the slot's current engine.
    Stop(usize),
    /// RESTART ENGINE: the slot's engine stands in until the new one is ready.
    Restart(usize),
    /// RESTART ENGINE FORCE: no stand-in, no surge limit.
    Force(usize),
    /// RESTART ENGINE IN PLACE: the slot's engine ends before the new one is created.
    InPlace(usize),
    /// ALTER of the unit: every slot has another configuration.
    Alter,
    /// ALTER to a configuration whose engines never answer.
    AlterBroken,
    /// ALTER … IN PLACE.
    AlterInPlace,
    /// ALTER … IN PLACE to a configuration whose engines never answer.
    AlterBrokenInPlace,
    /// DROP of the unit: every slot is deleted.
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
    /// Permits that are deleted by hand.
    pub hand_deletions: u8,
    /// Times that ZooKeeper loses everything.
    pub losses: u8,
    /// Engines whose label is changed by hand.
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

/// The rules of the protocol that are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Without {
    /// The drain's multi does not check the lock.
    pub drain_lock: bool,
    /// The drain's multi does not check the newer engine's registration.
    pub newer_registration: bool,
    /// The drain's multi deletes permit and registration whether they were read or not.
    pub as_seen: bool,
    /// Drain order, registration and permit are written in separate calls.
    pub one_multi: bool,
    /// The epoch is checked in a statement of its own, before the write.
    pub epoch_in_transaction: bool,
    /// The snapshot is read before everything else.
    pub order: bool,
    /// A tick finishes the alteration although decisions for it are pending.
    pub converged_means: bool,
    /// *Converged* waits until engines are registered.
    pub no_readiness: bool,
    /// Pods from a newer snapshot are not treated as stale.
    pub newer_is_stale: bool,
    /// A new incarnation is drawn whatever incarnation the slot has.
    pub observed_incarnation: bool,
    /// An engine that is not registered is taken for one that ended.
    pub absence_ends_nothing: bool,
    /// The replacement of an ended engine has the same name.
    pub names_once: bool,
    /// A condemned engine is deleted at once.
    pub drain_order_before_delete: bool,
    /// A permit admits any uid.
    pub permit_uid: bool,
    /// A registration leaves no mark: only the last observation shows whether an engine is registered.
    pub mark: bool,
    /// The drain keeps the permit, and the agent takes its missing registration for an expired session.
    pub order_before_session: bool,
    /// The agent takes its expired session for the order to drain.
    pub order_only: bool,
    /// The master ticks only when it is woken, and a wake-up may be lost.
    pub timer: bool,
    /// In place, an engine is created although an older one of its slot is left.
    pub older_is_gone: bool,
    /// In place, each slot has its turn at once.
    pub turns: bool,
    /// The replacement of an engine that failed after IN PLACE is not in place.
    pub stays_in_place: bool,
}
