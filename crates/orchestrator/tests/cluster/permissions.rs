//! Permission reviews of the simulated API server: everything is granted except what a test denies.

use serde_json::{Value, json};

use super::request::Request;

/// The resources of permissions.
const RESOURCES: [(&str, &[&str]); 3] = [
    ("", &["pods", "events", "services", "configmaps", "secrets", "serviceaccounts", "nodes", "namespaces"]),
    ("rbac.authorization.k8s.io", &["roles", "rolebindings"]),
    ("networking.k8s.io", &["networkpolicies"]),
];
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// A pseudo-permission: if it is denied, the server reports its rules as incomplete.
pub const ALL_RULES: &str = "know rules";

/// The status of a permission review; `None` if the request is not one.
pub fn review(denied: &[String], request: &Request) -> Option<Value> {
    let is_denied = |verb: &str, resource: &str, namespace: &str| {
        let right = format!("{verb} {resource}");
        let here = format!("{right} in {namespace}");
        denied.iter().any(|permission| *permission == right || *permission == here)
    };
    match request.resource.as_str() {
        "selfsubjectaccessreviews" => {
            let asked = &request.body["spec"]["resourceAttributes"];
            let word = |key: &str| asked[key].as_str().unwrap_or_default();
            Some(json!({"allowed": !is_denied(word("verb"), word("resource"), word("namespace"))}))
        }
        "selfsubjectrulesreviews" => {
            let namespace = request.body["spec"]["namespace"].as_str().unwrap();
            let all =
                RESOURCES.iter().flat_map(|(group, resources)| resources.iter().map(move |resource| (group, resource)));
            let rules: Vec<Value> = all
                .map(|(group, resource)| {
                    let verbs: Vec<_> = VERBS.iter().filter(|verb| !is_denied(verb, resource, namespace)).collect();
                    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
                })
                .collect();
            let incomplete = denied.iter().any(|permission| permission == ALL_RULES);
            Some(json!({"resourceRules": rules, "nonResourceRules": [], "incomplete": incomplete}))
        }
        _ => None,
    }
}
