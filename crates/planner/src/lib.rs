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
//!   replacement has registered, unless its slot is gone, or FORCE or IN PLACE was given.
//! - At most `surge` slots of a (tenant, pool, unit) have a stand-in and a current engine that is not ready, or are down because
//!   they are replaced IN PLACE. Unreachable engines do not count.
//! - IN PLACE creates an engine only when no instance of an older one of its slot is left, except unreachable ones.
//! - A name with a recorded uid is never created again.
//! - One plan drains at most one engine per name, because a name has one drain order.
//! - An instance created from a newer snapshot than the one at hand is left alone.
//! - An engine is created only with a charged reservation, which its chain makes first unless it exists. In a pool in which the
//!   plan adopts engines it reserves nothing.
//! - A charge is returned only when nothing is listed under the engine's name, or when all that is listed is unreachable and no
//!   slot wants it, and never while a successor after FORCE or IN PLACE
//!   waits for it: it is transferred.
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
mod choose;
mod coarse_age;
mod creation;
mod current;
mod decision;
mod degraded;
mod demand_reported;
mod desired;
mod diff;
mod end_class;
mod engine_request;
mod explain;
mod free_nodes;
mod incremental;
mod inventory;
mod limits;
mod link_cache;
mod name_set;
mod observed;
mod on_demand;
mod plan;
mod reclaim;
mod reclaiming;
mod report;
mod reservations;
mod role;
mod scale;
mod scope;
mod simulation;
mod succession;
mod teardown;
mod turns;
mod unreachable;
mod unregistered;

pub use admit::{
    Admission, AdmissionRules, Cause, Headroom, Impossible, PATIENCE, Queued, Rejected, Request, Shortages, admit,
};
pub use backoff::back_off;
pub use choose::{
    AssignedKey, Assignment, Futility, GroupDemand, GroupState, Label, LinkState, NEW_CAPACITY, Obstacle, Outcome,
    PoolCondition, PoolState, Rest, Seated, choose,
};
pub use decision::{Action, Chain, Decision, DesiredEngine, Release, Row, Scaling, Stage, Transition, Wait};
pub use degraded::plan_without_engines;
pub use desired::DesiredState;
pub use explain::{
    ExplainedStart, MAX_LOOKS, MAX_ROUNDS, MAX_ROWS, ScopeRow, Verdict, explain, explain_change, explain_restart,
    explain_start,
};
pub use incremental::{Delta, IncrementalPlanner};
pub use limits::{
    BACK_OFF_FIRST, BACK_OFF_MOST, BURST, CANCEL_AFTER, COOLDOWN, DELETE_AFTER_GRACE, DELETE_GRACE, Limits, NODE_ALONE,
    NODE_GRACE, STEADY_LIFE,
};
pub use model::fit::{NodeAmount, NodeCapacity, Nodes, NodesFull, Oversized, Pods, Taken};
pub use observed::{
    CreateFailure, DrainOrder, EngineLoad, EngineUse, Instance, ObservedScaling, ObservedState, Permit, Registration,
    UnreadyNode, Unregistered,
};
pub use plan::{Plan, Probe, plan, probes};
pub use reclaim::{Reclaimed, RunningEngine, awaiting, reclaim};
pub use scale::{
    EngineCondition, Group, Occupancy, PendingEngine, ReadyEngine, Removal, RemovalReason, Scaled, ScalingLimits,
    StalledSlot, UnmetReason, scale,
};
pub use simulation::Simulation;
pub use unreachable::suspends_failed_nodes;
