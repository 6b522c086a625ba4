//! Known bugs of similar systems, each provoked: what it breaks, and that our code is not affected. The others are switches of
//! the model; see `docs/model.md`.
//!
//! The bugs of the client library are those of the version in use. If one of these tests fails after an update, the library has
//! fixed the bug, and the workaround can be removed.

use std::sync::Arc;
use std::time::Duration;

use crate::suite::{Installation, engine, eventually, within};
use coordination::{NoRebuild, SessionState, Supervisor, View, Wakeups};
use embedded_zookeeper::{Config, EventFilter, Server};
use tokio::time::timeout;
use zookeeper_client::{Acls, AddWatchMode, EventType, LockPrefix};

/// How long to wait for an event that must not occur.
const NEVER: Duration = Duration::from_millis(700);

async fn installation() -> (Server, Installation) {
    let server = Server::start(Config::default()).await.unwrap();
    let installation = Installation::new(&server.addr().to_string(), "/record");
    (server, installation)
}

/// The number of candidates in the queue.
async fn queued(installation: &Installation) -> usize {
    installation.as_master().await.list_children(&installation.path("lock/master")).await.unwrap().len()
}

/// Cancels the lock of the client library after that many turns of the scheduler.
async fn lock_and_cancel(client: &zookeeper_client::Client, folder: &str, turns: usize) {
    let prefix = LockPrefix::new_curator(folder, "lock-").unwrap();
    let patience = async {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        held = client.lock(prefix, b"", Acls::anyone_all()) => drop(held),
        () = patience => {}
    }
}

#[tokio::test]
async fn a_cancelled_lock_of_the_client_library_blocks_the_queue() {
    let (server, installation) = installation().await;
    installation.session(installation.master()).await.close().await;
    let client = installation.as_master().await;
    let folder = installation.path("lock/master");
    // Cancelling it between the request and its answer leaks the node.
    let mut turns = 0;
    while queued(&installation).await == 0 {
        assert!(turns < 200, "the node never leaked: the library cleans up by now");
        lock_and_cancel(&client, &folder, turns).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        turns += 1;
    }
    println!("leaked when cancelled after {} turns", turns - 1);
    tokio::time::sleep(NEVER).await;
    assert_eq!(queued(&installation).await, 1, "the node exists as long as the client");
    assert!(timeout(NEVER, installation.election().win()).await.is_err(), "and no candidate gets the lock");
    server.shutdown().await;
}

#[tokio::test]
async fn an_election_cancelled_at_any_point_leaves_nothing_behind() {
    let (server, installation) = installation().await;
    for turns in 0..60 {
        let election = installation.election();
        let patience = async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            lock = election.win() => drop(lock),
            () = patience => {}
        }
    }
    let lock = installation.lock().await;
    assert!(lock.still_held().await.unwrap());
    eventually("the queue has no other candidate", || async { queued(&installation).await == 1 }).await;
    server.shutdown().await;
}

#[tokio::test]
async fn persistent_watches_of_the_client_library_are_lost_on_reconnect() {
    let (server, installation) = installation().await;
    let lock = installation.lock().await;
    let client = installation.as_master().await;
    let mut watcher = client.watch(&installation.path("bell"), AddWatchMode::Persistent).await.unwrap();
    client.set_data(&installation.path("bell"), b"", None).await.unwrap();
    within(watcher.changed()).await;
    let wakeups = Wakeups::start(lock.session());
    within(wakeups.next()).await;

    for session in [client.session_id().0, lock.session_id()] {
        assert!(server.faults().cut_connection(session));
    }
    let mut states = lock.session().states();
    within(states.wait_for(|state| *state == SessionState::Connected)).await.unwrap();
    within(async { while client.set_data(&installation.path("bell"), b"", None).await.is_err() {} }).await;
    while timeout(NEVER, wakeups.next()).await.is_ok() {}
    client.set_data(&installation.path("bell"), b"", None).await.unwrap();
    within(wakeups.next()).await;
    let heard = async { while watcher.changed().await.event_type != EventType::NodeDataChanged {} };
    assert!(timeout(NEVER, heard).await.is_err(), "the library's watch fired: it was set again");
    server.shutdown().await;
}

#[tokio::test]
async fn relying_on_events_alone_misses_changes() {
    let (server, installation) = installation().await;
    let lock = installation.lock().await;
    let view = |reread| {
        let supervisor = Supervisor::start(
            installation.settings(installation.proxy()),
            installation.clock.clone(),
            Arc::new(NoRebuild),
        );
        let view = View::start(supervisor.sessions(), reread, installation.clock.clone());
        (supervisor, view)
    };
    let (_one, trusting) = view(Duration::from_mins(10));
    let (_other, looking) = view(Duration::from_millis(50));
    for view in [&trusting, &looking] {
        within(view.changes().wait_for(|registry| registry.read_at.is_some())).await.unwrap();
    }
    server.faults().drop_events(EventFilter::All);
    // Arming the watches may have caused one read that is still pending.
    let mut engines = Vec::new();
    for name in ["e-1", "e-2", "e-3", "e-4"] {
        engines.push(installation.registered(&lock, name, "uid-1").await);
        let there = |view: &View| view.snapshot().engines.contains_key(&engine(name));
        within(looking.changes().wait_for(|registry| registry.engines.contains_key(&engine(name)))).await.unwrap();
        tokio::time::sleep(NEVER).await;
        if !there(&trusting) {
            return server.shutdown().await;
        }
    }
    panic!("it saw all changes without a reason to read");
}
