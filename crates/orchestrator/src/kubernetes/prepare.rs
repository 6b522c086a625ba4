//! The namespace of a tenant's engines: made with its service account, role and binding when a create says that it lacks
//! something. What is there stays as it is; what may not be made is named with the right that is missing.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use model::failpoint;
use model::labels::CLUSTER;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answer::Failure;
use super::place::{Place, post};
use super::render;
use crate::failpoints;

/// Makes what is missing of it.
pub(super) async fn namespace(place: &Place, name: &str) -> Result<(), Failure> {
    let room = render::room(name, &place.config);
    let namespaces = Api::<Namespace>::all(place.client.clone());
    match place.effect(namespaces.get(name)).await {
        Ok(found) => check(place, name, &found)?,
        Err(Failure::Absent(_)) if !place.config.make_namespaces => {
            return Err(Failure::Invalid(format!(
                "namespace \"{name}\" is not there, and kubernetes.make_namespaces is off: somebody has to make it"
            )));
        }
        Err(Failure::Absent(_)) => {
            make(place, &namespaces, &room.namespace, "namespaces").await?;
            failpoint!(failpoints::NAMESPACE_MADE);
        }
        Err(failure) => return Err(denied(failure, &format!("get namespaces (for \"{name}\")"))),
    }
    let client = || place.client.clone();
    if !place.config.make_namespaces {
        return Err(Failure::Invalid(format!(
            "namespace \"{name}\" has no service account \"{}\", and kubernetes.make_namespaces is off",
            place.config.service_account
        )));
    }
    make(place, &Api::namespaced(client(), name), &room.role, "roles").await?;
    make(place, &Api::namespaced(client(), name), &room.binding, "rolebindings").await?;
    // Last: it is what the next create asks for, so nobody finds an account without its rights.
    make(place, &Api::namespaced(client(), name), &room.service_account, "serviceaccounts").await?;
    tracing::info!(namespace = name, "namespace prepared");
    Ok(())
}

/// A namespace of another installation is not ours to use; one that nobody claims was made for us by an admin.
fn check(place: &Place, name: &str, found: &Namespace) -> Result<(), Failure> {
    if found.metadata.deletion_timestamp.is_some() {
        return Err(Failure::Passing(format!("namespace \"{name}\" is being deleted")));
    }
    match found.metadata.labels.as_ref().and_then(|labels| labels.get(CLUSTER)) {
        Some(other) if *other != place.config.cluster => {
            Err(Failure::Invalid(format!("namespace \"{name}\" belongs to installation \"{other}\"")))
        }
        _ => Ok(()),
    }
}

async fn make<K>(place: &Place, api: &Api<K>, object: &K, resource: &str) -> Result<(), Failure>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    match place.effect(api.create(&post(), object)).await {
        Ok(_) | Err(Failure::Exists(_)) => Ok(()),
        Err(failure) => Err(denied(failure, &format!("create {resource}"))),
    }
}

fn denied(failure: Failure, right: &str) -> Failure {
    match failure {
        Failure::Denied(text) => Failure::Denied(format!("{right}: {text}")),
        other => other,
    }
}
