//! Points of the calls between roles: the proxy reads its catalog from a metadata agent.

use agent_api::failpoints;

use crate::agents::{run, try_run};
use crate::cluster::Cluster;
use crate::fixture::eventually;
use crate::held::{Held, alone};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hanging_catalog_call_delays_no_session() {
    let _alone = alone().await;
    let (cluster, mut admin, engine) = Cluster::with_engine().await;
    let mut bound = cluster.session("ann").await;
    run(&mut bound, "SELECT 1").await;
    let points =
        [failpoints::CLIENT_SEND, failpoints::SERVER_READ, failpoints::SERVER_DONE, failpoints::CLIENT_ANSWERED];
    for (number, point) in points.into_iter().enumerate() {
        let held = Held::at(point);
        held.reached().await;
        run(&mut bound, "SELECT 2").await;
        let mut fresh = cluster.session("bob").await;
        run(&mut fresh, "SELECT 3").await;
        let user = format!("user_{number}");
        {
            let _settling = cluster.master.keep_settling();
            let tenant = format!("CREATE TENANT t_9{number} RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('{user}')");
            run(&mut admin, &tenant).await;
        }
        held.go_on();
        // The catalog is read on, and the new tenant is in it.
        let error = eventually(point, async || {
            let mut newcomer = cluster.session(&user).await;
            try_run(&mut newcomer, "SELECT 1").await.err().filter(|error| error.message.contains("has no engine"))
        })
        .await;
        assert!(error.message.contains(&format!("t_9{number}")), "{}", error.text());
    }
    assert!(engine.is_running());
}
