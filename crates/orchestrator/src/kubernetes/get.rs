//! `get`: reads the engine of a name directly.
//!
//! A name is used in only one namespace, so an engine that is missing from the namespace where it was created does not exist.
//! If that namespace is unknown, all of them are read, and the engine does not exist only if each one replied without it: a
//! namespace that we may not read, or that does not reply, may hold it.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use model::EngineName;

use super::cluster::Cluster;
use super::error::CallError;
use super::read::{self, Classified, EnginePod};
use crate::Error;

/// Namespaces of a fixed list that are read concurrently.
const CONCURRENCY: usize = 16;
/// The limit of pods of one name that are read. Each is in another namespace, and at most one is ours.
const MAX_PODS_OF_A_NAME: u32 = 100;

/// The engine of that name; `None` if there is none. Reads the namespace where it was last observed, else the one that the
/// caller names. The caller's namespace counts only if it is watched: removing a namespace from the configured list means
/// that nothing there is ours any more.
pub(super) async fn get(
    cluster: &Cluster,
    name: &EngineName,
    created_in: Option<&str>,
) -> Result<Option<EnginePod>, Error> {
    if let Some(known) = cluster.store.find(name) {
        let found = in_namespace(cluster, &known.namespace, name).await.map_err(|error| failed(name, None, error))?;
        if found.is_none() {
            cluster.store.remove(&known.namespace, name.as_str(), &known.observed.uid);
        }
        return found.map_or(Ok(None), |pod| ours(cluster, pod));
    }
    let created_in = created_in.map(str::to_owned).or_else(|| cluster.store.last_namespace(name));
    if let Some(namespace) = created_in.filter(|namespace| cluster.config.covers(namespace)) {
        let found = in_namespace(cluster, &namespace, name).await;
        let found = found.map_err(|error| failed(name, Some(&namespace), error))?;
        return found.map_or(Ok(None), |pod| ours(cluster, pod));
    }
    match &cluster.config.namespaces {
        None => {
            let pods = everywhere(cluster, name).await.map_err(|error| failed(name, None, error))?;
            first_of_ours(cluster, pods)
        }
        Some(listed) => in_any(cluster, listed, name).await,
    }
}

fn failed(name: &EngineName, namespace: Option<&str>, error: CallError) -> Error {
    match namespace {
        None => error.into_error(&format!("get pod {name}")),
        Some(namespace) => error.into_error(&format!("get pod {namespace}/{name}")),
    }
}

/// Reads all namespaces; one that does not reply hides no engine of another.
async fn in_any(cluster: &Cluster, namespaces: &[String], name: &EngineName) -> Result<Option<EnginePod>, Error> {
    let read = |namespace: String| async move {
        let found = in_namespace(cluster, &namespace, name).await;
        found.map_err(|error| failed(name, Some(&namespace), error))
    };
    let mut replies = futures::stream::iter(namespaces.to_vec()).map(read).buffer_unordered(CONCURRENCY);
    let (mut pods, mut first_error) = (Vec::new(), None);
    while let Some(reply) = replies.next().await {
        match reply {
            Ok(found) => pods.extend(found),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match (first_of_ours(cluster, pods)?, first_error) {
        (None, Some(error)) => Err(error),
        (found, _) => Ok(found),
    }
}

async fn in_namespace(cluster: &Cluster, namespace: &str, name: &EngineName) -> Result<Option<Pod>, CallError> {
    match cluster.read(cluster.pods(namespace).get(name.as_str())).await {
        Ok(pod) => Ok(Some(pod)),
        Err(CallError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn everywhere(cluster: &Cluster, name: &EngineName) -> Result<Vec<Pod>, CallError> {
    let of_name = ListParams::default().fields(&format!("metadata.name={name}")).limit(MAX_PODS_OF_A_NAME);
    let all = Api::<Pod>::all(cluster.client.clone());
    Ok(cluster.read(all.list(&of_name)).await?.items)
}

fn first_of_ours(cluster: &Cluster, pods: Vec<Pod>) -> Result<Option<EnginePod>, Error> {
    for pod in pods {
        if let Some(engine) = ours(cluster, pod)? {
            return Ok(Some(engine));
        }
    }
    Ok(None)
}

/// Applies the reply to the store, and classifies the pod with the known warnings, as a listing does.
fn ours(cluster: &Cluster, pod: Pod) -> Result<Option<EnginePod>, Error> {
    let warnings = cluster.store.warnings(pod.metadata.uid.as_deref().unwrap_or_default());
    match read::classify(&pod, &warnings, &cluster.signer) {
        Classified::Engine(engine) => {
            cluster.store.apply_reply(pod, cluster.clock.boottime());
            Ok(Some(*engine))
        }
        Classified::Foreign(_) => Ok(None),
        Classified::Unreadable(unreadable) => Err(unreadable.into()),
    }
}
