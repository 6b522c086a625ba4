//! Pools of nodes: waits that fail, and the description of nodes.

use model::observation::{ObservedNode, Publication};

use crate::agents::{column, property, run, try_run};
use crate::bench::{Bench, among_others};

fn node(name: &str, cores: u64, gib: u64) -> ObservedNode {
    ObservedNode {
        name: name.to_owned(),
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        cpu_millis: cores * 1_000,
        memory_bytes: gib << 30,
        cpu_used_millis: 0,
        memory_used_bytes: 0,
        ready: true,
        open: true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_fails_when_its_pool_is_emptied() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let settling = bench.master.keep_settling();
    let mut ann = bench.session("ann").await;
    // It waits without a limit; the manual master creates nothing.
    let waiting = tokio::spawn(async move { try_run(&mut ann, "START ENGINE t_1 rp_1 uc_1 WAIT '1h'").await });
    crate::fixture::eventually("the desired slot", async || {
        (!bench.store.snapshot().await.unwrap().slots.is_empty()).then_some(())
    })
    .await;
    run(&mut admin, "ALTER RESOURCE POOL rp_1 NODE_LIST ()").await;
    let error = crate::fixture::within("the waiting", waiting).await.unwrap().unwrap_err();
    assert_eq!((error.sqlstate(), error.message.as_str()), ("55000", "resource pool \"rp_1\" has no nodes"));
    assert!(error.detail.unwrap().contains("is desired and waits until the pool has nodes."));
    // A new one is refused without a wait.
    let error = try_run(&mut admin, "START ENGINE t_1 rp_1 uc_1 WAIT '1h'").await.unwrap_err();
    assert_eq!(error.detail.as_deref(), Some("Its NODE_LIST is empty."));
    assert_eq!(bench.store.snapshot().await.unwrap().slots.len(), 1);
    // The same holds for every statement that waits for an object.
    let error = try_run(&mut admin, "ALTER RESOURCE UNIT uc_1 DRIVER_MEMORY '2G' WAIT '1h'").await.unwrap_err();
    assert_eq!(error.message, "resource pool \"rp_1\" has no nodes");
    drop(settling);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_is_described_with_the_room_of_its_nodes() {
    let _gate = among_others().await;
    let bench = Bench::new().await;
    let mut admin = bench.objects().await;
    let _settling = bench.master.keep_settling();
    let pool = run(&mut admin, "DESCRIBE RESOURCE POOL rp_1").await;
    assert!(
        !column(&pool, "property").contains(&"capacity of its nodes".to_owned()),
        "nothing is known of nodes: {pool:?}"
    );
    assert_eq!(property(&pool, "cpu overcommit"), "100 %");
    run(
        &mut admin,
        "ALTER RESOURCE POOL rp_1 NODE_LIST ('node-1', 'node-2', 'node-9'), CPU_OVERCOMMIT 200, QUEUE_PREFIX 'etl'",
    )
    .await;
    run(&mut admin, "CREATE RESOURCE POOL rp_2 NODE_SELECTOR ('zone'='a', 'disk'='ssd')").await;
    let mut nodes = vec![node("node-1", 4, 16), node("node-2", 4, 12), node("node-3", 64, 256)];
    (nodes[0].cpu_used_millis, nodes[0].memory_used_bytes) = (3_000, 2 << 30);
    nodes[1].labels.insert("disk".to_owned(), "ssd".to_owned());
    bench.master.report(Publication { nodes: Some(nodes.clone()), ..Publication::default() }).await;
    let pool = run(&mut admin, "DESCRIBE RESOURCE POOL rp_1").await;
    for (name, value) in [
        ("nodes", "node-1, node-2, node-9"),
        ("cpu overcommit", "200 %"),
        ("queue prefix", "etl"),
        ("nodes that are there", "node-1, node-2"),
        ("nodes that take engines", "2 of 2"),
        ("capacity of its nodes", "8 CPU and 28G"),
        ("used by engines", "3 CPU and 2G"),
        ("largest engine that fits", "8 CPU and 12G on node node-2"),
    ] {
        assert_eq!(property(&pool, name), value, "{name}");
    }
    let rows = column(&pool, "property").into_iter().zip(column(&pool, "value"));
    let warnings: Vec<String> = rows.filter(|(name, _)| name == "warning").map(|(_, value)| value).collect();
    assert_eq!(
        warnings,
        [
            "its nodes differ by more than 10 %: node-2 has 4 CPU and 12G, node-1 has 4 CPU and 16G",
            "node \"node-9\" of its NODE_LIST does not exist",
            "node \"node-2\" is also in resource pool \"rp_2\"",
        ]
    );
    let other = run(&mut admin, "DESCRIBE RESOURCE POOL rp_2").await;
    assert_eq!(property(&other, "nodes"), "any with disk=ssd, zone=a");
    assert_eq!(property(&other, "nodes that are there"), "node-2");
    let shown = run(&mut admin, "SHOW RESOURCE POOLS").await;
    assert_eq!(column(&shown, "nodes"), ["node-1, node-2, node-9", "any with disk=ssd, zone=a"]);
    assert_eq!(column(&shown, "queue_prefix")[0], "etl");
    // Nodes that go are gone; a full or closed pool fits no engine.
    nodes.truncate(1);
    nodes[0].open = false;
    bench.master.report(Publication { nodes: Some(nodes), ..Publication::default() }).await;
    let pool = run(&mut admin, "DESCRIBE RESOURCE POOL rp_1").await;
    assert_eq!(property(&pool, "nodes that take engines"), "0 of 1");
    assert_eq!(property(&pool, "largest engine that fits"), "none");
}
