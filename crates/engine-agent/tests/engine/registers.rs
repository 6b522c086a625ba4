//! Warm-up, registration, who gets in, lost sessions.

use std::time::Duration;

use agent_api::{Caller, ClusterTls, EngineEndpoint};
use coordination::Session;
use engine_agent::engine::{Ended, EngineAgentError};
use hs2::{Auth, Client, ClientError, ClientOptions, ServiceLogin};

use crate::engines::{DataFusion, RunningEngine};
use crate::fixture::{Fixture, WAIT, drain, engine_name, eventually, keys_of, permit, permit_of, registered, slot};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_registers_only_below_a_permit_with_its_own_uid() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let engine = RunningEngine::start(&fixture, engine_name(1));
    permit(&lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, None).await;
    eventually("the engine's start", async || engine.datafusion.is_started().then_some(())).await;
    coordination::permits::record_uid(&lock, &engine.name, "of another pod").await.unwrap();
    // The warm-up takes a moment and the wake-up comes at once: an agent that took this permit would be there by now.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(permit_of(&lock, &engine.name).await.unwrap().registration, None);
    coordination::permits::record_uid(&lock, &engine.name, &engine.uid).await.unwrap();
    let node = registered(&lock, &engine.name).await;
    let live = node.ready().unwrap().content.clone().unwrap();
    assert_eq!((live.uid.as_str(), live.config.as_str()), (engine.uid.as_str(), "0123456789abcdef"));
    let mut session = engine.open(&live.address, "ann").await;
    assert_eq!(session.run("SELECT 7", WAIT).await.unwrap().rows[0][0].to_string(), "7");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_answers_no_query_never_registers_and_reports_why() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let name = engine_name(1);
    let deaf = DataFusion::new(&fixture, &name).locked();
    let mut engine = RunningEngine::start_with(&fixture, name, deaf, Duration::from_secs(5));
    permit(&lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
    let Err(EngineAgentError::Start(reason)) = engine.ended().await else { panic!("it must not start") };
    let reason = reason.to_string();
    assert!(reason.contains("within 5s") && reason.contains("only from its engine agent"), "{reason}");
    assert_eq!(permit_of(&lock, &engine.name).await.unwrap().registration, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_permit_and_drain_order_it_ends_after_its_start_deadline() {
    let fixture = Fixture::new().await;
    let _lock = fixture.master().await;
    let name = engine_name(1);
    let datafusion = DataFusion::new(&fixture, &name);
    let mut engine = RunningEngine::start_with(&fixture, name, datafusion, Duration::from_secs(8));
    let Ok(Ended::Unwanted(reason)) = engine.ended().await else { panic!("it is not desired") };
    assert_eq!(reason, "no permit appeared within 8s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_the_engines_key_are_refused() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let engine = RunningEngine::start(&fixture, engine_name(1));
    permit(&lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
    let node = registered(&lock, &engine.name).await;
    let address = node.ready().unwrap().content.clone().unwrap().address;
    let (endpoint, keys) = (engine.endpoint(&address), &fixture.keys);
    // Keys of another installation do not verify the engine's.
    let unencrypted = EngineEndpoint { tls: None, ..endpoint.clone() };
    let login = |endpoint: &EngineEndpoint| engine.login(keys, agent_api::SERVICE_PROXY, endpoint, "ann");
    let Auth::Service(ours) = login(&endpoint).auth else { panic!("it signs") };
    let of_agent =
        Caller::new(keys.metadata_agent.clone(), ClusterTls::Required).engine(&engine.name, &endpoint, "ann").unwrap();
    let own_password = keys.master.get().engine(&engine.name).zookeeper_password;
    let stranger = Caller::new(keys_of(8).proxy, ClusterTls::Optional).engine(&engine.name, &unencrypted, "ann");
    let stranger = stranger.unwrap().auth;
    let another = RunningEngine::start(&fixture, engine_name(2));
    for (auth, what) in [
        (Auth::service(agent_api::SERVICE_PROXY, "", "ann"), "no key"),
        (Auth::service(agent_api::SERVICE_PROXY, own_password, "ann"), "the engine's own password"),
        (stranger, "another installation"),
        (login(&EngineEndpoint { uid: "another".to_owned(), ..endpoint.clone() }).auth, "a proof for another instance"),
        (
            another.login(keys, agent_api::SERVICE_PROXY, &another.endpoint(&address), "ann").auth,
            "one for another engine",
        ),
        (Auth::Service(ServiceLogin { audience: "metadata-agent".to_owned(), ..ours.clone() }), "one for an agent"),
        (Auth::Service(ServiceLogin { role: agent_api::SERVICE_MASTER, ..ours.clone() }), "a proxy as a master"),
        (Auth::Service(ServiceLogin { role: "ann", ..ours }), "another role"),
        (of_agent.auth, "a metadata agent"),
    ] {
        let refused = Client::connect(&ClientOptions::new(&address, auth)).await;
        let Err(ClientError::Unauthenticated(text)) = refused else { panic!("{what} gets in") };
        assert_eq!(text, "an engine accepts only connections of proxies\nHint: Connect to a proxy.", "{what}");
    }
    // Plain Thrift carries no identity before a session is opened, so every call is rejected.
    let mut anonymous = Client::connect(&ClientOptions::new(&address, Auth::None)).await.unwrap();
    let status = agent_api::engine_status(&mut anonymous, WAIT).await;
    assert!(status.is_err(), "{status:?}");
    // A master may ask how it is, and no more.
    let master = engine.try_connect(&address, agent_api::SERVICE_MASTER, "ann").await.unwrap();
    let Err(ClientError::Refused(error)) = hs2::Session::open(master, &[]).await else {
        panic!("a master is no proxy")
    };
    assert_eq!(error.sqlstate(), "42501");
    assert_eq!(engine.status(&address).await.uid, engine.uid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_session_is_no_order_to_drain_and_it_registers_again() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let engine = RunningEngine::start(&fixture, engine_name(1));
    permit(&lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
    let node = registered(&lock, &engine.name).await;
    let live = node.ready().unwrap().clone();
    let address = live.content.unwrap().address;
    let mut session = engine.open(&address, "ann").await;
    assert!(fixture.zookeeper.faults().expire_session(live.session));
    let again = eventually("another registration", async || {
        let node = permit_of(&lock, &engine.name).await?;
        node.ready().filter(|registration| registration.session != live.session).cloned()
    })
    .await;
    assert_eq!(again.content.unwrap().address, address);
    assert!(!engine.status(&address).await.draining);
    assert_eq!(session.run("SELECT 7", WAIT).await.unwrap().rows.len(), 1);
}

/// The two pieces of evidence on which masters replace an engine and proxies give it up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_of_a_stopped_engine_leaves_the_registry() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let engine = RunningEngine::start(&fixture, engine_name(1));
    permit(&lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
    let address = registered(&lock, &engine.name).await.ready().unwrap().content.clone().unwrap().address;
    let mut session = engine.open(&address, "ann").await;
    engine.datafusion.report_stopped(Some("its process is in state T (stopped)"));
    eventually("the end of the registration", async || {
        permit_of(&lock, &engine.name).await.filter(|node| node.registration.is_none()).map(drop)
    })
    .await;
    let error = engine.try_status(&address).await.unwrap_err().to_string();
    assert!(error.contains("does not respond: its process is in state T (stopped)"), "{error}");
    // It goes on: so do its sessions.
    engine.datafusion.report_stopped(None);
    registered(&lock, &engine.name).await;
    assert_eq!(engine.status(&address).await.uid, engine.uid);
    assert_eq!(session.run("SELECT 7", WAIT).await.unwrap().rows.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_registration_is_created_again() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let engine = RunningEngine::start(&fixture, engine_name(1));
    permit(&lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
    let live = registered(&lock, &engine.name).await.ready().unwrap().clone();
    let tool = zookeeper_client::Client::connector().with_auth("digest", fixture.master_login().as_bytes());
    let tool = tool.connect(&fixture.zookeeper.addr().to_string()).await.unwrap();
    tool.delete(&format!("/enginehouse/engines/{}/live", engine.name), None).await.unwrap();
    let again = eventually("another registration", async || {
        let node = permit_of(&lock, &engine.name).await?;
        node.ready().filter(|registration| registration.ctime_ms != live.ctime_ms).cloned()
    })
    .await;
    assert_eq!((again.session, again.content), (live.session, live.content), "on the same session");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_sessions_registration_is_waited_for() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let name = engine_name(1);
    let before = Session::connect(&fixture.coordination(fixture.engine_identity(&name)), &fixture.clock).await.unwrap();
    let uid = format!("uid-of-{name}");
    permit(&lock, &slot("t_1", "rp_1", "uc_1"), &name, Some(&uid)).await;
    let seen = permit_of(&lock, &name).await.unwrap();
    let live = coordination::Registration {
        address: "127.0.0.1:1".to_owned(),
        capacity: 1,
        config: String::new(),
        version: String::new(),
        uid,
        catalog: None,
        owner: None,
        keys: Vec::new(),
        tls: None,
    };
    coordination::registry::register(&before, &seen, &live).await.unwrap();
    let engine = RunningEngine::start(&fixture, name);
    eventually("the engine's start", async || engine.datafusion.is_started().then_some(())).await;
    fixture.zookeeper.faults().expire_session(before.id());
    let address = eventually("the registration", async || {
        let node = permit_of(&lock, &engine.name).await?;
        node.ready()?
            .content
            .clone()
            .ok()
            .map(|registration| registration.address)
            .filter(|address| *address != "127.0.0.1:1")
    })
    .await;
    assert_eq!(engine.status(&address).await.engine, engine.name.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_permit_it_keeps_serving_and_takes_a_new_one() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let engine = RunningEngine::start(&fixture, engine_name(1));
    let slot = slot("t_1", "rp_1", "uc_1");
    permit(&lock, &slot, &engine.name, Some(&engine.uid)).await;
    let node = registered(&lock, &engine.name).await;
    let address = node.ready().unwrap().content.clone().unwrap().address;
    coordination::permits::delete(&lock, &node).await.unwrap();
    assert!(!engine.status(&address).await.draining);
    permit(&lock, &slot, &engine.name, Some(&engine.uid)).await;
    registered(&lock, &engine.name).await;
    // Once it drains it never registers again.
    let mut held = engine.open(&address, "ann").await;
    held.run("CREATE TEMPORARY VIEW v AS SELECT 1", WAIT).await.unwrap();
    drain(&lock, &engine.name, &engine.uid, WAIT).await;
    eventually("the drain", async || engine.status(&address).await.draining.then_some(())).await;
    permit(&lock, &slot, &engine.name, Some(&engine.uid)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(permit_of(&lock, &engine.name).await.unwrap().registration, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_engine_closes_its_session() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let mut engine = RunningEngine::start(&fixture, engine_name(1));
    permit(&lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
    registered(&lock, &engine.name).await;
    engine.datafusion.die("out of memory");
    let Err(EngineAgentError::EngineEnded(reason)) = engine.ended().await else { panic!("the engine died") };
    assert_eq!(reason.to_string(), "out of memory");
    // Not after a timeout: the session was closed.
    assert_eq!(permit_of(&lock, &engine.name).await.unwrap().registration, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_the_orchestrator_has_forgotten_ends_at_once() {
    let fixture = Fixture::new().await;
    let lock = fixture.master().await;
    let mut engine = RunningEngine::start(&fixture, engine_name(1));
    permit(&lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
    let node = registered(&lock, &engine.name).await;
    let address = node.ready().unwrap().content.clone().unwrap().address;
    let mut session = engine.open(&address, "ann").await;
    let _running = session.execute("SELECT count(*) FROM generate_series(1, 100000000000)").await.unwrap();
    engine.forgotten.cancel();
    let ended = engine.ended_within(WAIT).await;
    assert!(matches!(ended, Some(Ok(Ended::Unwanted(_)))), "{ended:?}");
}
