//! The relay: sends a request to a backend and copies the reply to the client without decoding results.
//!
//! The caller has scanned the request and patched its handle. Only the beginning of the reply is read, as far as the
//! decision needs it; the rest is copied through the worker thread's buffer as it arrives. A reply with a handle to replace
//! is buffered whole, within [`Limits::buffered_reply_bytes`](crate::Limits) and the process-wide budget; a result never is. Error
//! texts are cut at [`MAX_ERROR_TEXT_BYTES`], and Java stack traces are removed from them.
//!
//! Every reply is walked to its end before its last piece is written, and must end where its frame ends: a client would
//! read bytes behind it as the reply to its next call.
//!
//! A request is never sent twice. After an error the backend's connection is broken (see [`Client::is_broken`]), unless its
//! whole reply was read before the client failed. [`RelayError`] states whether the client has seen part of a reply.

use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::time::sleep;

use crate::byte_budget::BudgetGuard;
use crate::client::Client;
use crate::connection::Connection;
use crate::error::WireError;
use crate::failpoints::{RELAY_REPLY_BEGUN, RELAY_REQUEST_SENT};
use crate::framing::LENGTH_BYTES;
use crate::handle::Handle;
use crate::limits::{MAX_ERROR_TEXT_BYTES, UNCOUNTED_REPLY_BYTES};
use crate::message::Message;
use crate::scan::{self, PieceWalker, Reply, ScanError};
use crate::wire::CopyError;

/// A reply of at most this length is buffered whole when the caller decides about it, in bytes.
pub const WHOLE_REPLY_BYTES: usize = 16 * 1024;

/// The destination of a reply, decided from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// To the client, unchanged.
    Forward,
    /// To the client, with this handle in place of the backend's. A reply without a handle is unchanged.
    ForwardAs(Handle),
    /// To the caller only.
    Buffer,
}

/// What became of a reply.
#[derive(Debug)]
pub enum Outcome {
    /// Sent to the client.
    Forwarded {
        /// The length of the message.
        bytes: usize,
    },
    /// Returned to the caller, whole.
    Buffered(Vec<u8>),
}

/// Why a reply was not delivered.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The backend's connection is unusable: an earlier exchange was cancelled, the backend has closed it, or it sent
    /// something unrequested. The request was not sent.
    #[error("the connection to the backend was closed, or an earlier call was cancelled")]
    Broken,
    /// The backend failed, or its reply is not one to this request.
    #[error("the backend failed: {error}")]
    Backend {
        #[source]
        error: WireError,
        /// The client has received part of the reply: its connection can only be closed.
        partly: bool,
    },
    /// The reply did not begin in time.
    #[error("the backend did not reply within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The caller has given up the call before its reply began, for this reason.
    #[error("{0}")]
    GivenUp(String),
    /// The reply could not be written to the client: its connection can only be closed.
    #[error("the client failed: {0}")]
    Client(#[source] WireError),
    /// The client closed its connection while its call ran.
    #[error("the client closed its connection")]
    ClientGone,
}

impl RelayError {
    /// Whether the client has seen nothing of this reply, so that the caller may send another.
    pub fn client_is_usable(&self) -> bool {
        matches!(self, Self::Broken | Self::Timeout(_) | Self::GivenUp(_) | Self::Backend { partly: false, .. })
    }
}

fn backend(error: impl Into<WireError>) -> RelayError {
    RelayError::Backend { error: error.into(), partly: false }
}

/// Sends `request`, waits up to `deadline` for the reply to begin, and delivers it as `decide` says. `decide` receives the
/// scanned beginning and the bytes that its positions refer to.
pub async fn exchange(
    client: &mut Connection,
    request: &Message,
    to: &mut Client,
    deadline: Duration,
    decide: impl FnOnce(&Reply, &[u8]) -> Decision,
) -> Result<Outcome, RelayError> {
    exchange_unless(client, request, to, pin!(deadline_passed(deadline)), decide).await
}

/// Completes `deadline` from now, when the reply to a call should have begun, with [`RelayError::Timeout`].
pub async fn deadline_passed(deadline: Duration) -> RelayError {
    sleep(deadline).await;
    RelayError::Timeout(deadline)
}

/// Does the same as [`exchange`], with any reason to give the call up: once `given_up` completes, the call ends with its error, unless the
/// reply has begun. It is pinned by the caller, so that no function on the way has a copy in its state.
pub async fn exchange_unless(
    client: &mut Connection,
    request: &Message,
    to: &mut Client,
    mut given_up: Pin<&mut impl Future<Output = RelayError>>,
    decide: impl FnOnce(&Reply, &[u8]) -> Decision,
) -> Result<Outcome, RelayError> {
    let usable = !to.is_broken() && to.wire.is_quiet();
    to.set_broken(true);
    if !usable {
        return Err(RelayError::Broken);
    }
    let sending = async {
        to.write(request.bytes()).await.map_err(backend)?;
        model::failpoint!(RELAY_REQUEST_SENT);
        to.wire.readable().await.map_err(backend)
    };
    tokio::select! {
        // The reply first: when it arrives, nothing else has to be looked at.
        biased;
        arriving = sending => arriving?,
        error = given_up.as_mut() => return Err(error),
        () = client.closed() => return Err(RelayError::ClientGone),
    }
    let mut decide = Some(decide);
    let outcome = match pass_on(client, request, to, &mut decide)? {
        // In a box: it is rare, and its state is large.
        Passed::Nothing => Box::pin(deliver(client, request, to, given_up, decide)).await?,
        Passed::Buffered(reply) => Outcome::Buffered(reply),
        Passed::Decided { total } => Box::pin(buffer(to, total)).await?,
        Passed::Begun { total, rest, unsent } => {
            // Only a stream takes the beginning of a reply in this way.
            if let (Some(unsent), Some(stream)) = (unsent, client.state.transport.stream()) {
                Box::pin(stream.wire.write(&unsent, &[])).await.map_err(RelayError::Client)?;
            }
            if let Some(rest) = rest {
                // In a box: short replies have none, and are those whose time matters.
                Box::pin(copy_rest(client, to, rest)).await?;
            }
            Outcome::Forwarded { bytes: total }
        }
    };
    to.set_broken(false);
    Ok(outcome)
}

/// What the first read of a reply has led to.
enum Passed {
    /// What was read is pending, with the length before it; nothing is decided.
    Nothing,
    /// The whole reply, for the caller.
    Buffered(Vec<u8>),
    /// The beginning of one for the caller is pending.
    Decided { total: usize },
    /// The client's connection has taken what was read, except for `unsent`.
    Begun { total: usize, rest: Option<Rest>, unsent: Option<Vec<u8>> },
}

/// The rest of a reply that is being copied.
struct Rest {
    left: usize,
    /// In a box, which a short reply does not need.
    walker: Box<PieceWalker>,
}

impl Rest {
    /// What follows after the first bytes of a reply of `total` bytes; `None` if nothing does: then those were walked already.
    fn after(begun: &[u8], total: usize, reply: &Reply) -> Result<Option<Self>, RelayError> {
        let left = total.saturating_sub(begun.len());
        if left == 0 {
            return Ok(None);
        }
        let mut walker = Box::new(PieceWalker::new(&reply.header));
        checked(&mut walker, begun, left).map_err(backend)?;
        Ok(Some(Self { left, walker }))
    }
}

/// Delivers what is there of a reply with one read and one write and without a buffer of its own, if it is enough to decide.
fn pass_on<D>(
    client: &Connection,
    request: &Message,
    from: &mut Client,
    decide: &mut Option<D>,
) -> Result<Passed, RelayError>
where
    D: FnOnce(&Reply, &[u8]) -> Decision,
{
    let Some(stream) = client.state.transport.stream().filter(|_| from.is_framed()) else { return Ok(Passed::Nothing) };
    let limit = from.limits().reply_bytes;
    let mut is_whole = false;
    let received = from.wire.try_receive(|bytes, pending| {
        if bytes.is_empty() {
            return Err(backend(WireError::ClosedInside));
        }
        let Some((reply, total)) = beginning(bytes, limit) else {
            pending.extend_from_slice(bytes);
            return Ok(Passed::Nothing);
        };
        let body = &mut bytes[LENGTH_BYTES..];
        same_call(request, &reply, body)?;
        model::failpoint!(RELAY_REPLY_BEGUN);
        is_whole = body.len() == total;
        match decide.take().map(|decide| decide(&reply, body)) {
            Some(Decision::ForwardAs(handle)) => {
                if let Some(at) = reply.handle {
                    at.patch(body, &handle).map_err(backend)?;
                }
            }
            Some(Decision::Buffer) if is_whole => return Ok(Passed::Buffered(body.to_vec())),
            Some(Decision::Buffer) => {
                pending.extend_from_slice(body);
                return Ok(Passed::Decided { total });
            }
            Some(Decision::Forward) | None => {}
        }
        let rest = Rest::after(body, total, &reply)?;
        let unsent = stream.try_send_framed(bytes).map_err(|error| RelayError::Client(error.into()));
        unsent.map(|unsent| Passed::Begun { total, rest, unsent })
    });
    let passed = received.map_err(backend).and_then(|received| received.unwrap_or(Ok(Passed::Nothing)));
    if is_whole && !matches!(passed, Err(RelayError::Backend { .. })) {
        // The whole reply was read: a client that fails leaves the backend's connection between two calls.
        from.set_broken(false);
    }
    passed
}

/// The beginning of a reply in these bytes, which begin with its length, and the length; `None` if it is not enough to decide, if it
/// has to be cut, or if it is to be refused.
fn beginning(bytes: &[u8], limit: usize) -> Option<(Reply, usize)> {
    let (head, body) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    let total = u32::from_be_bytes(*head) as usize;
    if total > limit || body.len() > total || (total <= WHOLE_REPLY_BYTES && body.len() < total) {
        return None;
    }
    let (reply, is_enough) = scan::reply_head(body, total).ok()?;
    (is_enough && !reply.has_surplus(body, MAX_ERROR_TEXT_BYTES)).then_some((reply, total))
}

/// Delivers a reply of which at most a part is pending.
async fn deliver<D>(
    client: &mut Connection,
    request: &Message,
    to: &mut Client,
    given_up: Pin<&mut impl Future<Output = RelayError>>,
    decide: Option<D>,
) -> Result<Outcome, RelayError>
where
    D: FnOnce(&Reply, &[u8]) -> Decision,
{
    // Kept until the reply is delivered: a client that does not read it keeps its part of the budget.
    let mut budget_guard = BudgetGuard::default();
    let beginning = async {
        let (reply, total) = begin(to, request, &mut budget_guard).await?;
        cut(to, reply, total, &mut budget_guard).await
    };
    let (reply, total) = tokio::select! {
        biased;
        begun = beginning => begun?,
        error = given_up => return Err(error),
        () = client.closed() => return Err(RelayError::ClientGone),
    };
    model::failpoint!(RELAY_REPLY_BEGUN);
    match decide.map(|decide| decide(&reply, &to.wire.pending)) {
        Some(Decision::Buffer) => buffer(to, total).await,
        Some(Decision::ForwardAs(handle)) => {
            if let Some(at) = reply.handle {
                at.patch(&mut to.wire.pending, &handle).map_err(backend)?;
            }
            forward(client, to, &reply, total).await
        }
        Some(Decision::Forward) | None => forward(client, to, &reply, total).await,
    }
}

/// Reads the reply until everything that the decision needs is pending. Returns it and its whole length.
async fn begin(
    from: &mut Client,
    request: &Message,
    budget_guard: &mut BudgetGuard,
) -> Result<(Reply, usize), RelayError> {
    let (total_limit, buffer_limit) = (from.limits().reply_bytes, from.limits().buffered_reply_bytes);
    let total = if from.is_framed() {
        if from.wire.pending.is_empty() && !from.wire.fill().await.map_err(backend)? {
            return Err(backend(WireError::ClosedInside));
        }
        from.wire.fill_to(4).await.map_err(backend)?;
        let head = &from.wire.pending[..4];
        let total = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if total > total_limit {
            return Err(backend(WireError::TooLong { bytes: total, limit: total_limit }));
        }
        from.wire.discard(4);
        total
    } else {
        // Without frames the end is known only when the whole reply was read.
        let message = from.read(buffer_limit).await.map_err(backend)?;
        if !from.wire.pending.is_empty() {
            return Err(backend(ScanError::Trailing));
        }
        from.wire.pending = message.into_bytes();
        from.wire.pending.len()
    };
    if total <= WHOLE_REPLY_BYTES {
        from.wire.fill_to(total).await.map_err(backend)?;
    }
    loop {
        let length = from.wire.pending.len();
        if length > total {
            return Err(backend(ScanError::Trailing));
        }
        let scanned = scan::reply_head(&from.wire.pending, total);
        let at_least = match scanned {
            Ok((reply, true)) => {
                same_call(request, &reply, &from.wire.pending)?;
                return Ok((reply, total));
            }
            Ok((_, false)) => length + 1,
            Err(ScanError::Truncated { at_least }) if length < total && at_least <= total => at_least,
            Err(error) => return Err(backend(error)),
        };
        if at_least > buffer_limit {
            return Err(backend(WireError::TooLong { bytes: at_least, limit: buffer_limit }));
        }
        // Doubled each time, so that a long beginning is not read byte by byte.
        let wanted = (length * 2).max(at_least).min(total).min(buffer_limit);
        if wanted > UNCOUNTED_REPLY_BYTES {
            budget_guard.acquire_for_reply(total.min(buffer_limit), from.limits().stall).await.map_err(backend)?;
        }
        from.wire.fill_to(wanted).await.map_err(backend)?;
    }
}

/// Cuts the error texts of a reply; an engine does not limit them.
async fn cut(
    from: &mut Client,
    reply: Reply,
    total: usize,
    budget_guard: &mut BudgetGuard,
) -> Result<(Reply, usize), RelayError> {
    if !reply.has_surplus(&from.wire.pending, MAX_ERROR_TEXT_BYTES) {
        return Ok((reply, total));
    }
    let limit = from.limits().buffered_reply_bytes;
    if total > limit {
        return Err(backend(WireError::TooLong { bytes: total, limit }));
    }
    budget_guard.acquire_for_reply(total, from.limits().stall).await.map_err(backend)?;
    from.wire.fill_to(total).await.map_err(backend)?;
    let reply = scan::reply(&from.wire.pending).map_err(backend)?;
    reply.cut_errors(&mut from.wire.pending, MAX_ERROR_TEXT_BYTES);
    let reply = scan::reply(&from.wire.pending).map_err(backend)?;
    Ok((reply, from.wire.pending.len()))
}

/// Checks that the reply has the method and the sequence number of the request.
fn same_call(request: &Message, reply: &Reply, bytes: &[u8]) -> Result<(), RelayError> {
    let (called, replied) = (request.header(), &reply.header);
    // The names of the service's methods need not be compared.
    let has_its_method =
        called.method == replied.method && (called.method.is_some() || replied.name_in(bytes) == request.name());
    if replied.seqid == called.seqid && has_its_method {
        Ok(())
    } else {
        Err(backend(WireError::Decode("the reply belongs to another call".to_owned())))
    }
}

async fn buffer(from: &mut Client, total: usize) -> Result<Outcome, RelayError> {
    let limit = from.limits().buffered_reply_bytes;
    if total > limit {
        return Err(backend(WireError::TooLong { bytes: total, limit }));
    }
    from.wire.fill_to(total).await.map_err(backend)?;
    Ok(Outcome::Buffered(from.wire.take(total)))
}

async fn forward(
    client: &mut Connection,
    from: &mut Client,
    reply: &Reply,
    total: usize,
) -> Result<Outcome, RelayError> {
    let begun = std::mem::take(&mut from.wire.pending);
    let rest = Rest::after(&begun, total, reply)?;
    if rest.is_none() {
        // The whole reply was read: a client that fails now leaves the backend's connection between two calls.
        from.set_broken(false);
    }
    client.state.transport.begin_reply(total, begun).await.map_err(RelayError::Client)?;
    if let Some(rest) = rest {
        copy_rest(client, from, rest).await?;
    }
    Ok(Outcome::Forwarded { bytes: total })
}

/// Copies the rest of a reply.
async fn copy_rest(client: &mut Connection, from: &mut Client, rest: Rest) -> Result<(), RelayError> {
    let Rest { mut left, mut walker } = rest;
    while left > 0 {
        let check = |piece: &[u8]| checked(&mut walker, piece, left.saturating_sub(piece.len()));
        match client.state.transport.copy_reply(&mut from.wire, left, check).await {
            Ok(copied) => left -= copied.min(left),
            Err(CopyError::From(error)) => return Err(RelayError::Backend { error, partly: true }),
            Err(CopyError::To(error)) => return Err(RelayError::Client(error)),
        }
    }
    Ok(())
}

/// Checks that the reply ends with this piece if and only if its frame does.
fn checked(walker: &mut PieceWalker, piece: &[u8], left: usize) -> Result<(), ScanError> {
    match (walker.feed(piece)?, left) {
        (true, 0) | (false, 1..) => Ok(()),
        (true, _) => Err(ScanError::Trailing),
        (false, 0) => Err(ScanError::Truncated { at_least: walker.fed() + 1 }),
    }
}
