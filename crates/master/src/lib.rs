//! The master: the reconciler of all engines, run by the one candidate that holds the lease.
//!
//! Each tick ([`Reconciler`]) observes the orchestrator and ZooKeeper, settles the alteration in doubt, reads one snapshot of
//! the database, plans, executes the decisions and publishes the rows for SHOW. [`planner`] makes the decisions;
//! [`ControllerCtx`] is the boundary through which a tick reads and changes everything.
//!
//! Why a stale decision is harmless: each effect is checked where it takes effect. ZooKeeper rejects a multi whose lock node
//! is gone, the database a transaction whose epoch is not the newest, an orchestrator a uid that is gone or a lower epoch. A
//! suspended master checks its lease before every effect, on a clock that includes suspension, so it sends at most the call
//! in progress. An engine that this call creates is removed by the next tick; one that it deletes was condemned anyway.
//!
//! Invariants: the order of a tick is fixed and nothing is retried within it; every wait is bounded; a failing engine, tenant
//! or engine agent delays no other; nothing is remembered that a successor would need.

pub mod failpoints;

mod candidate;
mod create_backoff;
mod ctx;
mod execute;
mod ledger_records;
mod master;
mod memory;
mod node_capacity;
mod node_reporter;
mod observation_log;
mod plan;
mod publisher;
mod scaling_memory;
mod settings;
mod settle;
mod stale_pods;
mod term;
#[cfg(test)]
mod tests;
mod tick;
mod turns;
mod wait_log;

pub use candidate::{CandidateState, Parts, identity};
pub use ctx::{
    Applied, ControllerCtx, Effect, Expected, Failure, FailureKind, GuardedDecision, InstanceCache, InstanceList,
    Launch, Launcher, Lease, LeaseState, Observation,
};
pub use master::Master;
pub use settings::Settings;
pub use tick::{Reconciler, Ticked};
