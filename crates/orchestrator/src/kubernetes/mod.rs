//! Engines as pods of a Kubernetes cluster. Why it is as it is stands in `docs/adr/0015-engines-as-pods.md`.
//!
//! Invariants:
//!
//! - **The API server is the state.** An instance keeps a cache and nothing else; another one over the same cluster sees,
//!   adopts and deletes what the first made.
//! - **Only what we signed is an engine.** A pod with our labels and without our signature is listed as *foreign*; no verb
//!   touches it. Labels may be changed by anybody: then the engine is outdated.
//! - **A name is one object.** The create of a pod is the one thing that takes a name; what a Spark engine needs besides
//!   is made while a scheduling gate keeps the pod from every node, and goes with the pod.
//! - **A delete names a uid** to the server, so an object that took the name since is not touched.
//! - **No call is repeated, every call has a deadline**, and after a 429 effects fail at once until its pause is over.
//! - **A tick in which nothing changes makes no call**: `list` reads the cache that watches keep.
//!
//! What a stale caller can do: nothing that the uid, the name or the epoch would not refuse, the epoch within the time of one
//! call.

pub mod answer;
mod cache;
pub mod config;
pub mod connect;
mod egress;
mod end;
mod find;
mod gate;
pub mod inside;
mod lean;
mod make;
pub mod marks;
pub mod names;
mod nodes;
mod pause;
mod place;
mod prepare;
pub mod read;
pub mod render;
pub mod rights;
pub mod signature;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kube::client::ClientBuilder;
use model::clock::SharedClock;
use model::credential::ClusterSecret;
use model::labels::LabelMap;
use model::observation::ObservedNode;
use model::{EngineName, Epoch};
use tokio::task::JoinHandle;
use tower::util::MapResponseLayer;

use crate::{Capacity, Deleted, Ensured, Error, Listing, Observed, Orchestrator, Spec, WakeUps};

pub use config::Config;
pub use egress::Egress;
pub use inside::Inside;
pub use nodes::NodeFacts;
pub use rights::Right;

use cache::{Belief, Cache};
use place::Place;
use signature::Signer;

/// How long a verb waits for the first reading of what it needs.
pub const FIRST_READING: Duration = Duration::from_secs(30);
/// How long a connection may take to come about.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How long a connection may say nothing while something is expected of it. Verbs give up sooner, and a watch ends by
/// itself before that; what it is for is a watch that is being begun, or its list, where nobody else would give up.
const SILENCE: Duration = Duration::from_secs(watch::WATCH_SECONDS as u64 + 10);

/// The orchestrator of pods. Dropping it ends no engine.
#[derive(Debug)]
pub struct Kubernetes {
    place: Arc<Place>,
    watches: Vec<JoinHandle<()>>,
}

/// A client of that cluster. It repeats no call by itself, and waits for nothing without a limit.
pub fn client_of(config: kube::Config) -> Result<kube::Client, Error> {
    let builder = ClientBuilder::try_from(bounded(config));
    let builder = builder.map_err(|error| Error::refused(format!("no client of the cluster: {error}")))?;
    Ok(builder.with_layer(&MapResponseLayer::new(pause::told)).build())
}

fn bounded(mut config: kube::Config) -> kube::Config {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_DEADLINE);
    config.read_timeout = Some(SILENCE);
    // Counted from a request, and not from when its connection was used last.
    config.reset_reader_on_write = true;
    config
}

impl Kubernetes {
    /// Starts the watches; must be called inside a tokio runtime.
    pub fn open(
        client: kube::Client,
        config: Config,
        secret: ClusterSecret,
        clock: SharedClock,
    ) -> Result<Self, Error> {
        config.validate()?;
        let signer = Signer::new(secret, config.cluster.clone());
        let cache = Cache::new(config.namespaces.as_deref(), signer.clone());
        let place = Arc::new(Place::new(client, config, signer, clock, cache));
        let watches = watch::start(&place);
        Ok(Self { place, watches })
    }

    /// Asks for its rights from now on, at once and again and again, and lists what is missing.
    #[must_use]
    pub fn watching_rights(mut self) -> Self {
        self.watches.push(tokio::spawn(rights::watch(Arc::clone(&self.place))));
        self
    }

    /// The rights that a master needs and the API server does not grant.
    pub async fn missing_rights(&self) -> Result<Vec<Right>, Error> {
        rights::missing(&self.place).await
    }

    /// The nodes, by name; none where we may not look at them.
    pub fn nodes(&self) -> BTreeMap<String, NodeFacts> {
        self.place.cache.with_nodes(|nodes| (nodes.all().clone(), false))
    }

    /// Waits, for a limited time, until everything was read once.
    async fn filled(&self) -> Result<(), Error> {
        let mut wake_ups = self.place.cache.watch();
        let waiting = async {
            loop {
                match self.place.cache.belief(self.place.clock.boottime()) {
                    Belief::Complete => return Ok(()),
                    Belief::Broken(error) => return Err(error),
                    Belief::Unfilled => wake_ups.wait().await,
                }
            }
        };
        match tokio::time::timeout(FIRST_READING, waiting).await {
            Ok(result) => result,
            Err(_) => Err(Error::transient(format!("no list of pods within {} s", FIRST_READING.as_secs()))),
        }
    }

    /// Waits, for a limited time, until the nodes were asked for once.
    async fn nodes_asked(&self) {
        let mut wake_ups = self.place.cache.watch();
        let waiting = async {
            while !self.place.cache.with_nodes(|nodes| (nodes.is_asked(), false)) {
                wake_ups.wait().await;
            }
        };
        // Without an answer they are unknown, and nothing is refused for it.
        drop(tokio::time::timeout(self.place.config.call_deadline, waiting).await);
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        for watch in &self.watches {
            watch.abort();
        }
    }
}

#[async_trait]
impl Orchestrator for Kubernetes {
    async fn list(&self, selector: &LabelMap) -> Result<Listing, Error> {
        self.filled().await?;
        let clock = &self.place.clock;
        Ok(self.place.cache.list(selector, clock.boottime(), clock.wall_ms()))
    }

    async fn get(&self, name: &EngineName) -> Result<Option<Observed>, Error> {
        let found = find::engine(&self.place, name, None).await?;
        Ok(found.map(|seen| self.place.cache.listed(&seen, self.place.clock.boottime(), self.place.clock.wall_ms())))
    }

    async fn get_in(&self, name: &EngineName, namespace: &str) -> Result<Option<Observed>, Error> {
        let found = find::engine(&self.place, name, Some(namespace)).await?;
        Ok(found.map(|seen| self.place.cache.listed(&seen, self.place.clock.boottime(), self.place.clock.wall_ms())))
    }

    async fn ensure(&self, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
        self.filled().await?;
        self.nodes_asked().await;
        make::ensure(&self.place, spec, epoch).await
    }

    async fn delete(&self, name: &EngineName, uid: &str, grace: Duration, epoch: Epoch) -> Result<Deleted, Error> {
        end::delete(&self.place, name, uid, grace, epoch).await
    }

    fn watch(&self) -> WakeUps {
        self.place.cache.watch()
    }

    async fn capacity(&self) -> Result<Capacity, Error> {
        self.nodes_asked().await;
        let nodes = self.nodes().into_keys().collect();
        Ok(Capacity { engines: Some(self.place.config.max_engines), nodes })
    }

    async fn nodes(&self) -> Result<Vec<ObservedNode>, Error> {
        // Whoever asks has other things to do than to wait for the first reading.
        self.place.cache.observed_nodes().ok_or_else(|| Error::transient("the nodes were not read yet"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_never_answers_is_given_up_and_a_watch_without_events_is_not() {
        let config = bounded(kube::Config::new(http::Uri::from_static("http://127.0.0.1:1")));
        let silence = config.read_timeout.unwrap();
        assert!(silence > Duration::from_secs(watch::WATCH_SECONDS.into()) && silence < watch::RELIST, "{silence:?}");
        assert!(config.connect_timeout.is_some() && config.write_timeout.is_some() && !config.default_retry);
    }
}
