//! Where engines run: one trait, its implementations by pods and by local processes, and a fake with faults for tests.
//!
//! An orchestrator keeps engines that were asked for by name, and tells what it sees. It decides nothing: which
//! engines there should be is the planner's business, whether one is ready the registry's. The contract of
//! [`Orchestrator`], which one suite checks on every implementation:
//!
//! - **Every verb is idempotent and names what it touches.** A name never means two engines; the `uid`, chosen at
//!   random by the implementation, names one run of it. `ensure` of what is already there is a success only if its
//!   labels agree with the spec's and it is neither ended nor on its way out. `delete` of what is not there is a
//!   success; of another uid under that name it is refused and harms nothing.
//! - **The state is outside.** Another instance over the same place sees, adopts and deletes what the first made; an
//!   instance that dies takes no engine along, and a deletion that it asked for goes on: whoever looks next carries
//!   it through.
//! - **`delete` asks, then insists**: the engine is told to end, and is ended by force when the grace is over. An
//!   engine that was deleted leaves the list when it is gone and is never listed as *ended*; a grace can be made
//!   shorter by another `delete`, never longer. An engine that ends by itself stays in the list, *ended*, with its exit
//!   and last words, until it is deleted.
//! - **Phases** are those of [`model::engine_state::Phase`], and never go back. *Running* says that the program runs.
//! - **A lower epoch is refused** with [`Error::Deposed`] wherever the implementation can keep the highest one that it
//!   has seen; it is kept on the engine as an annotation, beside the generation, and is never compared there.
//! - **Labels are what the orchestrator keeps**, whoever changed them; [`model::labels`] reads them.
//! - **An engine learns its own uid** from its environment ([`UID_VARIABLE`]), since it may register only below a
//!   permit that bears it. It gets no other part of the environment of whoever started it than what a spec or the
//!   configuration names.
//! - **Wake-ups carry nothing** and may come for no reason; a caller that misses all of them still converges by its
//!   timer.
//!
//! What a stale caller can do: with an old listing, ask to delete a uid that is gone (a success or [`Error::Gone`]);
//! ensure an engine that nobody wants any more, which the next tick of the acting master removes; nothing else.

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
pub use observed::{Capacity, Deleted, Ensured, Exit, Foreign, Listing, Observed, Unreadable};
pub use spec::{LogPolicy, PodWish, SparkWish, Spec, SpecFile};
pub use wake::WakeUps;

/// The variable of an engine's environment that holds its uid.
pub const UID_VARIABLE: &str = "ENGINEHOUSE_ENGINE_UID";
/// The annotation that holds the generation of the snapshot from which the engine was made.
pub const GENERATION_ANNOTATION: &str = "enginehouse.io/generation";
/// The annotation that holds the epoch of the master that made the engine.
pub const EPOCH_ANNOTATION: &str = "enginehouse.io/epoch";

/// A place where engines run. The module's documentation is the contract.
#[async_trait]
pub trait Orchestrator: Send + Sync + fmt::Debug {
    /// Every engine that bears all labels of the selector with these values. May lag behind; what can't be read is
    /// listed apart, so that one damaged entry hides no other and is not taken for absent.
    async fn list(&self, selector: &LabelMap) -> Result<Listing, Error>;

    /// The engine of that name, asked directly and not from a cache; `None` only if there is none.
    async fn get(&self, name: &EngineName) -> Result<Option<Observed>, Error>;

    /// The same of an engine that was made in that namespace, if it was ever made: where namespaces are, no other one has to
    /// answer.
    async fn get_in(&self, name: &EngineName, _namespace: &str) -> Result<Option<Observed>, Error> {
        self.get(name).await
    }

    /// Makes the engine unless it is there. An error other than [`Error::Transient`] means that nothing was made;
    /// after a transient one it may have been, and the same call again tells.
    async fn ensure(&self, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error>;

    /// Ends this very engine and removes what is kept of it. `grace` is the time between being told and being killed;
    /// zero kills at once. Returns before the engine is gone.
    async fn delete(&self, name: &EngineName, uid: &str, grace: Duration, epoch: Epoch) -> Result<Deleted, Error>;

    /// Wakes up after every change that the implementation notices, whoever made it.
    fn watch(&self) -> WakeUps;

    /// How much fits here at all.
    async fn capacity(&self) -> Result<Capacity, Error>;

    /// The nodes with their labels and their room, for people and for pools that choose nodes by labels. May lag
    /// behind. Empty where nothing is known of them beside their names: local processes share one machine.
    async fn nodes(&self) -> Result<Vec<ObservedNode>, Error> {
        Ok(Vec::new())
    }
}
