//! Fault injection and restarts, which only the embedded server supports.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[allow(dead_code)]
mod suite;

use std::time::Duration;

use embedded_zookeeper::{Config, ErrorKind, EventFilter, Server, StartError};
use suite::raw::{Frame, Handshake, Raw, Record, op};
use suite::{EPHEMERAL, PLAIN, soon};
use zookeeper_client::{Client, Error, EventType, SessionState};

async fn server() -> Server {
    Server::start(Config::default()).await.unwrap()
}

async fn client(server: &Server) -> Client {
    let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
    soon(connector.connect(&server.addr().to_string())).await.unwrap()
}

async fn until(client: &Client, state: SessionState) {
    let mut states = client.state_watcher();
    soon(async { while states.state() != state && states.changed().await != state {} }).await;
}

#[tokio::test]
async fn an_expired_session_loses_its_nodes_at_once_and_is_notified() {
    let server = server().await;
    let (victim, other) = (client(&server).await, client(&server).await);
    victim.create("/e", b"", &EPHEMERAL).await.unwrap();
    let (_, gone) = other.check_and_watch_stat("/e").await.unwrap();
    let id = victim.session_id().0;
    let view = server.faults().sessions().into_iter().find(|session| session.id == id).unwrap();
    assert_eq!((view.timeout, view.connected), (Duration::from_secs(10), true));
    assert_eq!(view.ephemerals, ["/e"]);
    assert!(server.faults().expire_session(id));
    assert!(!server.faults().expire_session(id), "the session is already gone");
    assert_eq!(other.check_stat("/e").await.unwrap(), None);
    assert_eq!(soon(gone.changed()).await.event_type, EventType::NodeDeleted);
    until(&victim, SessionState::Expired).await;
    assert_eq!(victim.get_data("/").await.unwrap_err(), Error::SessionExpired);
}

#[tokio::test]
async fn a_cut_connection_comes_back_with_session_and_watches() {
    let server = server().await;
    let (victim, other) = (client(&server).await, client(&server).await);
    victim.create("/e", b"", &EPHEMERAL).await.unwrap();
    let (_, came) = victim.check_and_watch_stat("/a").await.unwrap();
    assert!(server.faults().cut_connection(victim.session_id().0));
    other.create("/a", b"", &PLAIN).await.unwrap();
    assert_eq!(soon(came.changed()).await.event_type, EventType::NodeCreated);
    assert_eq!(victim.check_stat("/e").await.unwrap().unwrap().ephemeral_owner, victim.session_id().0);
    assert!(!server.faults().cut_connection(1), "unknown");
}

#[tokio::test]
async fn dropped_events_use_up_their_watches() {
    let server = server().await;
    let mut watching = Raw::connect(server.addr()).await;
    let changing = client(&server).await;
    let watch = |path: &str| Record::new().text(path).flag(true);
    for path in ["/dropped", "/dropped/below", "/delivered"] {
        watching.ask(op::EXISTS, watch(path)).await;
    }
    server.faults().drop_events(EventFilter::Below("/dropped".to_owned()));
    for path in ["/dropped", "/dropped/below", "/delivered"] {
        changing.create(path, b"", &PLAIN).await.unwrap();
    }
    assert_eq!(watching.receive().await.unwrap(), Frame::Event { kind: 1, path: "/delivered".to_owned() });
    server.faults().drop_events(EventFilter::None);
    changing.set_data("/dropped", b"x", None).await.unwrap();
    // No event precedes this reply: the watch is gone.
    assert_eq!(watching.ask(op::EXISTS, watch("/dropped")).await.0, 0);
    server.faults().drop_events(EventFilter::All);
    changing.delete("/dropped/below", None).await.unwrap();
    changing.delete("/dropped", None).await.unwrap();
    assert_eq!(watching.ask(op::EXISTS, watch("/dropped")).await.0, -101);
}

#[tokio::test]
async fn delayed_events_come_after_the_reply_that_shows_the_change_and_in_order() {
    let server = server().await;
    let mut watching = Raw::connect(server.addr()).await;
    let changing = client(&server).await;
    let path = |number: usize| format!("/{number}");
    for number in 0..3 {
        watching.ask(op::EXISTS, Record::new().text(&path(number)).flag(true)).await;
    }
    server.faults().delay_events(Duration::from_millis(200));
    changing.create("/0", b"", &PLAIN).await.unwrap();
    server.faults().delay_events(Duration::from_millis(1));
    changing.create("/1", b"", &PLAIN).await.unwrap();
    assert_eq!(watching.ask(op::EXISTS, Record::new().text("/1").flag(false)).await.0, 0);
    for number in 0..2 {
        assert_eq!(watching.receive().await.unwrap(), Frame::Event { kind: 1, path: path(number) });
    }
    server.faults().delay_events(Duration::from_hours(1));
    changing.create("/2", b"", &PLAIN).await.unwrap();
    server.faults().delay_events(Duration::ZERO);
    assert_eq!(watching.receive().await.unwrap(), Frame::Event { kind: 1, path: path(2) });
}

#[tokio::test]
async fn sessions_survive_an_outage_shorter_than_their_timeout() {
    let server = server().await;
    let client = client(&server).await;
    client.create("/e", b"", &EPHEMERAL).await.unwrap();
    server.faults().outage(true);
    until(&client, SessionState::Disconnected).await;
    let mut short = Handshake { timeout_ms: 1, ..Handshake::default() };
    short.with_flag = false;
    assert!(Raw::connect_as(server.addr(), short).await.is_none());
    server.faults().outage(false);
    until(&client, SessionState::SyncConnected).await;
    assert!(soon(client.check_stat("/e")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_restarted_server_keeps_its_port_and_expires_old_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let config = || Config { data_dir: Some(folder.path().join("made")), ..Config::default() };
    let server = Server::start(config()).await.unwrap();
    let addr = server.addr();
    let survivor = client(&server).await;
    survivor.create("/e", b"", &EPHEMERAL).await.unwrap();
    let mut raw = Raw::connect(addr).await;
    let (session, zxid) = (raw.session.clone(), raw.zxid().await);
    server.shutdown().await;

    let server = Server::start(config()).await.unwrap();
    assert_eq!(server.addr(), addr);
    until(&survivor, SessionState::Expired).await;
    let mut again = Raw::connect(addr).await;
    let zxid_again = again.zxid().await;
    assert!(again.session.id > session.id, "{:#x} {:#x}", again.session.id, session.id);
    assert!(zxid_again > zxid, "{zxid_again:#x} {zxid:#x}");
    let resumed = Raw::connect_as(addr, Handshake { last_zxid: zxid, ..Handshake::resume(&session) }).await.unwrap();
    assert_eq!(resumed.session.id, 0, "expired");
    assert_eq!(client(&server).await.check_stat("/e").await.unwrap(), None);
    let kept: Vec<_> = std::fs::read_dir(folder.path().join("made")).unwrap().collect();
    assert_eq!(kept.len(), 1, "only the port is kept");
}

#[tokio::test]
async fn a_failed_start_returns_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("zookeeper-port"), "none\n").unwrap();
    let config = Config { data_dir: Some(folder.path().to_owned()), ..Config::default() };
    let error = Server::start(config).await.unwrap_err();
    assert!(matches!(error, StartError::PortFile { .. }));
    assert_eq!(error.kind(), ErrorKind::Configuration);

    let server = server().await;
    let error = Server::start(Config { listen: server.addr(), ..Config::default() }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Taken);

    let error = Server::start(Config { tick: Duration::ZERO, ..Config::default() }).await.unwrap_err();
    assert!(matches!(error, StartError::Timeouts));
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected_alone() {
    /// Changes in one transaction: nearly a whole frame.
    const CHANGES: usize = 40_000;
    /// More than any socket's buffers hold.
    const ROUNDS: usize = 12;
    /// The operation that sets a persistent watch.
    const ADD_WATCH: i32 = 106;
    let server = server().await;
    let mut changing = Raw::connect(server.addr()).await;
    changing.ask(op::CREATE, Record::new().create("/s", b"", 0)).await;
    let mut deaf = Raw::connect(server.addr()).await;
    assert_eq!(deaf.ask(ADD_WATCH, Record::new().text("/s").int(0)).await.0, 0);
    let mut transaction = Record::new();
    for _ in 0..CHANGES {
        transaction = transaction.int(op::SET_DATA).flag(false).int(-1).text("/s").bytes(b"").int(-1);
    }
    let transaction = transaction.int(-1).flag(true).int(-1);
    let connected = || {
        let sessions = server.faults().sessions();
        sessions.iter().find(|session| session.id == deaf.session.id).unwrap().connected
    };
    for _ in 0..ROUNDS {
        if connected() {
            assert_eq!(changing.ask(op::MULTI, transaction.clone()).await.0, 0);
        }
    }
    soon(async {
        while connected() {
            assert_eq!(changing.ask(op::EXISTS, Record::new().text("/s").flag(false)).await.0, 0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_dropped_server_stops() {
    let server = server().await;
    let addr = server.addr();
    let mut raw = Raw::connect(addr).await;
    drop(server);
    assert!(raw.until_closed().await.is_empty());
    // The port is free again as soon as the last task is gone.
    soon(async {
        while Server::start(Config { listen: addr, ..Config::default() }).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
