//! The permissions that a master needs, and which of them the API server does not grant. `deploy/kubernetes` grants exactly
//! this list.
//!
//! For a namespace, one review returns all rules that apply to us. A permission that they grant is granted. The others, and
//! all of them if the server reports its rules as incomplete, are reviewed one by one, because only that review is
//! authoritative.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec,
};
use kube::api::Api;
use model::cause::chain;
use model::log_throttle::LogThrottle;

use super::cluster::{Cluster, post_params};
use super::config::Config;
use super::error::CallError;
use super::render::ENGINE_VERBS;
use crate::Error;

/// The interval of reviews while no permission is missing; one may be revoked.
const INTERVAL: Duration = Duration::from_mins(10);
/// The interval while one is missing, or after a failed review.
const SHORT_INTERVAL: Duration = Duration::from_secs(15);
/// The minimum interval, in multiples of the duration of a review: a thousand namespaces are many calls.
const MIN_REST: u32 = 10;
/// Concurrent reviews.
const CONCURRENCY: usize = 8;

/// One permission.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, in the plural.
    pub resource: &'static str,
    pub verb: &'static str,
    /// `None`: in every namespace, or outside of namespaces.
    pub namespace: Option<String>,
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace \"{namespace}\""),
            None => write!(f, " in the whole cluster"),
        }
    }
}

const CORE: &str = "";
const RBAC: &str = "rbac.authorization.k8s.io";
const NETWORKING: &str = "networking.k8s.io";

/// The permissions of a master.
pub fn required(config: &Config) -> Vec<Permission> {
    let mut permissions = Vec::new();
    let mut add = |group, resource, verbs: &[&'static str], namespace: Option<&str>| {
        let permission =
            |verb: &&'static str| Permission { group, resource, verb, namespace: namespace.map(str::to_owned) };
        permissions.extend(verbs.iter().map(permission));
    };
    let scopes: Vec<Option<&str>> = match &config.namespaces {
        None => vec![None],
        Some(listed) => listed.iter().map(|namespace| Some(namespace.as_str())).collect(),
    };
    for scope in scopes {
        add(CORE, "pods", &["create", "delete", "get", "list", "patch", "watch"], scope);
        add(CORE, "events", &["list", "watch"], scope);
        add(CORE, "services", &["create", "get"], scope);
        add(CORE, "configmaps", &["create", "get"], scope);
        // Never get, list or watch.
        add(CORE, "secrets", &["create"], scope);
        if config.make_namespaces {
            // RBAC prevents a user from granting permissions that the user lacks.
            let beyond: Vec<&'static str> =
                ENGINE_VERBS.into_iter().filter(|verb| *verb == "deletecollection").collect();
            add(CORE, "pods", &beyond, scope);
            add(CORE, "serviceaccounts", &["create"], scope);
            add(RBAC, "roles", &["create"], scope);
            add(RBAC, "rolebindings", &["create"], scope);
            if config.network_policies {
                add(NETWORKING, "networkpolicies", &["create"], scope);
            }
        }
    }
    if config.make_namespaces {
        add(CORE, "namespaces", &["create", "get"], None);
    }
    add(CORE, "nodes", &["list", "watch"], None);
    add(CORE, "configmaps", &["create", "get", "update"], Some(&config.home_namespace));
    permissions
}

/// The required permissions that the API server does not grant. Every user may review their own.
pub(super) async fn missing(cluster: &Cluster) -> Result<Vec<Permission>, Error> {
    let required = required(&cluster.config);
    let mut by_namespace: BTreeMap<&str, Vec<&Permission>> = BTreeMap::new();
    for permission in &required {
        if let Some(namespace) = &permission.namespace {
            by_namespace.entry(namespace).or_default().push(permission);
        }
    }
    // Collected first: a closure that borrows its argument makes a future that is not `Send`.
    let reviews: Vec<_> = by_namespace
        .into_iter()
        .map(|(namespace, permissions)| not_granted_by_rules(cluster, namespace, permissions))
        .collect();
    let reviews = futures::stream::iter(reviews).buffer_unordered(CONCURRENCY);
    let undecided: Vec<Vec<&Permission>> = reviews.try_collect().await?;
    let cluster_wide = required.iter().filter(|permission| permission.namespace.is_none());
    let reviews: Vec<_> = cluster_wide
        .chain(undecided.into_iter().flatten())
        .map(|permission| unless_granted(cluster, permission))
        .collect();
    let reviews = futures::stream::iter(reviews).buffer_unordered(CONCURRENCY);
    let missing: BTreeSet<&Permission> =
        reviews.try_filter_map(|missing| async move { Ok(missing) }).try_collect().await?;
    Ok(required.iter().filter(|permission| missing.contains(permission)).cloned().collect())
}

/// The permissions that the rules of the namespace do not grant.
async fn not_granted_by_rules<'a>(
    cluster: &Cluster,
    namespace: &str,
    permissions: Vec<&'a Permission>,
) -> Result<Vec<&'a Permission>, Error> {
    let api = Api::<SelfSubjectRulesReview>::all(cluster.client.clone());
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) },
        ..SelfSubjectRulesReview::default()
    };
    let status = match cluster.read(api.create(&post_params(), &review)).await {
        Ok(review) => review.status,
        // A server that denies this review may still allow reviews of single permissions.
        Err(CallError::Forbidden(_) | CallError::NotFound(_) | CallError::Invalid(_)) => None,
        Err(error) => return Err(error.into_error("review permissions")),
    };
    let Some(status) = status.filter(|status| !status.incomplete) else { return Ok(permissions) };
    let is_granted = |permission: &Permission| status.resource_rules.iter().any(|rule| grants(rule, permission));
    Ok(permissions.into_iter().filter(|permission| !is_granted(permission)).collect())
}

/// Whether the rule grants the permission for objects of all names.
fn grants(rule: &ResourceRule, permission: &Permission) -> bool {
    let has = |listed: &[String], value: &str| listed.iter().any(|entry| entry == "*" || entry == value);
    rule.resource_names.as_ref().is_none_or(Vec::is_empty)
        && has(rule.api_groups.as_deref().unwrap_or_default(), permission.group)
        && has(rule.resources.as_deref().unwrap_or_default(), permission.resource)
        && has(&rule.verbs, permission.verb)
}

/// The permission, unless it is granted.
async fn unless_granted<'a>(cluster: &Cluster, permission: &'a Permission) -> Result<Option<&'a Permission>, Error> {
    let api = Api::<SelfSubjectAccessReview>::all(cluster.client.clone());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(permission.group.to_owned()),
                namespace: permission.namespace.clone(),
                resource: Some(permission.resource.to_owned()),
                verb: Some(permission.verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let review = cluster.read(api.create(&post_params(), &review)).await;
    let review = review.map_err(|error| error.into_error("review permissions"))?;
    Ok((!review.status.is_some_and(|status| status.allowed)).then_some(permission))
}

/// Reviews the permissions periodically: more often while one is missing, so that a new grant is noticed soon.
pub(super) async fn watch(cluster: Arc<Cluster>) {
    let mut throttle = LogThrottle::default();
    loop {
        let began = cluster.clock.boottime();
        let interval = match missing(&cluster).await {
            Ok(missing) => {
                throttle.clear();
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                if !missing.is_empty() && cluster.store.set_missing_permissions(missing.clone()) {
                    tracing::warn!(missing = missing.join(", "), "permissions are missing");
                } else if missing.is_empty() && cluster.store.set_missing_permissions(Vec::new()) {
                    tracing::info!("no permission is missing any more");
                }
                if missing.is_empty() { INTERVAL } else { SHORT_INTERVAL }
            }
            Err(error) => {
                if let Some(times) = throttle.hit(cluster.clock.boottime()) {
                    tracing::info!(error = %chain(&error), times, "could not review permissions");
                }
                SHORT_INTERVAL
            }
        };
        let took = cluster.clock.boottime().saturating_sub(began);
        tokio::time::sleep(interval.max(took * MIN_REST)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_secrets_exec_and_logs_are_not_among_the_permissions() {
        let permissions = required(&Config::new("eh", "enginehouse", "image"));
        let forbidden = ["pods/exec", "pods/log", "pods/attach", "pods/portforward"];
        assert!(!permissions.iter().any(|one| forbidden.contains(&one.resource) || one.verb == "*"));
        assert!(permissions.iter().all(|one| one.resource != "secrets" || one.verb == "create"));
    }

    #[test]
    fn a_rule_grants_only_what_it_lists_and_for_all_names() {
        let rule = |groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let (api_groups, resources) = (Some(texts(groups)), Some(texts(resources)));
            ResourceRule { api_groups, resources, verbs: texts(verbs), resource_names: Some(texts(names)) }
        };
        let permission = Permission { group: CORE, resource: "pods", verb: "get", namespace: Some("n".to_owned()) };
        assert!(grants(&rule(&[""], &["services", "pods"], &["list", "get"], &[]), &permission));
        assert!(grants(&rule(&["*"], &["*"], &["*"], &[]), &permission));
        assert!(grants(&ResourceRule { resource_names: None, ..rule(&[""], &["pods"], &["get"], &[]) }, &permission));
        for other in [
            rule(&[""], &["pods"], &["get"], &["one"]),
            rule(&["apps"], &["pods"], &["get"], &[]),
            rule(&[""], &["pods/log"], &["get"], &[]),
            rule(&[""], &["pods"], &["list"], &[]),
            rule(&[], &[], &["get"], &[]),
        ] {
            assert!(!grants(&other, &permission), "{other:?}");
        }
    }

    #[test]
    fn without_making_namespaces_only_nodes_are_cluster_wide() {
        let mut config = Config::new("eh", "enginehouse", "image");
        config.namespaces = Some(vec!["rp-1--t-1".to_owned()]);
        config.make_namespaces = false;
        let outside: Vec<_> =
            required(&config).into_iter().filter(|permission| permission.namespace.is_none()).collect();
        assert!(outside.iter().all(|permission| permission.resource == "nodes"), "{outside:?}");
    }
}
