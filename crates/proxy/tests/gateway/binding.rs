//! Which engine a session is given and when; what is replayed; what goes through.

use std::time::Duration;

use hs2::message::encode_call;
use hs2::tcli::{TFetchOrientation, TFetchResultsReq};
use hs2::{Client, ClientError, Session};

use crate::agents::{run, try_run};
use crate::cluster::{Cluster, sessions_of};
use crate::fixture::{WAIT, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_nothing_to_wait_for_the_hint_is_the_exact_start_engine() {
    let cluster = Cluster::new().await;
    let _admin = cluster.objects().await;
    let mut ann = cluster.session("ann").await;
    let error = try_run(&mut ann, "SELECT 1").await.unwrap_err();
    assert_eq!(error.message, "tenant \"t_1\" has no engine");
    assert_eq!(error.hint.as_deref(), Some("To start an engine, run START ENGINE t_1 rp_1 uc_1."));
    let error = try_run(&mut ann, "SHOW ENGINE t_1").await.unwrap_err();
    assert!(error.hint.as_deref().is_some_and(|hint| hint.contains("SHOW ENGINES")), "{}", error.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_before_binding_are_answered_and_replayed() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    let (mut ann, mut refused) = (cluster.session("ann").await, cluster.session("ann").await);
    run(&mut ann, "USE default").await;
    run(&mut ann, "SET datafusion.execution.batch_size=16").await;
    run(&mut ann, "SET datafusion.execution.batch_size = 17").await;
    let shown = run(&mut ann, "SET datafusion.execution.batch_size").await;
    assert_eq!(shown.rows[0][1].to_string(), "17");
    run(&mut refused, "SET datafusion.execution.batch_size=18").await;
    run(&mut refused, "SET datafusion.no_such_thing=1").await;
    let mut bob = cluster.try_session("bob", &[("use:database", "nowhere")]).await.unwrap();
    let mut bound = cluster.session("bob").await;
    run(&mut bound, "USE neither_here").await;

    let _engine = cluster.engine(&mut admin).await;
    let shown =
        eventually("the engine", async || try_run(&mut ann, "SHOW datafusion.execution.batch_size").await.ok()).await;
    assert_eq!(shown.rows[0][1].to_string(), "17");
    // A setting that the engine refuses is the error of one statement and not of all.
    let error = try_run(&mut refused, "SELECT 1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "22023");
    assert!(error.text().contains("issued before in this session: SET datafusion.no_such_thing=1"), "{}", error.text());
    let shown = run(&mut refused, "SHOW datafusion.execution.batch_size").await;
    assert_eq!(shown.rows[0][1].to_string(), "18", "what it did not refuse holds");
    // A name that the engine refuses is the error of the statement that bound; another USE mends it.
    assert!(try_run(&mut bob, "SELECT 1").await.is_err());
    let error = try_run(&mut bound, "SELECT 1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "3F000");
    assert!(error.text().contains("USE neither_here"), "{}", error.text());
    run(&mut bound, "USE default").await;
    run(&mut bound, "SELECT 1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_settings_are_answered_by_the_proxy_in_any_spelling() {
    let (cluster, _admin, _engine) = Cluster::with_engine().await;
    let mut ann = cluster.session("ann").await;
    run(&mut ann, "SET enginehouse.tenant=t_1").await;
    for bound in [false, true] {
        for key in ["enginehouse.tenant", "hiveconf:Enginehouse.Tenant"] {
            assert_eq!(run(&mut ann, &format!("SET {key}")).await.rows[0][1].to_string(), "t_1", "{key} {bound}");
        }
        run(&mut ann, "SELECT 1").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_several_tenants_chooses_in_any_form() {
    let (cluster, mut admin, _engine) = Cluster::with_engine().await;
    {
        let _settling = cluster.master.keep_settling();
        run(&mut admin, "CREATE TENANT t_2 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('bob')").await;
    }
    let error = eventually("the new catalog", async || {
        let mut fresh = cluster.session("bob").await;
        try_run(&mut fresh, "SELECT 1").await.err().filter(|error| error.message.contains("several tenants"))
    })
    .await;
    assert!(error.detail.unwrap().contains("\"t_1\", \"t_2\""));
    for key in ["enginehouse.tenant", "set:hiveconf:enginehouse.tenant", "set:hivevar:enginehouse.tenant"] {
        let mut chosen = cluster.try_session("bob", &[(key, "t_1")]).await.unwrap();
        run(&mut chosen, "SELECT 1").await;
        let mut other = cluster.try_session("bob", &[(key, "t_2")]).await.unwrap();
        assert_eq!(try_run(&mut other, "SELECT 1").await.unwrap_err().message, "tenant \"t_2\" has no engine");
        // What was chosen can be changed.
        run(&mut other, "SET enginehouse.tenant=t_1").await;
        run(&mut other, "SELECT 1").await;
    }
    let mut elsewhere = cluster.try_session("ann", &[("enginehouse.pool", "rp_9")]).await.unwrap();
    let error = try_run(&mut elsewhere, "SELECT 1").await.unwrap_err();
    assert_eq!(error.message, "tenant \"t_1\" has no engine in resource pool \"rp_9\"");
    let mut stranger = cluster.try_session("ann", &[("enginehouse.tenant", "t_2")]).await.unwrap();
    assert_eq!(try_run(&mut stranger, "SELECT 1").await.unwrap_err().sqlstate(), "42501");
    let mut stranger = cluster.session("eve").await;
    assert_eq!(try_run(&mut stranger, "SELECT 1").await.unwrap_err().sqlstate(), "42501");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_change_the_launch_or_the_user_never_goes_on() {
    let (cluster, _admin, _engine) = Cluster::with_engine().await;
    for key in ["set:env:PATH", "set:hiveconf:spark.jars", "enginehouse.tennant"] {
        assert!(cluster.try_session("ann", &[(key, "x")]).await.is_err(), "{key}");
    }
    let refused = cluster.try_session("ann", &[("set:hiveconf:hive.server2.proxy.user", "ceo")]).await;
    assert!(matches!(refused, Err(ClientError::Refused(error)) if error.sqlstate() == "28000"));
    let mut ann = cluster.try_session("ann", &[("set:hiveconf:hive.server2.proxy.user", "ann")]).await.unwrap();
    run(&mut ann, "SELECT 1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_waits_for_an_engine_that_starts_and_its_log_tells_why() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let slot = cluster.store.snapshot().await.unwrap().slots.remove(0);
    let mut ann = cluster.session("ann").await;
    let mut statement = ann.execute("SELECT 42 AS answer").await.unwrap();
    assert_eq!(statement.poll().await.unwrap(), hs2::session::StatementProgress::Running);
    let line = eventually("the log", async || statement.logs().await.unwrap().into_iter().next()).await;
    assert_eq!(line, format!("waiting for engine \"{}\": it is not created yet", slot.engine()));
    let launching = cluster.launch(&slot.key, slot.engine());
    let (_engine, answer) = tokio::join!(launching, statement.collect(WAIT));
    assert_eq!(answer.unwrap().rows[0][0].to_string(), "42");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_ends_at_its_deadline_with_the_reason() {
    let cluster = Cluster::with(1, |settings| settings.bind_deadline = Duration::from_secs(1)).await;
    let mut admin = cluster.objects().await;
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let mut ann = cluster.session("ann").await;
    let error = try_run(&mut ann, "SELECT 1").await.unwrap_err();
    assert_eq!(error.sqlstate(), "HYT00");
    assert!(error.text().contains("it is not created yet"), "{}", error.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_statement_waits_no_longer() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    run(&mut admin, "START ENGINE t_1 rp_1 uc_1").await;
    let mut ann = cluster.session("ann").await;
    let mut statement = ann.execute("SELECT 1").await.unwrap();
    statement.cancel().await.unwrap();
    let error = statement.wait(WAIT).await.unwrap_err();
    assert!(matches!(&error, ClientError::Refused(error) if error.sqlstate() == "57014"), "{error}");
}

/// The reply to a fetch as it came over the wire.
async fn raw_fetch(session: &mut Session, sql: &str) -> Vec<u8> {
    let mut statement = session.execute(sql).await.unwrap();
    statement.wait(WAIT).await.unwrap();
    let request = TFetchResultsReq {
        operation_handle: statement.handle().clone(),
        orientation: TFetchOrientation::FETCH_NEXT,
        max_rows: 10_000,
        fetch_type: Some(0),
    };
    let call = encode_call("FetchResults", 77, &request).unwrap();
    let client: &mut Client = session.client();
    client.send(&call).await.unwrap();
    client.receive(WAIT).await.unwrap().bytes().to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_and_results_go_through_byte_for_byte() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let mut through = cluster.session("ann").await;
    let mut direct = engine.open(&cluster.address(&engine).await, "ann").await;
    for sql in [
        "SELECT value, value * 1.5 AS v, CASE WHEN value % 3 = 0 THEN NULL ELSE 'ä\u{1F600}' END AS t \r\n\t FROM generate_series(1, 10000) ORDER BY value",
        "SELECT 'it''s -- no comment; /* nor this */' AS \"Ünïcode \"\"q\"\"\"",
        "SELECT 1 WHERE false",
    ] {
        assert_eq!(raw_fetch(&mut through, sql).await, raw_fetch(&mut direct, sql).await, "{sql}");
    }
    let error = |session: Result<hs2::session::Table, model::error::UserError>| session.unwrap_err();
    let sql = "SELECT * FROM nowhere";
    assert_eq!(error(try_run(&mut through, sql).await), error(try_run(&mut direct, sql).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_go_to_the_least_loaded_engine() {
    let (cluster, mut admin, one) = Cluster::with_engine().await;
    let two = cluster.engine(&mut admin).await;
    let mut sessions = Vec::new();
    // Until the proxy has seen the second one as well, and then enough to fill it up.
    let mut missing = None;
    while missing != Some(0) {
        let mut session = cluster.session("ann").await;
        run(&mut session, "SELECT 1").await;
        sessions.push(session);
        missing = match missing {
            Some(count) => Some(count - 1),
            None => (two.datafusion.load().0 > 0).then(|| one.datafusion.load().0 + 2),
        };
        assert!(sessions.len() < 100, "the second engine is never taken");
    }
    // One apart at most but for the last: a statement that has just ended may still be counted as running.
    let (on_one, on_two) = (one.datafusion.load().0, two.datafusion.load().0);
    let count = u32::try_from(sessions.len()).unwrap();
    assert!(on_one + on_two == count && on_one.abs_diff(on_two) <= 2, "{on_one} and {on_two}");
    let closed = sessions.pop().unwrap();
    closed.close().await.unwrap();
    eventually("one session less", async || {
        (one.datafusion.load().0 + two.datafusion.load().0 == count - 1).then_some(())
    })
    .await;
    drop(sessions);
    sessions_of(&one, 0).await;
    sessions_of(&two, 0).await;
}
