//! The client crate of reservations, over two proxies.

use std::sync::Arc;
use std::time::Duration;

use model::rights::RoleLists;
use proxy::{IdleLimits, Limits, Product, Proxy, Settings};
use reservation_client::{
    Claim, Client, ClientOptions, Error, ListFilter, RequestKey, ReservationRequest, Resource, State,
};

use crate::cluster::Cluster;
use crate::holders::pool;

/// Another proxy of the same installation.
pub async fn second_proxy(cluster: &Cluster) -> Proxy {
    let settings = Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        discovery: None,
        hosts: Vec::new(),
        tls: None,
        zookeeper: cluster.fixture.coordination(proxy::identity(&cluster.fixture.keys.proxy)),
        keys: cluster.fixture.keys.proxy.clone(),
        cluster_tls: agent_api::ClusterTls::Required,
        serves_clients: true,
        authentication: None,
        roles: RoleLists::of_admins(&["admin"]),
        principal: None,
        impersonation: authentication::ImpersonationRules::default(),
        snapshot_poll: Duration::from_millis(200),
        bind_deadline: Duration::from_secs(30),
        idle: IdleLimits::default(),
        session_age: None,
        demand_lease: Duration::from_secs(15),
        defaults: model::configuration::Defaults::default(),
        load_cache: Duration::from_millis(200),
        product: Product::default(),
        limits: Limits::default(),
    };
    Proxy::start(settings, cluster.fixture.clock.clone()).await.unwrap()
}

fn request(cpu_m: i64) -> ReservationRequest {
    ReservationRequest::on_pool("t_1", "rp_1", Resource::Cpu { cpu_m }, "i-1")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_has_its_response_after_one_of_two_proxies_has_gone() {
    let (cluster, _admin) = pool().await;
    let second = second_proxy(&cluster).await;
    let proxies = vec![second.addr().to_string(), cluster.proxy.addr().to_string()];
    let client = Client::new(ClientOptions::new(proxies, "ann", "x"));
    let key = RequestKey::random();
    let reserved = client.reserve(&request(3_000), &key).await.unwrap();
    assert_eq!(reserved.state, State::Locked);
    second.shutdown().await;
    assert_eq!(client.reserve(&request(3_000), &key).await.unwrap(), reserved, "nothing is charged twice");
    let claim = Claim::new(&reserved, "i-1");
    let used = client.confirm(&claim, None, Some(Duration::from_mins(1))).await.unwrap();
    assert_eq!(used.state, State::Used);
    let Err(Error::Refused(problem)) = client.reserve(&request(2_000), &RequestKey::random()).await else {
        panic!("4 CPU hold 5")
    };
    let shortage = problem.ledger.unwrap().shortage.unwrap();
    assert_eq!((shortage.asked, shortage.left, shortage.limit), (2_000, 1_000, 4_000));
    let page = client.list(&ListFilter { pool: Some("rp_1".to_owned()), ..ListFilter::default() }).await.unwrap();
    assert_eq!(page.rows, [used]);
    assert_eq!(client.release(&claim).await.unwrap().state, State::Released);
    assert!(client.renew(&claim, None).await.unwrap_err().is_lost());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_until_the_reservation_is_lost() {
    let (cluster, _admin) = pool().await;
    let proxies = vec![cluster.proxy.addr().to_string()];
    let client = Arc::new(Client::new(ClientOptions::new(proxies, "ann", "x")));
    let reserved = client.obtain(&request(1_000), &RequestKey::random()).await.unwrap();
    let (claim, lease) = (Claim::new(&reserved, "i-1"), Duration::from_secs(5));
    let used = client.confirm(&claim, None, Some(lease)).await.unwrap();
    let (sender, mut lost) = tokio::sync::oneshot::channel();
    let _renewal = client.keep_renewed(claim.clone(), lease, move |error| {
        let _ = sender.send(error);
    });
    // Past its end, had it not been renewed.
    tokio::time::sleep(lease * 6 / 5).await;
    let renewed = client.reservation(&claim.id).await.unwrap();
    assert!(renewed.state == State::Used && renewed.expires_at > used.expires_at, "{renewed:?}");
    assert!(lost.try_recv().is_err());
    cluster.store.cancel(&claim.id).await.unwrap().unwrap();
    let error = tokio::time::timeout(Duration::from_secs(20), lost).await.unwrap().unwrap();
    assert!(error.is_lost() && matches!(error, Error::Refused(_)), "{error}");
}
