//! What a master may do, no more: the list, and which of it the API server does not grant. `deploy/kubernetes` grants
//! exactly this list.
//!
//! Of a namespace the server tells all rules that hold for us in one answer. What these grant is granted; what they don't, and
//! everything where it says that it does not know all of its rules, is asked for singly, because only that answer is the one
//! that a call would get.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec,
};
use kube::api::Api;
use model::log_throttle::LogThrottle;

use super::answer::Failure;
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
/// Questions at the same time.
const AT_ONCE: usize = 8;

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
    let needed = needed(&place.config);
    let mut of_namespaces: BTreeMap<&str, Vec<&Right>> = BTreeMap::new();
    for right in &needed {
        if let Some(namespace) = &right.namespace {
            of_namespaces.entry(namespace).or_default().push(right);
        }
    }
    // Collected first: a closure that borrows its argument makes a future that can't be sent between threads.
    let asked: Vec<_> =
        of_namespaces.into_iter().map(|(namespace, rights)| not_told(place, namespace, rights)).collect();
    let told = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
    let of_namespaces: Vec<Vec<&Right>> = told.try_collect().await?;
    let elsewhere = needed.iter().filter(|right| right.namespace.is_none());
    let asked: Vec<_> =
        elsewhere.chain(of_namespaces.into_iter().flatten()).map(|it| unless_granted(place, it)).collect();
    let answers = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
    let missing: BTreeSet<&Right> = answers.try_filter_map(|it| async move { Ok(it) }).try_collect().await?;
    Ok(needed.iter().filter(|right| missing.contains(right)).cloned().collect())
}

/// Those of a namespace's rights that its rules don't tell.
async fn not_told<'a>(place: &Place, namespace: &str, rights: Vec<&'a Right>) -> Result<Vec<&'a Right>, Error> {
    let api = Api::<SelfSubjectRulesReview>::all(place.client.clone());
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) },
        ..SelfSubjectRulesReview::default()
    };
    let status = match place.reading(api.create(&post(), &review)).await {
        Ok(answer) => answer.status,
        // Who may not ask so may still ask singly.
        Err(Failure::Denied(_) | Failure::Absent(_) | Failure::Invalid(_)) => None,
        Err(failure) => return Err(failure.into_error("ask for our rights")),
    };
    let Some(status) = status.filter(|status| !status.incomplete) else { return Ok(rights) };
    Ok(rights.into_iter().filter(|right| !status.resource_rules.iter().any(|rule| grants(rule, right))).collect())
}

/// Whether the rule grants the right, for objects of all names.
fn grants(rule: &ResourceRule, right: &Right) -> bool {
    let has = |listed: &[String], wanted: &str| listed.iter().any(|it| it == "*" || it == wanted);
    rule.resource_names.as_ref().is_none_or(Vec::is_empty)
        && has(rule.api_groups.as_deref().unwrap_or_default(), right.group)
        && has(rule.resources.as_deref().unwrap_or_default(), right.resource)
        && has(&rule.verbs, right.verb)
}

/// The right, unless it is granted.
async fn unless_granted<'a>(place: &Place, right: &'a Right) -> Result<Option<&'a Right>, Error> {
    let api = Api::<SelfSubjectAccessReview>::all(place.client.clone());
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
    Ok((!answer.status.is_some_and(|status| status.allowed)).then_some(right))
}

/// Asks again and again: often while something is missing, so that what was granted is seen soon.
pub(super) async fn watch(place: Arc<Place>) {
    let mut throttle = LogThrottle::default();
    loop {
        let began = place.clock.boottime();
        let pause = match missing(&place).await {
            Ok(missing) => {
                throttle.clear();
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                if !missing.is_empty() && place.cache.set_missing(missing.clone()) {
                    tracing::warn!(missing = missing.join(", "), "rights are missing");
                } else if missing.is_empty() && place.cache.set_missing(Vec::new()) {
                    tracing::info!("no right is missing any more");
                }
                if missing.is_empty() { ASK_AGAIN } else { ASK_SOON }
            }
            Err(error) => {
                if let Some(times) = throttle.hit(place.clock.boottime()) {
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
    fn a_rule_grants_what_it_says_for_all_names_and_nothing_else() {
        let rule = |groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
            let (api_groups, resources) = (Some(texts(groups)), Some(texts(resources)));
            ResourceRule { api_groups, resources, verbs: texts(verbs), resource_names: Some(texts(names)) }
        };
        let right = Right { group: CORE, resource: "pods", verb: "get", namespace: Some("n".to_owned()) };
        assert!(grants(&rule(&[""], &["services", "pods"], &["list", "get"], &[]), &right));
        assert!(grants(&rule(&["*"], &["*"], &["*"], &[]), &right));
        assert!(grants(&ResourceRule { resource_names: None, ..rule(&[""], &["pods"], &["get"], &[]) }, &right));
        for other in [
            rule(&[""], &["pods"], &["get"], &["one"]),
            rule(&["apps"], &["pods"], &["get"], &[]),
            rule(&[""], &["pods/log"], &["get"], &[]),
            rule(&[""], &["pods"], &["list"], &[]),
            rule(&[], &[], &["get"], &[]),
        ] {
            assert!(!grants(&other, &right), "{other:?}");
        }
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
