//! A model of the protocol that is checked exhaustively within explicit limits.
//!
//! There are five models, each a set of small state machines whose steps are those of the real code:
//!
//! - [`alteration`]: metadata agents, the acting master, the alter node with its id child, the database (catalog
//!   lock, generation, alteration rows, epoch), unknown COMMITs, late and repeated calls, crashes, lost sessions,
//!   deletions by hand.
//! - [`engines`]: slots, permits, registrations, drain orders, pods with uids, requests that race with the master's
//!   tick, deposed masters, dying engines, a ZooKeeper that has lost everything.
//! - [`ledger`]: the transactions that charge, return, limit and audit, statement by statement: row locks, isolation
//!   levels, broken connections, lost replies, deposed masters.
//! - [`reservations`]: when a charge is made and when it is returned: instances that terminate, late calls, deadlines,
//!   an external holder with two programs, an upgrade with running engines.
//! - [`demand`]: engines on demand: sessions that wait and are reported, slots that are added and removed, engines that retire, lose
//!   their sessions or their machine.
//!
//! **Names.** Every step has the name of the failpoint at its end in the code, or of the function that performs it
//! (`crate::module::function`); the names of faults begin with `fault:`. A test compares the names with the sources, and
//! `docs/model.md` lists them.
//!
//! **Properties.** Safety is checked in every state. Liveness is checked as an `always` property over *quiescent*
//! states: only faults are enabled, and an undisturbed tick of the acting master changes nothing. There the engines must equal
//! the metadata, with no alter node and no drain order left. `eventually` is not used, because it misses cycles.
//!
//! **Variants.** Each rule that the design marks as necessary has a switch that removes it; the tests show the counterexample
//! that the search then finds. Where it finds none, `docs/model.md` states that.
//!
//! **One master acts.** At most one master holds the lock, and a deposed one can only let the one call arrive that it was making.
//! So the model has one holder of the lock, and the late calls of its predecessors.
//!
//! Invariant: this crate imports no other crate of the project. It is compared with the code by names, not by types.

pub mod alteration;
pub mod demand;
pub mod engines;
pub mod ledger;
pub mod reservations;
pub mod search;
