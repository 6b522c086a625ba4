//! The suite on a real ZooKeeper, the oracle, and on the embedded server, with equal numbers of cases.

use embedded_zookeeper::{Config, Server};

use crate::suite;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs EH_TEST_ZOOKEEPER"]
async fn the_suite_passes_on_a_real_zookeeper() {
    let servers = std::env::var("EH_TEST_ZOOKEEPER").expect("EH_TEST_ZOOKEEPER=host:port must name a real zookeeper");
    let real = suite::run("real zookeeper", &servers).await;
    let server = Server::start(Config::default()).await.unwrap();
    let embedded = suite::run("embedded", &server.addr().to_string()).await;
    server.shutdown().await;
    println!("coordination: real zookeeper {real} cases, embedded {embedded} cases");
    assert_eq!(real, embedded);
    assert_eq!(real, suite::CASES.len());
}
