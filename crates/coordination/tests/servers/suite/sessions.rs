//! Sessions and their supervisor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use coordination::{Error, NoRebuild, Rebuild, Session, SessionState, Supervisor, ZkErrorKind, agents};
use tokio::time::Instant;

use super::{Installation, WAIT, eventually, within};

/// Registers an agent on every session, after a number of failures.
struct Registering {
    failures: AtomicUsize,
}

#[async_trait]
impl Rebuild for Registering {
    async fn rebuild(&self, session: &Session) -> Result<Vec<String>, Error> {
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(Error::Unavailable("not yet".into()));
        }
        Ok(vec![agents::register(session, "agent-1", agents::AgentRegistration::plain("127.0.0.1:1", &[])).await?])
    }
}

fn registering(installation: &Installation, failures: usize) -> Supervisor {
    let hook = Arc::new(Registering { failures: AtomicUsize::new(failures) });
    Supervisor::start(installation.settings(installation.agent()), installation.clock.clone(), hook)
}

pub async fn an_expired_session_is_replaced_with_its_nodes(installation: Installation) {
    let supervisor = registering(&installation, 0);
    let first = supervisor.ready(WAIT).await.unwrap();
    let mut states = supervisor.states();
    assert_eq!(
        *within(states.wait_for(|state| *state == SessionState::Connected)).await.unwrap(),
        SessionState::Connected
    );
    let mut sessions = supervisor.sessions();
    installation.expire(&first).await;
    let renewed = sessions.wait_for(|current| current.as_ref().is_some_and(|session| session.id() != first.id()));
    let second = within(renewed).await.unwrap().clone().unwrap();
    let there = agents::list(&second).await.unwrap();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].session, second.id());
    assert_eq!(
        agents::list(&first).await.unwrap_err().kind(),
        ZkErrorKind::Unavailable,
        "requests on the old session fail"
    );
}

pub async fn a_failing_rebuild_is_retried_before_the_session_is_published(installation: Installation) {
    let supervisor = registering(&installation, 1);
    assert_eq!(supervisor.session().unwrap_err().kind(), ZkErrorKind::Unavailable);
    let session = supervisor.ready(WAIT).await.unwrap();
    assert_eq!(agents::list(&session).await.unwrap().len(), 1);
}

pub async fn a_deleted_ephemeral_node_is_recreated(installation: Installation) {
    made_again(installation, true).await;
}

pub async fn a_deleted_ephemeral_node_is_recreated_without_events(installation: Installation) {
    made_again(installation, false).await;
}

async fn made_again(installation: Installation, watch_events: bool) {
    let mut settings = installation.settings(installation.agent());
    settings.watch_events = watch_events;
    // With events nothing depends on the interval.
    settings.reread = if watch_events { Duration::from_mins(10) } else { Duration::from_millis(50) };
    let hook = Arc::new(Registering { failures: AtomicUsize::new(0) });
    let supervisor = Supervisor::start(settings, installation.clock.clone(), hook);
    let session = supervisor.ready(WAIT).await.unwrap();
    let tool = installation.as_master().await;
    let path = installation.path("agents/agent-1");
    for _ in 0..2 {
        tool.delete(&path, None).await.unwrap();
        eventually("it is recreated", || async { tool.check_stat(&path).await.unwrap().is_some() }).await;
        let there = tool.check_stat(&path).await.unwrap().unwrap();
        assert_eq!(there.ephemeral_owner, session.id());
    }
    assert_eq!(supervisor.session().unwrap().id(), session.id(), "on the same session");
}

pub async fn deleted_base_nodes_are_recreated(installation: Installation) {
    let supervisor = registering(&installation, 0);
    supervisor.ready(WAIT).await.unwrap();
    let tool = installation.as_master().await;
    for base in ["bell", "drains", "proxies"] {
        let path = installation.path(base);
        tool.delete(&path, None).await.unwrap();
        eventually(base, || async { tool.check_stat(&path).await.unwrap().is_some() }).await;
    }
    let (agents, own) = (installation.path("agents"), installation.path("agents/agent-1"));
    let mut both = tool.new_multi_writer();
    both.add_delete(&own, None).unwrap();
    both.add_delete(&agents, None).unwrap();
    both.commit().await.unwrap();
    eventually("the agent is found again", || async { tool.check_stat(&own).await.unwrap().is_some() }).await;
}

pub async fn closing_a_supervisor_deletes_its_nodes(installation: Installation) {
    let reader = installation.session(installation.proxy()).await;
    let supervisor = registering(&installation, 0);
    supervisor.ready(WAIT).await.unwrap();
    supervisor.close().await;
    reader.sync().await.unwrap();
    assert_eq!(agents::list(&reader).await.unwrap(), [], "deleted when close returns");

    let supervisor = registering(&installation, 0);
    supervisor.ready(WAIT).await.unwrap();
    drop(supervisor);
    eventually("dropping it does the same", || async { agents::list(&reader).await.unwrap().is_empty() }).await;
}

pub async fn a_missing_server_is_unavailable_within_the_deadline(installation: Installation) {
    // Bound and not listening: it refuses connections, and no other process gets the port.
    let nowhere = tokio::net::TcpSocket::new_v4().unwrap();
    nowhere.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut settings = installation.settings(installation.proxy());
    settings.servers = nowhere.local_addr().unwrap().to_string();
    settings.connect_timeout = Duration::from_millis(300);
    let began = Instant::now();
    let error = Session::connect(&settings, &installation.clock).await.unwrap_err();
    assert_eq!(error.kind(), ZkErrorKind::Unavailable, "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
    let supervisor = Supervisor::start(settings, installation.clock.clone(), Arc::new(NoRebuild));
    assert_eq!(supervisor.ready(Duration::from_millis(200)).await.unwrap_err().kind(), ZkErrorKind::Unavailable);
    assert_eq!(*supervisor.states().borrow(), SessionState::Expired);
}
