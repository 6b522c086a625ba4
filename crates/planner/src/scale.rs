//! Scaling: how many engines a scaling group needs, and which of its slots end.
//!
//! [`scale()`] is a pure function of one scaling group: the engines that serve with their taken seats, those that are on their
//! way, and the sessions that wait. Waiting sessions take free seats first, then the seats of pending engines; only the rest
//! starts engines, rounded up to whole ones. Pending engines that are no longer needed are cancelled, and engines that have been
//! idle for the timeout are released, the longest idle first.
//!
//! The formulas are the methods of the trait `Formulas`, one for each decision. The tests replace one at a time and show that
//! each replacement is detected.
//!
//! Invariants:
//!
//! - It starts nothing above `max`, and removes nothing below `min`.
//! - Above `min` a round either starts slots or removes some that are cancelled or idle, never both.
//! - An engine with a session, or of which nothing is known, is only drained because the group exceeds `max` or the engine is
//!   outdated.
//! - Only slots that were started on demand are removed, except that outdated engines drain.
//! - With the result applied, the same demand and the same time, it decides nothing, unless `burst` or a withdrawal has
//!   postponed starts.
//!
//! A stale input yields a decision that is refused where it takes effect: an idle engine is released only if its agent agrees,
//! and slots are added and removed only while the link has the count and the highest incarnation that were read.

mod formulas;
mod group;
mod scaled;
mod shared_maximum;
#[cfg(test)]
mod tests;

use formulas::{Design, Formulas as _};
pub use group::{EngineCondition, Group, Occupancy, PendingEngine, ReadyEngine, ScalingLimits, StalledSlot};
pub use scaled::{Removal, RemovalReason, Scaled, UnmetReason};
pub use shared_maximum::scale_link;

/// What is to be started and removed in the group.
pub fn scale<Id: Ord + Clone>(group: &Group<Id>) -> Scaled<Id> {
    Design.scale(group)
}
