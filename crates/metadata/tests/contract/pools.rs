//! Cases of pools with nodes: where engines may run, and the observed nodes.

use metadata::{Error, SCHEMA_VERSION, Store};
use model::change::{Change, ObjectPatch, PoolPatch, Rules, Setting};
use model::clock::SystemClock;
use model::name::PoolName;
use model::number::Epoch;
use model::observation::{MAX_NODES, ObservedNode, Publication};

use super::bench::{Bench, create_pool, create_unit};

fn change_pool(name: &str, patch: PoolPatch) -> Change {
    Change::Alter { if_exists: false, object: ObjectPatch::ResourcePool(PoolName::new(name).unwrap(), patch) }
}

fn listed(nodes: &[&str]) -> PoolPatch {
    let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
    PoolPatch { nodes: Setting::Set(nodes), ..PoolPatch::default() }
}

fn selected(zone: &str) -> PoolPatch {
    let labels = [("zone".to_owned(), zone.to_owned())].into();
    PoolPatch { node_selector: Setting::Set(labels), ..PoolPatch::default() }
}

fn no_nodes(error: &Error, why: &str) {
    let error = error.user_error();
    assert_eq!((error.sqlstate(), error.message.as_str()), ("55000", "resource pool \"rp_1\" has no nodes"));
    assert_eq!(error.detail.as_deref(), Some(why));
    assert!(error.hint.unwrap().contains("ALTER RESOURCE POOL rp_1 NODE_LIST"));
}

pub async fn an_emptied_pool_keeps_its_engines_and_starts_none(bench: Bench) {
    let bench = bench.founded(0).await;
    let running = bench.start("s-1").await.unwrap().engine;
    bench.made(&running).await;
    bench.alter("a-1", change_pool("rp_1", listed(&[]))).await;
    let before = bench.store.snapshot().await.unwrap();
    no_nodes(&bench.start("s-2").await.unwrap_err(), "Its NODE_LIST is empty.");
    for force in [false, true] {
        no_nodes(&bench.restart("s-3", &running, force).await.unwrap_err(), "Its NODE_LIST is empty.");
    }
    let after = bench.store.snapshot().await.unwrap();
    assert_eq!((&after.slots, &after.engines), (&before.slots, &before.engines), "nothing was made or condemned");
    assert_eq!(bench.present().await, std::slice::from_ref(&running));
    // A refused request took no effect, so it may be repeated when there is a node.
    bench.alter("a-2", change_pool("rp_1", listed(&["node-1"]))).await;
    bench.start("s-2").await.unwrap();
    bench.stop("s-4", &running).await.unwrap();
}

pub async fn a_pool_without_required_nodes_starts_no_engine(bench: Bench) {
    let bench = bench.founded(0).await;
    let bench = bench.with_pods().await;
    no_nodes(&bench.start("s-1").await.unwrap_err(), "It has neither NODE_LIST nor NODE_SELECTOR.");
    assert!(bench.present().await.is_empty());
    assert!(bench.store.snapshot().await.unwrap().namespaces.is_empty(), "not even a namespace is remembered");
    bench.alter("a-1", change_pool("rp_1", selected("a"))).await;
    bench.start("s-2").await.unwrap();
}

pub async fn a_node_or_queue_of_another_pool_is_refused_with_its_owner(bench: Bench) {
    let bench = bench.founded(0).await;
    bench.alter("a-1", create_pool("rp_2", &["uc_1"])).await;
    let queue = |text: &str| PoolPatch { queue_prefix: Setting::Set(text.to_owned()), ..PoolPatch::default() };
    bench.alter("a-2", change_pool("rp_1", listed(&["node-1"]))).await;
    bench.alter("a-3", change_pool("rp_1", queue("etl"))).await;
    let before = bench.store.catalog().await.unwrap();
    for (at, patch, text) in [
        ("b-1", listed(&["node-2", "node-1"]), "node \"node-1\" belongs to resource pool \"rp_1\""),
        ("b-2", queue("etl"), "queue prefix \"etl\" belongs to resource pool \"rp_1\""),
    ] {
        let error = bench.try_alter(at, change_pool("rp_2", patch)).await.unwrap_err().user_error();
        assert_eq!((error.sqlstate(), error.message.as_str()), ("55000", text));
    }
    assert_eq!(bench.store.catalog().await.unwrap().pools, before.pools);
    bench.alter("a-4", change_pool("rp_2", queue("etl.daily"))).await;
}

pub async fn an_overcommit_renews_the_slots_and_nodes_renew_none(bench: Bench) {
    let bench = bench.founded(1).await;
    let before = bench.present().await;
    for (at, patch) in [
        ("a-1", listed(&["node-1"])),
        ("a-2", selected("a")),
        ("a-3", PoolPatch { queue_prefix: Setting::Set("q".to_owned()), ..PoolPatch::default() }),
        ("a-4", PoolPatch { cpu_overcommit: Setting::Set(100), ..PoolPatch::default() }),
    ] {
        bench.alter(at, change_pool("rp_1", patch)).await;
        assert_eq!(bench.present().await, before, "{at}");
    }
    let overcommit = PoolPatch { cpu_overcommit: Setting::Set(200), ..PoolPatch::default() };
    bench.alter("a-5", change_pool("rp_1", overcommit)).await;
    assert_ne!(bench.present().await, before);
    let catalog = bench.store.catalog().await.unwrap();
    let pool = catalog.pools.values().next().unwrap().spec.clone();
    assert_eq!((pool.cpu_overcommit, pool.queue_prefix.as_deref()), (Some(200), Some("q")));
    assert_eq!(pool.node_selector, [("zone".to_owned(), "a".to_owned())].into());
}

fn node(name: &str, cores: u64) -> ObservedNode {
    ObservedNode {
        name: name.to_owned(),
        labels: [("zone".to_owned(), "größe".to_owned())].into(),
        cpu_millis: cores * 1_000,
        memory_bytes: u64::MAX >> 1,
        cpu_used_millis: 500,
        memory_used_bytes: 7,
        ready: true,
        open: true,
    }
}

fn report(nodes: Option<Vec<ObservedNode>>) -> Publication {
    Publication { nodes, ..Publication::default() }
}

pub async fn nodes_are_those_of_the_last_report_with_nodes(bench: Bench) {
    let store = &bench.store;
    store.raise_epoch(Epoch(0), "one").await.unwrap();
    let seen = async || store.node_overview().await.unwrap().nodes;
    assert!(seen().await.is_empty());
    let long = "n".repeat(253);
    let first = vec![node("node-1", 4), node("node-2", 4), node(&long, 8)];
    let mut sorted = first.clone();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    store.publish(Epoch(1), &report(Some(first))).await.unwrap();
    assert_eq!(seen().await, sorted);
    store.publish(Epoch(1), &report(None)).await.unwrap();
    assert_eq!(seen().await, sorted, "what a report does not name stays");
    // One changes, one is gone, one is new; a later master continues from there.
    store.raise_epoch(Epoch(1), "two").await.unwrap();
    let second = vec![node("node-1", 2), node("node-2", 4), node("node-3", 4)];
    store.publish(Epoch(2), &report(Some(second.clone()))).await.unwrap();
    assert_eq!(seen().await, second);
    assert!(matches!(store.publish(Epoch(1), &report(Some(Vec::new()))).await, Err(Error::Deposed(_))));
    let many = (0..=MAX_NODES).map(|n| node(&format!("node-{n}"), 1)).collect();
    assert!(matches!(store.publish(Epoch(2), &report(Some(many))).await, Err(Error::Broken(_))));
    assert_eq!(seen().await, second);
    store.publish(Epoch(2), &report(Some(Vec::new()))).await.unwrap();
    assert!(seen().await.is_empty());
}

pub async fn a_database_of_the_previous_version_keeps_its_pools(bench: Bench) {
    let bench = bench.founded(0).await;
    // Version 4: no table of nodes, and pools without the newer options.
    bench.raw("DROP TABLE observed_node").await;
    bench.without_schema_10().await;
    bench.raw("UPDATE schema_version SET version = 4").await;
    let old = r#"{"units":["uc_1"],"namespace":null,"nodes":["node-1"],"image":"i:1","comment":null}"#;
    bench.raw(&format!("UPDATE resource_pool SET spec = '{old}'")).await;
    let settings = bench.settings.clone();
    bench.store.close().await;
    drop(bench);
    assert_eq!(Store::migrate(&settings).await.unwrap(), SCHEMA_VERSION);
    let store = Store::open(&settings, Rules::default(), SystemClock::shared()).await.unwrap();
    let place = store.node_overview().await.unwrap();
    let pool = &place.catalog.pools.values().next().unwrap().spec;
    assert_eq!(pool.nodes.as_deref(), Some(&["node-1".to_owned()][..]));
    assert!(pool.node_selector.is_empty() && pool.queue_prefix.is_none() && pool.cpu_overcommit.is_none());
    assert!(place.nodes.is_empty());
}

pub async fn a_tenant_without_a_pool_starts_nothing(bench: Bench) {
    bench.alter("a-1", create_unit("uc_1", 0, 3)).await;
    bench.alter("a-2", create_pool("rp_1", &["uc_1"])).await;
    bench.alter("a-3", super::bench::create_tenant("t_1", &[], &["alice"])).await;
    let error = bench.start("s-1").await.unwrap_err().user_error();
    let shown = (error.sqlstate(), error.message.as_str(), error.detail.as_deref());
    let message = "tenant \"t_1\" does not use resource pool \"rp_1\"";
    assert_eq!(shown, ("55000", message, Some("It uses no pool.")));
    assert!(error.hint.unwrap().contains("RESOURCE_POOL_LIST"));
    let snapshot = bench.store.snapshot().await.unwrap();
    assert!(snapshot.slots.is_empty() && snapshot.engines.is_empty());
}
