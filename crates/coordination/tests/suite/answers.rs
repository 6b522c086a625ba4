//! What may be concluded when answers don't come: a relay between client and server that swallows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coordination::{Kind, Made, Session, SessionState, alter_node, layout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::alter::alteration;
use super::{World, eventually, within};

/// Copies bytes between a client and the server, until it is told to swallow the answers or to cut the line.
struct Relay {
    address: String,
    swallow: Arc<AtomicBool>,
    cut: tokio::sync::watch::Sender<bool>,
}

impl Relay {
    async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (swallow, server) = (Arc::new(AtomicBool::new(false)), server.to_owned());
        let (cut, cuts) = tokio::sync::watch::channel(false);
        let swallowing = Arc::clone(&swallow);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut cuts = cuts.clone();
                if *cuts.borrow() {
                    continue;
                }
                let server = TcpStream::connect(&server).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let swallowing = Arc::clone(&swallowing);
                tokio::spawn(async move {
                    tokio::select! {
                        () = copy(from_client, to_server, Arc::default()) => {}
                        () = copy(from_server, to_client, swallowing) => {}
                        _ = cuts.wait_for(|cut| *cut) => {}
                    }
                });
            }
        });
        Self { address, swallow, cut }
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, swallow: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !swallow.load(Ordering::SeqCst) && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn behind(world: &World, relay: &Relay) -> Session {
    let mut settings = world.settings(world.agent());
    settings.servers.clone_from(&relay.address);
    settings.session_timeout = Duration::from_secs(20);
    settings.request_timeout = Duration::from_millis(500);
    let session = Session::connect(&settings, &world.clock).await.unwrap();
    layout::create_base(&session).await.unwrap();
    session
}

pub async fn an_answer_that_never_comes_leaves_the_outcome_open(world: World) {
    let relay = Relay::start(&world.servers).await;
    let session = behind(&world, &relay).await;
    relay.swallow.store(true, Ordering::SeqCst);
    let error = alter_node::make(&session, &alteration("a-1")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    let question = alter_node::read(&session).await.unwrap_err();
    assert_eq!(question.kind(), Kind::Unavailable, "a question has no outcome: {question}");

    let other = world.session(world.agent()).await;
    eventually("it was written all the same", || async { alter_node::read(&other).await.unwrap().is_some() }).await;
    assert_eq!(alter_node::make(&other, &alteration("a-1")).await.unwrap(), Made::AlreadyMine);
}

pub async fn a_write_that_was_not_sent_never_happens_later(world: World) {
    let relay = Relay::start(&world.servers).await;
    let session = behind(&world, &relay).await;
    relay.cut.send_replace(true);
    let mut states = session.states();
    within(states.wait_for(|state| *state == SessionState::Suspended)).await.unwrap();
    let error = alter_node::make(&session, &alteration("a-1")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");

    relay.cut.send_replace(false);
    within(states.wait_for(|state| *state == SessionState::Connected)).await.unwrap();
    assert_eq!(alter_node::read(&session).await.unwrap(), None, "the same session, and nothing was written");
    assert_eq!(alter_node::make(&session, &alteration("a-1")).await.unwrap(), Made::Made);
}
