//! `get`: the engine of a name, asked directly.
//!
//! A name is never used in two namespaces, so its absence from the one where its engine was made is absence. Where that is not
//! known every namespace is asked, and only if each of them has answered is there none: one that we may not look into, or
//! that does not answer, may have it.

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

/// The engine of that name; `None` if there is none. It is looked for where it was seen last, else where the caller knows
/// that it was made. What the caller knows counts only where engines can be: who takes a namespace out of a list has said
/// that nothing there is ours any more.
pub(super) async fn engine(place: &Place, name: &EngineName, made_in: Option<&str>) -> Result<Option<Seen>, Error> {
    if let Some(known) = place.cache.find(name) {
        let found = in_namespace(place, &known.namespace, name).await.map_err(|failure| failed(name, None, failure))?;
        if found.is_none() {
            place.cache.gone(&known.namespace, name.as_str(), &known.observed.uid);
        }
        return found.map_or(Ok(None), |pod| ours(place, pod));
    }
    let made_in = made_in.map(str::to_owned).or_else(|| place.cache.last_namespace(name));
    if let Some(namespace) = made_in.filter(|it| place.config.covers(it)) {
        let found = in_namespace(place, &namespace, name).await;
        let found = found.map_err(|failure| failed(name, Some(&namespace), failure))?;
        return found.map_or(Ok(None), |pod| ours(place, pod));
    }
    match &place.config.namespaces {
        None => first_of_ours(place, everywhere(place, name).await.map_err(|failure| failed(name, None, failure))?),
        Some(listed) => in_any(place, listed, name).await,
    }
}

fn failed(name: &EngineName, namespace: Option<&str>, failure: Failure) -> Error {
    match namespace {
        None => failure.into_error(&format!("look for pod {name}")),
        Some(namespace) => failure.into_error(&format!("look for pod {namespace}/{name}")),
    }
}

/// Asks them all: one that does not answer hides nothing that another has.
async fn in_any(place: &Place, namespaces: &[String], name: &EngineName) -> Result<Option<Seen>, Error> {
    let asked = |namespace: String| async move {
        let answer = in_namespace(place, &namespace, name).await;
        answer.map_err(|failure| failed(name, Some(&namespace), failure))
    };
    let mut answers = futures::stream::iter(namespaces.to_vec()).map(asked).buffer_unordered(AT_ONCE);
    let (mut pods, mut unanswered) = (Vec::new(), None);
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(found) => pods.extend(found),
            Err(error) => unanswered = unanswered.or(Some(error)),
        }
    }
    match (first_of_ours(place, pods)?, unanswered) {
        (None, Some(error)) => Err(error),
        (found, _) => Ok(found),
    }
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

fn first_of_ours(place: &Place, pods: Vec<Pod>) -> Result<Option<Seen>, Error> {
    for pod in pods {
        if let Some(seen) = ours(place, pod)? {
            return Ok(Some(seen));
        }
    }
    Ok(None)
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
