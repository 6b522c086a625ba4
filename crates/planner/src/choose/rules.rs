//! The rules by which demand is ordered, takes seats and chooses a link.

use std::cmp::Reverse;

use model::demand::Demand;

use super::assignment::AssignedKey;
use super::links::{LinkState, NEW_CAPACITY, PoolState};

/// The rules of the design.
pub(super) struct Design;

impl Rules for Design {}

/// A link that may start engines for the rest of a key.
pub(super) struct Candidate<'a> {
    pub link: &'a LinkState,
    pub pool: &'a PoolState,
    /// Below `MAX_ENGINES`, without the engines that earlier keys start.
    pub below_max: u64,
    /// What admission grants, without those.
    pub admissible: u64,
    pub is_backing_off: bool,
    /// The pending engines of the tenant in the pool, with those.
    pub pending: u64,
    /// Its place in the lists.
    pub position: usize,
}

/// The lower one is chosen: blocked, queued, remaining fraction, pending engines, new capacity, position.
pub(super) type Rank = (bool, bool, Reverse<u8>, u64, bool, usize);

/// The decisions. The methods that are provided are those of the design.
pub(super) trait Rules {
    fn is_current(&self, demand: &Demand, now_ms: i64) -> bool {
        demand.is_current(now_ms)
    }

    /// Demand that specifies more has fewer engines to choose from, so it is first; then the older one.
    fn order(&self, keys: &mut [AssignedKey]) {
        keys.sort_by(|one, other| {
            let rank = |key: &AssignedKey| (Reverse(key.key.specified()), key.since_ms);
            rank(one).cmp(&rank(other)).then_with(|| one.key.cmp(&other.key))
        });
    }

    /// Takes seats, and returns how many.
    fn take(&self, seats: &mut u64, wanted: u64) -> u64 {
        let taken = wanted.min(*seats);
        *seats -= taken;
        taken
    }

    /// Of how many matching links a key takes seats.
    fn looks_at(&self, links: usize) -> usize {
        links
    }

    /// The seats that pending engines will have.
    fn pending_seats(&self, link: &LinkState, pending: u64) -> u64 {
        link.seats.get().saturating_mul(pending)
    }

    fn starts_on_demand(&self, link: &LinkState) -> bool {
        link.starts_on_demand
    }

    fn can_ever_fit(&self, link: &LinkState) -> bool {
        link.can_ever_fit
    }

    fn rank(&self, candidate: &Candidate<'_>, now_ms: i64) -> Rank {
        (
            self.is_blocked(candidate),
            !self.is_admitted(candidate),
            Reverse(candidate.pool.fraction()),
            candidate.pending,
            self.is_new(candidate.pool, now_ms),
            candidate.position,
        )
    }

    fn is_blocked(&self, candidate: &Candidate<'_>) -> bool {
        candidate.below_max == 0 || candidate.is_backing_off
    }

    /// Whether an engine is admitted now.
    fn is_admitted(&self, candidate: &Candidate<'_>) -> bool {
        candidate.admissible > 0 && candidate.pool.admits(&candidate.link.engine)
    }

    fn is_new(&self, pool: &PoolState, now_ms: i64) -> bool {
        let age_ms = pool.grown_at_ms.map(|grown_at_ms| i128::from(now_ms) - i128::from(grown_at_ms));
        age_ms.is_some_and(|age_ms| age_ms < NEW_CAPACITY.as_millis() as i128)
    }

    /// The engines that are started for sessions.
    fn engines_for(&self, sessions: u64, link: &LinkState) -> u64 {
        sessions.div_ceil(link.seats.get())
    }

    /// The seats that the engines started for a key leave for later keys.
    fn left_by_starts(&self, engines: u64, sessions: u64, link: &LinkState) -> u64 {
        engines.saturating_mul(link.seats.get()).saturating_sub(sessions)
    }
}
