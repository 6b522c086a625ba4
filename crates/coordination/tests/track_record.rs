//! Known bugs of systems like this one, each brought about on purpose: what goes wrong with it, and that nothing goes
//! wrong without it. The others are switches of the model, see `docs/model.md`.
//!
//! The bugs of the client library are shown as they are in the version that is used: if one of these tests fails after
//! an update, the library has lost a bug, and what is built around it may go.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod suite;

use std::sync::Arc;
use std::time::Duration;

use coordination::{NoRebuild, SessionState, Supervisor, View, Wakeups};
use embedded_zookeeper::{Config, EventFilter, Server};
use suite::{World, engine, eventually, within};
use tokio::time::timeout;
use zookeeper_client::{Acls, AddWatchMode, EventType, LockPrefix};

/// How long is waited for what must not happen.
const NEVER: Duration = Duration::from_millis(700);

async fn world() -> (Server, World) {
    let server = Server::start(Config::default()).await.unwrap();
    let world = World::new(&server.addr().to_string(), "/record");
    (server, world)
}

/// How many candidates stand in the queue.
async fn queued(world: &World) -> usize {
    world.as_master().await.list_children(&world.path("lock/master")).await.unwrap().len()
}

/// Cancels the client library's own lock after so many turns of the scheduler.
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
async fn a_lock_of_the_client_library_that_is_cancelled_leaves_its_node_and_nobody_follows() {
    let (server, world) = world().await;
    world.session(world.master()).await.close().await;
    let client = world.as_master().await;
    let folder = world.path("lock/master");
    // Between the request and its answer there is a moment at which it must not be cancelled.
    let mut turns = 0;
    while queued(&world).await == 0 {
        assert!(turns < 200, "no moment was found: the library cleans up by now");
        lock_and_cancel(&client, &folder, turns).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        turns += 1;
    }
    println!("left behind when it was cancelled after {} turns", turns - 1);
    tokio::time::sleep(NEVER).await;
    assert_eq!(queued(&world).await, 1, "the node is there as long as the client lives");
    assert!(timeout(NEVER, world.election().win()).await.is_err(), "and nobody holds the lock");
    server.shutdown().await;
}

#[tokio::test]
async fn an_election_that_is_cancelled_at_any_moment_leaves_nothing_and_the_next_one_wins() {
    let (server, world) = world().await;
    for turns in 0..60 {
        let election = world.election();
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
    let lock = world.lock().await;
    assert!(lock.still_held().await.unwrap());
    eventually("nobody else is in the queue", || async { queued(&world).await == 1 }).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_persistent_watch_of_the_client_library_is_lost_with_its_connection_and_ours_are_not() {
    let (server, world) = world().await;
    let lock = world.lock().await;
    let client = world.as_master().await;
    let mut watcher = client.watch(&world.path("bell"), AddWatchMode::Persistent).await.unwrap();
    client.set_data(&world.path("bell"), b"", None).await.unwrap();
    within(watcher.changed()).await;
    let wakeups = Wakeups::start(lock.session());
    within(wakeups.next()).await;

    for session in [client.session_id().0, lock.session_id()] {
        assert!(server.faults().cut_connection(session));
    }
    let mut states = lock.session().states();
    within(states.wait_for(|state| *state == SessionState::Connected)).await.unwrap();
    within(async { while client.set_data(&world.path("bell"), b"", None).await.is_err() {} }).await;
    while timeout(NEVER, wakeups.next()).await.is_ok() {}
    client.set_data(&world.path("bell"), b"", None).await.unwrap();
    within(wakeups.next()).await;
    let heard = async { while watcher.changed().await.event_type != EventType::NodeDataChanged {} };
    assert!(timeout(NEVER, heard).await.is_err(), "the library's own watch heard of it: it was set again");
    server.shutdown().await;
}

#[tokio::test]
async fn who_trusts_events_alone_never_learns_what_was_missed() {
    let (server, world) = world().await;
    let lock = world.lock().await;
    let view = |reread| {
        let supervisor = Supervisor::start(world.settings(world.proxy()), world.clock.clone(), Arc::new(NoRebuild));
        let view = View::start(supervisor.sessions(), reread, world.clock.clone());
        (supervisor, view)
    };
    let (_one, trusting) = view(Duration::from_mins(10));
    let (_other, looking) = view(Duration::from_millis(50));
    for view in [&trusting, &looking] {
        within(view.changes().wait_for(|it| it.read_at.is_some())).await.unwrap();
    }
    server.faults().drop_events(EventFilter::All);
    // A view may have one reading ahead of it that its watches asked for when they were set.
    let mut engines = Vec::new();
    for name in ["e-1", "e-2", "e-3", "e-4"] {
        engines.push(world.registered(&lock, name, "uid-1").await);
        let there = |view: &View| view.snapshot().engines.contains_key(&engine(name));
        within(looking.changes().wait_for(|it| it.engines.contains_key(&engine(name)))).await.unwrap();
        tokio::time::sleep(NEVER).await;
        if !there(&trusting) {
            return server.shutdown().await;
        }
    }
    panic!("it had no reason to look, and has seen all of them");
}
