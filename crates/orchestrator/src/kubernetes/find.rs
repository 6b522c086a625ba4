//! `get`: the engine of a name, asked directly.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use model::EngineName;

use super::answer::Failure;
use super::place::Place;
use super::read::{self, Found, Seen};
use crate::Error;

/// Namespaces of a fixed list that are asked at the same time.
const AT_ONCE: usize = 16;
/// Pods of one name that are looked at: each is in another namespace, and one of them at most is ours.
const PODS_OF_A_NAME: u32 = 100;

/// The engine of that name; `None` if there is none. Where a pod of that name was seen is asked first; a name is never used
/// in two namespaces, so its absence there is absence.
pub(super) async fn engine(place: &Place, name: &EngineName) -> Result<Option<Seen>, Error> {
    let doing = format!("look for pod {name}");
    let failed = |failure: Failure| failure.into_error(&doing);
    if let Some(known) = place.cache.find(name) {
        let found = in_namespace(place, &known.namespace, name).await.map_err(failed)?;
        if found.is_none() {
            place.cache.gone(&known.namespace, name.as_str(), &known.observed.uid);
        }
        return found.map_or(Ok(None), |pod| ours(place, pod));
    }
    let pods = match &place.config.namespaces {
        None => everywhere(place, name).await.map_err(failed)?,
        Some(listed) => {
            let asked = |namespace: String| async move { in_namespace(place, &namespace, name).await };
            let mut answers = futures::stream::iter(listed.clone()).map(asked).buffer_unordered(AT_ONCE);
            let mut pods = Vec::new();
            while let Some(answer) = answers.next().await {
                pods.extend(answer.map_err(failed)?);
            }
            pods
        }
    };
    for pod in pods {
        if let Some(seen) = ours(place, pod)? {
            return Ok(Some(seen));
        }
    }
    Ok(None)
}

async fn in_namespace(place: &Place, namespace: &str, name: &EngineName) -> Result<Option<Pod>, Failure> {
    match place.reading(place.pods(namespace).get(name.as_str())).await {
        Ok(pod) => Ok(Some(pod)),
        Err(Failure::Absent(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn everywhere(place: &Place, name: &EngineName) -> Result<Vec<Pod>, Failure> {
    let of_name = ListParams::default().fields(&format!("metadata.name={name}")).limit(PODS_OF_A_NAME);
    let all = Api::<Pod>::all(place.client.clone());
    Ok(place.reading(all.list(&of_name)).await?.items)
}

/// Takes the answer into the cache, and reads it with the warnings that are known, as a listing does.
fn ours(place: &Place, pod: Pod) -> Result<Option<Seen>, Error> {
    let warnings = place.cache.warnings(pod.metadata.uid.as_deref().unwrap_or_default());
    let found = read::pod(&pod, &warnings, &place.signer);
    match found {
        Found::Engine(seen) => {
            place.cache.wrote(pod, place.clock.boottime());
            Ok(Some(*seen))
        }
        Found::Foreign(_) => Ok(None),
        Found::Unreadable(it) => Err(Error::Unreadable { name: it.name, reason: it.reason }),
    }
}
