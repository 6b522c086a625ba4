//! Namespaces that are missing, or lack something.

use orchestrator::kubernetes::Config;
use orchestrator::{Error, Orchestrator as _};
use serde_json::json;

use super::cluster::{Cluster, Fault, rights, status};
use super::place::{EPOCH, NAMESPACE, config, datafusion, eventually, open, open_with};

fn without_namespace() -> Cluster {
    let cluster = Cluster::new();
    cluster.remove("serviceaccounts", NAMESPACE, "enginehouse-engine");
    cluster.remove("namespaces", "", NAMESPACE);
    cluster
}

#[tokio::test]
async fn a_missing_namespace_is_made_with_policies_account_role_and_binding() {
    let cluster = without_namespace();
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    let namespace = cluster.get("namespaces", "", NAMESPACE).unwrap();
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    for resource in ["serviceaccounts", "roles", "rolebindings"] {
        assert!(cluster.get(resource, NAMESPACE, "enginehouse-engine").is_some(), "{resource}");
    }
    let made: Vec<String> = cluster.calls().iter().filter(|it| it.starts_with("POST")).cloned().collect();
    let at = |resource: &str| made.iter().rposition(|it| it.ends_with(resource)).unwrap();
    assert!(at("networkpolicies") < at("serviceaccounts"), "no engine can be there before they hold: {made:?}");
    let policies = ["deny-all", "engine", "names", "spark-driver", "spark-executor"];
    assert_eq!(cluster.names("networkpolicies"), policies);
    kubernetes.ensure(&datafusion(2), EPOCH).await.unwrap();
    assert_eq!(cluster.calls(), ["POST /api/v1/namespaces/rp-1--t-1/pods"], "it is not prepared twice");
}

#[tokio::test]
async fn network_policies_are_left_to_others_where_the_configuration_says_so() {
    let cluster = without_namespace();
    cluster.deny("create networkpolicies");
    let kubernetes = open_with(&cluster, Config { network_policies: false, ..config() });
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    assert_eq!(cluster.names("networkpolicies"), Vec::<String>::new());
    assert_eq!(kubernetes.missing_rights().await.unwrap(), []);
}

#[tokio::test]
async fn a_missing_account_is_made_in_a_namespace_that_is_there() {
    let cluster = Cluster::new();
    cluster.remove("serviceaccounts", NAMESPACE, "enginehouse-engine");
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
}

/// A namespace as the first masters made it: with their labels and without network policies.
fn of_an_earlier_version(labels: &serde_json::Value) -> Cluster {
    let cluster = Cluster::new();
    cluster.put("namespaces", "", json!({"metadata": {"name": NAMESPACE, "labels": labels}}));
    cluster
}

fn ours() -> serde_json::Value {
    json!({"app.kubernetes.io/managed-by": "enginehouse", "enginehouse.io/cluster": "eh"})
}

#[tokio::test]
async fn a_namespace_of_an_earlier_version_gets_the_policies_that_it_lacks() {
    let cluster = of_an_earlier_version(&ours());
    cluster.put("networkpolicies", NAMESPACE, json!({"metadata": {"name": "engine"}, "spec": {"changed": "by hand"}}));
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    let policies = ["deny-all", "engine", "names", "spark-driver", "spark-executor"];
    assert_eq!(cluster.names("networkpolicies"), policies);
    let kept = cluster.get("networkpolicies", NAMESPACE, "engine").unwrap();
    assert_eq!(kept["spec"]["changed"], "by hand", "what is there stays as it is");
    cluster.calls();
    kubernetes.ensure(&datafusion(2), EPOCH).await.unwrap();
    assert!(!cluster.calls().iter().any(|it| it.contains("namespaces/rp-1--t-1/networkpolicies")), "once");
    // Whoever has made it with them is asked for no others, until the configuration says more.
    let cluster = without_namespace();
    open(&cluster).ensure(&datafusion(1), EPOCH).await.unwrap();
    cluster.calls();
    open(&cluster).ensure(&datafusion(2), EPOCH).await.unwrap();
    assert!(!cluster.calls().iter().any(|it| it.contains("networkpolicies")));
    let egress = vec!["10.0.0.0/8:443".parse().unwrap()];
    open_with(&cluster, Config { egress, ..config() }).ensure(&datafusion(3), EPOCH).await.unwrap();
    assert_eq!(cluster.calls().iter().filter(|it| it.contains("networkpolicies")).count(), 1);
    assert!(cluster.get("networkpolicies", NAMESPACE, "data").is_some());
}

#[tokio::test]
async fn a_namespace_that_an_admin_has_made_keeps_the_policies_that_it_has() {
    for labels in [json!({}), json!({"enginehouse.io/cluster": "eh"})] {
        let cluster = of_an_earlier_version(&labels);
        assert!(open(&cluster).ensure(&datafusion(1), EPOCH).await.unwrap().created);
        assert_eq!(cluster.names("networkpolicies"), Vec::<String>::new());
    }
    let cluster = of_an_earlier_version(&ours());
    open_with(&cluster, Config { network_policies: false, ..config() }).ensure(&datafusion(1), EPOCH).await.unwrap();
    assert_eq!(cluster.names("networkpolicies"), Vec::<String>::new());
}

#[tokio::test]
async fn policies_that_a_namespace_lacks_and_nobody_may_make_keep_no_engine_from_being_made() {
    let cluster = of_an_earlier_version(&ours());
    cluster.deny("create networkpolicies");
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    // Nor a server that can't now: the next engine tries again.
    let cluster = of_an_earlier_version(&ours());
    let line = format!("POST /apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies");
    cluster.fail(&line, Fault::Status(status(500, "InternalError", "words")));
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    assert_eq!(cluster.names("networkpolicies"), Vec::<String>::new());
    kubernetes.ensure(&datafusion(2), EPOCH).await.unwrap();
    assert_eq!(cluster.names("networkpolicies").len(), 5);
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    for right in [
        "create namespaces",
        "create networkpolicies",
        "create roles",
        "create rolebindings",
        "create serviceaccounts",
        "get namespaces",
    ] {
        let cluster = without_namespace();
        cluster.deny(right);
        let refused = open(&cluster).ensure(&datafusion(1), EPOCH).await;
        match refused {
            Err(Error::Refused { reason }) if reason.contains(right) => {}
            other => panic!("{right}: {other:?}"),
        }
        assert_eq!(cluster.names("pods"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn nothing_is_made_where_an_admin_makes_namespaces() {
    let cluster = without_namespace();
    // Masters that make none have no right to look at them either.
    cluster.deny("get namespaces");
    let kubernetes = open_with(&cluster, Config { make_namespaces: false, ..config() });
    let refused = kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap_err();
    assert!(refused.to_string().contains("somebody has to make it"), "{refused}");
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
    // Nor if it has all that a pod of ours needs.
    cluster.put("serviceaccounts", NAMESPACE, json!({"metadata": {"name": "enginehouse-engine"}}));
    let refused = open(&cluster).ensure(&datafusion(1), EPOCH).await.unwrap_err();
    assert!(refused.to_string().contains("belongs to installation \"other\""), "{refused}");
    assert_eq!(cluster.names("pods"), Vec::<String>::new());
}

#[tokio::test]
async fn a_namespace_that_has_everything_and_may_not_be_looked_at_is_used() {
    let cluster = Cluster::new();
    cluster.deny("get namespaces");
    assert!(open(&cluster).ensure(&datafusion(1), EPOCH).await.unwrap().created);
}

#[tokio::test]
async fn the_rights_that_are_missing_are_told() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    assert_eq!(kubernetes.missing_rights().await.unwrap(), []);
    cluster.deny("create services");
    let missing = kubernetes.missing_rights().await.unwrap();
    assert_eq!(missing.iter().map(ToString::to_string).collect::<Vec<_>>(), ["create services in the whole cluster"]);
}

#[tokio::test]
async fn the_rights_in_a_namespace_are_one_question_unless_the_server_does_not_know_them_all() {
    let cluster = Cluster::new();
    let config =
        Config { namespaces: Some(["a", "b", "c"].map(str::to_owned).to_vec()), make_namespaces: false, ..config() };
    let kubernetes = open_with(&cluster, config);
    let asked = async || {
        cluster.calls();
        let missing = kubernetes.missing_rights().await.unwrap();
        (missing.iter().map(ToString::to_string).collect::<Vec<_>>(), cluster.calls().len())
    };
    // Three namespaces, our own one, and two about nodes.
    assert_eq!(asked().await, (Vec::new(), 6));
    cluster.deny("create services in b");
    cluster.deny("watch nodes");
    let told = ["create services in namespace \"b\"", "watch nodes in the whole cluster"].map(str::to_owned).to_vec();
    assert_eq!(asked().await, (told.clone(), 7), "what the rules don't grant is asked for once more");
    cluster.deny(rights::ALL_RULES);
    let (missing, calls) = asked().await;
    assert_eq!((missing, calls > 40), (told.clone(), true));
    let rules = "POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    for _ in 0..4 {
        cluster.fail(rules, Fault::Status(status(403, "Forbidden", "words")));
    }
    assert_eq!(asked().await.0, told, "nor does it need that answer");
}

#[tokio::test]
async fn the_rights_that_are_missing_are_listed_and_refuse_nothing() {
    let cluster = Cluster::new();
    cluster.deny("create services");
    let kubernetes = open(&cluster).watching_rights();
    let listing = eventually(&kubernetes, "the right is listed", |it| !it.missing.is_empty()).await;
    assert_eq!(listing.missing, ["create services in the whole cluster"]);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created, "an engine that needs no service");
}
