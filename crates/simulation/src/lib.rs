//! The simulation: the real reconciler with planner and ledger in virtual time, in a world with faults that a seed determines.
//!
//! Only tests import this crate. Real are `master::Reconciler` with all that it remembers, the planner, the rules of `model` and
//! the orchestrator's fake, which passes the contract suite of its trait. The boundary is `master::ControllerCtx`
//! ([`context`]). Behind it, ZooKeeper's nodes ([`nodes`]), the database ([`database`]), engine agents ([`engines`]) and proxies
//! ([`proxies`]) are models of their own, in one thread.
//!
//! Invariants of the simulation: equal seeds are equal runs; time passes only from one event to the next; the judge
//! ([`judge`]) checks after each event and each effect; a run never waits.

#![allow(missing_docs, clippy::missing_panics_doc)]

pub mod activity;
pub mod agent;
pub mod alteration;
pub mod alterations;
pub mod backup;
pub mod clock;
pub mod context;
pub mod database;
pub mod demand;
pub mod effects;
pub mod engines;
pub mod event;
pub mod faults;
mod guarantee;
pub mod in_effect;
pub mod judge;
pub mod late_call;
mod liveness;
pub mod machine;
pub mod machines;
pub mod mutant;
pub mod nodes;
pub mod proxies;
mod replay;
pub mod restore;
pub mod rng;
pub mod run;
pub mod script;
pub mod session;
pub mod shown;
pub mod state;

pub use activity::Activity;
pub use mutant::Mutant;
pub use replay::{describe, mutant_of};
pub use run::{Outcome, Run, Speed, Violation, minimize, run, run_beginning, run_large, run_script};
