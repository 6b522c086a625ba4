//! REST: agents that die, clients that leave, limits, and the drain of the proxy.

use std::time::Duration;

use serde_json::json;

use crate::agents::{ready, run};
use crate::cluster::Cluster;
use crate::fixture::{WAIT, eventually, within};
use crate::rest_client::{Rest, read};

const ENGINES: &str = "/api/v1/engines";

fn start(wait: Option<&str>) -> serde_json::Value {
    json!({"tenant": "t_1", "pool": "rp_1", "unit": "uc_1", "wait": wait})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_agent_finishes_the_call_of_one_that_died() {
    let cluster = Cluster::with(2, |_| {}).await;
    cluster.objects().await;
    let ann = Rest::new(&cluster, "ann");
    let waiting = tokio::spawn({
        let ann = ann.clone();
        async move { ann.post(ENGINES, &start(Some("1m"))).await }
    });
    let slot = eventually("the slot", async || cluster.store.snapshot().await.unwrap().slots.pop()).await;
    // Whichever of the two has the statement: its other connections do not matter.
    cluster.agents[0].1.cut();
    let engine = slot.engine().to_string();
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.master.seen(ready(&engine, "127.0.0.1:1")).await;
    let started = within("the response", waiting).await.unwrap().expect(201);
    assert_eq!((started.column("engine"), started.column("state")), (vec![engine], vec!["ready".to_owned()]));
    assert_eq!(cluster.store.snapshot().await.unwrap().slots.len(), 1, "it took effect once");
    assert_eq!(ann.get("/api/v1/engines?tenant=t_1").await.expect(200).column("state"), ["ready"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_agent_the_outcome_is_unknown_and_nothing_new_begins() {
    let cluster = Cluster::with(1, |_| {}).await;
    cluster.objects().await;
    let ann = Rest::new(&cluster, "ann");
    let waiting = tokio::spawn({
        let ann = ann.clone();
        async move { ann.post_as(ENGINES, &start(Some("1m")), Some("key")).await }
    });
    eventually("the slot", async || cluster.store.snapshot().await.unwrap().slots.pop()).await;
    cluster.agents[0].1.cut();
    let lost = within("the response", waiting).await.unwrap();
    assert_eq!((lost.status, lost.sqlstate()), (504, "08007"), "{}", lost.text);
    assert!(lost.body["hint"].as_str().unwrap().contains("the same Idempotency-Key"), "{}", lost.text);
    let refused = ann.get("/api/v1/tenants").await;
    assert_eq!((refused.status, refused.sqlstate()), (503, "57P03"));
    assert_eq!(refused.header("retry-after"), Some("5"));
    // What needs no agent is answered.
    assert_eq!(ann.run("START ENGINE").await.sqlstate(), "42601");
    ann.get("/api/v1/openapi.json").await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_times_out_reports_that_the_statement_stands() {
    let cluster = Cluster::new().await;
    cluster.objects().await;
    let late = Rest::new(&cluster, "ann").post(ENGINES, &start(Some("300ms"))).await;
    assert_eq!((late.status, late.sqlstate()), (504, "HYT00"), "{}", late.text);
    assert_eq!(cluster.store.snapshot().await.unwrap().slots.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_ends_its_call_and_not_its_statement() {
    let cluster = Cluster::with(1, |settings| settings.snapshot_poll = Duration::from_mins(1)).await;
    cluster.objects().await.close().await.unwrap();
    let (_, wire) = &cluster.agents[0];
    let ann = Rest::new(&cluster, "ann");
    ann.get("/api/v1/tenants").await.expect(200);
    eventually("no connection left", async || (wire.connections() == 0).then_some(())).await;
    let waiting = ann.open("POST", ENGINES, &[], Some(start(Some("1m")).to_string())).await;
    eventually("the slot", async || cluster.store.snapshot().await.unwrap().slots.pop()).await;
    assert_eq!(wire.connections(), 1);
    drop(waiting);
    eventually("no connection left", async || (wire.connections() == 0).then_some(())).await;
    assert_eq!(cluster.store.snapshot().await.unwrap().slots.len(), 1);
    ann.post(ENGINES, &start(None)).await.expect(202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_the_limit_of_a_user_are_refused_at_once() {
    let cluster = Cluster::new().await;
    let mut session = cluster.objects().await;
    {
        let _settling = cluster.master.keep_settling();
        run(&mut session, "ALTER RESOURCE UNIT uc_1 MAX_ENGINES 100").await;
    }
    let ann = Rest::new(&cluster, "ann");
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(ann.open("POST", ENGINES, &[], Some(start(Some("1m")).to_string())).await);
    }
    let slots = async || (cluster.store.snapshot().await.unwrap().slots.len() == 20).then_some(());
    eventually("all slots", slots).await;
    let refused = ann.get("/api/v1/openapi.json").await;
    assert_eq!((refused.status, refused.sqlstate()), (429, "54000"), "{}", refused.text);
    assert_eq!(refused.header("retry-after"), Some("1"));
    Rest::new(&cluster, "bob").get("/api/v1/tenants").await.expect(200);
    drop(waiting);
    eventually("a free place", async || (ann.get("/api/v1/tenants").await.status == 200).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_proxy_finishes_its_calls_and_refuses_new_ones() {
    let cluster = Cluster::new().await;
    cluster.objects().await.close().await.unwrap();
    let ann = Rest::new(&cluster, "ann");
    let waiting = ann.open("POST", ENGINES, &[], Some(start(Some("1m")).to_string())).await;
    let slot = eventually("the slot", async || cluster.store.snapshot().await.unwrap().slots.pop()).await;
    let draining = cluster.proxy.drain(WAIT);
    let rest = async {
        let refused = eventually("the drain", async || {
            let reply = ann.get("/api/v1/tenants").await;
            (reply.status != 200).then_some(reply)
        })
        .await;
        assert_eq!((refused.status, refused.sqlstate()), (503, "57P03"));
        assert_eq!(refused.header("retry-after"), Some("5"));
        cluster.master.seen(ready(slot.engine().as_str(), "127.0.0.1:1")).await;
        within("the response", read(waiting)).await.expect(201)
    };
    let begun = std::time::Instant::now();
    tokio::join!(draining, rest);
    assert!(begun.elapsed() < WAIT, "the drain ends with the last call");
}
