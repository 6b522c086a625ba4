//! The body of a request: received within its limits and the process's budget, or discarded.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use super::exchange::Exchange;
use crate::byte_budget::BudgetGuard;
use crate::error::WireError;
use crate::limit_hits::Limit;
use crate::limits::UNCOUNTED_REQUEST_BYTES;
use crate::request_memory::Share;

const LATE: WireError = WireError::Stalled("the limit for receiving a request");

/// Why a body was not received.
#[derive(Debug)]
pub(super) enum BodyError {
    /// Its announced length is above the limit. Nothing of it was read.
    TooLong { bytes: usize, limit: usize },
    /// Its chunks are above the limit.
    ChunksTooLong { limit: usize },
    /// Its chunks cannot be parsed, or it ends early.
    Malformed,
    /// Too slow: the connection ends without a response.
    Stalled(WireError),
    /// Nothing was read after what has begun it.
    NoRequestMemory { begun: Vec<u8>, bytes: usize, limit: Limit, waited: Duration },
}

/// A body that is being received. Each piece must arrive within the stall limit, and all within the deadline.
struct Receiver<'a> {
    body: &'a mut Incoming,
    stall: Duration,
    deadline: Option<Instant>,
    progress_at: Instant,
    /// Set again only when it fires: bodies may have a million pieces.
    timer: Pin<Box<Sleep>>,
}

impl<'a> Receiver<'a> {
    fn new(body: &'a mut Incoming, stall: Duration) -> Self {
        let now = Instant::now();
        Self { body, stall, deadline: None, progress_at: now, timer: Box::pin(sleep_until(now + stall)) }
    }

    /// From now on the rest must arrive by then.
    fn until(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
        self.progress_at = Instant::now();
        let next = self.next_timeout();
        self.timer.as_mut().reset(next);
    }

    fn next_timeout(&self) -> Instant {
        let stalled = self.progress_at + self.stall;
        self.deadline.map_or(stalled, |deadline| deadline.min(stalled))
    }

    /// The next piece; `None` at the end. Trailers have no meaning here.
    async fn piece(&mut self) -> Result<Option<Bytes>, BodyError> {
        poll_fn(|cx| {
            while let Poll::Ready(frame) = Pin::new(&mut *self.body).poll_frame(cx) {
                match frame.transpose().map_err(|_| BodyError::Malformed)?.map(Frame::into_data) {
                    None => return Poll::Ready(Ok(None)),
                    Some(Ok(data)) => {
                        self.progress_at = Instant::now();
                        return Poll::Ready(Ok(Some(data)));
                    }
                    Some(Err(_)) => {}
                }
            }
            loop {
                ready!(self.timer.as_mut().poll(cx));
                let next = self.next_timeout();
                if next <= Instant::now() {
                    return Poll::Ready(Err(BodyError::Stalled(LATE)));
                }
                self.timer.as_mut().reset(next);
            }
        })
        .await
    }
}

/// Receives a body of `length` bytes, or in chunks, and of at most `limit` bytes. A long one waits for the budget, of which
/// it holds a part until the guard is dropped, and then has the deadline of
/// [`Limits::request_deadline`](crate::Limits).
pub(super) async fn receive(
    exchange: &Exchange,
    body: &mut Incoming,
    length: Option<usize>,
    limit: usize,
    share: &Share,
) -> Result<(Vec<u8>, BudgetGuard), BodyError> {
    let limits = &exchange.limits;
    if let Some(bytes) = length.filter(|length| *length > limit) {
        limits.hits.hit(Limit::RequestBytes);
        return Err(BodyError::TooLong { bytes, limit });
    }
    let (mut bytes, mut budget_guard) = (Vec::new(), BudgetGuard::default());
    let mut receiver = Receiver::new(body, limits.stall);
    loop {
        let chunked = if bytes.len() > UNCOUNTED_REQUEST_BYTES { limit } else { bytes.len() };
        let most = length.unwrap_or(chunked);
        if most > UNCOUNTED_REQUEST_BYTES && receiver.deadline.is_none() {
            match budget_guard.acquire_for_request(most, share, limits.stall).await {
                Ok(()) => {}
                Err(WireError::NoRequestMemory { bytes: most, limit, waited }) => {
                    limits.hits.hit(limit);
                    return Err(BodyError::NoRequestMemory { begun: bytes, bytes: most, limit, waited });
                }
                Err(error) => return Err(BodyError::Stalled(error)),
            }
            receiver.until(Instant::now() + limits.request_deadline);
        }
        let Some(data) = receiver.piece().await? else { return Ok((bytes, budget_guard)) };
        exchange.body_received();
        if data.len() > limit - bytes.len() {
            limits.hits.hit(Limit::RequestBytes);
            return Err(BodyError::ChunksTooLong { limit });
        }
        bytes.extend_from_slice(&data);
    }
}

/// Receives the beginning of a body, of which `head` was received, until `enough`, its end, or the deadline.
pub(super) async fn receive_head(
    body: &mut Incoming,
    mut head: Vec<u8>,
    deadline: Duration,
    enough: impl Fn(&[u8]) -> bool,
) -> Vec<u8> {
    let mut receiver = Receiver::new(body, deadline);
    receiver.until(Instant::now() + deadline);
    while !enough(&head) {
        match receiver.piece().await {
            Ok(Some(data)) => head.extend_from_slice(&data),
            Ok(None) | Err(_) => break,
        }
    }
    head
}

/// Discards the rest of a body, at most `left` bytes and for `deadline`. The client may be silent for `stall`. What
/// remains then ends the connection.
pub(super) async fn discard(mut body: Incoming, mut left: usize, deadline: Duration, stall: Duration) {
    let mut receiver = Receiver::new(&mut body, stall);
    receiver.until(Instant::now() + deadline);
    while let Ok(Some(data)) = receiver.piece().await {
        match left.checked_sub(data.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// Discards the rest of a body that is too long, so that a client that writes all before it reads finds the response.
pub(super) fn discard_long(exchange: &Exchange, body: Incoming) {
    let limits = &exchange.limits;
    let discarding = discard(body, limits.refused_bytes, limits.refused_deadline, limits.stall);
    exchange.discard(Box::pin(discarding));
}
