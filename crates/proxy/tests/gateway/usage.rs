//! The limits of sessions of a tenant, and of running statements of a user and of a tenant.

use std::sync::Arc;

use hs2::{ClientError, Limit, LimitHits, Session, Statement};
use model::error::UserError;

use crate::agents::{run, try_run};
use crate::cluster::Cluster;
use crate::fixture::{WAIT, eventually, within};

const FOR_EVER: &str = "SELECT count(*) FROM generate_series(1, 100000000000)";

fn refused<T>(result: Result<T, ClientError>) -> UserError {
    match result.map(drop) {
        Err(ClientError::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Cancels a statement, and asks for its end.
async fn cancel(mut statement: Statement<'_>) {
    statement.cancel().await.unwrap();
    within("the end of a cancelled statement", statement.wait(WAIT)).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_statements_of_a_user_and_of_a_tenant_are_limited() {
    let hits = Arc::new(LimitHits::default());
    let (cluster, _admin, engine) = Cluster::with_engine_and(|settings| {
        settings.limits.wire.hits = Arc::clone(&hits);
        settings.limits.statements_per_user = 2;
        settings.limits.statements_per_tenant = 3;
    })
    .await;
    let (mut first, mut second, mut third) =
        (cluster.session("ann").await, cluster.session("ann").await, cluster.session("ann").await);
    let (mut of_bob, mut next_of_bob) = (cluster.session("bob").await, cluster.session("bob").await);
    let runs = first.execute(FOR_EVER).await.unwrap();
    let _runs_too = second.execute(FOR_EVER).await.unwrap();
    let error = refused(third.execute("SELECT 1").await);
    assert_eq!((error.sqlstate(), error.message.as_str()), ("54000", "user \"ann\" has too many running statements"));
    assert!(error.hint.as_deref().unwrap().contains("proxy.max_statements_per_user"), "{error:?}");
    // Its user can still see what runs, and change the session.
    assert_eq!(run(&mut third, "SHOW ENGINES t_1").await.rows.len(), 1);
    run(&mut third, "SET enginehouse.unit=uc_1").await;
    let _of_bob = of_bob.execute(FOR_EVER).await.unwrap();
    let error = refused(next_of_bob.execute("SELECT 1").await);
    assert_eq!((error.sqlstate(), error.message.as_str()), ("54000", "tenant \"t_1\" has too many running statements"));
    assert!(error.hint.as_deref().unwrap().contains("proxy.max_statements_per_tenant"), "{error:?}");
    assert_eq!(engine.datafusion.load().1, 3, "nothing of what was refused runs");
    assert_eq!((hits.count(Limit::StatementsPerUser), hits.count(Limit::StatementsPerTenant)), (1, 1));
    // The end of one is enough, whether it is closed or not.
    cancel(runs).await;
    run(&mut next_of_bob, "SELECT 1").await;
    for _ in 0..3 {
        let mut ended = third.execute("SELECT 1").await.unwrap();
        ended.wait(WAIT).await.unwrap();
    }
    // A statement that the client waits for without polling counts until its reply.
    for _ in 0..3 {
        third.run_in_one_call("SELECT 1").await.unwrap();
    }
    // What ends without a poll ends with its session.
    let _runs = first.execute(FOR_EVER).await.unwrap();
    assert_eq!(refused(third.execute("SELECT 1").await).sqlstate(), "54000");
    second.close().await.unwrap();
    eventually("the place of the closed session", async || third.execute("SELECT 1").await.ok().map(drop)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_waits_for_an_engine_counts_as_running() {
    let cluster = Cluster::with(1, |settings| settings.limits.statements_per_user = 1).await;
    let mut admin = cluster.objects().await;
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let (mut first, mut second) = (cluster.session("ann").await, cluster.session("ann").await);
    let waits = first.execute("SELECT 1").await.unwrap();
    assert_eq!(refused(second.execute("SELECT 1").await).message, "user \"ann\" has too many running statements");
    waits.close().await.unwrap();
    let waits = second.execute("SELECT 1").await.unwrap();
    assert_eq!(refused(first.execute("SELECT 1").await).sqlstate(), "54000");
    cancel(waits).await;
    first.execute("SELECT 1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_a_tenant_are_limited_and_keep_no_admin_out() {
    let (cluster, _admin, _engine) = Cluster::with_engine_and(|settings| settings.limits.sessions_per_tenant = 2).await;
    let of_ann: Session = cluster.session("ann").await;
    let mut of_bob = cluster.session("bob").await;
    run(&mut of_bob, "SELECT 1").await;
    let error = refused(cluster.try_session("ann", &[]).await);
    assert_eq!((error.sqlstate(), error.message.as_str()), ("54000", "tenant \"t_1\" has too many sessions"));
    assert!(error.hint.as_deref().unwrap().contains("proxy.max_sessions_per_tenant"), "{error:?}");
    assert!(cluster.try_session("admin", &[("enginehouse.tenant", "t_1")]).await.is_err());
    // An admin has control statements, and no engine of the tenant.
    let mut admin = cluster.session("admin").await;
    assert_eq!(run(&mut admin, "SHOW ENGINES t_1").await.rows.len(), 1);
    assert_eq!(try_run(&mut admin, "SELECT 1").await.unwrap_err().sqlstate(), "54000");
    of_ann.close().await.unwrap();
    eventually("a place", async || try_run(&mut admin, "SELECT 1").await.ok()).await;
    assert_eq!(refused(cluster.try_session("ann", &[]).await).sqlstate(), "54000");
}
