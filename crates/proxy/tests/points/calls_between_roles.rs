//! Points of the calls between roles: the proxy reads its catalog from a metadata agent.

use agent_api::failpoints;

use crate::agents::{must, say};
use crate::held::{Held, alone};
use crate::house::House;
use crate::rig::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn while_a_call_for_the_catalog_hangs_everybody_is_served_by_the_last_one() {
    let _alone = alone().await;
    let (house, mut admin, engine) = House::furnished().await;
    let mut bound = house.session("ann").await;
    must(&mut bound, "SELECT 1").await;
    let points =
        [failpoints::CLIENT_SEND, failpoints::SERVER_READ, failpoints::SERVER_DONE, failpoints::CLIENT_ANSWERED];
    for (number, point) in points.into_iter().enumerate() {
        let held = Held::at(point);
        held.reached().await;
        must(&mut bound, "SELECT 2").await;
        let mut fresh = house.session("bob").await;
        must(&mut fresh, "SELECT 3").await;
        let user = format!("user_{number}");
        {
            let _settling = house.hand.keep_settling();
            let tenant = format!("CREATE TENANT t_9{number} RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('{user}')");
            must(&mut admin, &tenant).await;
        }
        held.go_on();
        // The catalog is read on, and the new tenant is in it.
        let error = eventually(point, async || {
            let mut newcomer = house.session(&user).await;
            say(&mut newcomer, "SELECT 1").await.err().filter(|error| error.message.contains("has no engine"))
        })
        .await;
        assert!(error.message.contains(&format!("t_9{number}")), "{}", error.text());
    }
    assert!(engine.is_running());
}
