//! A client's connection: whole messages in, whole replies out.
//!
//! The first byte determines the transport: `0x01` SASL, `0x80` plain Thrift, a letter HTTP, `0x16` TLS, inside which
//! the first byte decides again. Without a TLS configuration the client gets an alert. Any other first byte is answered
//! with a line of text. A caller with a stale connection gets an error from its next call; nothing is resent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::auth::{Authenticator, Mechanism, Principal};
use crate::error::WireError;
use crate::framing::Framing;
use crate::http::HttpConnection;
use crate::http_api::HttpApi;
use crate::limits::{AUTHENTICATION, Limits};
use crate::message::Message;
use crate::sasl;
use crate::tls::log::{Mismatch, TlsLog};
use crate::tls::{LacksTls, ServerTls};
use crate::transport::{FirstRead, Stream, Transport};
use crate::wire::{LINGER, LINGER_BYTES, Wire};

/// The first byte of a TLS client: a record with a part of the handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// The reply to a TLS client where TLS is off: alert, fatal, `protocol_version`.
const TLS_ALERT: [u8; 7] = [0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46];

/// The reply to an unrecognised protocol: readable text, because it may be a person with telnet.
const NOT_OURS: &[u8] = b"this port speaks HiveServer2: SASL PLAIN, plain Thrift, or HTTP\n";

/// The limit that a client exceeded whose TLS handshake did not end in time.
const TLS_HANDSHAKE_LIMIT: &str = "the limit for a TLS handshake";

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection failed, stalled, or broke the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The client received the reason in its own protocol.
    #[error("refused: {0}")]
    Refused(String),
    /// The client received an alert, or sent one.
    #[error("{0}")]
    Tls(#[source] io::Error),
    /// The client closed the connection.
    #[error("the client went away")]
    GoneAway,
}

/// A client's connection. It is moved through tasks, so its state is in a box.
pub struct Connection {
    pub(crate) state: Box<ConnectionState>,
}

pub(crate) struct ConnectionState {
    pub(crate) transport: Transport,
    id: u64,
    peer: SocketAddr,
    mechanism: Mechanism,
    principal: Option<Principal>,
    authenticator: Arc<dyn Authenticator>,
    limits: Arc<Limits>,
    /// The deadline of an unauthenticated client.
    unknown_until: Instant,
}

impl Connection {
    /// Detects the transport and authenticates, where the transport does so before the first message.
    pub(crate) async fn accept(
        mut wire: Wire,
        peer: SocketAddr,
        authenticator: Arc<dyn Authenticator>,
        api: Option<Arc<dyn HttpApi>>,
        limits: Arc<Limits>,
        tls: Option<&ServerTls>,
        log: &Arc<TlsLog>,
    ) -> Result<Self, HandshakeError> {
        let unknown_until = Instant::now() + limits.auth_deadline;
        if let Some(tls) = tls {
            // In a box, which ends with the handshake.
            match timeout_at(unknown_until, Box::pin(start_tls(&mut wire, tls, peer, limits.handshake_deadline))).await
            {
                Ok(Err(error @ HandshakeError::Tls(_))) => {
                    log.note(peer, Mismatch::Handshake, &error);
                    return Err(error);
                }
                Ok(started) => started?,
                Err(_) => return Err(WireError::Stalled(AUTHENTICATION).into()),
            }
        }
        let lacks_tls = tls.is_some_and(|tls| tls.required) && !wire.is_tls();
        let authenticator: Arc<dyn Authenticator> = match tls {
            Some(tls) if lacks_tls => Arc::new(LacksTls::new(authenticator, Arc::clone(log), tls)),
            _ => authenticator,
        };
        match timeout_at(unknown_until, wire.fill()).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Err(HandshakeError::GoneAway),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(WireError::Stalled(AUTHENTICATION).into()),
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let (framing, mechanism, principal) = match wire.pending.first() {
            Some(&sasl::START) => match sasl::accept(&mut wire, peer, &*authenticator, unknown_until).await {
                Ok(principal) => (Framing::Length(None), Mechanism::SaslPlain, Some(principal)),
                Err(sasl::Failed::Wire(error)) => return Err(error.into()),
                Err(sasl::Failed::GivenUp) => return Err(HandshakeError::GoneAway),
                Err(sasl::Failed::Refused(error)) => {
                    wire.part(LINGER_BYTES, LINGER).await;
                    return Err(HandshakeError::Refused(error.message));
                }
            },
            Some(0x80) => (Framing::Walked(None), Mechanism::PlainThrift, None),
            Some(b'A'..=b'Z') => {
                let client = Arc::clone(&authenticator);
                let log = lacks_tls.then(|| Arc::clone(log));
                let http = HttpConnection::new(wire, peer, client, api, Arc::clone(&limits), log, unknown_until);
                let transport = Transport::Http(Box::new(http));
                let mechanism = Mechanism::Http;
                let principal = None;
                let state =
                    ConnectionState { transport, id, peer, mechanism, principal, authenticator, limits, unknown_until };
                return Ok(Self { state: Box::new(state) });
            }
            Some(&TLS_HANDSHAKE) if !wire.is_tls() => {
                log.note(peer, Mismatch::NoTls, &"");
                wire.write(&TLS_ALERT, &[]).await?;
                wire.part(LINGER_BYTES, LINGER).await;
                return Err(HandshakeError::Refused("this listener does not speak TLS".to_owned()));
            }
            _ => {
                wire.write(NOT_OURS, &[]).await?;
                wire.part(LINGER_BYTES, LINGER).await;
                return Err(HandshakeError::Refused("the first byte belongs to no known transport".to_owned()));
            }
        };
        if let Some(principal) = &principal {
            wire.sent_by(limits.request_memory.share_of(&principal.user));
        }
        let transport = Transport::Stream(Stream::new(wire, framing));
        let state = ConnectionState { transport, id, peer, mechanism, principal, authenticator, limits, unknown_until };
        Ok(Self { state: Box::new(state) })
    }

    /// Unique in this process.
    pub fn id(&self) -> u64 {
        self.state.id
    }

    pub fn peer(&self) -> SocketAddr {
        self.state.peer
    }

    pub fn mechanism(&self) -> Mechanism {
        self.state.mechanism
    }

    /// The authenticated principal: with SASL from the beginning, with HTTP that of the last message (the next may
    /// have another), with plain Thrift since [`Connection::set_principal`].
    pub fn principal(&self) -> Option<&Principal> {
        self.state.principal.as_ref()
    }

    /// Sets the principal that `OpenSession` authenticated, for plain Thrift.
    pub fn set_principal(&mut self, principal: Principal) {
        if let Transport::Stream(stream) = &mut self.state.transport {
            stream.wire.sent_by(self.state.limits.request_memory.share_of(&principal.user));
        }
        self.state.principal = Some(principal);
    }

    pub fn limits(&self) -> &Limits {
        &self.state.limits
    }

    /// The authenticator; plain Thrift calls it at `OpenSession`.
    pub fn authenticator(&self) -> &Arc<dyn Authenticator> {
        &self.state.authenticator
    }

    /// The next whole message; `None` when the client has closed between two. An idle connection waits without a
    /// buffer and, once the client is authenticated, without a time limit (callers wrap the future if they need one);
    /// over HTTP the limit is [`HTTP_IDLE`](crate::limits::HTTP_IDLE). Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Message>, WireError> {
        if self.state.principal.is_some()
            && let Transport::Stream(stream) = &mut self.state.transport
            && stream.is_between_messages()
        {
            match stream.first_read(&self.state.limits).await? {
                FirstRead::Message(message) => return Ok(Some(message)),
                FirstRead::Closed => return Ok(None),
                FirstRead::Part => {}
            }
        }
        // In a box: an idle connection is to be small.
        Box::pin(self.next_in_parts()).await
    }

    async fn next_in_parts(&mut self) -> Result<Option<Message>, WireError> {
        let stream = match &mut self.state.transport {
            Transport::Stream(stream) => stream,
            Transport::Http(http) => {
                let Some((principal, message)) = http.next().await? else { return Ok(None) };
                self.state.principal = Some(principal);
                return Ok(Some(message));
            }
        };
        let is_known = self.state.principal.is_some();
        let next = stream.next(&self.state.limits, is_known, self.state.peer);
        if is_known {
            return next.await;
        }
        match timeout_at(self.state.unknown_until, next).await {
            Ok(next) => next,
            Err(_) => Err(WireError::Stalled(AUTHENTICATION)),
        }
    }

    /// Sends one whole reply.
    pub async fn send(&mut self, reply: &[u8]) -> Result<(), WireError> {
        self.state.transport.send(reply).await
    }

    /// Completes when the client has closed its end: race it against the work on a call. Reads nothing.
    pub async fn closed(&self) {
        self.state.transport.hung_up().await;
    }

    /// Closes the connection so that the last bytes sent still arrive.
    pub async fn close(mut self) {
        self.state.transport.part().await;
    }
}

/// Performs the TLS handshake of a client whose first byte announces one. It has `deadline` once it is its turn.
async fn start_tls(
    wire: &mut Wire,
    tls: &ServerTls,
    peer: SocketAddr,
    deadline: Duration,
) -> Result<(), HandshakeError> {
    match wire.first_byte().await? {
        Some(TLS_HANDSHAKE) => {}
        Some(_) => return Ok(()),
        None => return Err(HandshakeError::GoneAway),
    }
    let turn = tls.handshakes.turn(peer.ip()).await.map_err(|error| HandshakeError::Tls(io::Error::other(error)))?;
    let session = tls.session().map_err(|error| HandshakeError::Tls(io::Error::other(error)))?;
    let started = timeout(deadline, wire.start_tls(session)).await;
    drop(turn);
    match started {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            wire.part(LINGER_BYTES, LINGER).await;
            Err(HandshakeError::Tls(error))
        }
        Err(_) => Err(WireError::Stalled(TLS_HANDSHAKE_LIMIT).into()),
    }
}
