//! The parameters of the model of demand: the link, requests, limits of faults, removed rules.

use std::fmt;

/// A request of a user or an external holder, once in a run and at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    /// ALTER RESOURCE UNIT `MIN_ENGINES` to the number of slots that there are: no row of a slot changes.
    RaiseMin,
    /// An external holder takes a unit of the pool.
    Hold,
}

/// What is there at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link {
    /// The clients that open a session, once each.
    pub sessions: usize,
    /// The slots with a registered engine that has no session.
    pub running: usize,
    /// Whether these follow demand, or were started by a statement.
    pub on_demand: bool,
    /// `MAX_ENGINES`.
    pub max: usize,
    /// How many further engines the pool has capacity for.
    pub free: u8,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = if self.on_demand { "" } else { " by a statement" };
        let Self { sessions, running, max, free, .. } = self;
        write!(f, "demand: {sessions} sessions, {running} running{origin}, at most {max}, capacity for {free}")
    }
}

/// How many faults of each kind may happen in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limits {
    /// Masters that lose the lock.
    pub depositions: u8,
    /// Calls that a master gives up and that arrive later, or never.
    pub given_up: u8,
    /// Reports that a proxy gives up and that arrive later, or never.
    pub reports: u8,
    /// Proxies that die.
    pub deaths: u8,
    /// Clients that stop waiting, and wait again later.
    pub retries: u8,
    /// Sessions of engines with ZooKeeper that expire.
    pub expiries: u8,
    /// Agents that stop to answer the master.
    pub silences: u8,
    /// The node that the first engines run on is not ready for a while, although they serve.
    pub unready: u8,
    /// The node is cut off.
    pub cuts: u8,
    /// Engines that never register.
    pub hung: u8,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            ("masters deposed", self.depositions),
            ("calls given up", self.given_up),
            ("reports given up", self.reports),
            ("proxies died", self.deaths),
            ("clients come again", self.retries),
            ("sessions expired", self.expiries),
            ("agents silent", self.silences),
            ("nodes not ready", self.unready),
            ("nodes cut off", self.cuts),
            ("engines hung", self.hung),
        ];
        f.write_str("2 ordinals")?;
        counts.iter().filter(|(_, count)| *count > 0).try_for_each(|(name, count)| write!(f, ", {name} {count}"))
    }
}

/// The rules of the protocol that are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Without {
    /// Seats of engines that are on their way do not count.
    pub pending_seats: bool,
    /// Demand counts for ever.
    pub lease: bool,
    /// A session leaves the count after it was opened.
    pub left_before_open: bool,
    /// The demand is not read again after the loads.
    pub demand_after_loads: bool,
    /// A report has no number.
    pub numbered: bool,
    /// An engine that is not registered now counts as one on its way.
    pub unregistered_is_busy: bool,
    /// An engine whose agent does not answer counts as idle.
    pub silent_is_busy: bool,
    /// Slots are added and removed whatever slots the link has.
    pub expected: bool,
    /// Slots are compared by their number and highest incarnation only, not by those issued since the plan.
    pub issued: bool,
    /// A slot is reserved for in the next tick.
    pub one_commit: bool,
    /// A removal does not compare the minimum.
    pub minimum: bool,
    /// Idle slots of every origin are released.
    pub on_demand_only: bool,
    /// An idle engine is not asked.
    pub retire: bool,
    /// A consent is withdrawn if the slot could not be removed.
    pub consent_ends_by_time: bool,
    /// A slot may be removed when the consent has ended.
    pub scale_in_time: bool,
    /// A created engine is cancelled at once.
    pub delayed_cancel: bool,
    /// An engine that a plan cancels is created first.
    pub cancelled_is_not_created: bool,
    /// A missing registration alone replaces an engine.
    pub node_is_evidence: bool,
    /// A node alone replaces an engine.
    pub registration_is_evidence: bool,
    /// An unreachable engine takes a turn.
    pub unreachable_takes_no_turn: bool,
    /// A slot whose engine is unreachable counts as full.
    pub replaced_is_pending: bool,
}
