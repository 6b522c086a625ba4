//! Namespaces that are missing, or lack something.

use orchestrator::{Error, Orchestrator as _};
use serde_json::json;

use super::cluster::Cluster;
use super::place::{EPOCH, NAMESPACE, config, datafusion, eventually, open, open_with};

fn without_namespace() -> Cluster {
    let cluster = Cluster::new();
    cluster.remove("serviceaccounts", NAMESPACE, "enginehouse-engine");
    cluster.remove("namespaces", "", NAMESPACE);
    cluster
}

#[tokio::test]
async fn a_missing_namespace_is_made_with_account_role_and_binding() {
    let cluster = without_namespace();
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
    let namespace = cluster.get("namespaces", "", NAMESPACE).unwrap();
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    for resource in ["serviceaccounts", "roles", "rolebindings"] {
        assert!(cluster.get(resource, NAMESPACE, "enginehouse-engine").is_some(), "{resource}");
    }
    cluster.calls();
    kubernetes.ensure(&datafusion(2), EPOCH).await.unwrap();
    assert_eq!(cluster.calls().len(), 2, "it is not prepared twice");
}

#[tokio::test]
async fn a_missing_account_is_made_in_a_namespace_that_is_there() {
    let cluster = Cluster::new();
    cluster.remove("serviceaccounts", NAMESPACE, "enginehouse-engine");
    let kubernetes = open(&cluster);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created);
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    for right in
        ["create namespaces", "create roles", "create rolebindings", "create serviceaccounts", "get namespaces"]
    {
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
    let mut config = config();
    config.make_namespaces = false;
    let refused = open_with(&cluster, config).ensure(&datafusion(1), EPOCH).await.unwrap_err();
    assert!(refused.to_string().contains("somebody has to make it"), "{refused}");
    assert!(cluster.get("namespaces", "", NAMESPACE).is_none());
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
async fn the_rights_that_are_missing_are_listed_and_refuse_nothing() {
    let cluster = Cluster::new();
    cluster.deny("create services");
    let kubernetes = open(&cluster).watching_rights();
    let listing = eventually(&kubernetes, "the right is listed", |it| !it.missing.is_empty()).await;
    assert_eq!(listing.missing, ["create services in the whole cluster"]);
    assert!(kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap().created, "an engine that needs no service");
}
