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
use tracing::debug;

use crate::auth::{Authenticator, Mechanism, Principal};
use crate::error::WireError;
use crate::framing::{Framing, LENGTH_BYTES, next_frame, next_walked};
use crate::http::Exchange;
use crate::limits::{Limits, MAX_FIRST_MESSAGE_BYTES};
use crate::message::Message;
use crate::rejection::{MAX_ANNOUNCED_BYTES, Refused};
use crate::sasl;
use crate::scan::MessageKind;
use crate::tls::log::{Mismatch, TlsLog};
use crate::tls::{LacksTls, ServerTls};
use crate::wire::{LINGER, LINGER_BYTES, Wire};

/// The first byte of a TLS client: a record with a part of the handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// The reply to a TLS client where TLS is off: alert, fatal, `protocol_version`.
const TLS_ALERT: [u8; 7] = [0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46];

/// The reply to an unrecognised protocol: readable text, because it may be a person with telnet.
const NOT_OURS: &[u8] = b"this port speaks HiveServer2: SASL PLAIN, plain Thrift, or HTTP\n";

/// The limit that a client exceeded that did not authenticate in time.
pub(crate) const AUTHENTICATION: &str = "the limit for authentication";

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

/// A client's connection.
pub struct Connection {
    pub(crate) wire: Wire,
    pub(crate) framing: Framing,
    id: u64,
    peer: SocketAddr,
    mechanism: Mechanism,
    principal: Option<Principal>,
    authenticator: Arc<dyn Authenticator>,
    limits: Arc<Limits>,
    /// A rejected message, while work on it remains.
    refused: Option<Box<Refused>>,
    /// The deadline of an unauthenticated client.
    unknown_until: Instant,
}

impl Connection {
    /// Detects the transport and authenticates, where the transport does so before the first message.
    pub(crate) async fn accept(
        mut wire: Wire,
        authenticator: Arc<dyn Authenticator>,
        limits: Arc<Limits>,
        tls: Option<&ServerTls>,
        log: &Arc<TlsLog>,
    ) -> Result<Self, HandshakeError> {
        let peer = wire.peer().map_err(WireError::from)?;
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
        let authenticator =
            if lacks_tls { Arc::new(LacksTls::new(authenticator, Arc::clone(log))) } else { authenticator };
        match timeout_at(unknown_until, wire.fill()).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Err(HandshakeError::GoneAway),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(WireError::Stalled(AUTHENTICATION).into()),
        }
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
            Some(b'A'..=b'Z') => (Framing::Http(Box::new(Exchange::new(lacks_tls))), Mechanism::HttpBasic, None),
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
            wire.sent_by(&principal.user);
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(Self { wire, framing, id, peer, mechanism, principal, authenticator, limits, refused: None, unknown_until })
    }

    /// Unique in this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The authenticated principal: with SASL from the beginning, with HTTP that of the last message (the next may
    /// have another), with plain Thrift since [`Connection::set_principal`].
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// Sets the principal that `OpenSession` authenticated, for plain Thrift.
    pub fn set_principal(&mut self, principal: Principal) {
        self.wire.sent_by(&principal.user);
        self.principal = Some(principal);
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The authenticator; plain Thrift calls it at `OpenSession`.
    pub fn authenticator(&self) -> &Arc<dyn Authenticator> {
        &self.authenticator
    }

    /// The next whole message; `None` when the client has closed between two. An idle connection waits without a
    /// buffer and, once the client is authenticated, without a time limit (callers wrap the future if they need one).
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Message>, WireError> {
        if self.principal.is_some() {
            return self.next_message().await;
        }
        match timeout_at(self.unknown_until, self.next_message()).await {
            Ok(next) => next,
            Err(_) => Err(WireError::Stalled(AUTHENTICATION)),
        }
    }

    async fn next_message(&mut self) -> Result<Option<Message>, WireError> {
        loop {
            if let Some(refused) = &mut self.refused {
                refused.finish(&mut self.wire, &mut self.framing, &self.limits).await?;
                self.refused = None;
            }
            let error = match self.take_message().await {
                Err(error @ (WireError::TooLong { .. } | WireError::Scan(_))) => error,
                taken => return taken,
            };
            let length = match (&self.framing, &error) {
                (Framing::Length(_), WireError::TooLong { bytes, .. }) if *bytes > MAX_ANNOUNCED_BYTES => {
                    return Err(error);
                }
                (Framing::Length(_), WireError::TooLong { bytes, .. }) => {
                    self.wire.discard(LENGTH_BYTES);
                    Some(*bytes)
                }
                (Framing::Length(_), _) | (Framing::Http(_), WireError::Scan(_)) => Some(0),
                (Framing::Walked(_) | Framing::Http(_), _) => None,
            };
            // At debug level: a client can cause any number of these lines.
            debug!(connection = self.id, peer = %self.peer, why = %error, "request refused");
            self.refused = Some(Box::new(Refused::new(error, length)));
        }
    }

    async fn take_message(&mut self) -> Result<Option<Message>, WireError> {
        let limit = match (&self.framing, &self.principal) {
            (Framing::Walked(_), None) => self.limits.frame_bytes.min(MAX_FIRST_MESSAGE_BYTES),
            _ => self.limits.frame_bytes,
        };
        let within = self.limits.request_deadline;
        let taken = match &mut self.framing {
            Framing::Length(expected) => next_frame(&mut self.wire, expected, limit, Some(within)).await,
            Framing::Walked(walker) => next_walked(&mut self.wire, walker, limit, Some(within)).await,
            Framing::Http(exchange) => {
                let next = exchange.next(&mut self.wire, (limit, within), self.peer, &*self.authenticator).await;
                next.map(|next| {
                    next.map(|(principal, bytes)| {
                        self.principal = Some(principal);
                        bytes
                    })
                })
            }
        };
        self.wire.request_taken();
        let bytes = taken?;
        let message = bytes.map(Message::new).transpose()?;
        if message.as_ref().is_some_and(|message| message.header().kind == MessageKind::OneWay) {
            // A one-way call must not be answered, and no method of the protocol is one-way.
            return Err(WireError::Decode("a one-way call".to_owned()));
        }
        Ok(message)
    }

    /// Sends one whole reply.
    pub async fn send(&mut self, reply: &[u8]) -> Result<(), WireError> {
        self.framing.write_reply(&self.wire, reply).await
    }

    /// Completes when the client has closed its end: race it against the work on a call. Reads nothing.
    pub async fn closed(&self) {
        self.wire.hung_up().await;
    }

    /// Closes the connection so that the last bytes sent still arrive.
    pub async fn close(mut self) {
        self.wire.part(LINGER_BYTES, LINGER).await;
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
