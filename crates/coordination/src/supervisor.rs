//! A session that is built anew when it expired, with everything that hangs on it.
//!
//! The client library reconnects by itself but never makes a new session. The owner says what a new session needs
//! (registrations, discovery) in a [`Rebuild`]; a session is handed out only after that succeeded. Whoever holds an
//! old session gets errors from it and asks for the new one.
//!
//! What hangs on a session is kept for as long as the session lives: an ephemeral node that somebody deletes by hand would
//! otherwise be missing until the process is started again, and its owner, who lives and serves, be found by nobody. So
//! the nodes are watched and looked at again every `SessionSettings::reread`, together with those that stand above them, and
//! what is gone is made again. The look is never older than what this session wrote, so it takes nothing for missing that
//! was only just made.

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

/// How long to wait before the next try to build a session or what hangs on it, also after it was made again.
pub const RETRY: Duration = Duration::from_secs(1);
/// How long one try to build what hangs on a session may take.
pub const REBUILD_TIMEOUT: Duration = Duration::from_secs(30);

/// What the owner needs on each new session.
#[async_trait]
pub trait Rebuild: Send + Sync {
    /// Called for every session, the first included, and again for as long as that session lives: after an error, and
    /// when one of its nodes has gone. Answers the paths of the ephemeral nodes that the session now has; what is there
    /// from an earlier call is left as it is.
    async fn rebuild(&self, session: &Session) -> Result<Vec<String>, Error>;
}

/// Nothing hangs on the session.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRebuild;

#[async_trait]
impl Rebuild for NoRebuild {
    async fn rebuild(&self, _session: &Session) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }
}

/// Keeps a session. Dropping it closes the session.
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
    /// Begins to build the first session; returns at once and never gives up.
    pub fn start(settings: SessionSettings, clock: SharedClock, rebuild: Arc<dyn Rebuild>) -> Self {
        let (session_sender, sessions) = watch::channel(None);
        let (state_sender, states) = watch::channel(SessionState::Expired);
        let stop = CancellationToken::new();
        let closing_time = settings.request_timeout * 2;
        let task = Task {
            base: !matches!(settings.identity, Identity::Engine(_)),
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

    /// The session, as soon as there is one, at most after the deadline.
    pub async fn ready(&self, deadline: Duration) -> Result<Session, Error> {
        let mut sessions = self.sessions.clone();
        match timeout(deadline, sessions.wait_for(Option::is_some)).await {
            Ok(Ok(session)) => session.clone().ok_or_else(no_session),
            _ => Err(no_session()),
        }
    }

    /// The newest session; an error while there is none. It may have been lost a moment ago.
    pub fn session(&self) -> Result<Session, Error> {
        self.sessions.borrow().clone().ok_or_else(no_session)
    }

    /// The newest session, as it changes; `None` while there is none.
    pub fn sessions(&self) -> watch::Receiver<Option<Session>> {
        self.sessions.clone()
    }

    /// What is known of the session, as it changes; [`SessionState::Expired`] while there is none.
    pub fn states(&self) -> watch::Receiver<SessionState> {
        self.states.clone()
    }

    /// Ends it and closes the session, so that its ephemeral nodes go at once; waits at most twice as long as one
    /// request may take. Closing again is harmless.
    pub async fn close(&self) {
        self.stop.cancel();
        let mut sessions = self.sessions.clone();
        // The task drops its sender when it is done.
        let _ = timeout(self.closing_time, async { while sessions.changed().await.is_ok() {} }).await;
    }
}

fn no_session() -> Error {
    Error::Unavailable { reason: "there is no session".to_owned() }
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
                        tracing::info!(times, "there is a zookeeper session");
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
                        "zookeeper session ended, building a new one"
                    );
                    model::failpoint!(failpoints::SESSION_EXPIRED);
                }
                Err(error) => {
                    if let Some(times) = throttles.no_session.hit(self.clock.boottime()) {
                        tracing::info!(%error, times, "no zookeeper session yet");
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

    /// Prepares the session, hands it out, and returns when it has ended.
    async fn keep(&self, session: &Session, throttles: &mut Throttles) {
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
                    tracing::error!(%error, times, "zookeeper refuses what this process needs; look at secret and root");
                }
            } else if let Some(times) = throttles.not_built.hit(now) {
                tracing::info!(%error, times, "what hangs on the zookeeper session can't be built now");
            }
            self.pause().await;
        };
        let times = throttles.denied.clear().unwrap_or(0) + throttles.not_built.clear().unwrap_or(0);
        if times > 0 {
            tracing::info!(times, "what hangs on the zookeeper session is built");
        }
        self.sessions.send_replace(Some(session.clone()));
        tokio::select! {
            () = self.tell_states(session) => {}
            () = self.hold(session, nodes, &mut throttles.gone) => {}
        }
    }

    /// Hands on what is known of the session, until it has ended.
    async fn tell_states(&self, session: &Session) {
        let mut states = session.states();
        loop {
            let state = *states.borrow_and_update();
            self.states.send_replace(state);
            if state == SessionState::Expired || states.changed().await.is_err() {
                return;
            }
        }
    }

    /// Makes again what somebody took away, for ever.
    async fn hold(&self, session: &Session, mut nodes: Vec<String>, gone: &mut LogThrottle) {
        let mut watches = Watches::new(session);
        loop {
            // Armed before the look: what goes after it wakes us.
            let targets = nodes.iter().cloned().map(Target::Node).collect();
            let looked = match watches.arm(targets).await {
                Ok(_) => self.missing(session, &nodes).await,
                Err(error) => Err(error),
            };
            match looked {
                Ok(Some(path)) => {
                    let prepared = self.prepare(session).await;
                    let wanted = prepared.as_ref().map_or(nodes.len(), Vec::len);
                    // An owner who answers fewer has taken the others away himself.
                    let told = if wanted < nodes.len() { None } else { gone.hit(self.clock.boottime()) };
                    match prepared {
                        Ok(made) => {
                            nodes = made;
                            if let Some(times) = told {
                                tracing::warn!(path, times, "a node of this session was gone and is made again");
                            }
                        }
                        Err(error) => {
                            if let Some(times) = told {
                                tracing::warn!(path, %error, times, "a node of this session is gone and can't be made now");
                            }
                        }
                    }
                    // However often somebody takes it away, it costs no more than this.
                    sleep(RETRY).await;
                    continue;
                }
                Ok(None) => {
                    if let Some(times) = gone.clear() {
                        tracing::info!(times, "the nodes of this session are there again");
                    }
                }
                Err(error) => tracing::debug!(%error, "what hangs on the zookeeper session can't be looked at now"),
            }
            tokio::select! {
                () = watches.next() => {}
                () = sleep(self.settings.reread) => {}
            }
        }
    }

    /// The first of the nodes that is not there, or is another session's. On the way the nodes that stand above all
    /// others are made again, if any is gone.
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
        match timeout(REBUILD_TIMEOUT, self.rebuild.rebuild(session)).await {
            Ok(done) => done,
            Err(_) => Err(Error::Unavailable {
                reason: format!("the session was not ready within {} s", REBUILD_TIMEOUT.as_secs()),
            }),
        }
    }
}
