//! Where engines run: one trait, its implementations with pods and with local processes, and a fake with fault injection.
//!
//! An orchestrator runs engines under the names that it is given and reports what it observes. It decides nothing: which
//! engines should run is the planner's decision, and whether one is ready is the registry's. The contract of
//! [`Orchestrator`], which one test suite checks on every implementation:
//!
//! - **Every verb is idempotent and names its target.** A name never means two engines; the `uid`, chosen at random by the
//!   implementation, names one run of it. `ensure` of an existing engine succeeds only if its labels agree with the spec's
//!   and it is neither ended nor terminating. `delete` of an engine that does not exist succeeds; if the name belongs to
//!   another uid, `delete` is refused and has no effect.
//! - **The state is external.** Another instance over the same state observes, adopts and deletes what the first created.
//!   The death of an instance ends no engine and stops no deletion: the next reader carries it on.
//! - **`delete` requests, then forces**: the engine is asked to end, and is killed when the grace is over. A deleted engine
//!   leaves the list when it is gone and is never listed as *ended*. Another `delete` can shorten a grace, never extend it.
//!   An engine that ends by itself stays in the list as *ended*, with its exit status and its last words, until it is
//!   deleted.
//! - **Phases** are those of [`model::engine_state::Phase`], and never go back. *Running* means that the program runs.
//! - **A lower epoch is refused** with [`Error::Deposed`] wherever the implementation can store the highest epoch that it
//!   has seen. The epoch is also kept as an annotation of the engine, with the generation, and is never compared there.
//! - **Labels are reported as stored**, regardless of who changed them; [`model::labels`] decodes them.
//! - **An engine reads its own uid** from its environment ([`UID_VARIABLE`]), because it may register only below a permit
//!   with that uid. From the environment of the process that started it, it inherits only the variables that a spec or the
//!   configuration names.
//! - **Wake-ups carry nothing** and may be spurious; a caller that misses all of them still converges by its timer.
//!
//! A stale caller can, with an old listing, delete a uid that is gone (a success or [`Error::Gone`]), or ensure an engine
//! that is no longer desired, which the next tick of the acting master removes; nothing else.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod error;
pub mod failpoints;
pub mod java_properties;
pub mod kubernetes;
pub mod memory;
pub mod observed;
pub mod process;
pub mod spec;
pub mod wake;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use model::labels::LabelMap;
use model::observation::ObservedNode;
use model::{EngineName, Epoch};

pub use error::Error;
pub use observed::{Deleted, Ensured, Exit, ForeignObject, Listing, ObservedInstance, Unreadable};
pub use spec::{InstanceOptions, LogPolicy, RunAs, SparkOptions, Spec, SpecFile};
pub use wake::WakeUps;

/// The variable of an engine's environment that holds its uid.
pub const UID_VARIABLE: &str = "ENGINEHOUSE_ENGINE_UID";
/// The annotation that holds the generation of the snapshot from which the engine was planned.
pub const GENERATION_ANNOTATION: &str = "enginehouse.io/generation";
/// The annotation that holds the epoch of the master that created the engine.
pub const EPOCH_ANNOTATION: &str = "enginehouse.io/epoch";

/// An orchestrator of engines. The crate's documentation is the contract.
#[async_trait]
pub trait Orchestrator: Send + Sync + fmt::Debug {
    /// Every engine with all labels of the selector. May lag behind. Unreadable entries are listed separately, so that a
    /// damaged one hides no other and does not count as absent.
    async fn list(&self, selector: &LabelMap) -> Result<Listing, Error>;

    /// The engine of that name, read directly and not from a cache; `None` only if there is none.
    ///
    /// A caller that knows the [`Spec::locality`] with which the engine was created names it, so that an implementation
    /// with several localities has to read only one. `None` reads all of them.
    async fn get(&self, name: &EngineName, locality: Option<&str>) -> Result<Option<ObservedInstance>, Error>;

    /// Creates the engine unless it exists. An error other than [`Error::Transient`] means that nothing was created; after
    /// a transient one it may have been, and the same call again finds out.
    async fn ensure(&self, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error>;

    /// Ends the engine with this uid and removes its state. `grace` is the time between the request to end and the kill;
    /// zero kills at once. Returns before the engine is gone.
    async fn delete(&self, name: &EngineName, uid: &str, grace: Duration, epoch: Epoch) -> Result<Deleted, Error>;

    /// Wakes up after every change that the implementation notices, whatever caused it.
    fn watch(&self) -> WakeUps;

    /// The nodes with their labels and their capacity, for display and for pools that choose nodes by labels. May lag
    /// behind. Empty if only their names are known: local processes share one machine.
    async fn nodes(&self) -> Result<Vec<ObservedNode>, Error> {
        Ok(Vec::new())
    }
}
