//! The namespace of a tenant's engines in a pool, and what an engine needs there: network policies, a service account, and
//! the right to make and delete pods, which Spark's driver needs for its executors. Nothing else may be done with that
//! account.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::labels::{CLUSTER, MANAGED_BY, MANAGER};

use super::network;
use crate::kubernetes::config::Config;
use crate::kubernetes::names::POLICIES_ANNOTATION;

/// What the service account may do with pods of its namespace.
pub const ENGINE_VERBS: [&str; 7] = ["create", "delete", "deletecollection", "get", "list", "patch", "watch"];

/// A namespace with what is in it before the first engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Room {
    /// The namespace itself.
    pub namespace: Namespace,
    /// Who may speak with its engines, and with whom they may; none where the configuration leaves that to others.
    pub policies: Vec<NetworkPolicy>,
    /// Who its engines are to the API server.
    pub service_account: ServiceAccount,
    /// What they may do.
    pub role: Role,
    /// That they may do it.
    pub binding: RoleBinding,
}

/// The namespace of that name.
pub fn room(name: &str, config: &Config) -> Room {
    let account = &config.service_account;
    let labels =
        BTreeMap::from([(MANAGED_BY.to_owned(), MANAGER.to_owned()), (CLUSTER.to_owned(), config.cluster.clone())]);
    let inside = || ObjectMeta {
        name: Some(account.clone()),
        namespace: Some(name.to_owned()),
        labels: Some(labels.clone()),
        ..ObjectMeta::default()
    };
    let mut of_namespace = labels.clone();
    for mode in ["enforce", "warn", "audit"] {
        of_namespace.insert(format!("pod-security.kubernetes.io/{mode}"), "restricted".to_owned());
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
    Room {
        namespace: Namespace {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(of_namespace),
                annotations,
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        },
        policies,
        service_account: ServiceAccount {
            metadata: inside(),
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        },
        role: Role { metadata: inside(), rules: Some(vec![rule]) },
        binding: RoleBinding {
            metadata: inside(),
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

/// The policies that a namespace lacks as far as it says itself: none unless a master of this installation has made it. What it
/// says is what it was made with; a policy that somebody has taken away since is his business.
pub fn lacking<'a>(room: &'a Room, found: &Namespace) -> Vec<&'a NetworkPolicy> {
    let is_ours = [MANAGED_BY, CLUSTER].into_iter().all(|label| {
        let of = |namespace: &Namespace| namespace.metadata.labels.as_ref()?.get(label).cloned();
        of(found).is_some() && of(found) == of(&room.namespace)
    });
    if !is_ours {
        return Vec::new();
    }
    let said = found.metadata.annotations.as_ref().and_then(|it| it.get(POLICIES_ANNOTATION));
    let made_with: Vec<&str> = said.map(|it| it.split(',').collect()).unwrap_or_default();
    let lacks =
        |policy: &&NetworkPolicy| policy.metadata.name.as_deref().is_some_and(|name| !made_with.contains(&name));
    room.policies.iter().filter(lacks).collect()
}
