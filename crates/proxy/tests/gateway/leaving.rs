//! The drain of a proxy: its readiness, its discovery, and its clients.

use std::time::Duration;

use hs2::ClientError;
use model::error::UserError;
use proxy::Proxy;

use crate::agents::run;
use crate::cluster::Cluster;
use crate::fixture::{WAIT, eventually, wire, within};

/// Longer than any test waits.
const FOR_EVER: Duration = Duration::from_hours(1);

async fn probe(proxy: &Proxy, path: &str) -> (u16, String) {
    wire::probe(&proxy.addr().to_string(), path).await
}

fn refusal(error: &ClientError) -> &UserError {
    let ClientError::Refused(error) = error else { panic!("{error}") };
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_is_ready_after_the_first_catalog_and_stays_ready() {
    let cluster = Cluster::with(0, |_| {}).await;
    assert_eq!(probe(&cluster.proxy, "/livez").await, (200, "ok".to_owned()));
    let (status, why) = probe(&cluster.proxy, "/readyz").await;
    assert_eq!((status, why.as_str()), (503, "the catalog has not been read from a metadata agent yet"));
    let ready = async || (probe(&cluster.proxy, "/readyz").await.0 == 200).then_some(());
    let (agent, wire) = crate::cluster::agent(&cluster.fixture, &cluster.master.lock, &cluster.store, |_| {}).await;
    eventually("it is ready", ready).await;
    wire.cut();
    agent.shutdown().await;
    let mut admin = cluster.session("admin").await;
    let refused = admin.execute("SHOW TENANTS").await;
    assert!(refused.is_err(), "no agent is there");
    assert_eq!(probe(&cluster.proxy, "/readyz").await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_proxy_opens_no_session_and_keeps_the_open_ones() {
    let (cluster, admin, _engine) = Cluster::with_engine().await;
    let (mut ann, mut bob) = (cluster.session("ann").await, cluster.session("bob").await);
    let mut reading = bob.execute("SELECT value FROM generate_series(1, 20000)").await.unwrap();
    reading.wait(WAIT).await.unwrap();
    assert_eq!(probe(&cluster.proxy, "/readyz").await.0, 200);
    let mut drain = std::pin::pin!(cluster.proxy.drain(FOR_EVER));
    let clients = async {
        eventually("it says so", async || (probe(&cluster.proxy, "/readyz").await.0 == 503).then_some(())).await;
        assert_eq!(probe(&cluster.proxy, "/livez").await.0, 200);
        let refused = cluster.try_session("ann", &[]).await.err().unwrap();
        let refused = refusal(&refused);
        assert_eq!(refused.sqlstate(), "57P03");
        assert!(refused.text().contains("another proxy"), "{}", refused.text());
        admin.close().await.unwrap();
        run(&mut ann, "SELECT 1").await;
        let mut rows = 0;
        loop {
            let batch = reading.fetch(5_000).await.unwrap().len();
            if batch == 0 {
                break;
            }
            rows += batch;
        }
        assert_eq!(rows, 20_000);
        reading.close().await.unwrap();
        run(&mut ann, "SELECT 2").await;
    };
    tokio::select! {
        biased;
        () = &mut drain => panic!("it did not wait for its sessions"),
        () = clients => {}
    }
    bob.close().await.unwrap();
    ann.close().await.unwrap();
    within("the drain", drain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_does_not_end_is_cut_when_the_time_is_over() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SELECT 1").await;
    within("the drain", cluster.proxy.drain(Duration::from_millis(100))).await;
    run(&mut ann, "SELECT 1").await;
    within("the end", cluster.proxy.shutdown()).await;
    assert!(ann.execute("SELECT 1").await.is_err());
    crate::cluster::sessions_of(&engine, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_leaves_is_found_no_more_though_its_sessions_go_on() {
    let cluster = Cluster::with(1, |settings| settings.discovery = Some(String::new())).await;
    let mut admin = cluster.session("admin").await;
    let registered = async || {
        let found = coordination::discovery::list(cluster.master.lock.session()).await.unwrap().0;
        found.into_iter().map(|proxy| proxy.address).collect::<Vec<_>>()
    };
    let address = cluster.proxy.addr().to_string();
    eventually("discovery", async || (registered().await == [address.clone()]).then_some(())).await;
    let mut drain = std::pin::pin!(cluster.proxy.drain(FOR_EVER));
    let clients = async {
        eventually("it is taken out", async || registered().await.is_empty().then_some(())).await;
        run(&mut admin, "SHOW TENANTS").await;
    };
    tokio::select! {
        biased;
        () = &mut drain => panic!("it did not wait for its session"),
        () = clients => {}
    }
    admin.close().await.unwrap();
    within("the drain", drain).await;
}
