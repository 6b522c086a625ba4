//! The master: the one candidate that holds the lock makes the running engines equal to what was said.
//!
//! A tick observes (orchestrator, registry, drains, alter node), settles the alteration on its way, reads one
//! snapshot, plans, executes the decisions under their guards, and finishes what has converged. It takes no input: a
//! timer, a watch, a pod event and a won election all mean the same. What it decides is `planner`'s business; what an
//! effect is, [`ControllerCtx`]'s; here is the order in which things happen and when to stop.
//!
//! Why a stale decision is harmless: each effect is checked where it takes effect. ZooKeeper refuses a multi whose
//! lock node is gone, the database a transaction whose epoch is not the newest, an orchestrator a uid that is gone or
//! an epoch that is lower. A master that was stopped for a while asks a clock that counts suspension before every
//! effect, so it sends at most the one call that was being made; an engine that it created is one that the next tick
//! removes, one that it deleted was condemned anyway.
//!
//! Invariants: the order of a tick is fixed and nothing is retried within it; every wait is bounded; one broken engine,
//! tenant or engine agent holds up no other; nothing is remembered that a successor would miss.

pub mod failpoints;

mod create_backoff;
mod ctx;
mod execute;
mod made_in;
mod master;
mod memory;
mod node_reporter;
mod settings;
mod settle;
mod stale_pods;
mod term;
#[cfg(test)]
mod tests;
mod tick;
mod turns;
mod wait_log;

pub use ctx::{ControllerCtx, Effect, Engines, Expected, Failure, FailureKind, Launch, Launcher};
pub use master::{CandidateState, Master, Parts};
pub use settings::Settings;
pub use tick::{Loads, Reconciler, Ticked};
