//! `ensure`: make the pod, and for Spark what belongs to it, behind a gate.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use model::engine_state::Phase;
use model::{Epoch, failpoint};
use serde_json::json;

use super::answer::Failure;
use super::config::MAX_ENGINES_KEY;
use super::end::LEAST_GRACE_S;
use super::names::GATE;
use super::place::{Place, post};
use super::prepare::{self, Lacking};
use super::read::{self, Found, Seen};
use super::render::{self, Objects, Rest};
use crate::observed::bears;
use crate::{Ensured, Error, Spec, failpoints};

/// Makes the engine unless it is there.
pub(super) async fn ensure(place: &Place, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
    let objects = render::engine(spec, &place.config, &place.signer, epoch)?;
    place.gate.admit(place, epoch).await?;
    failpoint!(failpoints::ENSURE_ADMITTED);
    if place.cache.find(&spec.name).is_some()
        && let Some(ensured) = compare(place, spec, &objects).await?
    {
        return Ok(ensured);
    }
    if let Some(count) = place.cache.is_full(place.config.max_engines) {
        return Err(Error::too_many(count, MAX_ENGINES_KEY));
    }
    place.cache.with_nodes(|nodes| (nodes.check(spec.nodes.as_deref()), false))?;
    match create(place, spec, &objects).await {
        Ok(uid) => {
            failpoint!(failpoints::ENSURE_PLACED);
            if let Some(rest) = &objects.rest {
                finish_or_undo(place, spec, &uid, rest).await?;
            }
            failpoint!(failpoints::ENSURE_RECORDED);
            tracing::info!(engine = %spec.name, uid, namespace = spec.namespace, "engine's pod made");
            Ok(Ensured { uid, created: true })
        }
        Err(Failure::Exists(_)) => match compare(place, spec, &objects).await? {
            Some(ensured) => Ok(ensured),
            None => Err(Error::transient(format!("{}: it was there and is gone again", doing(spec)))),
        },
        Err(failure) => Err(failure.into_error(&doing(spec))),
    }
}

fn doing(spec: &Spec) -> String {
    format!("make pod {}/{}", spec.namespace, spec.name)
}

/// One call, once the namespace is known; a second one only if the first said that the namespace lacks something that we
/// may make.
async fn create(place: &Place, spec: &Spec, objects: &Objects) -> Result<String, Failure> {
    prepare::usable(place, &spec.namespace).await?;
    let answer = match place.effect(place.make_pod(&spec.namespace, &objects.pod)).await {
        Err(Failure::Absent(_)) => prepared(place, spec, objects, Lacking::Namespace).await,
        // The admission of service accounts refuses a pod whose account is missing.
        Err(Failure::Denied(text)) if text.contains("serviceaccount") && text.contains("not found") => {
            prepared(place, spec, objects, Lacking::Account).await
        }
        answer => answer,
    }?;
    let uid = answer.metadata.uid.clone().filter(|uid| !uid.is_empty());
    place.cache.wrote(answer, place.clock.boottime());
    uid.ok_or_else(|| Failure::Passing("the answer has no uid".to_owned()))
}

async fn prepared(place: &Place, spec: &Spec, objects: &Objects, lacking: Lacking) -> Result<Pod, Failure> {
    prepare::namespace(place, &spec.namespace, lacking).await?;
    place.effect(place.make_pod(&spec.namespace, &objects.pod)).await
}

/// Whether what is there is what was asked for; `None` if nothing is. What is there behind its gate is completed.
async fn compare(place: &Place, spec: &Spec, objects: &Objects) -> Result<Option<Ensured>, Error> {
    let conflict = |reason: String| Err(Error::Conflict { name: spec.name.clone(), reason });
    let pod = match place.effect(place.pods(&spec.namespace).get(spec.name.as_str())).await {
        Ok(pod) => pod,
        Err(Failure::Absent(_)) => {
            if let Some(known) = place.cache.find(&spec.name) {
                place.cache.gone(&known.namespace, spec.name.as_str(), &known.observed.uid);
            }
            return Ok(None);
        }
        Err(failure) => return Err(failure.into_error(&doing(spec))),
    };
    place.cache.wrote(pod.clone(), place.clock.boottime());
    let seen = match read::pod(&pod, &[], &place.signer) {
        Found::Engine(seen) => seen,
        Found::Foreign(foreign) => return conflict(format!("the pod of its name is foreign: {}", foreign.reason)),
        Found::Unreadable(it) => return conflict(format!("what has its name can't be read: {}", it.reason)),
    };
    match seen.observed.phase {
        Phase::Ended => return conflict("it has ended".to_owned()),
        Phase::Terminating => return conflict("it was told to end".to_owned()),
        _ => {}
    }
    if !bears(&seen.observed.labels, &spec.labels) {
        let differs = |(label, value): &(&String, &String)| seen.observed.labels.get(*label) != Some(*value);
        let label = spec.labels.iter().find(differs).map_or("", |(label, _)| label.as_str());
        return conflict(format!("its label \"{label}\" has another value"));
    }
    complete_if_gated(place, spec, &seen, objects).await?;
    Ok(Some(Ensured { uid: seen.observed.uid, created: false }))
}

async fn complete_if_gated(place: &Place, spec: &Spec, seen: &Seen, objects: &Objects) -> Result<(), Error> {
    match (&objects.rest, seen.observed.incomplete) {
        (Some(rest), true) => {
            finish(place, spec, &seen.observed.uid, rest).await.map_err(|failure| failure.into_error(&doing(spec)))
        }
        _ => Ok(()),
    }
}

/// Completes a pod that was just made. What is refused for good takes the pod along, which no node has seen: an error
/// that is not transient means that nothing was made.
async fn finish_or_undo(place: &Place, spec: &Spec, uid: &str, rest: &Rest) -> Result<(), Error> {
    let Err(failure) = finish(place, spec, uid, rest).await else { return Ok(()) };
    let error = failure.into_error(&format!("make what belongs to pod {}/{}", spec.namespace, spec.name));
    if error.is_retryable() {
        return Err(error);
    }
    let exactly = DeleteParams {
        grace_period_seconds: Some(LEAST_GRACE_S),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::background()
    };
    match place.effect(place.pods(&spec.namespace).delete(spec.name.as_str(), &exactly)).await {
        Ok(_) | Err(Failure::Absent(_)) => {
            place.cache.gone(&spec.namespace, spec.name.as_str(), uid);
            Err(error)
        }
        Err(failure) => Err(Error::transient(format!(
            "{error}; and its pod can't be taken away again: {}",
            failure.into_error("delete it")
        ))),
    }
}

/// Service, config map, and then the gate away.
async fn finish(place: &Place, spec: &Spec, uid: &str, rest: &Rest) -> Result<(), Failure> {
    let (service, config_map) = rest.owned(spec.name.as_str(), uid);
    let name = spec.name.as_str();
    let services = place.services(&spec.namespace);
    if let Err(Failure::Exists(_)) = allow(place.effect(services.create(&post(), &service)).await)? {
        let found = place.effect(services.get(name)).await?;
        owned_by(found.metadata.owner_references.as_deref(), uid, "service")?;
    }
    let config_maps = place.config_maps(&spec.namespace);
    if let Err(Failure::Exists(_)) = allow(place.effect(config_maps.create(&post(), &config_map)).await)? {
        let found = place.effect(config_maps.get(name)).await?;
        owned_by(found.metadata.owner_references.as_deref(), uid, "config map")?;
    }
    // The uid is a precondition: the API server refuses to change it.
    let patch = json!({"metadata": {"uid": uid}, "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}});
    let params = PatchParams { field_manager: post().field_manager, ..PatchParams::default() };
    let open = place.pods(&spec.namespace);
    let pod = place.effect(open.patch(name, &params, &Patch::Strategic(&patch))).await?;
    place.cache.wrote(pod, place.clock.boottime());
    Ok(())
}

/// Lets *exists* through to be looked at.
fn allow<T>(answer: Result<T, Failure>) -> Result<Result<T, Failure>, Failure> {
    match answer {
        Err(failure) if !matches!(failure, Failure::Exists(_)) => Err(failure),
        answer => Ok(answer),
    }
}

/// What has the engine's name belongs to this very pod, else it is left of an earlier one and goes with time.
fn owned_by(
    owners: Option<&[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference]>,
    uid: &str,
    what: &str,
) -> Result<(), Failure> {
    if owners.unwrap_or_default().iter().any(|owner| owner.uid == uid) {
        return Ok(());
    }
    Err(Failure::Passing(format!("a {what} of its name belongs to another pod")))
}
