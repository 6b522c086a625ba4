//! The planner: a pure function from the desired and the observed state to the decisions that close the gap.
//!
//! [`plan()`] does no IO and reads no clock. Time is part of its input: the database's clock in the snapshot, ages in the
//! observation. The master executes the decisions and EXPLAIN prints them; both call this function, so EXPLAIN shows
//! exactly what will happen.
//!
//! Invariants:
//!
//! - A steady state plans nothing.
//! - A running engine is deleted only under a drain order with its own uid. An engine that serves is drained only after its
//!   replacement has registered, unless its slot is gone or FORCE was given.
//! - At most `surge` slots of a (tenant, pool, unit) that still have a stand-in have a current engine that is not ready.
//! - A name with a recorded uid is never created again.
//! - One plan drains at most one engine per name, because a name has one drain order.
//! - An instance created from a newer snapshot than the one at hand is left alone.
//! - An engine is created only with a charged reservation, which its chain makes first unless it exists. In a pool in which the
//!   plan adopts engines it reserves nothing.
//! - A charge is returned only when nothing is listed under the engine's name.
//! - Chains of decisions are independent: a failure stops its own chain only.
//!
//! A stale snapshot or observation yields decisions that are rejected where they take effect: each names what it was
//! derived from (the generation of the plan, the incarnation, the uid), and the executor adds the epoch and the lease.
//! Drains and deletes need no second check as long as the observation is older than the snapshot: what a newer snapshot
//! does not want is never wanted again.

mod admission;
mod admit;
mod alteration;
mod backoff;
mod builder;
mod current;
mod decision;
mod degraded;
mod desired;
mod diff;
mod engine_request;
mod explain;
mod fit;
mod free_nodes;
mod incremental;
mod inventory;
mod limits;
mod link_cache;
mod name_set;
mod observed;
mod plan;
mod reclaim;
mod reclaiming;
mod report;
mod reservations;
mod role;
mod scope;
mod simulation;
mod teardown;
mod unregistered;

pub use admit::{
    Admission, AdmissionRules, Cause, Headroom, Impossible, PATIENCE, Queued, Rejected, Request, Shortages, admit,
};
pub use backoff::back_off;
pub use decision::{Action, Chain, Decision, DesiredEngine, Row, Stage, Transition, Wait};
pub use degraded::plan_without_engines;
pub use desired::DesiredState;
pub use explain::{
    ExplainedStart, MAX_LOOKS, MAX_ROUNDS, MAX_ROWS, ScopeRow, Verdict, explain, explain_change, explain_restart,
    explain_start,
};
pub use fit::{NodeAmount, NodeCapacity, Nodes, NodesFull, Oversized, Pods, Taken};
pub use incremental::{Delta, IncrementalPlanner};
pub use limits::{BACK_OFF_FIRST, BACK_OFF_MOST, DELETE_AFTER_GRACE, DELETE_GRACE, Limits, STEADY_LIFE};
pub use observed::{
    CreateFailure, DrainOrder, EngineLoad, Instance, ObservedState, Permit, Registration, Unregistered,
};
pub use plan::{Plan, Probe, plan, probes};
pub use reclaim::{Reclaimed, RunningEngine, awaiting, reclaim};
pub use simulation::Simulation;
