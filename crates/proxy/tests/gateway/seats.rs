//! Seats: sessions are given engines with a free one, and wait while there is none.

use std::time::Duration;

use agent_api::RetireRequest;
use hs2::Session;
use hs2::session::StatementProgress;

use crate::agents::run;
use crate::cluster::{Cluster, sessions_of};
use crate::engines::RunningEngine;
use crate::fixture::{WAIT, eventually};

async fn bound(cluster: &Cluster, user: &str) -> Session {
    let mut session = cluster.session(user).await;
    run(&mut session, "SELECT 1").await;
    session
}

fn loads(engines: [&RunningEngine; 2]) -> [u32; 2] {
    engines.map(|engine| engine.datafusion.load().0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_waits_for_a_free_seat_and_its_log_has_the_reason() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    let engine = cluster.engine_with_seats(&mut admin, 1).await;
    let ann = bound(&cluster, "ann").await;
    let mut bob = cluster.session("bob").await;
    let mut statement = bob.execute("SELECT 42 AS answer").await.unwrap();
    assert_eq!(statement.poll().await.unwrap(), StatementProgress::Running);
    let line = eventually("the log", async || statement.logs().await.unwrap().into_iter().next()).await;
    assert_eq!(line, format!("engine \"{}\" has no free seat (1 of 1)", engine.name));
    ann.close().await.unwrap();
    assert_eq!(statement.collect(WAIT).await.unwrap().rows[0][0].to_string(), "42");
    // A statement that is not polled waits as well.
    let mut waiting = cluster.session("ann").await;
    let (freed, waited) = tokio::join!(bob.close(), waiting.run("SELECT 1", WAIT));
    freed.unwrap();
    waited.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_with_seats_are_filled_one_after_the_other() {
    let cluster = Cluster::new().await;
    let mut admin = cluster.objects().await;
    let one = cluster.engine_with_seats(&mut admin, 3).await;
    let mut on_one = Vec::new();
    for _ in 0..3 {
        on_one.push(bound(&cluster, "ann").await);
    }
    let two = cluster.engine_with_seats(&mut admin, 3).await;
    let on_two = bound(&cluster, "ann").await;
    assert_eq!(loads([&one, &two]), [3, 1]);
    on_two.close().await.unwrap();
    on_one.pop().unwrap().close().await.unwrap();
    sessions_of(&one, 2).await;
    sessions_of(&two, 0).await;
    // Once the proxy has noticed the free seat, the fuller engine is preferred to the empty one.
    eventually("a session on the fuller engine", async || {
        let session = bound(&cluster, "ann").await;
        if loads([&one, &two])[0] < 3 {
            session.close().await.unwrap();
            sessions_of(&two, 0).await;
            return None;
        }
        on_one.push(session);
        Some(())
    })
    .await;
    let mut on_two = Vec::new();
    for _ in 0..3 {
        on_two.push(bound(&cluster, "bob").await);
    }
    assert_eq!(loads([&one, &two]), [3, 3]);
    let mut last = cluster.session("bob").await;
    let mut statement = last.execute("SELECT 1").await.unwrap();
    let line = eventually("the log", async || {
        statement.poll().await.unwrap();
        statement.logs().await.unwrap().into_iter().next()
    })
    .await;
    assert_eq!(line, "all 2 engines are full");
    on_two.pop().unwrap().close().await.unwrap();
    statement.collect(WAIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_waits_while_the_only_engine_retires() {
    let (cluster, _admin, engine) = Cluster::with_engine().await;
    let address = cluster.address(&engine).await;
    let mut master = engine.try_connect(&address, agent_api::SERVICE_MASTER, "").await.unwrap();
    let request = RetireRequest { uid: engine.uid.clone(), idle: Duration::ZERO };
    assert!(agent_api::retire(&mut master, &request, WAIT).await.unwrap());
    let mut ann = cluster.session("ann").await;
    let mut statement = ann.execute("SELECT 1").await.unwrap();
    let line = eventually("the log", async || {
        statement.poll().await.unwrap();
        statement.logs().await.unwrap().into_iter().next()
    })
    .await;
    assert_eq!(line, format!("engine \"{}\" is about to end", engine.name));
    statement.cancel().await.unwrap();
}
