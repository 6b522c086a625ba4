//! One ZooKeeper session: requests with deadlines, typed errors, and whether its lease is still valid.
//!
//! An expired session is not replaced here; [`crate::supervisor`] does that. While the connection is lost, a request waits for
//! it within its deadline and is not passed to the client library, which would send it at any later time. A write that was
//! sent and not answered is [`Error::OutcomeUnknown`].

mod nodes;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use model::clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use zookeeper_client as zk;
use zookeeper_client::{Client, StateWatcher};

use crate::credentials::{Access, Identity, Logins};
use crate::error::{Effect, Error, is_answer};
use crate::layout::Layout;
use crate::tls::ZookeeperTls;

pub(crate) use nodes::read_children;

/// The session timeout, unless configured.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// The deadline of a request, unless configured.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The deadline for establishing a session, unless configured.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval at which watched nodes are read again, unless configured.
pub const REREAD: Duration = Duration::from_secs(2);
/// The maximum number of children of a node that are read.
pub const MAX_CHILDREN: usize = 20_000;
/// The maximum number of requests in flight for one read of many nodes.
pub(crate) const MAX_IN_FLIGHT: usize = 64;
/// The number of heartbeats within a session timeout.
const HEARTBEATS: u32 = 6;

/// The connection settings of a session.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// `host:port[,host:port…]`
    pub servers: String,
    /// Whose certificates are trusted; without it, connections are plain.
    pub tls: Option<ZookeeperTls>,
    pub layout: Layout,
    pub identity: Identity,
    /// The requested session timeout; the server may grant another one.
    pub session_timeout: Duration,
    /// The deadline of a request, including the wait for a lost connection.
    pub request_timeout: Duration,
    pub connect_timeout: Duration,
    /// The interval at which watched nodes are read again, which bounds the cost of a lost event.
    pub reread: Duration,
    /// Whether watch events are used. Without them changes are noticed by reading again.
    pub watch_events: bool,
    /// The maximum number of permits, and of drain orders, that are read at once.
    pub max_children: usize,
}

impl SessionSettings {
    /// Settings with the default times.
    pub fn new(servers: impl Into<String>, layout: Layout, identity: Identity) -> Self {
        Self {
            servers: servers.into(),
            tls: None,
            layout,
            identity,
            session_timeout: SESSION_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            reread: REREAD,
            watch_events: true,
            max_children: MAX_CHILDREN,
        }
    }
}

/// The state of a session as the client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    Connected,
    /// The connection is lost; the session may have expired already.
    Suspended,
    /// Expired, rejected or closed; this state is final.
    Expired,
}

impl SessionState {
    fn from_client(state: zk::SessionState) -> Self {
        match state {
            zk::SessionState::SyncConnected => Self::Connected,
            zk::SessionState::Disconnected | zk::SessionState::ConnectedReadOnly => Self::Suspended,
            _ => Self::Expired,
        }
    }
}

/// A session. All clones share it; it is closed by [`Session::close`] or when the last clone is dropped.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    client: Mutex<Option<Client>>,
    closing: CancellationToken,
    peek: StateWatcher,
    states: watch::Receiver<SessionState>,
    id: i64,
    timeout: Duration,
    clock: SharedClock,
    /// When the last answered write or sync was sent, on the boot clock.
    answered: Mutex<Duration>,
    settings: SessionSettings,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &format_args!("{:#x}", self.0.id))
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Establishes a session. If this future is dropped, the server expires the session.
    pub async fn connect(settings: &SessionSettings, clock: &SharedClock) -> Result<Self, Error> {
        let sent = clock.boottime();
        let mut identity = settings.identity.clone();
        // Marks these logins as known: later ones are added.
        let logins = identity.latest();
        let mut connector = Client::connector().with_session_timeout(settings.session_timeout);
        for login in logins.texts() {
            connector = connector.with_auth("digest", login.as_bytes());
        }
        let connecting = async {
            match &settings.tls {
                Some(tls) => tls.trust().connect(connector, &settings.servers).await,
                None => connector.connect(&settings.servers).await,
            }
        };
        let error = match timeout(settings.connect_timeout, connecting).await {
            Ok(Ok(client)) => return Ok(Self::established(client, settings, clock, sent, identity, logins)),
            Ok(Err(zk::Error::AuthFailed)) => return Err(Error::AuthFailed),
            Ok(Err(error)) => Error::unavailable(error),
            Err(_) => Error::unavailable(format!("no session within {} ms", settings.connect_timeout.as_millis())),
        };
        // The client library does not say that it trusts no server.
        let distrust = match &settings.tls {
            Some(tls) => tls.trust().distrust(&settings.servers).await,
            None => None,
        };
        Err(distrust.map_or(error, Error::unavailable))
    }

    fn established(
        client: Client,
        settings: &SessionSettings,
        clock: &SharedClock,
        sent: Duration,
        identity: Identity,
        logins: Arc<Logins>,
    ) -> Self {
        let (sender, states) = watch::channel(SessionState::from_client(client.state()));
        tokio::spawn(feed(client.state_watcher(), sender));
        tracing::debug!(session = %client.session_id(), timeout_ms = client.session_timeout().as_millis(), "zookeeper session built");
        let session = Self(Arc::new(Inner {
            peek: client.state_watcher(),
            states,
            id: client.session_id().0,
            timeout: client.session_timeout(),
            clock: Arc::clone(clock),
            answered: Mutex::new(sent),
            settings: settings.clone(),
            client: Mutex::new(Some(client)),
            closing: CancellationToken::new(),
        }));
        tokio::spawn(add_logins(Arc::downgrade(&session.0), session.states(), identity, logins));
        session
    }

    /// The session's id, as ephemeral nodes name their owner.
    pub fn id(&self) -> i64 {
        self.0.id
    }

    /// The session timeout that the server granted.
    pub fn timeout(&self) -> Duration {
        self.0.timeout
    }

    pub fn state(&self) -> SessionState {
        if self.0.closing.is_cancelled() {
            SessionState::Expired
        } else {
            SessionState::from_client(self.0.peek.peek_state())
        }
    }

    /// The state as it changes. The last value is [`SessionState::Expired`].
    pub fn states(&self) -> watch::Receiver<SessionState> {
        self.0.states.clone()
    }

    /// Waits until the session has ended.
    pub async fn ended(&self) {
        let mut states = self.states();
        // An error means that the sender is gone, which happens only after the last state.
        let _ = states.wait_for(|state| *state == SessionState::Expired).await;
    }

    /// Whether the leader cannot have expired the session yet: it is connected, and the last answered write or sync was sent less
    /// than two thirds of the session timeout ago, on a clock that includes suspend time.
    pub fn lease_valid(&self) -> bool {
        let age = self.0.clock.boottime().saturating_sub(*self.0.answered.lock());
        self.state() == SessionState::Connected && age < self.0.timeout * 2 / 3
    }

    /// One cheap request that renews the lease.
    pub async fn probe(&self) -> Result<(), Error> {
        self.sync().await
    }

    /// Waits until the connected server has applied every write that was answered before this call.
    pub async fn sync(&self) -> Result<(), Error> {
        let path = self.layout().root();
        let client = self.client()?;
        let sent = self.0.clock.boottime();
        self.bounded(Effect::Read, path, async move { client.sync(path).await }).await?;
        self.renew(sent);
        Ok(())
    }

    /// Records that the leader answered a request that was sent at that time.
    fn renew(&self, sent: Duration) {
        let mut answered = self.0.answered.lock();
        *answered = sent.max(*answered);
    }

    /// Closes the session for all clones, so that its ephemeral nodes are deleted at once. Waits for at most the deadline of a
    /// request; after that, the server expires the session.
    pub async fn close(&self) {
        self.give_up();
        let _ = timeout(self.0.settings.request_timeout, self.ended()).await;
    }

    /// Starts closing without waiting.
    pub(crate) fn give_up(&self) {
        self.0.closing.cancel();
        drop(self.0.client.lock().take());
    }

    /// Starts heartbeats: several syncs within each session timeout, until the session ends.
    pub(crate) fn beat(&self) {
        let every = self.0.timeout / HEARTBEATS;
        let (weak, closing) = (Arc::downgrade(&self.0), self.0.closing.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = closing.cancelled() => return,
                    () = sleep(every) => {}
                }
                let Some(inner) = weak.upgrade() else { return };
                let session = Session(inner);
                if session.state() == SessionState::Expired {
                    return;
                }
                // `sync` renews the lease if it is answered.
                let _ = session.probe().await;
            }
        });
    }

    /// What a second connection needs to take over this session; tests expire sessions with it.
    #[doc(hidden)]
    pub fn takeover(&self) -> Option<zk::SessionInfo> {
        self.client().ok().map(|client| client.session().clone())
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.0.settings.layout
    }

    /// The access lists of nodes that are created now.
    pub(crate) fn access(&self) -> Arc<Access> {
        self.0.settings.identity.logins().access()
    }

    pub(crate) fn settings(&self) -> &SessionSettings {
        &self.0.settings
    }

    pub(crate) fn client(&self) -> Result<Client, Error> {
        let client = self.0.client.lock().clone();
        client.ok_or_else(|| Error::unavailable("the session is closed"))
    }

    /// Runs a call of the client library within the deadline of a request.
    pub(crate) async fn bounded<T>(
        &self,
        effect: Effect,
        path: &str,
        call: impl Future<Output = Result<T, zk::Error>>,
    ) -> Result<T, Error> {
        self.answered(effect, path, call)
            .await
            .and_then(|answer| answer.map_err(|error| Error::from_client(error, effect, path)))
    }

    /// Like [`Session::bounded`], for calls with more detailed errors.
    pub(crate) async fn answered<T, E: SessionProof>(
        &self,
        effect: Effect,
        path: &str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, Error> {
        let deadline = Instant::now() + self.0.settings.request_timeout;
        self.connected(deadline).await?;
        let sent = self.0.clock.boottime();
        let outcome = tokio::select! {
            outcome = timeout_at(deadline, call) => outcome,
            () = self.0.closing.cancelled() => {
                return Err(Error::unanswered(effect, path, "the session was closed"));
            }
        };
        let Ok(answer) = outcome else {
            let reason = format!("no answer within {} ms", self.0.settings.request_timeout.as_millis());
            return Err(Error::unanswered(effect, path, reason));
        };
        // A follower that is partitioned from the leader still answers reads, while the leader may expire the session. Only a
        // request that the leader took part in proves that the session is alive.
        if effect == Effect::Write && answer.as_ref().err().is_none_or(SessionProof::proves_alive) {
            self.renew(sent);
        }
        Ok(answer)
    }

    async fn connected(&self, deadline: Instant) -> Result<(), Error> {
        let mut states = self.states();
        loop {
            match self.state() {
                SessionState::Connected => return Ok(()),
                SessionState::Expired => {
                    return Err(Error::unavailable("the session has ended"));
                }
                SessionState::Suspended => {}
            }
            let changed = tokio::select! {
                changed = timeout_at(deadline, states.changed()) => changed,
                () = self.0.closing.cancelled() => continue,
            };
            match changed {
                Err(_) => return Err(Error::unavailable("the connection is lost")),
                Ok(Err(_)) if self.state() == SessionState::Suspended => {
                    return Err(Error::unavailable("the session has ended"));
                }
                Ok(_) => {}
            }
        }
    }
}

/// Whether an error of the client library is an answer of the server, which proves that the session was alive.
pub(crate) trait SessionProof {
    fn proves_alive(&self) -> bool;
}

impl SessionProof for zk::Error {
    fn proves_alive(&self) -> bool {
        is_answer(&Error::from_client(self.clone(), Effect::Write, ""))
    }
}

impl SessionProof for zk::MultiWriteError {
    fn proves_alive(&self) -> bool {
        match self {
            Self::RequestFailed { source } => source.proves_alive(),
            Self::OperationFailed { .. } => true,
        }
    }
}

/// Forwards the client library's states until the first final one.
async fn feed(mut watcher: StateWatcher, sender: watch::Sender<SessionState>) {
    loop {
        let state = SessionState::from_client(watcher.peek_state());
        sender.send_if_modified(|last| std::mem::replace(last, state) != state);
        if state == SessionState::Expired {
            return;
        }
        watcher.changed().await;
    }
}

/// Authenticates the session with the logins that its identity is given while it lives. Those that it loses are valid until
/// the session ends. A session that ends meanwhile is followed by one with the current logins.
async fn add_logins(
    session: Weak<Inner>,
    mut states: watch::Receiver<SessionState>,
    mut identity: Identity,
    mut known: Arc<Logins>,
) {
    loop {
        let next = tokio::select! {
            next = identity.changed() => next,
            _ = states.wait_for(|state| *state == SessionState::Expired) => None,
        };
        let Some(next) = next else { return };
        let Some(client) = session.upgrade().and_then(|session| session.client.lock().clone()) else { return };
        let old: Vec<String> = known.texts().collect();
        for login in next.texts().filter(|login| !old.contains(login)) {
            // The client library repeats it after a reconnect, but only if it is awaited here.
            if let Err(error) = client.auth("digest", login.as_bytes()).await {
                tracing::debug!(%error, "could not add a login to a zookeeper session");
                return;
            }
        }
        known = next;
    }
}
