//! Engines as pods of a Kubernetes cluster. `docs/adr/0015-engines-as-pods.md` records the design decisions.
//!
//! Invariants:
//!
//! - **The API server holds the state.** An instance has only a cache; another one over the same cluster observes, adopts
//!   and deletes what the first created.
//! - **Only a pod with our signature is an engine.** A pod with our labels and without our signature is listed as *foreign*;
//!   no verb touches it. Labels may be changed by others: the engine is then outdated.
//! - **A name is one object.** The create of a pod is the only call that takes a name. The other objects of a Spark engine are
//!   created while a scheduling gate keeps the pod from every node, and are deleted with the pod.
//! - **A delete has the uid as a precondition**, so an object that took the name since is not touched.
//! - **No call is retried and every call has a deadline**; after a 429, effects fail at once until its `Retry-After` is over.
//! - **A tick in which nothing changes makes no call**: `list` reads the store that the watches keep.
//!
//! A stale caller can do nothing that the uid, the name or the epoch would not refuse, the epoch within the time of one call.
//!
//! | file | concern |
//! | --- | --- |
//! | `ensure`, `get`, `delete`, `namespaces`, `permissions`, `epoch_fence` | calls |
//! | `cluster`, `connect`, `config`, `error`, `retry_after` | the client, and the rules that every call obeys |
//! | `store`, `watch`, `nodes`, `trimmed` | the cache and the reflectors that fill it |
//! | `read` | from a pod to an observed instance |
//! | `render`, `labels`, `names`, `egress`, `signature` | from a spec to objects |
//! | `guest` | the engine's own side |

mod cluster;
pub mod config;
pub mod connect;
mod delete;
mod egress;
mod ensure;
mod epoch_fence;
pub mod error;
mod get;
pub mod guest;
pub mod labels;
pub mod names;
mod namespaces;
mod nodes;
pub mod permissions;
pub mod read;
pub mod render;
mod retry_after;
pub mod signature;
mod store;
mod trimmed;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::clock::SharedClock;
use model::labels::LabelMap;
use model::observation::ObservedNode;
use model::shared::Shared;
use model::{EngineName, Epoch};
use tokio::task::JoinHandle;

use crate::{Deleted, Ensured, Error, Listing, ObservedInstance, Orchestrator, Spec, WakeUps};

pub use config::Config;
pub use connect::client_of;
pub use egress::Egress;
pub use guest::Guest;
pub use permissions::Permission;
pub use signature::PodKey;

use cluster::Cluster;
use epoch_fence::EpochFence;
use namespaces::Namespaces;
use signature::Signer;
use store::{Store, StoreState};

/// How long a verb waits for the first complete list of pods.
pub const FIRST_LIST_DEADLINE: Duration = Duration::from_secs(30);

/// The orchestrator of pods. Dropping it ends no engine.
#[derive(Debug)]
pub struct Kubernetes {
    cluster: Arc<Cluster>,
    fence: EpochFence,
    namespaces: Namespaces,
    tasks: Vec<JoinHandle<()>>,
}

impl Kubernetes {
    /// Starts the watches; must be called inside a tokio runtime.
    pub fn open(client: kube::Client, config: Config, key: Arc<dyn PodKey>, clock: SharedClock) -> Result<Self, Error> {
        config.validate()?;
        let signer = Signer::new(key);
        let store = Store::new(config.namespaces.as_deref(), signer.clone());
        let cluster = Arc::new(Cluster::new(client, config, signer, clock, store));
        let tasks = watch::start(&cluster);
        let (fence, namespaces) = (EpochFence::new(Arc::clone(&cluster)), Namespaces::new(Arc::clone(&cluster)));
        Ok(Self { cluster, fence, namespaces, tasks })
    }

    /// Also reviews its permissions, at once and periodically; listings contain the missing ones.
    #[must_use]
    pub fn watching_permissions(mut self) -> Self {
        self.tasks.push(tokio::spawn(permissions::watch(Arc::clone(&self.cluster))));
        self
    }

    /// The permissions that a master needs and the API server does not grant.
    pub async fn missing_permissions(&self) -> Result<Vec<Permission>, Error> {
        permissions::missing(&self.cluster).await
    }

    /// Waits, for a limited time, until all pods have been listed once.
    async fn wait_until_synced(&self) -> Result<(), Error> {
        let mut wake_ups = self.cluster.store.watch();
        let synced = async {
            loop {
                match self.cluster.store.state(self.cluster.clock.boottime()) {
                    StoreState::Ready => return Ok(()),
                    StoreState::Broken(error) => return Err(error),
                    StoreState::Filling => wake_ups.wait().await,
                }
            }
        };
        match tokio::time::timeout(FIRST_LIST_DEADLINE, synced).await {
            Ok(result) => result,
            Err(_) => Err(Error::transient(format!("pods were not listed within {} s", FIRST_LIST_DEADLINE.as_secs()))),
        }
    }

    /// Waits, for a limited time, until the first list of nodes has succeeded or failed.
    async fn wait_until_nodes_tried(&self) {
        let mut wake_ups = self.cluster.store.watch();
        let tried = async {
            while !self.cluster.store.with_nodes(|nodes| (nodes.is_tried(), false)) {
                wake_ups.wait().await;
            }
        };
        // On timeout they are unknown, and no spec is refused because of its nodes.
        drop(tokio::time::timeout(self.cluster.config.call_deadline, tried).await);
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

#[async_trait]
impl Orchestrator for Kubernetes {
    async fn list(&self, selector: &LabelMap) -> Result<Listing, Error> {
        self.wait_until_synced().await?;
        let clock = &self.cluster.clock;
        Ok(self.cluster.store.list(selector, clock.boottime(), clock.wall_ms()))
    }

    async fn get(&self, name: &EngineName, locality: Option<&str>) -> Result<Option<ObservedInstance>, Error> {
        let found = get::get(&self.cluster, name, locality).await?;
        let clock = &self.cluster.clock;
        Ok(found
            .map(|engine| Shared::into_inner(self.cluster.store.listed(&engine, clock.boottime(), clock.wall_ms()))))
    }

    async fn ensure(&self, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
        self.wait_until_synced().await?;
        self.wait_until_nodes_tried().await;
        ensure::ensure(&self.cluster, &self.fence, &self.namespaces, spec, epoch).await
    }

    async fn delete(&self, name: &EngineName, uid: &str, grace: Duration, epoch: Epoch) -> Result<Deleted, Error> {
        delete::delete(&self.cluster, &self.fence, name, uid, grace, epoch).await
    }

    fn watch(&self) -> WakeUps {
        self.cluster.store.watch()
    }

    async fn nodes(&self) -> Result<Vec<ObservedNode>, Error> {
        // Does not wait for the first list: the caller has other work to do.
        self.cluster.store.observed_nodes().ok_or_else(|| Error::transient("nodes are not listed yet"))
    }
}
