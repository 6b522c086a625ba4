//! Sessions and who rebuilds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use coordination::{Error, NoRebuild, Rebuild, Session, SessionState, Supervisor, ZkErrorKind, agents};
use tokio::time::Instant;

use super::{WAIT, World, eventually, within};

/// Registers an agent on every session, after a number of failures.
struct Registering {
    failures: AtomicUsize,
}

#[async_trait]
impl Rebuild for Registering {
    async fn rebuild(&self, session: &Session) -> Result<Vec<String>, Error> {
        if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(Error::Unavailable { reason: "not yet".to_owned() });
        }
        Ok(vec![agents::register(session, "agent-1", "127.0.0.1:1").await?])
    }
}

fn registering(world: &World, failures: usize) -> Supervisor {
    let hook = Arc::new(Registering { failures: AtomicUsize::new(failures) });
    Supervisor::start(world.settings(world.agent()), world.clock.clone(), hook)
}

pub async fn an_expired_session_is_built_anew_with_what_hangs_on_it(world: World) {
    let supervisor = registering(&world, 0);
    let first = supervisor.ready(WAIT).await.unwrap();
    let mut states = supervisor.states();
    assert_eq!(*within(states.wait_for(|it| *it == SessionState::Connected)).await.unwrap(), SessionState::Connected);
    let mut sessions = supervisor.sessions();
    world.expire(&first).await;
    let renewed = sessions.wait_for(|it| it.as_ref().is_some_and(|it| it.id() != first.id()));
    let second = within(renewed).await.unwrap().clone().unwrap();
    let there = agents::list(&second).await.unwrap();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].session, second.id());
    assert_eq!(
        agents::list(&first).await.unwrap_err().kind(),
        ZkErrorKind::Unavailable,
        "an old session answers nothing"
    );
}

pub async fn a_failing_rebuild_is_tried_again_before_the_session_is_handed_out(world: World) {
    let supervisor = registering(&world, 1);
    assert_eq!(supervisor.session().unwrap_err().kind(), ZkErrorKind::Unavailable);
    let session = supervisor.ready(WAIT).await.unwrap();
    assert_eq!(agents::list(&session).await.unwrap().len(), 1);
}

pub async fn a_node_that_somebody_deletes_is_made_again_while_its_session_lives(world: World) {
    made_again(world, true).await;
}

pub async fn without_events_a_node_that_somebody_deletes_is_made_again_too(world: World) {
    made_again(world, false).await;
}

async fn made_again(world: World, watch_events: bool) {
    let mut settings = world.settings(world.agent());
    settings.watch_events = watch_events;
    // With events nothing depends on looking again.
    settings.reread = if watch_events { Duration::from_mins(10) } else { Duration::from_millis(50) };
    let hook = Arc::new(Registering { failures: AtomicUsize::new(0) });
    let supervisor = Supervisor::start(settings, world.clock.clone(), hook);
    let session = supervisor.ready(WAIT).await.unwrap();
    let tool = world.as_master().await;
    let path = world.path("agents/agent-1");
    for _ in 0..2 {
        tool.delete(&path, None).await.unwrap();
        eventually("it is there again", || async { tool.check_stat(&path).await.unwrap().is_some() }).await;
        let there = tool.check_stat(&path).await.unwrap().unwrap();
        assert_eq!(there.ephemeral_owner, session.id());
    }
    assert_eq!(supervisor.session().unwrap().id(), session.id(), "on the same session");
}

pub async fn the_nodes_above_all_others_are_made_again_too(world: World) {
    let supervisor = registering(&world, 0);
    supervisor.ready(WAIT).await.unwrap();
    let tool = world.as_master().await;
    for base in ["bell", "drains", "proxies"] {
        let path = world.path(base);
        tool.delete(&path, None).await.unwrap();
        eventually(base, || async { tool.check_stat(&path).await.unwrap().is_some() }).await;
    }
    let (agents, own) = (world.path("agents"), world.path("agents/agent-1"));
    let mut both = tool.new_multi_writer();
    both.add_delete(&own, None).unwrap();
    both.add_delete(&agents, None).unwrap();
    both.commit().await.unwrap();
    eventually("the agent is found again", || async { tool.check_stat(&own).await.unwrap().is_some() }).await;
}

pub async fn a_closed_supervisor_takes_its_nodes_along(world: World) {
    let reader = world.session(world.proxy()).await;
    let supervisor = registering(&world, 0);
    supervisor.ready(WAIT).await.unwrap();
    supervisor.close().await;
    reader.sync().await.unwrap();
    assert_eq!(agents::list(&reader).await.unwrap(), [], "gone when close returns");

    let supervisor = registering(&world, 0);
    supervisor.ready(WAIT).await.unwrap();
    drop(supervisor);
    eventually("dropping does it too", || async { agents::list(&reader).await.unwrap().is_empty() }).await;
}

pub async fn a_server_that_is_not_there_is_unavailable_in_time(world: World) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut settings = world.settings(world.proxy());
    settings.servers = free.to_string();
    settings.connect_timeout = Duration::from_millis(300);
    let began = Instant::now();
    let error = Session::connect(&settings, &world.clock).await.unwrap_err();
    assert_eq!(error.kind(), ZkErrorKind::Unavailable, "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
    let supervisor = Supervisor::start(settings, world.clock.clone(), Arc::new(NoRebuild));
    assert_eq!(supervisor.ready(Duration::from_millis(200)).await.unwrap_err().kind(), ZkErrorKind::Unavailable);
    assert_eq!(*supervisor.states().borrow(), SessionState::Expired);
}
