//! The cluster as one instance sees it: its client, its cache, and the rules that every call obeys.
//!
//! Every call has a deadline. No call is repeated here: the next tick decides anew. After an answer that names a time to
//! wait, effects fail at once until it is over; readings go on.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::Resource as _;
use kube::api::{Api, PostParams};
use kube::core::Request;
use model::clock::SharedClock;
use parking_lot::Mutex;

use super::answer::Failure;
use super::cache::Cache;
use super::config::Config;
use super::gate::Gate;
use super::lean::Lean;
use super::prepare::Known;
use super::signature::Signer;

/// Under which name the API server writes down what we changed.
const FIELD_MANAGER: &str = "enginehouse";

/// The cluster.
pub(super) struct Place {
    pub(super) client: kube::Client,
    pub(super) config: Config,
    pub(super) signer: Signer,
    pub(super) clock: SharedClock,
    pub(super) cache: Cache,
    pub(super) gate: Gate,
    pub(super) known: Known,
    /// Until when effects wait, on the clock that counts from boot.
    pause: Mutex<Duration>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Place {
    pub(super) fn new(client: kube::Client, config: Config, signer: Signer, clock: SharedClock, cache: Cache) -> Self {
        let (gate, known, pause) = (Gate::default(), Known::default(), Mutex::default());
        Self { client, config, signer, clock, cache, gate, known, pause }
    }

    pub(super) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes a pod. Of the answer only what is kept is read.
    pub(super) async fn make_pod(&self, namespace: &str, pod: &Pod) -> kube::Result<Pod> {
        let body = serde_json::to_vec(pod).map_err(kube::Error::SerdeError)?;
        let request = Request::new(Pod::url_path(&(), Some(namespace))).create(&post(), body);
        let made: Lean = self.client.request(request.map_err(kube::Error::BuildRequest)?).await?;
        Ok(made.0)
    }

    pub(super) fn config_maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) fn services(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// A call that changes nothing.
    pub(super) async fn reading<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        let deadline = self.config.call_deadline;
        let answer = match tokio::time::timeout(deadline, call).await {
            Ok(answer) => answer.map_err(|error| Failure::of(&error)),
            Err(_) => Err(Failure::late(deadline)),
        };
        if let Err(Failure::Busy(_, pause)) = &answer {
            let until = self.clock.boottime().saturating_add(*pause);
            let mut pause = self.pause.lock();
            *pause = until.max(*pause);
        }
        answer
    }

    /// A call that belongs to an effect: not made while the server is to be left alone.
    pub(super) async fn effect<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        let until = *self.pause.lock();
        let left = until.saturating_sub(self.clock.boottime());
        if !left.is_zero() {
            return Err(Failure::Busy("it was busy a moment ago".to_owned(), left));
        }
        self.reading(call).await
    }
}

/// How an object is made: under our name.
pub(super) fn post() -> PostParams {
    PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.to_owned()) }
}
