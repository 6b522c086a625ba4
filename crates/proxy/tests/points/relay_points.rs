//! Points of the relay, which proxy and engine agent both have.

use hs2::ClientError;
use hs2::failpoints;

use crate::agents::must;
use crate::held::{Held, alone};
use crate::house::House;
use crate::rig::{WAIT, eventually};

const FOR_EVER: &str = "SELECT count(*) FROM generate_series(1, 100000000000)";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_dies_before_it_answers_is_named_in_the_error() {
    let _alone = alone().await;
    let (house, _admin, dies) = House::furnished().await;
    let mut ann = house.session("ann").await;
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
async fn a_client_that_hangs_up_before_it_is_answered_leaves_nothing_running() {
    let _alone = alone().await;
    let (house, _admin, engine) = House::furnished().await;
    let mut ann = house.session("ann").await;
    must(&mut ann, "SELECT 1").await;
    let held = Held::at(failpoints::RELAY_REPLY_BEGUN);
    let saying = tokio::spawn(async move { ann.run(FOR_EVER, WAIT).await.map(drop) });
    held.reached().await;
    saying.abort();
    assert!(saying.await.is_err());
    held.go_on();
    eventually("the end of it", async || (engine.datafusion.load() == (0, 0)).then_some(())).await;
    let mut other = house.session("ann").await;
    must(&mut other, "SELECT 1").await;
}
