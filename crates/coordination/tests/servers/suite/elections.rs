//! The master's lock.

use std::sync::Arc;
use std::time::Duration;

use coordination::{SessionState, ZkErrorKind, permits};
use model::clock::{ManualClock, SharedClock};
use zookeeper_client::{Acls, CreateMode};

use super::{Installation, engine, eventually, permit, within};

pub async fn the_next_candidate_follows_when_the_master_resigns(installation: Installation) {
    let first = installation.lock().await;
    assert!(first.lease_valid());
    assert!(first.still_held().await.unwrap());
    assert!(first.holder().starts_with(&installation.path("lock/master/")), "{}", first.holder());

    let election = installation.election();
    let second = tokio::spawn(async move { election.win().await });
    queue_of(&installation, 2).await;
    assert!(!second.is_finished());
    first.resign().await;
    let second = within(second).await.unwrap().unwrap();
    assert!(second.still_held().await.unwrap());
    queue_of(&installation, 1).await;
}

pub async fn a_cancelled_candidate_leaves_nothing_behind(installation: Installation) {
    let first = installation.lock().await;
    let election = installation.election();
    let second = tokio::spawn(async move { election.win().await });
    queue_of(&installation, 2).await;
    second.abort();
    queue_of(&installation, 1).await;
    assert!(first.still_held().await.unwrap());
    drop(first);
    queue_of(&installation, 0).await;
}

pub async fn an_expired_master_writes_nothing_and_is_replaced(installation: Installation) {
    let first = installation.lock().await;
    let election = installation.election();
    let second = tokio::spawn(async move { election.win().await });
    queue_of(&installation, 2).await;
    installation.expire(first.session()).await;
    within(first.lost()).await;
    assert!(!first.lease_valid());
    assert!(!first.still_held().await.unwrap());
    let late = permits::create(&first, &engine("e-1"), &permit(None)).await.unwrap_err();
    assert_eq!(late.kind(), ZkErrorKind::Lost, "{late}");

    let second = within(second).await.unwrap().unwrap();
    permits::create(&second, &engine("e-1"), &permit(None)).await.unwrap();
}

pub async fn a_lock_of_another_tool_stops_all_masters(installation: Installation) {
    drop(installation.session(installation.master()).await);
    let kazoo = installation.as_master().await;
    let prefix = installation.path("lock/master/0123456789abcdef0123456789abcdef__lock__");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, number) = kazoo.create(&prefix, b"kazoo", &options).await.unwrap();

    let election = installation.election();
    let candidate = tokio::spawn(async move { election.win().await });
    queue_of(&installation, 2).await;
    assert!(!candidate.is_finished());
    kazoo.delete(&format!("{prefix}{number}"), None).await.unwrap();
    within(candidate).await.unwrap().unwrap();
}

pub async fn a_candidate_whose_node_was_deleted_starts_again(installation: Installation) {
    let first = installation.lock().await;
    let election = installation.election();
    let candidate = tokio::spawn(async move { election.win().await });
    queue_of(&installation, 2).await;
    let hand = installation.as_master().await;
    let own = first.path().rsplit('/').next().unwrap();
    for name in hand.list_children(&installation.path("lock/master")).await.unwrap() {
        if name != own {
            hand.delete(&installation.path(&format!("lock/master/{name}")), None).await.unwrap();
        }
    }
    let error = within(candidate).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ZkErrorKind::Lost, "{error}");
    first.resign().await;
    installation.lock().await;
}

pub async fn a_lock_whose_node_was_deleted_writes_nothing(installation: Installation) {
    let first = installation.lock().await;
    installation.as_master().await.delete(first.path(), None).await.unwrap();
    let second = installation.lock().await;
    assert!(first.lease_valid(), "its session is alive, only the node is gone");
    let late = permits::create(&first, &engine("e-1"), &permit(None)).await.unwrap_err();
    assert_eq!(late.kind(), ZkErrorKind::Lost, "{late}");
    assert!(!first.still_held().await.unwrap());
    assert!(permits::list(second.session()).await.unwrap().is_empty());
}

pub async fn the_lease_ends_after_two_thirds_of_the_session_timeout(installation: Installation) {
    let clock = ManualClock::at(0);
    let mut stopped = installation.clone();
    stopped.clock = Arc::clone(&clock) as SharedClock;
    let mut settings = stopped.settings(stopped.master());
    // With long pauses between heartbeats, so that none renews the lease during the test.
    settings.session_timeout = Duration::from_mins(1);
    let election = coordination::Election::new(settings, stopped.clock.clone(), "suite");
    let lock = within(election.win()).await.unwrap();
    lock.session().probe().await.unwrap();
    let timeout = lock.session().timeout();

    clock.advance((timeout * 2 / 3).saturating_sub(Duration::from_millis(10)));
    assert!(lock.lease_valid());
    clock.advance(Duration::from_millis(20));
    assert!(!lock.lease_valid());
    assert_eq!(lock.session().state(), SessionState::Connected);
    let refused = permits::create(&lock, &engine("e-1"), &permit(None)).await.unwrap_err();
    assert_eq!(refused.kind(), ZkErrorKind::Lost, "{refused}");
    assert!(permits::list(lock.session()).await.unwrap().is_empty(), "nothing was sent");
    assert!(!lock.lease_valid(), "any follower answers a read");
    lock.session().sync().await.unwrap();
    assert!(lock.lease_valid(), "that answer renewed the lease");
    permits::create(&lock, &engine("e-1"), &permit(None)).await.unwrap();
}

/// Waits until the queue has that many nodes.
async fn queue_of(installation: &Installation, candidates: usize) {
    let client = installation.as_master().await;
    let path = installation.path("lock/master");
    eventually(&format!("{candidates} candidates"), || async {
        client.list_children(&path).await.unwrap().len() == candidates
    })
    .await;
}
