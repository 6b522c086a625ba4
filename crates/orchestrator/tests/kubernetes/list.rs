//! `list`, `get` and the watch: lost events, expired versions, warnings, missing permissions.

use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::{Error, Orchestrator};
use serde_json::json;

use super::cluster::Cluster;
use super::support::{EPOCH, NAMESPACE, all, config, datafusion, eventually, open, open_with};

#[tokio::test]
async fn an_expired_watch_resyncs() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = datafusion(1);
    kubernetes.ensure(&spec, EPOCH).await.unwrap();
    eventually(&kubernetes, "it runs", |listing| listing.engines[0].phase == Phase::Running).await;
    cluster.compact();
    cluster.remove("pods", NAMESPACE, spec.name.as_str());
    eventually(&kubernetes, "it is gone", |listing| listing.engines.is_empty()).await;
}

#[tokio::test]
async fn a_warning_about_a_pod_becomes_its_reason() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let mut spec = datafusion(1);
    "waits".clone_into(&mut spec.argv[1]);
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    cluster.put(
        "events",
        NAMESPACE,
        json!({"metadata": {"name": "e"}, "type": "Warning", "reason": "FailedScheduling",
        "message": "0/2 nodes are available", "count": 1, "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": spec.name.as_str(), "uid": made.uid}}),
    );
    let has_reason = |listing: &orchestrator::Listing| {
        listing.engines[0].reason.as_deref() == Some("no node can run it: 0/2 nodes are available")
    };
    let listing = eventually(&kubernetes, "the warning is listed", has_reason).await;
    assert_eq!(
        kubernetes.get(&spec.name, None).await.unwrap().as_ref(),
        listing.engines.first().map(AsRef::as_ref),
        "get agrees"
    );
    // Another instance lists it as well.
    eventually(&open(&cluster), "another instance lists it", has_reason).await;
}

#[tokio::test]
async fn a_listing_without_permission_names_the_missing_one() {
    let cluster = Cluster::new();
    cluster.deny("list pods");
    let refused = open(&cluster).list(&LabelMap::new()).await;
    assert!(matches!(&refused, Err(Error::Refused { reason, .. }) if reason.contains("list pods")), "{refused:?}");
}

#[tokio::test]
async fn without_permission_to_list_nodes_none_is_refused() {
    let cluster = Cluster::new();
    cluster.deny("list nodes");
    let kubernetes = open(&cluster);
    let mut spec = datafusion(1);
    spec.nodes = Some(vec!["node-9".to_owned()]);
    assert!(kubernetes.ensure(&spec, EPOCH).await.unwrap().created);
    assert_eq!(kubernetes.nodes().await.unwrap(), Vec::new());
}

#[tokio::test]
async fn get_finds_an_engine_in_a_fixed_list_of_namespaces() {
    let cluster = Cluster::new();
    let spec = datafusion(1);
    let made = open(&cluster).ensure(&spec, EPOCH).await.unwrap();
    let mut config = config();
    config.namespaces = Some(vec!["enginehouse".to_owned(), NAMESPACE.to_owned()]);
    let kubernetes = open_with(&cluster, config);
    assert_eq!(kubernetes.get(&spec.name, None).await.unwrap().unwrap().uid, made.uid);
    assert_eq!(all(&kubernetes).await.engines.len(), 1);
    let absent = model::EngineName::new("absent").unwrap();
    assert_eq!(kubernetes.get(&absent, None).await, Ok(None));
}

#[tokio::test]
async fn an_engine_without_its_labels_is_found_by_its_name() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = datafusion(1);
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    cluster.change("pods", NAMESPACE, spec.name.as_str(), |pod| pod["metadata"]["labels"] = json!({}));
    let other = open(&cluster);
    assert!(all(&other).await.engines.is_empty());
    assert_eq!(other.get(&spec.name, None).await.unwrap().unwrap().uid, made.uid);
}

#[tokio::test]
async fn an_unreadable_namespace_hides_no_other() {
    let cluster = Cluster::new();
    let spec = datafusion(1);
    open(&cluster).ensure(&spec, EPOCH).await.unwrap();
    cluster.deny("list pods in closed");
    let mut config = config();
    config.namespaces = Some(vec![NAMESPACE.to_owned(), "closed".to_owned()]);
    let listing = all(&open_with(&cluster, config.clone())).await;
    assert_eq!((listing.engines.len(), listing.unreadable.len()), (1, 1));
    assert_eq!(listing.unreadable[0].name, "namespace closed");
    // If no namespace can be read, there is no listing.
    config.namespaces = Some(vec!["closed".to_owned()]);
    assert!(matches!(open_with(&cluster, config).list(&LabelMap::new()).await, Err(Error::Refused { .. })));
}

#[tokio::test]
async fn a_forbidden_namespace_hides_no_engine_and_is_not_read_as_absence() {
    let cluster = Cluster::new();
    let spec = datafusion(1);
    let made = open(&cluster).ensure(&spec, EPOCH).await.unwrap();
    for verb in ["get", "list"] {
        cluster.deny(&format!("{verb} pods in closed"));
    }
    let mut config = config();
    config.namespaces = Some(vec!["closed".to_owned(), NAMESPACE.to_owned(), "enginehouse".to_owned()]);
    let kubernetes = open_with(&cluster, config.clone());
    assert_eq!(kubernetes.get(&spec.name, None).await.unwrap().unwrap().uid, made.uid);
    let absent = model::EngineName::new("absent").unwrap();
    let unknown = kubernetes.get(&absent, None).await;
    assert!(matches!(&unknown, Err(Error::Refused { reason, .. }) if reason.contains("closed/absent")), "{unknown:?}");
    // A caller that names the locality gets the reply of that namespace.
    assert_eq!(kubernetes.get(&absent, Some(NAMESPACE)).await, Ok(None));
    assert!(kubernetes.get(&absent, Some("closed")).await.is_err());
    // A namespace that was removed from the list holds no engine of ours.
    assert!(kubernetes.get(&absent, Some("not-in-the-list")).await.is_err(), "all namespaces of the list are read");
    config.namespaces = Some(vec![NAMESPACE.to_owned()]);
    assert_eq!(open_with(&cluster, config).get(&absent, Some("closed")).await, Ok(None));
}

#[tokio::test]
async fn a_listed_engine_is_read_from_its_last_namespace() {
    let cluster = Cluster::new();
    let spec = datafusion(1);
    open(&cluster).ensure(&spec, EPOCH).await.unwrap();
    for verb in ["get", "list"] {
        cluster.deny(&format!("{verb} pods in closed"));
    }
    let mut config = config();
    config.namespaces = Some(vec!["closed".to_owned(), NAMESPACE.to_owned()]);
    let kubernetes = open_with(&cluster, config);
    eventually(&kubernetes, "it is listed", |listing| listing.engines.len() == 1).await;
    cluster.remove("pods", NAMESPACE, spec.name.as_str());
    eventually(&kubernetes, "it is not listed any more", |listing| listing.engines.is_empty()).await;
    assert_eq!(kubernetes.get(&spec.name, None).await, Ok(None));
}

#[tokio::test]
async fn nodes_are_reported_with_the_requests_of_their_engines() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = datafusion(1);
    kubernetes.ensure(&spec, EPOCH).await.unwrap();
    let listing = eventually(&kubernetes, "it runs", |listing| listing.engines[0].phase == Phase::Running).await;
    let at = listing.engines[0].node.clone().unwrap();
    let nodes = Orchestrator::nodes(&kubernetes).await.unwrap();
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["node-1", "node-2"]);
    for node in nodes {
        // Half a core, because the pool overcommits, and all of the memory, including that of the agent.
        let requested = if node.name == at { (500, 1_280 << 20) } else { (0, 0) };
        assert_eq!((node.cpu_used_millis, node.memory_used_bytes), requested, "{}", node.name);
        assert!(node.cpu_millis > 0 && node.memory_bytes > 0 && node.open, "{node:?}");
    }
    // Without permission to list them none is known, and no verb fails.
    let cluster = Cluster::new();
    cluster.deny("list nodes");
    let kubernetes = open(&cluster);
    kubernetes.ensure(&datafusion(1), EPOCH).await.unwrap();
    assert_eq!(Orchestrator::nodes(&kubernetes).await.unwrap(), Vec::new());
}
