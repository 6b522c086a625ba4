//! The pure plan: from what should run and what runs, the decisions that bring the two together.
//!
//! [`plan()`] has no IO and no clock: time comes with what it is given (the database's clock in the snapshot, ages in
//! the observation). The master executes its decisions, EXPLAIN prints them, and both come from here, so what EXPLAIN
//! says is what then happens.
//!
//! Invariants:
//!
//! - A steady state plans nothing.
//! - Nothing is deleted that runs and has no drain fact of its own uid; nothing that works is taken away before its
//!   replacement is registered, unless the wish for it is gone or FORCE was said.
//! - At most `surge` slots of a (tenant, pool, unit) that still have a stand-in have a present engine that is not ready.
//! - A name whose uid was recorded is never created again.
//! - One plan tells at most one engine of a name to drain, because a name has one drain fact.
//! - A pod that was made from a newer snapshot than the one at hand is left alone.
//! - Chains of decisions are independent: what stops one stops no other.
//!
//! A caller with a stale snapshot or observation gets decisions that are refused where they take effect: each says
//! what it was derived from (the generation of the plan, the incarnation, the uid), and the executor adds the epoch and
//! the lock. Drains and deletes need no second look as long as the observation is older than the snapshot: what a newer
//! snapshot does not want is never wanted again.

mod alignment;
mod alteration;
mod backoff;
mod census;
mod decision;
mod desired;
mod draft;
mod ending;
mod explain;
mod limits;
mod linked;
mod memo;
mod names;
mod observed;
mod plan;
mod present;
mod report;
mod simulate;
mod standing;
mod unregistered;
mod without_engines;

pub use backoff::back_off_ms;
pub use decision::{Action, Chain, Decision, Launch, Progress, Row, Stage};
pub use desired::Desired;
pub use explain::{MAX_LOOKS, MAX_ROUNDS, MAX_ROWS, explain, explain_change};
pub use limits::{BACK_OFF_FIRST_MS, BACK_OFF_MOST_MS, DELETE_AFTER_GRACE_MS, DELETE_GRACE_MS, Limits, STEADY_LIFE_MS};
pub use memo::{Compared, Memo};
pub use observed::{Fact, Live, Observed, Permit, Pod, Status, Trouble, Unregistered};
pub use plan::{Plan, Question, Wait, plan, questions};
pub use simulate::World;
pub use without_engines::plan_without_engines;
