//! Namespaces that do not exist or lack an object.

use orchestrator::kubernetes::Config;
use orchestrator::{Error, Orchestrator as _};
use serde_json::json;

use super::cluster::{Cluster, Fault, permissions, status};
use super::support::{EPOCH, NAMESPACE, config, datafusion, eventually, open, open_with};

fn without_namespace() -> Cluster {
    let cluster = Cluster::new();
    cluster.remove("serviceaccounts", NAMESPACE, "enginehouse-engine");
    cluster.remove("namespaces", "", NAMESPACE);
    cluster
}

#[tokio::test]
async fn a_missing_namespace_is_created_with_all_its_objects() {
    let cluster = without_namespace();
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    let namespace = cluster.get("namespaces", "", NAMESPACE).unwrap();
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    for resource in ["serviceaccounts", "roles", "rolebindings"] {
        assert!(cluster.get(resource, NAMESPACE, "enginehouse-engine").is_some(), "{resource}");
    }
    let created: Vec<String> = cluster.calls().iter().filter(|line| line.starts_with("POST")).cloned().collect();
    let at = |resource: &str| created.iter().rposition(|line| line.ends_with(resource)).unwrap();
    assert!(at("networkpolicies") < at("serviceaccounts"), "no engine may run before they apply: {created:?}");
    let policies = ["deny-all", "engine", "names", "spark-driver", "spark-executor"];
    assert_eq!(cluster.names("networkpolicies"), policies);
    kubernetes.ensure(&datafusion(2), EPOCH).await.unwrap();
    let calls = cluster.calls();
    assert_eq!(calls.first().unwrap(), "POST /api/v1/namespaces/rp-1--t-1/pods", "it is not prepared twice");
    assert_eq!(calls.len(), 3, "{calls:?}");
}

#[tokio::test]
async fn network_policies_can_be_left_to_others() {
    let cluster = without_namespace();
    cluster.deny("create networkpolicies");
    let kubernetes = open_with(&cluster, Config { network_policies: false, ..config() });
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    assert_eq!(cluster.names("networkpolicies"), Vec::<String>::new());
    assert_eq!(kubernetes.missing_permissions().await.unwrap(), []);
}

#[tokio::test]
async fn a_missing_account_is_created_in_an_existing_namespace() {
    let cluster = Cluster::new();
    cluster.remove("serviceaccounts", NAMESPACE, "enginehouse-engine");
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
}

/// A namespace as an old version created it: with its labels and without network policies.
fn of_an_old_version(labels: &serde_json::Value) -> Cluster {
    let cluster = Cluster::new();
    cluster.put("namespaces", "", json!({"metadata": {"name": NAMESPACE, "labels": labels}}));
    cluster
}

fn ours() -> serde_json::Value {
    json!({"app.kubernetes.io/managed-by": "enginehouse", "enginehouse.io/cluster": "eh"})
}

#[tokio::test]
async fn a_namespace_of_an_old_version_gets_its_missing_policies() {
    let cluster = of_an_old_version(&ours());
    cluster.put("networkpolicies", NAMESPACE, json!({"metadata": {"name": "engine"}, "spec": {"changed": "by hand"}}));
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    let policies = ["deny-all", "engine", "names", "spark-driver", "spark-executor"];
    assert_eq!(cluster.names("networkpolicies"), policies);
    let kept = cluster.get("networkpolicies", NAMESPACE, "engine").unwrap();
    assert_eq!(kept["spec"]["changed"], "by hand", "existing policies are not changed");
    cluster.calls();
    kubernetes.ensure(&datafusion(2), EPOCH).await.unwrap();
    assert!(!cluster.calls().iter().any(|line| line.contains("namespaces/rp-1--t-1/networkpolicies")), "once");
    // A namespace that was created with its policies gets no others, until the configuration adds one.
    let cluster = without_namespace();
    open(&cluster).ensure(&datafusion(1), EPOCH).await.unwrap();
    cluster.calls();
    open(&cluster).ensure(&datafusion(2), EPOCH).await.unwrap();
    assert!(!cluster.calls().iter().any(|line| line.contains("networkpolicies")));
    let egress = vec!["10.0.0.0/8:443".parse().unwrap()];
    open_with(&cluster, Config { egress, ..config() }).ensure(&datafusion(3), EPOCH).await.unwrap();
    assert_eq!(cluster.calls().iter().filter(|line| line.contains("networkpolicies")).count(), 1);
    assert!(cluster.get("networkpolicies", NAMESPACE, "data").is_some());
}

#[tokio::test]
async fn a_namespace_of_an_administrator_keeps_its_policies() {
    for labels in [json!({}), json!({"enginehouse.io/cluster": "eh"})] {
        let cluster = of_an_old_version(&labels);
        assert!(open(&cluster).ensure(&datafusion(1), EPOCH).await.unwrap().created);
        assert_eq!(cluster.names("networkpolicies"), Vec::<String>::new());
    }
    let cluster = of_an_old_version(&ours());
    open_with(&cluster, Config { network_policies: false, ..config() }).ensure(&datafusion(1), EPOCH).await.unwrap();
    assert_eq!(cluster.names("networkpolicies"), Vec::<String>::new());
}

#[tokio::test]
async fn policies_that_may_not_be_created_prevent_no_engine() {
    let cluster = of_an_old_version(&ours());
    cluster.deny("create networkpolicies");
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    // Neither does a transient failure: the next engine tries again.
    let cluster = of_an_old_version(&ours());
    let line = format!("POST /apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies");
    cluster.fail(&line, Fault::Status(status(500, "InternalError", "words")));
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    assert_eq!(cluster.names("networkpolicies"), Vec::<String>::new());
    kubernetes.ensure(&datafusion(2), EPOCH).await.unwrap();
    assert_eq!(cluster.names("networkpolicies").len(), 5);
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    for permission in [
        "create namespaces",
        "create networkpolicies",
        "create roles",
        "create rolebindings",
        "create serviceaccounts",
        "get namespaces",
    ] {
        let cluster = without_namespace();
        cluster.deny(permission);
        let refused = open(&cluster).ensure(&datafusion(1), EPOCH).await;
        match refused {
            Err(Error::Refused { reason, .. }) if reason.contains(permission) => {}
            other => panic!("{permission}: {other:?}"),
        }
        assert_eq!(cluster.names("pods"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn no_namespace_is_created_when_an_administrator_manages_them() {
    let cluster = without_namespace();
    // Masters that create none have no permission to read them either.
    cluster.deny("get namespaces");
    let kubernetes = open_with(&cluster, Config { make_namespaces: false, ..config() });
    let refused = kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap_err();
    assert!(refused.to_string().contains("create the namespace"), "{refused}");
    assert!(cluster.get("namespaces", "", NAMESPACE).is_none());
    cluster.put("namespaces", "", json!({"metadata": {"name": NAMESPACE}}));
    let refused = kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap_err();
    assert!(refused.to_string().contains("has no service account \"enginehouse-engine\""), "{refused}");
}

#[tokio::test]
async fn a_namespace_of_another_installation_is_not_used() {
    let cluster = Cluster::new();
    cluster.remove("serviceaccounts", NAMESPACE, "enginehouse-engine");
    cluster.put(
        "namespaces",
        "",
        json!({"metadata": {"name": NAMESPACE, "labels": {"enginehouse.io/cluster": "other"}}}),
    );
    let refused = open(&cluster).ensure(&datafusion(1), EPOCH).await.unwrap_err();
    assert!(refused.to_string().contains("belongs to installation \"other\""), "{refused}");
    // Neither if it has everything that a pod of ours needs.
    cluster.put("serviceaccounts", NAMESPACE, json!({"metadata": {"name": "enginehouse-engine"}}));
    let refused = open(&cluster).ensure(&datafusion(1), EPOCH).await.unwrap_err();
    assert!(refused.to_string().contains("belongs to installation \"other\""), "{refused}");
    assert_eq!(cluster.names("pods"), Vec::<String>::new());
}

#[tokio::test]
async fn a_complete_namespace_that_may_not_be_read_is_used() {
    let cluster = Cluster::new();
    cluster.deny("get namespaces");
    assert!(open(&cluster).ensure(&datafusion(1), EPOCH).await.unwrap().created);
}

#[tokio::test]
async fn missing_permissions_are_reported() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    assert_eq!(kubernetes.missing_permissions().await.unwrap(), []);
    cluster.deny("create services");
    let missing = kubernetes.missing_permissions().await.unwrap();
    assert_eq!(missing.iter().map(ToString::to_string).collect::<Vec<_>>(), ["create services in the whole cluster"]);
}

#[tokio::test]
async fn the_permissions_of_a_namespace_take_one_review_if_rules_are_complete() {
    let cluster = Cluster::new();
    let config =
        Config { namespaces: Some(["a", "b", "c"].map(str::to_owned).to_vec()), make_namespaces: false, ..config() };
    let kubernetes = open_with(&cluster, config);
    let review = async || {
        cluster.calls();
        let missing = kubernetes.missing_permissions().await.unwrap();
        (missing.iter().map(ToString::to_string).collect::<Vec<_>>(), cluster.calls().len())
    };
    // One for each of three namespaces and our own, and two about nodes.
    assert_eq!(review().await, (Vec::new(), 6));
    cluster.deny("create services in b");
    cluster.deny("watch nodes");
    let expected =
        ["create services in namespace \"b\"", "watch nodes in the whole cluster"].map(str::to_owned).to_vec();
    assert_eq!(review().await, (expected.clone(), 7), "a permission that the rules do not grant is reviewed again");
    cluster.deny(permissions::ALL_RULES);
    let (missing, calls) = review().await;
    assert_eq!((missing, calls > 40), (expected.clone(), true));
    let rules = "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    for _ in 0..4 {
        cluster.fail(rules, Fault::Status(status(403, "Forbidden", "words")));
    }
    assert_eq!(review().await.0, expected, "a denied review of rules is not needed");
}

#[tokio::test]
async fn missing_permissions_are_listed_and_refuse_nothing() {
    let cluster = Cluster::new();
    cluster.deny("create services");
    let kubernetes = open(&cluster).watching_permissions();
    let listing =
        eventually(&kubernetes, "the permission is listed", |listing| !listing.missing_permissions.is_empty()).await;
    assert_eq!(listing.missing_permissions, ["create services in the whole cluster"]);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created, "an engine that needs no service");
}
