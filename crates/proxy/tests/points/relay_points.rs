//! Points of the relay, which proxy and engine agent both have.

use hs2::ClientError;
use hs2::failpoints;

use crate::agents::run;
use crate::cluster::Cluster;
use crate::fixture::{WAIT, eventually};
use crate::held::{Held, alone};

const FOR_EVER: &str = "SELECT count(*) FROM generate_series(1, 100000000000)";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_dies_before_it_answers_is_named_in_the_error() {
    let _alone = alone().await;
    let (cluster, _admin, dies) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    let mut statement = ann.execute(FOR_EVER).await.unwrap();
    let held = Held::at(failpoints::RELAY_REQUEST_SENT);
    let meanwhile = async {
        held.reached().await;
        dies.datafusion.die("killed by the test");
        held.go_on();
    };
    let (ended, ()) = tokio::join!(statement.wait(WAIT), meanwhile);
    let Err(ClientError::Refused(error)) = ended else { panic!("{ended:?}") };
    assert_eq!(error.sqlstate(), "08S01");
    assert!(error.text().contains(dies.name.as_str()) && error.hint.is_some(), "{}", error.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_gone_before_the_reply_leaves_nothing_running() {
    let _alone = alone().await;
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SELECT 1").await;
    let held = Held::at(failpoints::RELAY_REPLY_BEGUN);
    let saying = tokio::spawn(async move { ann.run(FOR_EVER, WAIT).await.map(drop) });
    held.reached().await;
    saying.abort();
    assert!(saying.await.is_err());
    held.go_on();
    eventually("the end of it", async || (engine.datafusion.load() == (0, 0)).then_some(())).await;
    let mut other = cluster.session("ann").await;
    run(&mut other, "SELECT 1").await;
}
