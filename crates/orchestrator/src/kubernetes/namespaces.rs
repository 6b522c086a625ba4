//! The namespaces of engines: checked before the first engine is created in one, and created with their network policies,
//! role, role binding and service account when a create reports that one of these is missing. Existing objects are left
//! unchanged; an object that may not be created is named with the missing permission.
//!
//! A namespace that a master created earlier, for instance with an older version, gets the network policies that it lacks
//! when it is first checked. One create does that, and engines run there regardless of its outcome.
//!
//! When namespaces are managed by an administrator (`kubernetes.make_namespaces` is off), they are not inspected: the master
//! lacks the permission, and the configured list is authoritative.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use model::cause::chain;
use model::failpoint;
use model::labels::CLUSTER;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cluster::{Cluster, post_params};
use super::error::CallError;
use super::render;
use crate::failpoints;

/// The limit of namespaces that are remembered as checked; beyond it all of them are checked again.
const MAX_CHECKED: usize = 10_000;

#[derive(Debug)]
pub(super) struct Namespaces {
    cluster: Arc<Cluster>,
    checked: Mutex<BTreeSet<String>>,
    /// Whether the missing permission to create policies was logged; permissions are the same in every namespace.
    denial_logged: AtomicBool,
}

/// An object that a create found missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingObject {
    Namespace,
    /// The engines' service account in it.
    ServiceAccount,
}

impl Namespaces {
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster, checked: Mutex::default(), denial_logged: AtomicBool::default() }
    }

    /// Refuses the namespace of another installation, which may contain everything that a pod needs. Whether the namespace
    /// exists is left to the create.
    pub(super) async fn check(&self, name: &str) -> Result<(), CallError> {
        if !self.cluster.config.make_namespaces || self.checked.lock().contains(name) {
            return Ok(());
        }
        match self.cluster.effect(Api::<Namespace>::all(self.cluster.client.clone()).get(name)).await {
            Ok(found) => {
                self.check_found(name, &found)?;
                // Only one of several concurrent creates in the namespace does it.
                if self.mark_checked(name) {
                    self.add_missing_policies(name, &found).await;
                }
            }
            Err(CallError::NotFound(_)) => return Ok(()),
            // The missing permission is reported with the others; if everything exists, it prevents no engine.
            Err(CallError::Forbidden(_)) => {
                self.mark_checked(name);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns whether it is new.
    fn mark_checked(&self, name: &str) -> bool {
        let mut checked = self.checked.lock();
        if checked.len() >= MAX_CHECKED {
            checked.clear();
        }
        checked.insert(name.to_owned())
    }

    /// Creates the policies that a namespace of an older version, or of another configuration, lacks. After a transient
    /// failure the next engine there tries again; a missing permission is logged once.
    async fn add_missing_policies(&self, name: &str, found: &Namespace) {
        let objects = render::namespace(name, &self.cluster.config);
        let policies = Api::namespaced(self.cluster.client.clone(), name);
        for policy in render::missing_policies(&objects, found) {
            match self.create(&policies, policy, "networkpolicies").await {
                Ok(()) => {}
                Err(CallError::Forbidden(permission)) => {
                    if !self.denial_logged.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            namespace = name,
                            %permission,
                            "namespace lacks network policies; no permission to create them"
                        );
                    }
                    return;
                }
                Err(error) => {
                    let error = error.into_error("create the missing ones");
                    tracing::info!(namespace = name, error = %chain(&error), "namespace lacks network policies");
                    self.checked.lock().remove(name);
                    return;
                }
            }
        }
    }

    /// Creates the missing objects of the namespace.
    pub(super) async fn prepare(&self, name: &str, missing: MissingObject) -> Result<(), CallError> {
        let config = &self.cluster.config;
        if !config.make_namespaces {
            return Err(CallError::Invalid(match missing {
                MissingObject::Namespace => format!(
                    "namespace \"{name}\" does not exist, and kubernetes.make_namespaces is off: create the namespace"
                ),
                MissingObject::ServiceAccount => format!(
                    "namespace \"{name}\" has no service account \"{}\", and kubernetes.make_namespaces is off",
                    config.service_account
                ),
            }));
        }
        let objects = render::namespace(name, config);
        let client = || self.cluster.client.clone();
        let namespaces = Api::<Namespace>::all(client());
        match self.cluster.effect(namespaces.get(name)).await {
            Ok(found) => self.check_found(name, &found)?,
            Err(CallError::NotFound(_)) => {
                self.create(&namespaces, &objects.namespace, "namespaces").await?;
                failpoint!(failpoints::NAMESPACE_MADE);
            }
            Err(error) => return Err(with_permission(error, &format!("get namespaces (for \"{name}\")"))),
        }
        // First: no pod may run before they apply.
        let policies = Api::namespaced(client(), name);
        for policy in &objects.policies {
            self.create(&policies, policy, "networkpolicies").await?;
        }
        self.create(&Api::namespaced(client(), name), &objects.role, "roles").await?;
        self.create(&Api::namespaced(client(), name), &objects.role_binding, "rolebindings").await?;
        // Last: the next create checks for it, so no create finds an account without its permissions.
        self.create(&Api::namespaced(client(), name), &objects.service_account, "serviceaccounts").await?;
        self.mark_checked(name);
        tracing::info!(namespace = name, "namespace prepared");
        Ok(())
    }

    /// Refuses a namespace that is terminating or belongs to another installation. An unlabelled one was created for us by an
    /// administrator.
    fn check_found(&self, name: &str, found: &Namespace) -> Result<(), CallError> {
        if found.metadata.deletion_timestamp.is_some() {
            return Err(CallError::Transient(format!("namespace \"{name}\" is being deleted")));
        }
        match found.metadata.labels.as_ref().and_then(|labels| labels.get(CLUSTER)) {
            Some(other) if *other != self.cluster.config.cluster => {
                Err(CallError::Invalid(format!("namespace \"{name}\" belongs to installation \"{other}\"")))
            }
            _ => Ok(()),
        }
    }

    async fn create<K>(&self, api: &Api<K>, object: &K, resource: &str) -> Result<(), CallError>
    where
        K: Clone + Debug + DeserializeOwned + Serialize,
    {
        match self.cluster.effect(api.create(&post_params(), object)).await {
            Ok(_) | Err(CallError::AlreadyExists(_)) => Ok(()),
            Err(error) => Err(with_permission(error, &format!("create {resource}"))),
        }
    }
}

fn with_permission(error: CallError, permission: &str) -> CallError {
    match error {
        CallError::Forbidden(text) => CallError::Forbidden(format!("{permission}: {text}")),
        other => other,
    }
}
