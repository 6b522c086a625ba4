//! `list`, `get` and the watch: events that are lost, versions that are too old, warnings, missing rights.

use model::engine_state::Phase;
use model::labels::LabelMap;
use orchestrator::{Error, Orchestrator};
use serde_json::json;

use super::cluster::Cluster;
use super::place::{EPOCH, NAMESPACE, all, config, datafusion, eventually, open, open_with};

#[tokio::test]
async fn a_watch_that_is_too_old_reads_anew() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = datafusion(1);
    kubernetes.ensure(&spec, EPOCH).await.unwrap();
    eventually(&kubernetes, "it runs", |it| it.engines[0].phase == Phase::Running).await;
    cluster.compact();
    cluster.remove("pods", NAMESPACE, spec.name.as_str());
    eventually(&kubernetes, "it is gone", |it| it.engines.is_empty()).await;
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
    let told = |it: &orchestrator::Listing| {
        it.engines[0].reason.as_deref() == Some("no node takes it: 0/2 nodes are available")
    };
    let listing = eventually(&kubernetes, "the warning is told", told).await;
    assert_eq!(kubernetes.get(&spec.name).await.unwrap().as_ref(), listing.engines.first(), "get says the same");
    // Whoever looks later is told as well.
    eventually(&open(&cluster), "it is told to another", told).await;
}

#[tokio::test]
async fn without_the_right_to_look_a_listing_says_which_is_missing() {
    let cluster = Cluster::new();
    cluster.deny("list pods");
    let refused = open(&cluster).list(&LabelMap::new()).await;
    assert!(matches!(&refused, Err(Error::Refused { reason }) if reason.contains("list pods")), "{refused:?}");
}

#[tokio::test]
async fn without_the_right_to_look_at_nodes_none_is_known_and_none_refused() {
    let cluster = Cluster::new();
    cluster.deny("list nodes");
    let kubernetes = open(&cluster);
    assert_eq!(kubernetes.capacity().await.unwrap().nodes, Vec::<String>::new());
    let mut spec = datafusion(1);
    spec.nodes = Some(vec!["node-9".to_owned()]);
    assert!(kubernetes.ensure(&spec, EPOCH).await.unwrap().created);
}

#[tokio::test]
async fn an_engine_of_a_name_is_found_in_a_fixed_list_of_namespaces_too() {
    let cluster = Cluster::new();
    let spec = datafusion(1);
    let made = open(&cluster).ensure(&spec, EPOCH).await.unwrap();
    let mut config = config();
    config.namespaces = Some(vec!["enginehouse".to_owned(), NAMESPACE.to_owned()]);
    let kubernetes = open_with(&cluster, config);
    assert_eq!(kubernetes.get(&spec.name).await.unwrap().unwrap().uid, made.uid);
    assert_eq!(all(&kubernetes).await.engines.len(), 1);
    let nobody = model::EngineName::new("nobody").unwrap();
    assert_eq!(kubernetes.get(&nobody).await, Ok(None));
}

#[tokio::test]
async fn an_engine_whose_labels_were_taken_away_is_still_found_by_its_name() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = datafusion(1);
    let made = kubernetes.ensure(&spec, EPOCH).await.unwrap();
    cluster.change("pods", NAMESPACE, spec.name.as_str(), |pod| pod["metadata"]["labels"] = json!({}));
    let other = open(&cluster);
    assert!(all(&other).await.engines.is_empty());
    assert_eq!(other.get(&spec.name).await.unwrap().unwrap().uid, made.uid);
}

#[tokio::test]
async fn one_namespace_of_a_list_that_can_not_be_read_hides_no_other() {
    let cluster = Cluster::new();
    let spec = datafusion(1);
    open(&cluster).ensure(&spec, EPOCH).await.unwrap();
    cluster.deny("list pods in secret-place");
    let mut config = config();
    config.namespaces = Some(vec![NAMESPACE.to_owned(), "secret-place".to_owned()]);
    let listing = all(&open_with(&cluster, config.clone())).await;
    assert_eq!((listing.engines.len(), listing.unreadable.len()), (1, 1));
    assert_eq!(listing.unreadable[0].name, "namespace secret-place");
    // Where none can be read there is no listing.
    config.namespaces = Some(vec!["secret-place".to_owned()]);
    assert!(matches!(open_with(&cluster, config).list(&LabelMap::new()).await, Err(Error::Refused { .. })));
}

#[tokio::test]
async fn one_namespace_of_a_list_that_may_not_be_looked_into_hides_no_engine_of_another_and_is_not_read_as_absence() {
    let cluster = Cluster::new();
    let spec = datafusion(1);
    let made = open(&cluster).ensure(&spec, EPOCH).await.unwrap();
    for right in ["get", "list"] {
        cluster.deny(&format!("{right} pods in secret-place"));
    }
    let mut config = config();
    config.namespaces = Some(vec!["secret-place".to_owned(), NAMESPACE.to_owned(), "enginehouse".to_owned()]);
    let kubernetes = open_with(&cluster, config.clone());
    assert_eq!(kubernetes.get(&spec.name).await.unwrap().unwrap().uid, made.uid);
    let nobody = model::EngineName::new("nobody").unwrap();
    let unknown = kubernetes.get(&nobody).await;
    assert!(
        matches!(&unknown, Err(Error::Refused { reason }) if reason.contains("secret-place/nobody")),
        "{unknown:?}"
    );
    // Whoever knows where it was made has its answer from there.
    assert_eq!(kubernetes.get_in(&nobody, NAMESPACE).await, Ok(None));
    assert!(kubernetes.get_in(&nobody, "secret-place").await.is_err());
    // Somebody who takes a namespace out of the list says that nothing there is ours.
    assert!(kubernetes.get_in(&nobody, "not-in-the-list").await.is_err(), "all of the list are asked");
    config.namespaces = Some(vec![NAMESPACE.to_owned()]);
    assert_eq!(open_with(&cluster, config).get_in(&nobody, "secret-place").await, Ok(None));
}

#[tokio::test]
async fn an_engine_that_was_seen_is_looked_for_where_it_was_seen_when_it_is_gone() {
    let cluster = Cluster::new();
    let spec = datafusion(1);
    open(&cluster).ensure(&spec, EPOCH).await.unwrap();
    for right in ["get", "list"] {
        cluster.deny(&format!("{right} pods in secret-place"));
    }
    let mut config = config();
    config.namespaces = Some(vec!["secret-place".to_owned(), NAMESPACE.to_owned()]);
    let kubernetes = open_with(&cluster, config);
    eventually(&kubernetes, "it is listed", |it| it.engines.len() == 1).await;
    cluster.remove("pods", NAMESPACE, spec.name.as_str());
    eventually(&kubernetes, "it is listed no more", |it| it.engines.is_empty()).await;
    assert_eq!(kubernetes.get(&spec.name).await, Ok(None));
}

#[tokio::test]
async fn nodes_are_told_with_what_engines_on_them_asked_for() {
    let cluster = Cluster::new();
    let kubernetes = open(&cluster);
    let spec = datafusion(1);
    kubernetes.ensure(&spec, EPOCH).await.unwrap();
    let listing = eventually(&kubernetes, "it runs", |it| it.engines[0].phase == Phase::Running).await;
    let at = listing.engines[0].node.clone().unwrap();
    let nodes = Orchestrator::nodes(&kubernetes).await.unwrap();
    assert_eq!(nodes.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["node-1", "node-2"]);
    for node in nodes {
        // Half of a core, because the pool overcommits, and all of the memory, with what the pod needs besides.
        let asked = if node.name == at { (500, 1_280 << 20) } else { (0, 0) };
        assert_eq!((node.cpu_used_millis, node.memory_used_bytes), asked, "{}", node.name);
        assert!(node.cpu_millis > 0 && node.memory_bytes > 0 && node.open, "{node:?}");
    }
    // Without the right to look at them none is known, and nobody fails for it.
    let cluster = Cluster::new();
    cluster.deny("list nodes");
    let kubernetes = open(&cluster);
    kubernetes.capacity().await.unwrap();
    assert_eq!(Orchestrator::nodes(&kubernetes).await.unwrap(), Vec::new());
}
