//! Lost answers: what a caller may conclude. A relay between client and server swallows them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use coordination::{CreateOutcome, Session, SessionState, ZkErrorKind, alter_node};

use super::alter::alteration;
use super::relay::Relay;
use super::{Installation, eventually, within};

async fn behind(installation: &Installation, relay: &Relay, request_timeout: Duration) -> Session {
    // Not by the session with the short deadline: on a loaded machine it would exceed it.
    installation.session(installation.agent()).await.close().await;
    let mut settings = installation.settings(installation.agent());
    settings.servers.clone_from(&relay.address);
    settings.session_timeout = Duration::from_secs(20);
    settings.request_timeout = request_timeout;
    Session::connect(&settings, &installation.clock).await.unwrap()
}

pub async fn a_lost_answer_leaves_the_outcome_unknown(installation: Installation) {
    let relay = Relay::start(&installation.servers).await;
    let session = behind(&installation, &relay, Duration::from_secs(3)).await;
    relay.swallow.store(true, Ordering::SeqCst);
    let error = alter_node::create(&session, &alteration("a-1")).await.unwrap_err();
    assert_eq!(error.kind(), ZkErrorKind::Unknown, "{error}");
    let question = alter_node::read(&session).await.unwrap_err();
    assert_eq!(question.kind(), ZkErrorKind::Unavailable, "a read has no outcome: {question}");

    let other = installation.session(installation.agent()).await;
    eventually("it was written nevertheless", || async { alter_node::read(&other).await.unwrap().is_some() }).await;
    assert_eq!(alter_node::create(&other, &alteration("a-1")).await.unwrap(), CreateOutcome::AlreadyOwn);
}

pub async fn a_write_that_was_not_sent_never_happens_later(installation: Installation) {
    let relay = Relay::start(&installation.servers).await;
    let session = behind(&installation, &relay, Duration::from_secs(10)).await;
    relay.cut.send_replace(true);
    let mut states = session.states();
    within(states.wait_for(|state| *state == SessionState::Suspended)).await.unwrap();
    let error = alter_node::create(&session, &alteration("a-1")).await.unwrap_err();
    assert_eq!(error.kind(), ZkErrorKind::Unavailable, "{error}");

    relay.cut.send_replace(false);
    within(states.wait_for(|state| *state == SessionState::Connected)).await.unwrap();
    assert_eq!(alter_node::read(&session).await.unwrap(), None, "the same session, and nothing was written");
    assert_eq!(alter_node::create(&session, &alteration("a-1")).await.unwrap(), CreateOutcome::Created);
}
