//! `ensure`: creates the pod, and its other objects while a scheduling gate holds the pod back.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams};
use model::cause::chain;
use model::engine_state::Phase;
use model::{Epoch, failpoint};
use serde_json::json;

use super::cluster::{Cluster, post_params};
use super::config::MAX_ENGINES_KEY;
use super::delete::{MIN_GRACE_S, delete_params};
use super::epoch_fence::EpochFence;
use super::error::CallError;
use super::names::GATE;
use super::namespaces::{MissingObject, Namespaces};
use super::read::{self, Classified, EnginePod};
use super::render::{self, EngineObjects, OwnedObjects};
use crate::observed::differing_label;
use crate::{Ensured, Error, Spec, failpoints};

/// Creates the engine unless it exists.
pub(super) async fn ensure(
    cluster: &Cluster,
    fence: &EpochFence,
    namespaces: &Namespaces,
    spec: &Spec,
    epoch: Epoch,
) -> Result<Ensured, Error> {
    let objects = render::engine(spec, &cluster.config, &cluster.signer, epoch)?;
    fence.check(epoch).await?;
    failpoint!(failpoints::ENSURE_ADMITTED);
    if cluster.store.find(&spec.name).is_some()
        && let Some(ensured) = existing(cluster, spec, &objects).await?
    {
        return Ok(ensured);
    }
    if let Some(count) = cluster.store.count_if_full(cluster.config.max_engines) {
        return Err(Error::too_many(count, MAX_ENGINES_KEY));
    }
    cluster.store.with_nodes(|nodes| (nodes.check(spec.nodes.as_deref()), false))?;
    match create(cluster, namespaces, spec, &objects).await {
        Ok(uid) => {
            failpoint!(failpoints::ENSURE_PLACED);
            complete_or_undo(cluster, spec, &uid, &objects.owned).await?;
            failpoint!(failpoints::ENSURE_RECORDED);
            tracing::info!(engine = %spec.name, uid, namespace = spec.locality, "engine pod created");
            Ok(Ensured { uid, created: true })
        }
        Err(CallError::AlreadyExists(_)) => match existing(cluster, spec, &objects).await? {
            Some(ensured) => Ok(ensured),
            None => Err(Error::transient(format!("{}: it existed and is gone again", action(spec)))),
        },
        Err(error) => Err(error.into_error(&action(spec))),
    }
}

fn action(spec: &Spec) -> String {
    format!("create pod {}/{}", spec.locality, spec.name)
}

/// Creates the pod and returns its uid. One call once the namespace is known, and a second one only if the first reports
/// that the namespace lacks an object that we may create.
async fn create(
    cluster: &Cluster,
    namespaces: &Namespaces,
    spec: &Spec,
    objects: &EngineObjects,
) -> Result<String, CallError> {
    namespaces.check(&spec.locality).await?;
    let create = || cluster.effect(cluster.create_pod(&spec.locality, &objects.pod));
    let prepare = |missing| namespaces.prepare(&spec.locality, missing);
    let pod: Pod = match create().await {
        Err(CallError::NotFound(_)) => {
            prepare(MissingObject::Namespace).await?;
            create().await
        }
        // The admission of service accounts refuses a pod whose account does not exist.
        Err(CallError::Forbidden(text)) if text.contains("serviceaccount") && text.contains("not found") => {
            prepare(MissingObject::ServiceAccount).await?;
            create().await
        }
        result => result,
    }?;
    let uid = pod.metadata.uid.clone().filter(|uid| !uid.is_empty());
    cluster.store.apply_reply(pod, cluster.clock.boottime());
    uid.ok_or_else(|| CallError::Transient("the reply has no uid".to_owned()))
}

/// Succeeds if the existing pod is the one that the spec describes, and completes it if it is gated; `None` if there is none.
async fn existing(cluster: &Cluster, spec: &Spec, objects: &EngineObjects) -> Result<Option<Ensured>, Error> {
    let conflict = |reason: String| Err(Error::Conflict { name: spec.name.clone(), reason });
    let pod = match cluster.effect(cluster.pods(&spec.locality).get(spec.name.as_str())).await {
        Ok(pod) => pod,
        Err(CallError::NotFound(_)) => {
            if let Some(known) = cluster.store.find(&spec.name) {
                cluster.store.remove(&known.namespace, spec.name.as_str(), &known.observed.uid);
            }
            return Ok(None);
        }
        Err(error) => return Err(error.into_error(&action(spec))),
    };
    cluster.store.apply_reply(pod.clone(), cluster.clock.boottime());
    let engine = match read::classify(&pod, &[], &cluster.signer) {
        Classified::Engine(engine) => engine,
        Classified::Foreign(foreign) => return conflict(format!("the pod of its name is foreign: {}", foreign.reason)),
        Classified::Unreadable(unreadable) => {
            return conflict(format!("could not read the pod of its name: {}", unreadable.reason));
        }
    };
    match engine.observed.phase {
        Phase::Ended => return conflict("it has ended".to_owned()),
        Phase::Terminating => return conflict("it is terminating".to_owned()),
        _ => {}
    }
    if let Some(label) = differing_label(&engine.observed.labels, &spec.labels) {
        return conflict(format!("its label \"{label}\" has another value"));
    }
    complete_if_gated(cluster, spec, &engine, objects).await?;
    Ok(Some(Ensured { uid: engine.observed.uid.clone(), created: false }))
}

async fn complete_if_gated(
    cluster: &Cluster,
    spec: &Spec,
    engine: &EnginePod,
    objects: &EngineObjects,
) -> Result<(), Error> {
    if !engine.observed.incomplete {
        return Ok(());
    }
    let completed = complete(cluster, spec, &engine.observed.uid, &objects.owned).await;
    completed.map_err(|error| error.into_error(&action(spec)))
}

/// Completes a pod that was just created. After a permanent refusal it deletes the pod, which no node has run: an error
/// that is not transient means that nothing was created.
async fn complete_or_undo(cluster: &Cluster, spec: &Spec, uid: &str, owned: &OwnedObjects) -> Result<(), Error> {
    let Err(failure) = complete(cluster, spec, uid, owned).await else { return Ok(()) };
    let error = failure.into_error(&format!("create the objects of pod {}/{}", spec.locality, spec.name));
    if error.is_retryable() {
        return Err(error);
    }
    let exactly: DeleteParams = delete_params(uid, MIN_GRACE_S);
    match cluster.effect(cluster.pods(&spec.locality).delete(spec.name.as_str(), &exactly)).await {
        Ok(_) | Err(CallError::NotFound(_)) => {
            cluster.store.remove(&spec.locality, spec.name.as_str(), uid);
            Err(error)
        }
        Err(failure) => Err(Error::transient(format!(
            "{}; could not undo the creation of its pod: {}",
            chain(&error),
            chain(&failure.into_error("delete it"))
        ))),
    }
}

/// Creates the pod's objects, then removes the scheduling gate.
async fn complete(cluster: &Cluster, spec: &Spec, uid: &str, owned: &OwnedObjects) -> Result<(), CallError> {
    let name = spec.name.as_str();
    let OwnedObjects { secret, service, config_map } = owned.with_owner(name, uid);
    if let Some(service) = service {
        let services = cluster.services(&spec.locality);
        if already_exists(cluster.effect(services.create(&post_params(), &service)).await)? {
            let found = cluster.effect(services.get(name)).await?;
            check_owner(found.metadata.owner_references.as_deref(), uid, "service")?;
        }
    }
    if let Some(config_map) = config_map {
        let config_maps = cluster.config_maps(&spec.locality);
        if already_exists(cluster.effect(config_maps.create(&post_params(), &config_map)).await)? {
            let found = cluster.effect(config_maps.get(name)).await?;
            check_owner(found.metadata.owner_references.as_deref(), uid, "config map")?;
        }
    }
    // It cannot be read, so whose it is is not known; the agent ends if it is that of another pod.
    already_exists(cluster.effect(cluster.create_secret(&spec.locality, &secret)).await)?;
    // The uid is a precondition: the API server refuses to change it.
    let patch = json!({"metadata": {"uid": uid}, "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}});
    let params = PatchParams { field_manager: post_params().field_manager, ..PatchParams::default() };
    let pods = cluster.pods(&spec.locality);
    let pod = cluster.effect(pods.patch(name, &params, &Patch::Strategic(&patch))).await?;
    cluster.store.apply_reply(pod, cluster.clock.boottime());
    Ok(())
}

fn already_exists<T>(created: Result<T, CallError>) -> Result<bool, CallError> {
    match created {
        Ok(_) => Ok(false),
        Err(CallError::AlreadyExists(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Checks that an object with the engine's name belongs to this pod. One of an earlier pod will be garbage-collected.
fn check_owner(owners: Option<&[OwnerReference]>, uid: &str, kind: &str) -> Result<(), CallError> {
    if owners.unwrap_or_default().iter().any(|owner| owner.uid == uid) {
        return Ok(());
    }
    Err(CallError::Transient(format!("a {kind} of its name belongs to another pod")))
}
