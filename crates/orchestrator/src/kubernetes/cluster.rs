//! The cluster client: the connection of one instance, its store, and the rules that every call obeys.
//!
//! Every call has a deadline. No call is retried here; the next tick decides again. After a reply with `Retry-After`,
//! effects fail at once until that time is over; reads continue.

use std::future::Future;
use std::time::Duration;

use http::header::{ACCEPT, HeaderValue};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodStatus, Secret, Service};
use kube::Resource as _;
use kube::api::{Api, PostParams};
use kube::core::Request;
use model::clock::SharedClock;
use parking_lot::Mutex;

use super::config::Config;
use super::error::CallError;
use super::signature::Signer;
use super::store::Store;
use super::trimmed::{self, TrimmedPod};

/// The media type of a reply with an object's metadata.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";

/// The field manager of our writes.
const FIELD_MANAGER: &str = "enginehouse";

pub(super) struct Cluster {
    pub(super) client: kube::Client,
    pub(super) config: Config,
    pub(super) signer: Signer,
    pub(super) clock: SharedClock,
    pub(super) store: Store,
    /// Until when effects fail, on the boot-time clock.
    effects_blocked_until: Mutex<Duration>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Cluster {
    pub(super) fn new(client: kube::Client, config: Config, signer: Signer, clock: SharedClock, store: Store) -> Self {
        Self { client, config, signer, clock, store, effects_blocked_until: Mutex::default() }
    }

    pub(super) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates a pod. The reply has its metadata only, which is less to encode and to decode: everything else that is kept of a pod
    /// that no node has seen is what was sent, until the watch reports what the server has made of it.
    pub(super) async fn create_pod(&self, namespace: &str, pod: &Pod) -> kube::Result<Pod> {
        let body = serde_json::to_vec(pod).map_err(kube::Error::SerdeError)?;
        let request = Request::new(Pod::url_path(&(), Some(namespace))).create(&post_params(), body);
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
        let TrimmedPod(created) = self.client.request(request).await?;
        Ok(match created.spec {
            // A server that does not know the media type answers with the whole pod.
            Some(_) => created,
            None => Pod { spec: pod.spec.as_ref().map(trimmed::kept), status: Some(pending()), ..created },
        })
    }

    /// Creates a Secret. The reply has its metadata only: the rest is known.
    pub(super) async fn create_secret(&self, namespace: &str, secret: &Secret) -> kube::Result<()> {
        let body = serde_json::to_vec(secret).map_err(kube::Error::SerdeError)?;
        let request = Request::new(Secret::url_path(&(), Some(namespace))).create(&post_params(), body);
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
        self.client.request::<serde_json::Value>(request).await.map(drop)
    }

    pub(super) fn config_maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) fn services(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes a call without an effect.
    pub(super) async fn read<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        let deadline = self.config.call_deadline;
        let result = match tokio::time::timeout(deadline, call).await {
            Ok(result) => result.map_err(CallError::from),
            Err(_) => Err(CallError::timeout(deadline)),
        };
        if let Err(CallError::TooManyRequests { retry_after, .. }) = &result {
            let until = self.clock.boottime().saturating_add(*retry_after);
            let mut blocked_until = self.effects_blocked_until.lock();
            *blocked_until = until.max(*blocked_until);
        }
        result
    }

    /// Makes a call that belongs to an effect. Fails at once until the `Retry-After` of the server is over.
    pub(super) async fn effect<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        let until = *self.effects_blocked_until.lock();
        let retry_after = until.saturating_sub(self.clock.boottime());
        if !retry_after.is_zero() {
            let message = "it was overloaded a moment ago".to_owned();
            return Err(CallError::TooManyRequests { message, retry_after });
        }
        self.read(call).await
    }
}

/// The status of a pod that was just created.
fn pending() -> PodStatus {
    PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() }
}

/// The parameters of creates and replaces.
pub(super) fn post_params() -> PostParams {
    PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.to_owned()) }
}
