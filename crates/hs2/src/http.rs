//! HTTP/1.1 on a client's connection, on hyper: Thrift messages in POSTs, requests below `/api/`, and probes.
//!
//! One connection is one hyper connection. It is polled in place by the task that serves the client, in
//! [`HttpConnection::next`] and while a reply is delivered, so a connection has no task and no queue of its own, and hyper
//! reads nothing while a call runs. [`resource`] names what a path stands for, [`request`] decides about a request by its
//! head alone, with what [`authorization`] parses, [`body`] reads a body within the limits, [`reply`] carries the reply of a call, [`probe`] serves `/livez`
//! and `/readyz`. What [`api`] passes on runs inside the poll of hyper, which drops it when the client disconnects.
//!
//! A client may open a new connection for each request, so sessions are found by handle. The head of a request is
//! checked before its body is read: its credentials, and whether a web page could have sent it. A caller whose client is
//! gone gets an error; nothing is sent again. A call that was taken is always answered, since clients repeat one whose
//! connection ends without a response.

mod api;
mod authorization;
mod body;
mod cookie;
mod driver;
mod exchange;
mod probe;
mod refusal;
mod reply;
mod request;
mod request_scanner;
mod resource;
mod service;
mod socket_io;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use model::error::{ErrorKind, UserError};
use tokio::time::{Instant, timeout};

use crate::answer::encode_refusal;
use crate::auth::{Authenticator, Principal};
use crate::error::WireError;
use crate::http_api::HttpApi;
use crate::limits::Limits;
use crate::message::{ExceptionKind, Message, encode_exception};
use crate::method::Method;
use crate::scratch::SCRATCH_BYTES;
use crate::tls::log::TlsLog;
use crate::wire::{LINGER, LINGER_BYTES, Wire};
use driver::Driver;
use exchange::{CallHead, Client, Exchange};

/// A client's connection that speaks HTTP.
pub(crate) struct HttpConnection {
    wire: Wire,
    exchange: Arc<Exchange>,
    driver: Driver,
}

impl HttpConnection {
    /// Takes a connection whose first bytes were read. A client that has not authenticated by `unknown_until` is closed, with a
    /// response if its login is being checked.
    pub(crate) fn new(
        mut wire: Wire,
        peer: SocketAddr,
        authenticator: Arc<dyn Authenticator>,
        api: Option<Arc<dyn HttpApi>>,
        limits: Arc<Limits>,
        lacks_tls: Option<Arc<TlsLog>>,
        unknown_until: Instant,
    ) -> Self {
        let begun = std::mem::take(&mut wire.pending);
        let client = Client { peer, authenticator, api, lacks_tls, is_tls: wire.is_tls(), unknown_until };
        let exchange = Arc::new(Exchange::new(client, limits));
        let driver = Driver::new(wire.socket(), begun, &exchange);
        Self { wire, exchange, driver }
    }

    /// The next call and its sender; `None` at the end. All other requests are answered here. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<(Principal, Message)>, WireError> {
        let error = match self.driver.next(&self.exchange).await {
            Ok(Some(call)) => return Ok(Some(call)),
            Ok(None) => None,
            Err(error @ WireError::Stalled(_)) => return Err(error),
            Err(error) => Some(error),
        };
        // The client may still be sending, and would lose the last response if the connection was reset.
        self.part().await;
        error.map_or(Ok(None), Err)
    }

    /// Sends one whole reply to the call.
    pub(crate) async fn send(&mut self, reply: &[u8]) -> Result<(), WireError> {
        self.begin_reply(reply.len())?;
        for piece in reply.chunks(SCRATCH_BYTES) {
            self.deliver(Bytes::copy_from_slice(piece)).await?;
        }
        Ok(())
    }

    /// Announces a reply of `length` bytes, which are delivered next.
    pub(crate) fn begin_reply(&self, length: usize) -> Result<(), WireError> {
        if self.exchange.begin_reply(length) { Ok(()) } else { Err(WireError::ClosedInside) }
    }

    /// Sends the next piece of the reply. Returns when the operating system has it.
    pub(crate) async fn deliver(&mut self, piece: Bytes) -> Result<(), WireError> {
        if piece.is_empty() { Ok(()) } else { self.driver.deliver(&self.exchange, piece).await }
    }

    /// Completes when the client has closed its end. Reads nothing.
    pub(crate) async fn hung_up(&self) {
        self.wire.hung_up().await;
    }

    /// Closes the connection so that the last bytes sent still arrive. A request below `/api/` has the grace of the server
    /// for its response.
    pub(crate) async fn part(&mut self) {
        self.answer_cut_call();
        if self.exchange.is_busy_with_api() {
            let grace = self.exchange.limits.close_grace;
            let _ = timeout(grace, self.driver.finish_api(&self.exchange)).await;
        }
        self.driver.stop();
        self.wire.part(LINGER_BYTES, LINGER).await;
    }

    /// Answers a call that its handler has left without a reply: JDBC repeats a call whose connection ends without a
    /// response, and a statement would run twice. Sends what the operating system takes at once.
    fn answer_cut_call(&mut self) {
        let Some(CallHead { name, seqid }) = self.exchange.take_unanswered() else { return };
        let error = UserError::new(ErrorKind::ConnectionLost, "the call was cut off before its reply")
            .detail("It may have taken effect.")
            .hint("Check its effect before you repeat it.");
        let reply = match Method::from_name(&name) {
            Some(method) => encode_refusal(method, seqid, &error),
            None => encode_exception(&name, seqid, ExceptionKind::InternalError, &error.text()),
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/x-thrift\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            reply.len()
        );
        // Nothing of hyper waits to be sent, and nothing may follow.
        self.driver.stop();
        self.wire.write_at_once(head.as_bytes(), &reply);
    }
}

/// Also the end of a handler that panicked or was aborted.
impl Drop for HttpConnection {
    fn drop(&mut self) {
        self.answer_cut_call();
    }
}
