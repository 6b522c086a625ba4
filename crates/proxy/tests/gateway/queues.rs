//! The queue of a session, and the pool whose engines it gets.

use hs2::ClientError;
use hs2::Session;
use model::error::UserError;

use crate::agents::{column, run, try_run};
use crate::cluster::Cluster;
use crate::engines::RunningEngine;

const FORMS: [&str; 4] =
    ["enginehouse.queue", "spark.yarn.queue", "set:hiveconf:enginehouse.queue", "set:hiveconf:spark.yarn.queue"];

/// Pools `rp_1` with queue `pool1` and `rp_10` with queue `pool10`, each with an engine.
async fn two_queues() -> (Cluster, Session, RunningEngine, RunningEngine) {
    let (cluster, mut admin, one) = Cluster::with_engine().await;
    let ten = {
        let _settling = cluster.master.keep_settling();
        for sql in [
            "ALTER RESOURCE POOL rp_1 QUEUE_PREFIX 'pool1'",
            "CREATE RESOURCE POOL rp_10 UNIT_LIST ('uc_1'), QUEUE_PREFIX 'pool10'",
            "CREATE RESOURCE POOL rp_x UNIT_LIST ('uc_1'), QUEUE_PREFIX 'hidden'",
            "ALTER TENANT t_1 RESOURCE_POOL_LIST ('rp_1', 'rp_10')",
        ] {
            run(&mut admin, sql).await;
        }
        let name = column(&run(&mut admin, "START ENGINE t_1 rp_10 uc_1").await, "engine").remove(0);
        let slots = cluster.store.snapshot().await.unwrap().slots;
        let slot = slots.into_iter().find(|slot| slot.engine().to_string() == name).unwrap();
        cluster.launch(&slot.key, slot.engine()).await
    };
    (cluster, admin, one, ten)
}

fn refused(opened: Result<Session, ClientError>) -> UserError {
    match opened.map(drop).unwrap_err() {
        ClientError::Refused(error) => error,
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_gets_an_engine_of_the_pool_that_its_queue_means() {
    let (cluster, _admin, one, ten) = two_queues().await;
    for form in FORMS {
        for (queue, of, not) in [("pool1", &one, &ten), ("pool1.a", &one, &ten), ("pool10.x", &ten, &one)] {
            let before = (of.datafusion.load().0, not.datafusion.load().0);
            let mut session = cluster.try_session("ann", &[(form, queue)]).await.unwrap();
            run(&mut session, "SELECT 1").await;
            assert_eq!(of.datafusion.load().0, before.0 + 1, "{form} {queue}");
            assert_eq!(not.datafusion.load().0, before.1, "{form} {queue}");
            let shown = run(&mut session, "SET spark.yarn.queue").await;
            assert_eq!(shown.rows[0][1].to_string(), queue, "answered by the proxy: no engine knows it");
            session.close().await.unwrap();
            crate::cluster::sessions_of(of, 0).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_queue_is_an_error_of_open_session() {
    let (cluster, mut admin, _one, _ten) = two_queues().await;
    for form in FORMS {
        for queue in ["pool100", "pool", "hidden.x", "POOL1"] {
            let error = refused(cluster.try_session("ann", &[(form, queue)]).await);
            assert_eq!(error.sqlstate(), "42704", "{form} {queue}");
            assert_eq!(error.message, format!("queue \"{queue}\" belongs to no resource pool"));
            assert_eq!(error.detail.as_deref(), Some("Your queues are 'pool1', 'pool10'."));
        }
    }
    let error = refused(cluster.try_session("ann", &[("enginehouse.pool", "rp_10"), (FORMS[1], "pool1")]).await);
    assert_eq!(error.sqlstate(), "22023");
    // The other name of the pool of the same queue contradicts nothing, and a queue that is not named means nothing.
    cluster.try_session("ann", &[("enginehouse.pool", "rp_1"), (FORMS[1], "pool1")]).await.unwrap();
    cluster.try_session("ann", &[(FORMS[1], "")]).await.unwrap();
    // The newest catalog is read before a session is refused.
    let _settling = cluster.master.keep_settling();
    run(&mut admin, "ALTER RESOURCE POOL rp_10 QUEUE_PREFIX 'fresh'").await;
    cluster.try_session("ann", &[(FORMS[1], "fresh.a")]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_can_be_set_and_follows_the_pool_that_has_it() {
    let (cluster, mut admin, one, ten) = two_queues().await;
    let mut session = cluster.session("ann").await;
    run(&mut session, "SET spark.yarn.queue = pool10.x").await;
    run(&mut session, "SELECT 1").await;
    assert_eq!(ten.datafusion.load().0, 1);
    // What is refused changes nothing.
    let error = try_run(&mut session, "SET enginehouse.queue=nowhere").await.unwrap_err();
    assert_eq!(error.sqlstate(), "42704");
    assert_eq!(run(&mut session, "SET enginehouse.queue").await.rows[0][1].to_string(), "pool10.x");
    run(&mut session, "SELECT 1").await;
    assert_eq!((one.datafusion.load().0, ten.datafusion.load().0), (0, 1));
    run(&mut session, "SET enginehouse.queue='pool1.x'").await;
    run(&mut session, "SELECT 1").await;
    assert_eq!(one.datafusion.load().0, 1);
    // Without an engine in the queue's pool the hint names that pool.
    let _settling = cluster.master.keep_settling();
    run(&mut admin, "CREATE RESOURCE POOL rp_3 UNIT_LIST ('uc_1'), QUEUE_PREFIX 'pool1.x'").await;
    run(&mut admin, "ALTER TENANT t_1 RESOURCE_POOL_LIST ('rp_1', 'rp_10', 'rp_3')").await;
    let mut other = cluster.try_session("ann", &[("enginehouse.queue", "pool1.x.y")]).await.unwrap();
    let error = crate::fixture::eventually("the pool of the longer prefix", async || {
        let error = try_run(&mut other, "SELECT 1").await.err();
        run(&mut other, "SET enginehouse.queue=pool1.x.y").await;
        error
    })
    .await;
    assert_eq!(error.message, "tenant \"t_1\" has no engine in resource pool \"rp_3\"");
    assert_eq!(error.hint.as_deref(), Some("To start an engine, run START ENGINE t_1 rp_3 uc_1."));
}
