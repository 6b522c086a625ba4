//! What a master may do, no more: the list, and which of it the API server does not grant. `deploy/kubernetes` grants
//! exactly this list.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::Api;
use model::trouble::Trouble;

use super::config::Config;
use super::place::{Place, post};
use super::render::ENGINE_VERBS;
use crate::Error;

/// How often we ask for our rights when none is missing: somebody may take one away.
const ASK_AGAIN: Duration = Duration::from_mins(10);
/// How often while one is missing, or nobody answers.
const ASK_SOON: Duration = Duration::from_secs(15);
/// How many times as long as the asking took the next one is waited for at least: a thousand namespaces are many questions.
const REST: u32 = 10;

/// One right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The kind of object, in the plural.
    pub resource: &'static str,
    /// What is done with it.
    pub verb: &'static str,
    /// Where; `None`: in every namespace, or outside of namespaces.
    pub namespace: Option<String>,
}

impl std::fmt::Display for Right {
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

/// Everything that a master does.
pub fn needed(config: &Config) -> Vec<Right> {
    let mut rights = Vec::new();
    let mut add = |group, resource, verbs: &[&'static str], namespace: Option<&str>| {
        let right = |verb: &&'static str| Right { group, resource, verb, namespace: namespace.map(str::to_owned) };
        rights.extend(verbs.iter().map(right));
    };
    let scopes: Vec<Option<&str>> = match &config.namespaces {
        None => vec![None],
        Some(listed) => listed.iter().map(|it| Some(it.as_str())).collect(),
    };
    for scope in scopes {
        add(CORE, "pods", &["create", "delete", "get", "list", "patch", "watch"], scope);
        add(CORE, "events", &["list", "watch"], scope);
        add(CORE, "services", &["create", "get"], scope);
        add(CORE, "configmaps", &["create", "get"], scope);
        if config.make_namespaces {
            // Nobody may give a right that he has not.
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
    rights
}

/// Those that the API server does not grant. Everybody may ask about himself.
pub(super) async fn missing(place: &Place) -> Result<Vec<Right>, Error> {
    let api = Api::<SelfSubjectAccessReview>::all(place.client.clone());
    let mut missing = Vec::new();
    for right in needed(&place.config) {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some(right.group.to_owned()),
                    namespace: right.namespace.clone(),
                    resource: Some(right.resource.to_owned()),
                    verb: Some(right.verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let answer = place.reading(api.create(&post(), &review)).await;
        let answer = answer.map_err(|failure| failure.into_error("ask for our rights"))?;
        if !answer.status.is_some_and(|status| status.allowed) {
            missing.push(right);
        }
    }
    Ok(missing)
}

/// Asks again and again: often while something is missing, so that what was granted is seen soon.
pub(super) async fn watch(place: Arc<Place>) {
    let mut trouble = Trouble::default();
    loop {
        let began = place.clock.boottime();
        let pause = match missing(&place).await {
            Ok(missing) => {
                trouble.over();
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                if !missing.is_empty() && place.cache.set_missing(missing.clone()) {
                    tracing::warn!(missing = missing.join(", "), "rights are missing");
                } else if missing.is_empty() && place.cache.set_missing(Vec::new()) {
                    tracing::info!("no right is missing any more");
                }
                if missing.is_empty() { ASK_AGAIN } else { ASK_SOON }
            }
            Err(error) => {
                if let Some(times) = trouble.again(place.clock.boottime()) {
                    tracing::info!(%error, times, "what rights we have can't be asked now");
                }
                ASK_SOON
            }
        };
        let took = place.clock.boottime().saturating_sub(began);
        tokio::time::sleep(pause.max(took * REST)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_neither_secrets_nor_exec_nor_logs_among_the_rights() {
        let rights = needed(&Config::new("eh", "enginehouse", "image"));
        let forbidden = ["secrets", "pods/exec", "pods/log", "pods/attach", "pods/portforward"];
        assert!(!rights.iter().any(|right| forbidden.contains(&right.resource) || right.verb == "*"));
    }

    #[test]
    fn without_making_namespaces_no_right_is_outside_of_the_list_but_nodes() {
        let mut config = Config::new("eh", "enginehouse", "image");
        config.namespaces = Some(vec!["rp-1--t-1".to_owned()]);
        config.make_namespaces = false;
        let outside: Vec<_> = needed(&config).into_iter().filter(|right| right.namespace.is_none()).collect();
        assert!(outside.iter().all(|right| right.resource == "nodes"), "{outside:?}");
    }
}
