//! The namespace of a tenant's engines: looked at before the first engine is made there, and made with its network policies,
//! role, binding and service account when a create says that it lacks something. What is there stays as it is; what may not
//! be made is named with the right that is missing.
//!
//! A namespace that a master has made, an earlier version for instance, and that lacks network policies which it would be made
//! with now gets them when it is first looked at. One create does that, and engines run there whatever comes of it.
//!
//! Where an admin makes namespaces nothing is looked at: who has them all in a list has said which he means, and masters
//! have no right to look.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use model::failpoint;
use model::labels::CLUSTER;
use parking_lot::Mutex;
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
pub(super) struct Known {
    names: Mutex<BTreeSet<String>>,
    /// Whether it was told that policies may not be made: the right is the same everywhere.
    denied: AtomicBool,
}

impl Known {
    fn has(&self, name: &str) -> bool {
        self.names.lock().contains(name)
    }

    /// Whether it is new.
    fn add(&self, name: &str) -> bool {
        let mut known = self.names.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(name.to_owned())
    }

    fn forget(&self, name: &str) {
        self.names.lock().remove(name);
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
        Ok(found) => {
            check(place, name, &found)?;
            // Of many creates in a new namespace one does it.
            if place.known.add(name) {
                add_policies(place, name, &found).await;
            }
        }
        Err(Failure::Absent(_)) => return Ok(()),
        // That this right is missing is told with the others; it keeps nobody from making engines where all is there.
        Err(Failure::Denied(_)) => {
            place.known.add(name);
        }
        Err(failure) => return Err(failure),
    }
    Ok(())
}

/// Makes the policies that a namespace of an earlier version, or of another configuration, lacks. What can't be made now is
/// tried again with the next engine there; what may not be made is told once.
async fn add_policies(place: &Place, name: &str, found: &Namespace) {
    let room = render::room(name, &place.config);
    let policies = Api::namespaced(place.client.clone(), name);
    for policy in render::lacking(&room, found) {
        match make(place, &policies, policy, "networkpolicies").await {
            Ok(()) => {}
            Err(Failure::Denied(right)) => {
                if !place.known.denied.swap(true, Ordering::Relaxed) {
                    tracing::warn!(namespace = name, %right, "a namespace lacks network policies, and they may not be made");
                }
                return;
            }
            Err(failure) => {
                let error = failure.into_error("make what it lacks");
                tracing::info!(namespace = name, %error, "a namespace lacks network policies");
                return place.known.forget(name);
            }
        }
    }
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
