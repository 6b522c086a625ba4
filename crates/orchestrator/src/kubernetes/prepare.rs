//! The namespace of a tenant's engines: looked at before the first engine is made there, and made with its network policies,
//! role, binding and service account when a create says that it lacks something. What is there stays as it is; what may not
//! be made is named with the right that is missing.
//!
//! Where an admin makes namespaces nothing is looked at: who has them all in a list has said which he means, and masters
//! have no right to look.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

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

/// Namespaces that are remembered; with more of them the looking begins anew.
const MAX_KNOWN: usize = 10_000;

/// Namespaces that were looked at.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<BTreeSet<String>>);

impl Known {
    fn has(&self, name: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    fn add(&self, name: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(name.to_owned());
    }
}

/// What a create found missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lacking {
    /// The namespace.
    Namespace,
    /// In it, the engines' service account.
    Account,
}

/// Refuses the namespace of another installation, which may have all that a pod needs. One that is not there yet is for the
/// create to find out.
pub(super) async fn usable(place: &Place, name: &str) -> Result<(), Failure> {
    if !place.config.make_namespaces || place.known.has(name) {
        return Ok(());
    }
    match place.effect(Api::<Namespace>::all(place.client.clone()).get(name)).await {
        Ok(found) => check(place, name, &found)?,
        Err(Failure::Absent(_)) => return Ok(()),
        // That this right is missing is told with the others; it keeps nobody from making engines where all is there.
        Err(Failure::Denied(_)) => {}
        Err(failure) => return Err(failure),
    }
    place.known.add(name);
    Ok(())
}

/// Makes what is missing of it.
pub(super) async fn namespace(place: &Place, name: &str, lacking: Lacking) -> Result<(), Failure> {
    if !place.config.make_namespaces {
        let account = &place.config.service_account;
        return Err(Failure::Invalid(match lacking {
            Lacking::Namespace => format!(
                "namespace \"{name}\" is not there, and kubernetes.make_namespaces is off: somebody has to make it"
            ),
            Lacking::Account => {
                format!(
                    "namespace \"{name}\" has no service account \"{account}\", and kubernetes.make_namespaces is off"
                )
            }
        }));
    }
    let room = render::room(name, &place.config);
    let namespaces = Api::<Namespace>::all(place.client.clone());
    match place.effect(namespaces.get(name)).await {
        Ok(found) => check(place, name, &found)?,
        Err(Failure::Absent(_)) => {
            make(place, &namespaces, &room.namespace, "namespaces").await?;
            failpoint!(failpoints::NAMESPACE_MADE);
        }
        Err(failure) => return Err(denied(failure, &format!("get namespaces (for \"{name}\")"))),
    }
    let client = || place.client.clone();
    // First: nobody runs there before they hold.
    let policies = Api::namespaced(client(), name);
    for policy in &room.policies {
        make(place, &policies, policy, "networkpolicies").await?;
    }
    make(place, &Api::namespaced(client(), name), &room.role, "roles").await?;
    make(place, &Api::namespaced(client(), name), &room.binding, "rolebindings").await?;
    // Last: it is what the next create asks for, so nobody finds an account without its rights.
    make(place, &Api::namespaced(client(), name), &room.service_account, "serviceaccounts").await?;
    place.known.add(name);
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
