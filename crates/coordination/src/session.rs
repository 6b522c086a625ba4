//! One ZooKeeper session: requests with deadlines, typed errors, and how sure we can be that it still lives.
//!
//! A session ends for good when it expires; nothing here builds another one (that is [`crate::supervisor`]). While
//! the connection is away, a request waits for it within its own deadline and is not handed to the client library,
//! which would send it whenever the connection comes back. What was sent and not answered is
//! [`Error::OutcomeUnknown`].

mod nodes;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use zookeeper_client as zk;
use zookeeper_client::{Client, StateWatcher};

use crate::credentials::{Access, Identity};
use crate::error::{Effect, Error, is_answer};
use crate::layout::Layout;

pub(crate) use nodes::read_children;

/// How long a session lives without a sign of life, unless configured.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one request may take, unless configured.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long building a session may take, unless configured.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often what is watched is read again, unless configured.
pub const REREAD: Duration = Duration::from_secs(2);
/// The most children of one node that we read.
pub const MAX_CHILDREN: usize = 20_000;
/// The most requests of one reading that are on their way at once.
pub(crate) const MAX_IN_FLIGHT: usize = 64;
/// A heartbeat is sent this many times within a session timeout.
const HEARTBEATS: u32 = 6;

/// How to reach ZooKeeper, and as whom.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// `host:port`, several separated by commas.
    pub servers: String,
    /// Where everything stands.
    pub layout: Layout,
    /// As whom.
    pub identity: Identity,
    /// How long the session lives without a sign of life; the server may change it.
    pub session_timeout: Duration,
    /// How long one request may take, waiting for a lost connection included.
    pub request_timeout: Duration,
    /// How long building a session may take.
    pub connect_timeout: Duration,
    /// How often what is watched is read again: the cost of a lost event.
    pub reread: Duration,
    /// Whether events of watches are used at all; without them everything is found by reading again.
    pub watch_events: bool,
    /// The most permits, and the most drain facts, that one reading reads.
    pub max_children: usize,
}

impl SessionSettings {
    /// Settings with the default times.
    pub fn new(servers: impl Into<String>, layout: Layout, identity: Identity) -> Self {
        Self {
            servers: servers.into(),
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

/// What is known of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// It lives and answers.
    Connected,
    /// The connection is lost; the session may live on or be dead already.
    Suspended,
    /// It is gone for good: expired, refused or closed.
    Expired,
}

impl SessionState {
    fn of(state: zk::SessionState) -> Self {
        match state {
            zk::SessionState::SyncConnected => Self::Connected,
            zk::SessionState::Disconnected | zk::SessionState::ConnectedReadOnly => Self::Suspended,
            _ => Self::Expired,
        }
    }
}

/// A session. Clones are the same session; it is closed by [`Session::close`], or when the last clone is dropped.
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
    /// When the last write or sync that was answered was sent, in milliseconds of the boot clock.
    answered_ms: AtomicU64,
    access: Access,
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
    /// Builds a new session within the settings' time. Nothing is created on the server but the session itself, which
    /// the server forgets by itself if this future is dropped.
    pub async fn connect(settings: &SessionSettings, clock: &SharedClock) -> Result<Self, Error> {
        let sent = clock.boottime();
        let connector = Client::connector()
            .with_session_timeout(settings.session_timeout)
            .with_auth("digest", settings.identity.login().as_bytes());
        let client = match timeout(settings.connect_timeout, connector.connect(&settings.servers)).await {
            Ok(Ok(client)) => client,
            Ok(Err(zk::Error::AuthFailed)) => return Err(Error::AuthFailed),
            Ok(Err(error)) => return Err(Error::Unavailable { reason: error.to_string() }),
            Err(_) => {
                return Err(Error::Unavailable {
                    reason: format!("no session within {} ms", settings.connect_timeout.as_millis()),
                });
            }
        };
        let (sender, states) = watch::channel(SessionState::of(client.state()));
        tokio::spawn(feed(client.state_watcher(), sender));
        tracing::debug!(session = %client.session_id(), timeout_ms = client.session_timeout().as_millis(), "zookeeper session built");
        Ok(Self(Arc::new(Inner {
            peek: client.state_watcher(),
            states,
            id: client.session_id().0,
            timeout: client.session_timeout(),
            clock: Arc::clone(clock),
            answered_ms: AtomicU64::new(sent.as_millis() as u64),
            access: settings.identity.access(),
            settings: settings.clone(),
            client: Mutex::new(Some(client)),
            closing: CancellationToken::new(),
        })))
    }

    /// The session's number, as ephemeral nodes name their owner.
    pub fn id(&self) -> i64 {
        self.0.id
    }

    /// How long it lives without a sign of life, as the server decided.
    pub fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// What is known of it now.
    pub fn state(&self) -> SessionState {
        if self.0.closing.is_cancelled() { SessionState::Expired } else { SessionState::of(self.0.peek.peek_state()) }
    }

    /// What is known of it, as it changes. The last value is [`SessionState::Expired`].
    pub fn states(&self) -> watch::Receiver<SessionState> {
        self.0.states.clone()
    }

    /// Waits until the session is gone for good.
    pub async fn ended(&self) {
        let mut states = self.states();
        // An error means that the feed is gone, which happens after the last state only.
        let _ = states.wait_for(|state| *state == SessionState::Expired).await;
    }

    /// Whether the leader must still think that the session lives: it is connected, and the last write or sync that was
    /// answered was sent less than two thirds of the session timeout ago, on a clock that counts suspension.
    pub fn lease_valid(&self) -> bool {
        let now_ms = self.0.clock.boottime().as_millis() as u64;
        let age_ms = now_ms.saturating_sub(self.0.answered_ms.load(Ordering::SeqCst));
        self.state() == SessionState::Connected && u128::from(age_ms) * 3 < self.0.timeout.as_millis() * 2
    }

    /// One cheap request that renews [`Session::lease_valid`].
    pub async fn probe(&self) -> Result<(), Error> {
        self.sync().await
    }

    /// Waits until the server that we are connected to has seen every write that was answered before this call.
    pub async fn sync(&self) -> Result<(), Error> {
        let path = self.layout().root();
        let client = self.client()?;
        let sent = self.0.clock.boottime();
        self.bounded(Effect::Read, path, async move { client.sync(path).await }).await?;
        self.renew(sent);
        Ok(())
    }

    /// The leader answered a request that was sent then.
    fn renew(&self, sent: Duration) {
        self.0.answered_ms.fetch_max(sent.as_millis() as u64, Ordering::SeqCst);
    }

    /// Closes the session for all clones, so that its ephemeral nodes go at once; waits for the server at most as
    /// long as one request may take (later the server expires it).
    pub async fn close(&self) {
        self.give_up();
        let _ = timeout(self.0.settings.request_timeout, self.ended()).await;
    }

    /// Begins to close without waiting.
    pub(crate) fn give_up(&self) {
        self.0.closing.cancel();
        drop(self.0.client.lock().take());
    }

    /// Sends a sync some times in each session timeout, for as long as the session is there.
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
                // An answer is noted where it arrives; without one the caller's two thirds run out.
                let _ = session.probe().await;
            }
        });
    }

    /// What a second connection needs to take this session over; tests end sessions with it.
    #[doc(hidden)]
    pub fn takeover(&self) -> Option<zk::SessionInfo> {
        self.client().ok().map(|client| client.session().clone())
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.0.settings.layout
    }

    pub(crate) fn access(&self) -> &Access {
        &self.0.access
    }

    pub(crate) fn settings(&self) -> &SessionSettings {
        &self.0.settings
    }

    pub(crate) fn client(&self) -> Result<Client, Error> {
        let client = self.0.client.lock().clone();
        client.ok_or_else(|| Error::Unavailable { reason: "the session is closed".to_owned() })
    }

    /// Runs one call of the client library within the request's deadline.
    pub(crate) async fn bounded<T>(
        &self,
        effect: Effect,
        path: &str,
        call: impl Future<Output = Result<T, zk::Error>>,
    ) -> Result<T, Error> {
        self.answered(effect, path, call)
            .await
            .and_then(|answer| answer.map_err(|error| Error::of(&error, effect, path)))
    }

    /// Like [`Session::bounded`], for calls whose errors say more than a plain one.
    pub(crate) async fn answered<T, E: Verdict>(
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
                return Err(Error::unanswered(effect, path, "the session was closed".to_owned()));
            }
        };
        let Ok(answer) = outcome else {
            let reason = format!("no answer within {} ms", self.0.settings.request_timeout.as_millis());
            return Err(Error::unanswered(effect, path, reason));
        };
        // A follower that is cut off from its leader goes on answering reads, while the leader may expire the session: only
        // what the leader took part in proves that the session lives.
        if effect == Effect::Write && answer.as_ref().err().is_none_or(Verdict::proves_life) {
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
                    return Err(Error::Unavailable { reason: "the session has ended".to_owned() });
                }
                SessionState::Suspended => {}
            }
            let changed = tokio::select! {
                changed = timeout_at(deadline, states.changed()) => changed,
                () = self.0.closing.cancelled() => continue,
            };
            match changed {
                Err(_) => return Err(Error::Unavailable { reason: "the connection is lost".to_owned() }),
                Ok(Err(_)) if self.state() == SessionState::Suspended => {
                    return Err(Error::Unavailable { reason: "the session has ended".to_owned() });
                }
                Ok(_) => {}
            }
        }
    }
}

/// Whether an error of the client library is an answer of the server, so that the session lived when it was given.
pub(crate) trait Verdict {
    fn proves_life(&self) -> bool;
}

impl Verdict for zk::Error {
    fn proves_life(&self) -> bool {
        is_answer(&Error::of(self, Effect::Write, ""))
    }
}

impl Verdict for zk::MultiWriteError {
    fn proves_life(&self) -> bool {
        match self {
            Self::RequestFailed { source } => source.proves_life(),
            Self::OperationFailed { .. } => true,
        }
    }
}

/// Translates the library's states, which stop at the first final one.
async fn feed(mut watcher: StateWatcher, sender: watch::Sender<SessionState>) {
    loop {
        let state = SessionState::of(watcher.peek_state());
        sender.send_if_modified(|known| std::mem::replace(known, state) != state);
        if state == SessionState::Expired {
            return;
        }
        watcher.changed().await;
    }
}
