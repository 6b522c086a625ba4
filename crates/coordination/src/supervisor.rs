//! The session supervisor: replaces an expired session, and maintains its ephemeral nodes.
//!
//! The client library reconnects but never opens a new session. The owner creates the ephemeral nodes of a session
//! (registration, discovery) in a [`Rebuild`], and a session is published only after that succeeded. Holders of an old session
//! receive errors from it and fetch the new one.
//!
//! The ephemeral nodes are maintained while the session lives. If one was deleted by hand, a live process would otherwise
//! remain undiscoverable until its restart. So the nodes and the base nodes are watched, checked every
//! `SessionSettings::reread`, and recreated when they are missing. A check is never older than the writes of this session, so a
//! node that was just created never seems to be missing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::clock::SharedClock;
use model::log_throttle::LogThrottle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::bootstrap::create_base_nodes;
use crate::credentials::Identity;
use crate::error::{Error, ZkErrorKind};
use crate::failpoints;
use crate::session::{Session, SessionSettings, SessionState};
use crate::watches::{Target, Watches};

/// The pause before the next attempt to establish a session or to rebuild its nodes, also after a successful rebuild.
pub const RETRY: Duration = Duration::from_secs(1);
/// The deadline of one call of [`Rebuild::rebuild`].
pub const REBUILD_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates the ephemeral nodes of each new session.
#[async_trait]
pub trait Rebuild: Send + Sync {
    /// Called for each session, and again on the same session after an error and when one of its nodes is missing. Returns the
    /// paths of all ephemeral nodes of the session. Must be idempotent.
    async fn rebuild(&self, session: &Session) -> Result<Vec<String>, Error>;
}

/// For sessions without ephemeral nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRebuild;

#[async_trait]
impl Rebuild for NoRebuild {
    async fn rebuild(&self, _session: &Session) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }
}

/// The handle of the supervisor. Dropping it closes the session.
#[derive(Debug)]
pub struct Supervisor {
    sessions: watch::Receiver<Option<Session>>,
    states: watch::Receiver<SessionState>,
    stop: CancellationToken,
    closing_time: Duration,
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Supervisor {
    /// Starts the supervisor. It retries without limit.
    pub fn start(settings: SessionSettings, clock: SharedClock, rebuild: Arc<dyn Rebuild>) -> Self {
        let (session_sender, sessions) = watch::channel(None);
        let (state_sender, states) = watch::channel(SessionState::Expired);
        let stop = CancellationToken::new();
        let closing_time = settings.request_timeout * 2;
        let task = Task {
            base: !settings.identity.is_engine(),
            settings,
            clock,
            rebuild,
            sessions: session_sender,
            states: state_sender,
            stop: stop.clone(),
        };
        tokio::spawn(task.run());
        Self { sessions, states, stop, closing_time }
    }

    /// Waits for a session, at most for the given time.
    pub async fn ready(&self, deadline: Duration) -> Result<Session, Error> {
        let mut sessions = self.sessions.clone();
        match timeout(deadline, sessions.wait_for(Option::is_some)).await {
            Ok(Ok(session)) => session.clone().ok_or_else(no_session),
            _ => Err(no_session()),
        }
    }

    /// The current session; an error while there is none. It may just have been lost.
    pub fn session(&self) -> Result<Session, Error> {
        self.sessions.borrow().clone().ok_or_else(no_session)
    }

    /// The current session as it changes; `None` while there is none.
    pub fn sessions(&self) -> watch::Receiver<Option<Session>> {
        self.sessions.clone()
    }

    /// The state of the session as it changes; [`SessionState::Expired`] while there is none.
    pub fn states(&self) -> watch::Receiver<SessionState> {
        self.states.clone()
    }

    /// Stops the supervisor and closes the session, so that its ephemeral nodes are deleted at once. Waits for at most twice the
    /// deadline of a request. Idempotent.
    pub async fn close(&self) {
        self.stop.cancel();
        let mut sessions = self.sessions.clone();
        // The task drops its sender when it is done.
        let _ = timeout(self.closing_time, async { while sessions.changed().await.is_ok() {} }).await;
    }
}

fn no_session() -> Error {
    Error::unavailable("no session")
}

struct Task {
    settings: SessionSettings,
    clock: SharedClock,
    rebuild: Arc<dyn Rebuild>,
    sessions: watch::Sender<Option<Session>>,
    states: watch::Sender<SessionState>,
    stop: CancellationToken,
    base: bool,
}

/// The log throttles, kept across sessions.
#[derive(Default)]
struct Throttles {
    no_session: LogThrottle,
    denied: LogThrottle,
    not_built: LogThrottle,
    gone: LogThrottle,
}

impl Task {
    async fn run(self) {
        let stop = self.stop.clone();
        let mut throttles = Throttles::default();
        while !stop.is_cancelled() {
            let connected = tokio::select! {
                connected = Session::connect(&self.settings, &self.clock) => connected,
                () = stop.cancelled() => return,
            };
            match connected {
                Ok(session) => {
                    if let Some(times) = throttles.no_session.clear() {
                        tracing::info!(times, "zookeeper session established");
                    }
                    tokio::select! {
                        () = self.keep(&session, &mut throttles) => {}
                        () = stop.cancelled() => {
                            self.sessions.send_replace(None);
                            self.states.send_replace(SessionState::Expired);
                            session.close().await;
                            return;
                        }
                    }
                    self.sessions.send_replace(None);
                    self.states.send_replace(SessionState::Expired);
                    session.give_up();
                    tracing::info!(
                        session = format_args!("{:#x}", session.id()),
                        "zookeeper session ended; establishing a new one"
                    );
                    model::failpoint!(failpoints::SESSION_EXPIRED);
                }
                Err(error) => {
                    if let Some(times) = throttles.no_session.hit(self.clock.boottime()) {
                        tracing::info!(%error, times, "could not establish a zookeeper session");
                    }
                    self.pause().await;
                }
            }
        }
    }

    async fn pause(&self) {
        tokio::select! {
            () = sleep(RETRY) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Prepares the session, publishes it, and returns when it has ended.
    async fn keep(&self, session: &Session, throttles: &mut Throttles) {
        // Before the nodes are created: logins that come later renew them.
        let mut identity = self.settings.identity.clone();
        identity.latest();
        let nodes = loop {
            let error = match self.prepare(session).await {
                Ok(nodes) => break nodes,
                Err(error) => error,
            };
            if session.state() == SessionState::Expired {
                return;
            }
            let now = self.clock.boottime();
            if error.kind() == ZkErrorKind::Denied {
                if let Some(times) = throttles.denied.hit(now) {
                    tracing::error!(%error, times, "zookeeper denies access to this process; check cluster.keys and zookeeper.root");
                }
            } else if let Some(times) = throttles.not_built.hit(now) {
                tracing::info!(%error, times, "could not rebuild ephemeral nodes");
            }
            self.pause().await;
        };
        let times = throttles.denied.clear().unwrap_or(0) + throttles.not_built.clear().unwrap_or(0);
        if times > 0 {
            tracing::info!(times, "ephemeral nodes rebuilt");
        }
        self.sessions.send_replace(Some(session.clone()));
        tokio::select! {
            () = self.forward_states(session) => {}
            () = self.hold(session, nodes, identity, &mut throttles.gone) => {}
        }
    }

    /// Forwards the state of the session until it has ended.
    async fn forward_states(&self, session: &Session) {
        let mut states = session.states();
        loop {
            let state = *states.borrow_and_update();
            self.states.send_replace(state);
            if state == SessionState::Expired || states.changed().await.is_err() {
                return;
            }
        }
    }

    /// Recreates nodes that were deleted by others; never returns.
    async fn hold(&self, session: &Session, mut nodes: Vec<String>, mut identity: Identity, gone: &mut LogThrottle) {
        let mut watches = Watches::new(session);
        loop {
            // Armed before the check, so that a later deletion wakes this loop.
            let targets = nodes.iter().cloned().map(Target::Node).collect();
            let checked = match watches.arm(targets).await {
                Ok(_) => self.missing(session, &nodes).await,
                Err(error) => Err(error),
            };
            match checked {
                Ok(Some(path)) => {
                    let prepared = self.prepare(session).await;
                    let expected = prepared.as_ref().map_or(nodes.len(), Vec::len);
                    // An owner that returns fewer nodes has deleted the others itself.
                    let logged = if expected < nodes.len() { None } else { gone.hit(self.clock.boottime()) };
                    match prepared {
                        Ok(created) => {
                            nodes = created;
                            if let Some(times) = logged {
                                tracing::warn!(path, times, "ephemeral node was deleted; recreated it");
                            }
                        }
                        Err(error) => {
                            if let Some(times) = logged {
                                tracing::warn!(path, %error, times, "ephemeral node was deleted; could not recreate it");
                            }
                        }
                    }
                    // Bounds the cost if the node is deleted again and again.
                    sleep(RETRY).await;
                    continue;
                }
                Ok(None) => {
                    if let Some(times) = gone.clear() {
                        tracing::info!(times, "ephemeral nodes are complete again");
                    }
                }
                Err(error) => tracing::debug!(%error, "could not check ephemeral nodes"),
            }
            tokio::select! {
                () = watches.next() => {}
                () = sleep(self.settings.reread) => {}
                Some(_) = identity.changed() => match self.prepare(session).await {
                    // They may name the accepted generations of keys.
                    Ok(renewed) => nodes = renewed,
                    Err(error) => tracing::info!(%error, "could not renew ephemeral nodes after a change of keys"),
                },
            }
        }
    }

    /// The first node that does not exist or belongs to another session. If there is none, creates missing base nodes.
    async fn missing(&self, session: &Session, nodes: &[String]) -> Result<Option<String>, Error> {
        for path in nodes {
            let stat = session.stat(path).await?;
            if stat.is_none_or(|stat| stat.ephemeral_owner != session.id()) {
                return Ok(Some(path.clone()));
            }
        }
        if self.base {
            create_base_nodes(session).await?;
        }
        Ok(None)
    }

    async fn prepare(&self, session: &Session) -> Result<Vec<String>, Error> {
        if self.base {
            create_base_nodes(session).await?;
        }
        timeout(REBUILD_TIMEOUT, self.rebuild.rebuild(session)).await.unwrap_or_else(|_| {
            let reason = format!("ephemeral nodes not created within {} s", REBUILD_TIMEOUT.as_secs());
            Err(Error::unavailable(reason))
        })
    }
}
