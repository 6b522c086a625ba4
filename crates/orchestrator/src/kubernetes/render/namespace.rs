//! The namespace of a tenant's engines in a pool, with the objects that an engine needs there: network policies, a service
//! account, and the permission to create and delete pods, which Spark's driver needs for its executors. The account has no
//! other permission.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::labels::{CLUSTER, MANAGED_BY, MANAGER};

use super::network;
use crate::kubernetes::config::Config;
use crate::kubernetes::names::POLICIES_ANNOTATION;

/// The verbs that the service account may use on pods of its namespace.
pub const ENGINE_VERBS: [&str; 7] = ["create", "delete", "deletecollection", "get", "list", "patch", "watch"];

/// A namespace with the objects that it contains before the first engine.
#[derive(Debug, Clone, PartialEq)]
pub struct NamespaceObjects {
    pub namespace: Namespace,
    /// Empty if the configuration leaves network policies to others.
    pub policies: Vec<NetworkPolicy>,
    pub service_account: ServiceAccount,
    pub role: Role,
    pub role_binding: RoleBinding,
}

pub fn namespace(name: &str, config: &Config) -> NamespaceObjects {
    let account = &config.service_account;
    let labels =
        BTreeMap::from([(MANAGED_BY.to_owned(), MANAGER.to_owned()), (CLUSTER.to_owned(), config.cluster.clone())]);
    let metadata = || ObjectMeta {
        name: Some(account.clone()),
        namespace: Some(name.to_owned()),
        labels: Some(labels.clone()),
        ..ObjectMeta::default()
    };
    let mut namespace_labels = labels.clone();
    for mode in ["enforce", "warn", "audit"] {
        namespace_labels.insert(format!("pod-security.kubernetes.io/{mode}"), "restricted".to_owned());
    }
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["pods".to_owned()]),
        verbs: ENGINE_VERBS.map(str::to_owned).to_vec(),
        ..PolicyRule::default()
    };
    let policies = if config.network_policies { network::policies(name, &labels, config) } else { Vec::new() };
    let annotations = (!policies.is_empty())
        .then(|| BTreeMap::from([(POLICIES_ANNOTATION.to_owned(), names_of(&policies).collect::<Vec<_>>().join(","))]));
    NamespaceObjects {
        namespace: Namespace {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(namespace_labels),
                annotations,
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        },
        policies,
        service_account: ServiceAccount {
            metadata: metadata(),
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        },
        role: Role { metadata: metadata(), rules: Some(vec![rule]) },
        role_binding: RoleBinding {
            metadata: metadata(),
            role_ref: RoleRef {
                api_group: "rbac.authorization.k8s.io".to_owned(),
                kind: "Role".to_owned(),
                name: account.clone(),
            },
            subjects: Some(vec![Subject {
                api_group: None,
                kind: "ServiceAccount".to_owned(),
                name: account.clone(),
                namespace: Some(name.to_owned()),
            }]),
        },
    }
}

fn names_of(policies: &[NetworkPolicy]) -> impl Iterator<Item = &str> {
    policies.iter().filter_map(|policy| policy.metadata.name.as_deref())
}

/// The policies that the existing namespace lacks according to its annotation; none unless a master of this installation
/// created it. The annotation lists the policies that it was created with, so a policy that was deleted since is not restored.
pub fn missing_policies<'a>(objects: &'a NamespaceObjects, found: &Namespace) -> Vec<&'a NetworkPolicy> {
    let is_ours = [MANAGED_BY, CLUSTER].into_iter().all(|label| {
        let value = |namespace: &Namespace| namespace.metadata.labels.as_ref()?.get(label).cloned();
        value(found).is_some() && value(found) == value(&objects.namespace)
    });
    if !is_ours {
        return Vec::new();
    }
    let annotation = found.metadata.annotations.as_ref().and_then(|annotations| annotations.get(POLICIES_ANNOTATION));
    let created_with: Vec<&str> = annotation.map(|names| names.split(',').collect()).unwrap_or_default();
    let is_missing =
        |policy: &&NetworkPolicy| policy.metadata.name.as_deref().is_some_and(|name| !created_with.contains(&name));
    objects.policies.iter().filter(is_missing).collect()
}
