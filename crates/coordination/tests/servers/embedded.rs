//! The suite on the embedded server, and the faults that only the embedded server can inject.

use std::sync::Arc;
use std::time::Duration;

use crate::suite::alter::{alteration, create_when_free};
use crate::suite::{self, Installation, engine, eventually, registration, within};
use coordination::{
    CreateOutcome, NoRebuild, SessionState, Supervisor, View, ZkErrorKind, agents, alter_node, observe, permits,
    registry,
};
use embedded_zookeeper::{Config, EventFilter, Server};

async fn installation() -> (Server, Installation) {
    let server = Server::start(Config::default()).await.unwrap();
    let installation = Installation::new(&server.addr().to_string(), "/faults");
    (server, installation)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_passes_on_the_embedded_server() {
    let server = Server::start(Config::default()).await.unwrap();
    assert_eq!(suite::run("embedded", &server.addr().to_string()).await, suite::CASES.len());
    server.shutdown().await;
}

#[tokio::test]
async fn a_lost_connection_suspends_the_master_and_keeps_the_lock() {
    let (server, installation) = installation().await;
    let lock = installation.lock().await;
    assert!(server.faults().cut_connection(lock.session_id()));
    within(lock.lost()).await;
    // The session survives: the same lock is held when the connection is restored.
    let mut states = lock.session().states();
    within(states.wait_for(|state| *state == SessionState::Connected)).await.unwrap();
    assert!(lock.still_held().await.unwrap());
    permits::create(&lock, &engine("e-1"), &suite::permit(None)).await.unwrap();
    server.shutdown().await;
}

#[tokio::test]
async fn a_partitioned_follower_does_not_extend_the_lease() {
    let (server, installation) = installation().await;
    let lock = installation.lock().await;
    lock.session().sync().await.unwrap();
    assert!(lock.lease_valid());
    server.faults().cut_off_from_leader(true);
    // The connection is up, and the leader may expire the session meanwhile.
    eventually("the lease is no longer valid", || async { !lock.lease_valid() }).await;
    assert_eq!(lock.session().state(), SessionState::Connected);
    server.faults().cut_off_from_leader(false);
    server.shutdown().await;
}

#[tokio::test]
async fn an_outage_expires_no_registration_early() {
    let (server, installation) = installation().await;
    let lock = installation.lock().await;
    let session = installation.registered(&lock, "e-1", "uid-1").await;
    server.faults().outage(true);
    within(lock.lost()).await;
    let refused = permits::create(&lock, &engine("e-2"), &suite::permit(None)).await.unwrap_err();
    assert_eq!(refused.kind(), ZkErrorKind::Lost, "{refused}");
    // The engine's session has a connection of its own, and may see the outage later than the master's.
    let mut states = session.states();
    within(states.wait_for(|state| *state != SessionState::Connected)).await.unwrap();
    server.faults().outage(false);
    within(states.wait_for(|state| *state == SessionState::Connected)).await.unwrap();
    let standing = registry::read_own(&session, &engine("e-1")).await.unwrap();
    assert_eq!(standing.permit.unwrap().ready().unwrap().session, session.id());
    server.shutdown().await;
}

#[tokio::test]
async fn a_waiting_candidate_with_an_expired_session_fails_with_lost() {
    let (server, installation) = installation().await;
    let first = installation.lock().await;
    let election = installation.election();
    let candidate = tokio::spawn(async move { election.win().await });
    let tool = installation.as_master().await;
    let waiting = within(async {
        loop {
            for name in tool.list_children(&installation.path("lock/master")).await.unwrap() {
                let stat = tool.check_stat(&installation.path(&format!("lock/master/{name}"))).await.unwrap();
                match stat.map(|stat| stat.ephemeral_owner) {
                    Some(owner) if owner != first.session_id() => return owner,
                    _ => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        }
    })
    .await;
    assert!(server.faults().expire_session(waiting));
    let error = within(candidate).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ZkErrorKind::Lost, "{error}");
    server.shutdown().await;
}

#[tokio::test]
async fn an_expired_session_of_the_server_is_replaced() {
    let (server, installation) = installation().await;
    let supervisor =
        Supervisor::start(installation.settings(installation.proxy()), installation.clock.clone(), Arc::new(NoRebuild));
    let first = supervisor.ready(suite::WAIT).await.unwrap();
    assert!(server.faults().expire_session(first.id()));
    within(first.ended()).await;
    let mut sessions = supervisor.sessions();
    within(sessions.wait_for(|current| current.as_ref().is_some_and(|session| session.id() != first.id())))
        .await
        .unwrap();
    server.shutdown().await;
}

#[tokio::test]
async fn lost_events_cost_time_and_nothing_else() {
    let (server, installation) = installation().await;
    server.faults().drop_events(EventFilter::All);
    let lock = installation.lock().await;
    let election = installation.election();
    let follower = tokio::spawn(async move { election.win().await });
    let supervisor =
        Supervisor::start(installation.settings(installation.proxy()), installation.clock.clone(), Arc::new(NoRebuild));
    let view = View::start(supervisor.sessions(), Duration::from_millis(100), installation.clock.clone());

    let agent = installation.session(installation.agent()).await;
    alter_node::create(&agent, &alteration("a-1")).await.unwrap();
    let waiting = {
        let agent = agent.clone();
        tokio::spawn(async move { create_when_free(&agent, &alteration("a-2"), suite::WAIT).await })
    };
    let _engine = installation.registered(&lock, "e-1", "uid-1").await;
    let mut changes = view.changes();
    within(changes.wait_for(|registry| registry.engines.contains_key(&engine("e-1")))).await.unwrap();
    let seen = observe(lock.session()).await.unwrap().alter.unwrap();
    alter_node::delete(&lock, &seen).await.unwrap();
    assert_eq!(within(waiting).await.unwrap().unwrap(), CreateOutcome::Created);
    lock.resign().await;
    within(follower).await.unwrap().unwrap();
    server.shutdown().await;
}

#[tokio::test]
async fn late_events_are_harmless() {
    let (server, installation) = installation().await;
    server.faults().delay_events(Duration::from_millis(700));
    let lock = installation.lock().await;
    let agent = installation.session(installation.agent()).await;
    for round in 0..3 {
        let id = format!("a-{round}");
        assert_eq!(create_when_free(&agent, &alteration(&id), suite::WAIT).await.unwrap(), CreateOutcome::Created);
        let seen = observe(lock.session()).await.unwrap().alter.unwrap();
        assert_eq!(seen.children[0].id.as_str(), id);
        alter_node::delete(&lock, &seen).await.unwrap();
        assert!(alter_node::wait_absent(&agent, suite::WAIT).await.unwrap());
    }
    server.shutdown().await;
}

#[tokio::test]
async fn all_processes_register_again_after_a_server_restart() {
    let folder = tempfile::tempdir().unwrap();
    let config = || Config { data_dir: Some(folder.path().to_owned()), ..Config::default() };
    let server = Server::start(config()).await.unwrap();
    let installation = Installation::new(&server.addr().to_string(), "/restarted");
    let lock = installation.lock().await;
    let session = installation.registered(&lock, "e-1", "uid-1").await;
    let supervisor =
        Supervisor::start(installation.settings(installation.agent()), installation.clock.clone(), Arc::new(NoRebuild));
    let first = supervisor.ready(suite::WAIT).await.unwrap();
    server.shutdown().await;

    let server = Server::start(config()).await.unwrap();
    within(session.ended()).await;
    within(lock.session().ended()).await;
    let lock = installation.lock().await;
    let agent = within(async {
        let mut sessions = supervisor.sessions();
        let session = sessions.wait_for(|current| current.as_ref().is_some_and(|session| session.id() != first.id()));
        session.await.unwrap().clone().unwrap()
    })
    .await;
    agents::register(&agent, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[])).await.unwrap();
    let seen = observe(lock.session()).await.unwrap();
    assert!(seen.permits.is_empty(), "the server lost everything");
    assert_eq!(seen.agents.len(), 1);

    // The engine still runs: once its permit is recreated, it registers on a new session.
    installation.permitted(&lock, "e-1", "uid-1").await;
    let session = installation.engine_session(installation.engine("e-1")).await;
    let permit = registry::read_own(&session, &engine("e-1")).await.unwrap().permit.unwrap();
    registry::register(&session, &permit, &registration("uid-1")).await.unwrap();
    eventually("it is ready", || async { observe(lock.session()).await.unwrap().permits[0].ready().is_some() }).await;
    server.shutdown().await;
}
