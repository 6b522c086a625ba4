//! What the service of hyper and the task of a client share about the current request.
//!
//! Both run in the same task, so no lock is ever contended, and neither has to wake the other: the task polls the
//! connection after each change.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::auth::{Authenticator, Principal};
use crate::byte_budget::BudgetGuard;
use crate::http_api::HttpApi;
use crate::limits::Limits;
use crate::message::Message;
use crate::tls::log::TlsLog;

/// The rest of a rejected request's body, as a future that reads and discards it.
pub(super) type Leftover = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The sender of the requests of one connection, and who decides about them.
pub(super) struct Client {
    pub(super) peer: SocketAddr,
    pub(super) authenticator: Arc<dyn Authenticator>,
    pub(super) api: Option<Arc<dyn HttpApi>>,
    /// Only probes are served, because the connection lacks TLS; the log of that.
    pub(super) lacks_tls: Option<Arc<TlsLog>>,
    pub(super) is_tls: bool,
    /// The deadline of the first login.
    pub(super) unknown_until: Instant,
}

pub(super) struct Exchange {
    pub(super) client: Client,
    pub(super) limits: Arc<Limits>,
    state: Mutex<State>,
}

/// A call that its handler has not taken yet.
struct Call {
    principal: Principal,
    message: Message,
    /// Counted as being received until it is taken.
    _budget_guard: BudgetGuard,
}

/// How the head of a request announces its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// With this many bytes; zero also without a header for it.
    Length(u64),
    Chunks,
    /// In several ways, or in none that the scanner and hyper agree about.
    Ambiguous,
    /// In any way: the request has no valid target.
    InvalidTarget,
}

/// What the reply to a call repeats of it.
pub(super) struct CallHead {
    pub(super) name: String,
    pub(super) seqid: i32,
}

/// What arriving bytes are.
#[derive(Default, PartialEq, Eq)]
enum Phase {
    /// The next head.
    #[default]
    Idle,
    /// The body of the current request, or the next request.
    Serving,
    /// The rest of the body of a rejected request.
    Discarding,
    /// Of no interest: the connection ends after the response.
    Closing,
}

#[derive(Default)]
struct State {
    call: Option<Call>,
    /// The call that its handler has taken, until its reply begins.
    unanswered: Option<CallHead>,
    /// Receives the length of the reply to the call.
    reply: Option<oneshot::Sender<usize>>,
    /// The piece of the reply that hyper takes next.
    piece: Option<Bytes>,
    /// The bytes of the reply that hyper has not taken.
    owed: usize,
    /// The operating system lacks something of a response, and has accepted nothing since then.
    unsent_since: Option<Instant>,
    /// The bytes that the operating system has accepted.
    sent: u64,
    /// A client was authenticated on this connection.
    known: bool,
    phase: Phase,
    /// How the last head that hyper has received announces its body.
    framing: Option<Framing>,
    /// When the first byte of the next head arrived.
    head_since: Option<Instant>,
    /// The current or last request is one below `/api/`.
    serves_api: bool,
    /// A rest to discard, which the driver has not taken yet.
    leftover: Option<Leftover>,
    /// A piece of a body has arrived.
    progress: bool,
}

impl Exchange {
    pub(super) fn new(client: Client, limits: Arc<Limits>) -> Self {
        Self { client, limits, state: Mutex::default() }
    }

    /// Bytes have arrived.
    pub(super) fn received(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Idle {
            state.head_since.get_or_insert_with(Instant::now);
        }
    }

    /// hyper has received the end of a head; `None`: it begins with an empty state.
    pub(super) fn set_framing(&self, framing: Option<Framing>) {
        self.state.lock().framing = framing;
    }

    /// How the head that hyper has parsed announces its body.
    pub(super) fn take_framing(&self) -> Option<Framing> {
        self.state.lock().framing.take()
    }

    /// The operating system has accepted `length` bytes.
    pub(super) fn sent(&self, length: usize) {
        let mut state = self.state.lock();
        state.sent += length as u64;
        if let Some(since) = &mut state.unsent_since {
            *since = Instant::now();
        }
    }

    /// Nothing waits to be sent.
    pub(super) fn flushed(&self) {
        self.state.lock().unsent_since = None;
    }

    /// A head is complete; its request is being served until [`Exchange::served`].
    pub(super) fn serving(&self) {
        let mut state = self.state.lock();
        (state.phase, state.head_since, state.serves_api) = (Phase::Serving, None, false);
    }

    /// The head of the response is known; with the `last` one the connection ends.
    pub(super) fn served(&self, last: bool) {
        let mut state = self.state.lock();
        state.unsent_since = Some(Instant::now());
        if state.phase == Phase::Serving {
            state.phase = if last { Phase::Closing } else { Phase::Idle };
        }
    }

    /// Whether the response to the last request was sent and nothing of the next one has arrived.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Idle
            && state.reply.is_none()
            && state.owed == 0
            && state.unsent_since.is_none()
            && state.head_since.is_none()
    }

    /// The current request was passed to [`HttpApi`].
    pub(super) fn set_serves_api(&self) {
        self.state.lock().serves_api = true;
    }

    /// Whether a request below `/api/` has no response yet, or its response was not sent.
    pub(super) fn is_busy_with_api(&self) -> bool {
        let state = self.state.lock();
        state.serves_api && (state.phase == Phase::Serving || state.unsent_since.is_some())
    }

    pub(super) fn body_received(&self) {
        self.state.lock().progress = true;
    }

    /// Whether a piece of a body has arrived since the last time.
    pub(super) fn take_progress(&self) -> bool {
        std::mem::take(&mut self.state.lock().progress)
    }

    pub(super) fn authenticated(&self) {
        self.state.lock().known = true;
    }

    pub(super) fn is_known(&self) -> bool {
        self.state.lock().known
    }

    /// Whether a request is being served, or something of a response was not sent.
    pub(super) fn is_responding(&self) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Serving || state.unsent_since.is_some()
    }

    /// The deadline of a client that does not read a response.
    pub(super) fn unsent_until(&self) -> Option<Instant> {
        self.state.lock().unsent_since.map(|since| since + self.limits.stall)
    }

    /// The deadline of the head that is being received.
    pub(super) fn head_until(&self) -> Option<Instant> {
        self.state.lock().head_since.map(|since| since + self.limits.stall)
    }

    /// Hands a call to its handler. Returns the length of its reply, once it begins.
    pub(super) fn call(
        &self,
        principal: Principal,
        message: Message,
        budget_guard: BudgetGuard,
    ) -> oneshot::Receiver<usize> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        state.call = Some(Call { principal, message, _budget_guard: budget_guard });
        state.reply = Some(sender);
        receiver
    }

    pub(super) fn take_call(&self) -> Option<(Principal, Message)> {
        let mut state = self.state.lock();
        let Call { principal, message, _budget_guard } = state.call.take()?;
        state.unanswered = Some(CallHead { name: message.name().to_owned(), seqid: message.seqid() });
        Some((principal, message))
    }

    /// The call that its handler has left without a reply, if a response to it can be sent next.
    pub(super) fn take_unanswered(&self) -> Option<CallHead> {
        let mut state = self.state.lock();
        let head = state.unanswered.take()?;
        state.unsent_since.is_none().then_some(head)
    }

    /// Announces the reply; `false` if no call waits for one.
    pub(super) fn begin_reply(&self, length: usize) -> bool {
        let mut state = self.state.lock();
        state.owed = length;
        state.unanswered = None;
        state.reply.take().is_some_and(|reply| reply.send(length).is_ok())
    }

    pub(super) fn put_piece(&self, piece: Bytes) {
        self.state.lock().piece = Some(piece);
    }

    /// The next piece, for hyper.
    pub(super) fn take_piece(&self) -> Option<Bytes> {
        let mut state = self.state.lock();
        let piece = state.piece.take()?;
        state.unsent_since = Some(Instant::now());
        state.owed = state.owed.saturating_sub(piece.len());
        Some(piece)
    }

    /// Whether the operating system has the last piece.
    pub(super) fn is_delivered(&self) -> bool {
        let state = self.state.lock();
        state.piece.is_none() && state.unsent_since.is_none()
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.state.lock().sent
    }

    /// The rest of the current body is discarded while the response is sent.
    pub(super) fn discard(&self, leftover: Leftover) {
        let mut state = self.state.lock();
        (state.leftover, state.phase) = (Some(leftover), Phase::Discarding);
    }

    pub(super) fn discarded(&self) {
        let mut state = self.state.lock();
        // The next request may be served already.
        if state.phase == Phase::Discarding {
            state.phase = Phase::Idle;
        }
    }

    pub(super) fn take_leftover(&self) -> Option<Leftover> {
        self.state.lock().leftover.take()
    }
}
