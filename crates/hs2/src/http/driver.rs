//! Polls the hyper connection of a client, with the deadlines that hyper does not have, and without its buffers while the
//! client is idle.
//!
//! hyper limits the time until a head is complete, which includes the idle time before it. Here a head that has begun
//! must be complete within the stall limit, a client must authenticate in time, and a client that does not read its
//! reply is given up. Between two requests hyper's state is dropped, once everything was sent; what it had read of the next
//! request is passed to its successor.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::exchange::{Exchange, Framing, Leftover};
use super::reply::ReplyBody;
use super::service;
use super::socket_io::SocketIo;
use crate::auth::Principal;
use crate::error::WireError;
use crate::limits::{AUTHENTICATION, HTTP_BUFFER_BYTES, HTTP_IDLE, MAX_HTTP_HEAD_BYTES, MAX_HTTP_HEADERS};
use crate::message::Message;
use crate::socket::Socket;

/// The most pieces of a body that are received before other tasks run.
const MAX_PIECES: usize = 64;

/// hyper's state of a connection, with its buffers.
type HyperConnection = Box<http1::Connection<SocketIo, RequestService>>;

struct RequestService {
    exchange: Arc<Exchange>,
}

impl Service<Request<Incoming>> for RequestService {
    type Response = Response<ReplyBody>;
    type Error = WireError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ReplyBody>, WireError>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        // Before hyper receives another head.
        let framing = self.exchange.take_framing().unwrap_or(Framing::Ambiguous);
        Box::pin(service::serve(Arc::clone(&self.exchange), request, framing))
    }
}

enum State {
    Active(HyperConnection),
    /// Between two requests, since this time: hyper has no state.
    Idle(Instant),
    Ended,
}

pub(super) struct Driver {
    socket: Arc<Socket>,
    /// The lock is never contended: it lets other threads hold a reference.
    state: Mutex<State>,
    leftover: Mutex<Option<Leftover>>,
    /// The next deadline, once there was one.
    timer: Option<Pin<Box<Sleep>>>,
}

fn connection(socket: &Arc<Socket>, begun: Vec<u8>, exchange: &Arc<Exchange>) -> HyperConnection {
    let mut builder = http1::Builder::new();
    // Without a timer the deadline panics. Each head has a shorter one of ours.
    builder.timer(TokioTimer::new()).header_read_timeout(HTTP_IDLE);
    builder.max_headers(MAX_HTTP_HEADERS).max_header_size(MAX_HTTP_HEAD_BYTES).max_buf_size(HTTP_BUFFER_BYTES);
    // Some clients compare the names of headers as they were always sent. Time comes from the clock alone.
    builder.half_close(false).title_case_headers(true).auto_date_header(false);
    let io = SocketIo::new(Arc::clone(socket), begun, Arc::clone(exchange));
    Box::new(builder.serve_connection(io, RequestService { exchange: Arc::clone(exchange) }))
}

impl Driver {
    /// `begun` was read before.
    pub(super) fn new(socket: Arc<Socket>, begun: Vec<u8>, exchange: &Arc<Exchange>) -> Self {
        let state = Mutex::new(State::Active(connection(&socket, begun, exchange)));
        Self { socket, state, leftover: Mutex::default(), timer: None }
    }

    /// Polls the connection; ready when it has ended.
    fn poll_connection(&mut self, exchange: &Arc<Exchange>, cx: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        loop {
            match self.state.get_mut() {
                State::Ended => return Poll::Ready(Ok(())),
                State::Active(hyper) => {
                    let ended = ready!(Pin::new(&mut **hyper).poll(cx));
                    self.stop();
                    return Poll::Ready(ended.map_err(WireError::from));
                }
                State::Idle(_) => {
                    // An error and the end are hyper's to report.
                    let _ = ready!(self.socket.poll_readable(cx));
                    *self.state.get_mut() = State::Active(connection(&self.socket, Vec::new(), exchange));
                }
            }
        }
    }

    /// Drops hyper's buffers between two requests. `true` if the connection is to be polled again.
    fn rest(&mut self, exchange: &Arc<Exchange>) -> bool {
        let state = self.state.get_mut();
        if !exchange.is_idle() || !matches!(state, State::Active(_)) {
            return false;
        }
        if let State::Active(hyper) = std::mem::replace(state, State::Idle(Instant::now())) {
            let parts = hyper.into_parts();
            let begun = [&parts.read_buf, parts.io.unread()].concat();
            if !begun.is_empty() {
                // The beginning of a request that was sent before the response: its deadline begins now.
                *state = State::Active(connection(&self.socket, begun, exchange));
            }
        }
        true
    }

    /// Drops the current request and everything that was not sent.
    pub(super) fn stop(&mut self) {
        *self.state.get_mut() = State::Ended;
        *self.leftover.get_mut() = None;
    }

    /// Discards what remains of a rejected body; ready when some of that work ended and the connection can go on.
    fn poll_leftover(&mut self, exchange: &Exchange, cx: &mut Context<'_>) -> Poll<()> {
        let leftover = self.leftover.get_mut();
        if let Some(new) = exchange.take_leftover() {
            *leftover = Some(new);
        }
        let Some(work) = leftover else { return Poll::Pending };
        ready!(work.as_mut().poll(cx));
        *leftover = None;
        exchange.discarded();
        Poll::Ready(())
    }

    /// Ready with the name of the limit that was exceeded.
    fn poll_deadline(&mut self, exchange: &Exchange, cx: &mut Context<'_>) -> Poll<&'static str> {
        // A login that is being checked ends by itself at this deadline, with a response.
        let unknown = (!exchange.is_known() && !exchange.is_responding())
            .then_some((exchange.client.unknown_until, AUTHENTICATION));
        let head = exchange.head_until().map(|until| (until, "the limit for reading a message"));
        let unsent = exchange.unsent_until().map(|until| (until, "the limit for writing a message"));
        let idle = match self.state.get_mut() {
            State::Idle(since) => Some((*since + HTTP_IDLE, "the limit of an idle connection")),
            State::Active(_) | State::Ended => None,
        };
        let deadlines = [unknown, head, unsent, idle].into_iter().flatten();
        let Some((until, limit)) = deadlines.min_by_key(|(until, _)| *until) else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(limit)
    }

    /// The next call; `None` when the connection has ended.
    pub(super) async fn next(&mut self, exchange: &Arc<Exchange>) -> Result<Option<(Principal, Message)>, WireError> {
        poll_fn(|cx| {
            let mut pieces = 0;
            loop {
                let ended = self.poll_connection(exchange, cx);
                if let Some(call) = exchange.take_call() {
                    return Poll::Ready(Ok(Some(call)));
                }
                if let Poll::Ready(ended) = ended {
                    return Poll::Ready(ended.map(|()| None));
                }
                // hyper passes on one piece of a body for each poll, and a chunk may have one byte.
                if exchange.take_progress() && pieces < MAX_PIECES {
                    pieces += 1;
                    continue;
                }
                if self.poll_leftover(exchange, cx).is_pending() && !self.rest(exchange) {
                    return self.poll_deadline(exchange, cx).map(|limit| Err(WireError::Stalled(limit)));
                }
            }
        })
        .await
    }

    /// Sends the response to a request below `/api/` that is being served.
    pub(super) async fn finish_api(&mut self, exchange: &Arc<Exchange>) {
        poll_fn(|cx| {
            let ended = self.poll_connection(exchange, cx).is_ready();
            if ended || !exchange.is_busy_with_api() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Sends one piece of a reply. The client must make progress within the stall limit.
    pub(super) async fn deliver(&mut self, exchange: &Arc<Exchange>, piece: Bytes) -> Result<(), WireError> {
        exchange.put_piece(piece);
        let mut delivered = pin!(poll_fn(|cx| {
            let ended = self.poll_connection(exchange, cx);
            if exchange.is_delivered() {
                return Poll::Ready(Ok(()));
            }
            ended.map(|ended| ended.and(Err(WireError::ClosedInside)))
        }));
        loop {
            let sent = exchange.sent_bytes();
            match timeout(exchange.limits.stall, &mut delivered).await {
                Ok(delivered) => return delivered,
                Err(_) if exchange.sent_bytes() > sent => {}
                Err(_) => return Err(WireError::Stalled("the limit for writing a message")),
            }
        }
    }
}
