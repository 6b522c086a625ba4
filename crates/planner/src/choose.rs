//! The assignment of demand: which scaling group serves the sessions that wait, and for which of them waiting is futile.
//!
//! [`choose()`] is a pure function of demand, links and pools. Keys that specify more come first, then older ones. A key takes
//! free seats, then pending seats, over all links that match it, in list order (`RESOURCE_POOL_LIST`, `UNIT_LIST`); then the seats
//! that engines started for an earlier key leave. Only the rest chooses a link, by ordered rules:
//!
//! 1. the pool has nodes and is open, the unit starts on demand, an engine can ever fit; then, if any are left, the link is
//!    below `MAX_ENGINES` and its group is not in back-off;
//! 2. links on which an engine is admitted now before those on which it is queued;
//! 3. the larger remaining fraction of the pool: the minimum over components, in steps of 10 %;
//! 4. fewer pending engines of the tenant in the pool; then pools whose capacity appeared less than a minute ago last;
//! 5. list order.
//!
//! The decisions are the methods of the trait `Rules`. The tests replace one at a time and show that each replacement is
//! detected.
//!
//! Invariants:
//!
//! - Every waiting session is assigned once, or listed as one that no engine can be started for.
//! - No seat is taken twice, and no key starts engines while a seat of a link that matches it is left.
//! - The result does not depend on the order of the demand, nor on how many proxies record a key.
//! - Waiting is futile only if no engine that could serve the session exists or is on its way.
//!
//! Stale input yields another assignment, which is corrected by the next round: an assignment changes nothing but the number of
//! sessions that a group is scaled for.

mod assignment;
mod links;
mod rounds;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::demand::Demand;
use model::name::PoolName;

pub use assignment::{AssignedKey, Assignment, Futility, GroupDemand, Label, Obstacle, Outcome, Rest, Seated};
pub use links::{GroupState, LinkState, NEW_CAPACITY, PoolCondition, PoolState};
use rules::Design;

/// Assigns the demand whose lease has not ended to the links, which are in list order for each tenant.
pub fn choose(
    demand: &[Demand],
    links: &[LinkState],
    pools: &BTreeMap<PoolName, PoolState>,
    now_ms: i64,
) -> Assignment {
    rounds::choose(&Design, demand, links, pools, now_ms)
}
