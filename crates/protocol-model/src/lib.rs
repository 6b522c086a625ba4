//! The protocol as a model that is searched exhaustively, within named and printed limits.
//!
//! Two models, each a set of small state machines whose steps are the steps of the real code:
//!
//! - [`alteration`]: metadata agents, the acting master, the alter node with its id child, the database (catalog
//!   lock, generation, alteration rows, epoch), unknown COMMITs, late and repeated calls, crashes, lost sessions,
//!   deletions by hand.
//! - [`engines`]: slots, permits, registrations, drain facts, pods with uids, requests that race with the master's
//!   tick, deposed masters, dying engines, a ZooKeeper that lost everything.
//!
//! **Names.** Every step is named by the failpoint that stands at its end in the code, or by the function that does
//! it (`crate::module::function`); faults say that they are faults. A test compares the names with the sources, and
//! `docs/model.md` shows them side by side.
//!
//! **Properties.** Safety is checked in every state. Liveness is checked as an `always` property over *quiescent*
//! states: no step is enabled but faults, and an undisturbed tick of the acting master changes nothing. There the
//! engines must equal the metadata, with no node and no fact left. `eventually` is never used: it misses cycles.
//!
//! **Without.** Each sentence of the design that is marked as necessary has a switch that takes it away; the tests
//! show the counterexample that the search then finds. Where it finds none, `docs/model.md` says so.
//!
//! **One master acts.** The masters are not told apart: at most one holds the lock, and a deposed one can do nothing
//! but let the one call arrive that it was making. So the model has the holder of the lock, whoever that is, and the
//! late calls of its predecessors.
//!
//! Invariant of the crate: it imports none of ours. What the code does is compared by name, not by type. A stale
//! reader of a result is one who changed the protocol without changing the model.

pub mod alteration;
pub mod engines;
pub mod search;
