//! Demand: sessions that wait for an engine are recorded until they have one.

use model::demand::DemandKey;
use model::demand_report::UnmetDemand;
use model::name::{PoolName, TenantName, UnitName};
use model::observation::Publication;

use crate::agents::{run, try_run};
use crate::cluster::Cluster;
use crate::fixture::{WAIT, eventually};

const ON_DEMAND: &str = "ALTER RESOURCE UNIT uc_1 START_ON_DEMAND TRUE";

async fn on_demand() -> (Cluster, hs2::Session) {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    let _settling = cluster.master.keep_settling();
    run(&mut admin, ON_DEMAND).await;
    (cluster, admin)
}

fn key() -> DemandKey {
    DemandKey {
        engine_type: Some("datafusion".to_owned()),
        ..DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "default")
    }
}

/// The recorded keys with the number of sessions.
async fn recorded(cluster: &Cluster) -> Vec<(DemandKey, u64)> {
    cluster.store.demand().await.unwrap().into_iter().map(|demand| (demand.key, demand.waiting)).collect()
}

async fn until(cluster: &Cluster, expected: &[(DemandKey, u64)]) {
    eventually("the demand", async || (recorded(cluster).await == expected).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_demand_from_its_first_wait_until_it_is_bound() {
    let (cluster, mut admin) = on_demand().await;
    let mut ann = cluster.session("ann").await;
    assert_eq!(recorded(&cluster).await, [], "a session that only exists needs no engine");
    let mut statement = ann.execute("SELECT 42 AS answer").await.unwrap();
    until(&cluster, &[(key(), 1)]).await;
    let line = eventually("the log", async || {
        statement.poll().await.unwrap();
        statement.logs().await.unwrap().into_iter().next()
    })
    .await;
    assert_eq!(line, "waiting for an engine to be started in resource pool \"rp_1\" from resource unit \"uc_1\"");
    // A second session of the same key, and a second statement of the same session.
    let mut bob = cluster.session("bob").await;
    let mut second = bob.execute("SELECT 1").await.unwrap();
    until(&cluster, &[(key(), 2)]).await;
    let narrow = [("enginehouse.pool", "rp_1"), ("enginehouse.unit", "uc_1"), ("enginehouse.creator", "IDE")];
    let mut narrow = cluster.try_session("ann", &narrow).await.unwrap();
    let mut third = narrow.execute("SELECT 1").await.unwrap();
    let (pool, unit) = (PoolName::new("rp_1").ok(), UnitName::new("uc_1").ok());
    let narrow = DemandKey { pool, unit, engine_type: None, creator: "IDE".to_owned(), ..key() };
    until(&cluster, &[(key(), 2), (narrow, 1)]).await;
    third.cancel().await.unwrap();
    until(&cluster, &[(key(), 2)]).await;
    // An engine, which a master would have started for them.
    let _engine = cluster.engine(&mut admin).await;
    assert_eq!(statement.collect(WAIT).await.unwrap().rows[0][0].to_string(), "42");
    second.collect(WAIT).await.unwrap();
    until(&cluster, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_is_demand_no_longer() {
    let (cluster, _admin) = on_demand().await;
    let mut ann = cluster.session("ann").await;
    ann.execute("SELECT 1").await.unwrap();
    let mut bob = cluster.session("bob").await;
    bob.execute("SELECT 1").await.unwrap();
    until(&cluster, &[(key(), 2)]).await;
    ann.close().await.unwrap();
    until(&cluster, &[(key(), 1)]).await;
    drop(bob);
    until(&cluster, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_stops_withdraws_its_demand() {
    let (cluster, _admin) = on_demand().await;
    let mut ann = cluster.session("ann").await;
    ann.execute("SELECT 1").await.unwrap();
    until(&cluster, &[(key(), 1)]).await;
    let Cluster { proxy, store, agents: _agents, fixture: _fixture, master: _master } = cluster;
    proxy.shutdown().await;
    assert_eq!(store.demand().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_has_the_masters_reason_and_ends_at_once_if_it_is_in_vain() {
    let (cluster, _admin) = on_demand().await;
    let report = async |reason: &str, is_futile: bool| {
        let generation = cluster.store.catalog().await.unwrap().newest_change(&key().tenant);
        let (reason, position) = (reason.to_owned(), Some(2));
        let unmet = UnmetDemand { key: key(), sessions: 1, reason, position, is_futile, generation };
        cluster.master.report(Publication { unmet: Some(vec![unmet]), ..Publication::default() }).await;
    };
    let queued = "queued at position 2: resource pool \"rp_1\": asked 1, left 0 of 2 (POOL_CPU, retryable)";
    report(queued, false).await;
    let mut ann = cluster.session("ann").await;
    let mut statement = ann.execute("SELECT 1").await.unwrap();
    eventually("the reason", async || {
        statement.poll().await.unwrap();
        let lines = statement.logs().await.unwrap();
        lines.contains(&format!("waiting for an engine: {queued}")).then_some(())
    })
    .await;
    report("an engine of unit \"uc_1\" can never fit into resource pool \"rp_1\"", true).await;
    let error = statement.collect(WAIT).await.unwrap_err().user_error();
    assert_eq!(
        (error.sqlstate(), error.message.as_str()),
        ("55000", "tenant \"t_1\" has no engine, and none can be started")
    );
    assert_eq!(error.detail.as_deref(), Some("An engine of unit \"uc_1\" can never fit into resource pool \"rp_1\"."));
    assert!(error.hint.is_some());
    until(&cluster, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_from_before_an_alteration_is_not_in_vain() {
    let (cluster, mut admin) = on_demand().await;
    let _settling = cluster.master.keep_settling();
    let report = async || {
        let generation = cluster.store.catalog().await.unwrap().newest_change(&key().tenant);
        let reason = "an engine of resource unit \"uc_1\" can never fit".to_owned();
        let unmet = UnmetDemand { key: key(), sessions: 1, reason, position: None, is_futile: true, generation };
        cluster.master.report(Publication { unmet: Some(vec![unmet]), ..Publication::default() }).await;
    };
    report().await;
    let mut ann = cluster.session("ann").await;
    assert_eq!(try_run(&mut ann, "SELECT 1").await.unwrap_err().sqlstate(), "55000");
    for remedy in [
        "ALTER RESOURCE UNIT uc_1 COMMENT 'smaller'",
        "ALTER RESOURCE POOL rp_1 COMMENT 'a', CAPACITY (CPU 64)",
        "ALTER TENANT t_1 COMMENT 'b'",
    ] {
        run(&mut admin, remedy).await;
        let mut statement = ann.execute("SELECT 1").await.unwrap();
        eventually("its wait", async || {
            let lines = statement.logs().await.unwrap();
            lines.iter().any(|line| line.contains("waiting for an engine to be started")).then_some(())
        })
        .await;
        until(&cluster, &[(key(), 1)]).await;
        // The master plans again, and nothing has changed for it.
        report().await;
        assert_eq!(statement.collect(WAIT).await.unwrap_err().user_error().sqlstate(), "55000", "{remedy}");
        until(&cluster, &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_engine_fails_for_good_is_refused_although_it_has_a_slot() {
    let (cluster, mut admin) = on_demand().await;
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let mut ann = cluster.session("ann").await;
    let mut statement = ann.execute("SELECT 1").await.unwrap();
    until(&cluster, &[(key(), 1)]).await;
    let generation = cluster.store.catalog().await.unwrap().newest_change(&key().tenant);
    let reason = "resource unit \"uc_1\": engine \"e\" cannot start: no image".to_owned();
    let unmet = UnmetDemand { key: key(), sessions: 1, reason, position: None, is_futile: true, generation };
    cluster.master.report(Publication { unmet: Some(vec![unmet]), ..Publication::default() }).await;
    let error = statement.collect(WAIT).await.unwrap_err().user_error();
    assert_eq!(error.sqlstate(), "55000");
    assert_eq!(error.detail.as_deref(), Some("Resource unit \"uc_1\": engine \"e\" cannot start: no image."));
    until(&cluster, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_waits_where_no_unit_starts_on_demand() {
    let cluster = Cluster::new().await;
    let _admin = cluster.objects().await;
    let mut ann = cluster.session("ann").await;
    let error = try_run(&mut ann, "SELECT 1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "55000");
    assert_eq!(error.hint.as_deref(), Some("To start an engine, run START ENGINE t_1 rp_1 uc_1."));
    assert_eq!(recorded(&cluster).await, []);
}
