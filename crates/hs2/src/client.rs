//! The client: one connection to a HiveServer2 server; every call has a deadline.
//!
//! A call that was abandoned, because its deadline passed or its future was dropped, leaves the connection between
//! two messages. The connection is then broken: every later call fails, and the caller has to reconnect.

use std::io;
use std::time::Duration;

use model::error::{ErrorKind, UserError};
use thrift::protocol::TSerializable;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::answer::Answer;
use crate::byte_budget::BudgetGuard;
use crate::error::{WireError, WireErrorKind};
use crate::framing::{Framing, frame_length, next_frame, next_walked};
use crate::limits::Limits;
use crate::message::{Message, decode_reply, encode_call};
use crate::method::Method;
use crate::scan::ScanError;
use crate::service_proof::ServiceLogin;
use crate::socket::set_options;
use crate::tls::client::{ClientTls, handshake_error};
use crate::wire::{Wire, within};
use crate::{sasl, status};

/// The credentials of a client.
#[derive(Clone)]
pub enum Auth {
    /// SASL PLAIN.
    Plain {
        /// The user on whose behalf the client connects; empty for itself.
        authzid: String,
        user: String,
        /// The password or key.
        password: String,
    },
    /// The key of a role: a component of Enginehouse.
    Service(ServiceLogin),
    /// Plain Thrift: only the credentials in `OpenSession`.
    None,
}

impl Auth {
    /// A user who connects directly.
    pub fn user(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self::Plain { authzid: String::new(), user: user.into(), password: password.into() }
    }

    /// A component of Enginehouse that acts for a user and presents a password.
    pub fn service(service: impl Into<String>, password: impl Into<String>, user: impl Into<String>) -> Self {
        Self::Plain { authzid: user.into(), user: service.into(), password: password.into() }
    }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain { authzid, user, .. } => {
                f.debug_struct("Plain").field("authzid", authzid).field("user", user).finish_non_exhaustive()
            }
            Self::Service(login) => login.fmt(f),
            Self::None => f.write_str("None"),
        }
    }
}

/// The options of a connection.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// `host:port`.
    pub address: String,
    pub auth: Auth,
    /// TLS, with the roots that verify the server's certificate for the host of the address.
    pub tls: Option<ClientTls>,
    /// From the first packet until the server has accepted the credentials.
    pub connect_deadline: Duration,
    /// The deadline of each typed call.
    pub call_deadline: Duration,
    /// Only `reply_bytes`, `buffered_reply_bytes` and `stall` apply.
    pub limits: Limits,
}

impl ClientOptions {
    /// With the defaults: 10 s to connect, 60 s for a call.
    pub fn new(address: impl Into<String>, auth: Auth) -> Self {
        Self {
            address: address.into(),
            auth,
            tls: None,
            connect_deadline: Duration::from_secs(10),
            call_deadline: Duration::from_mins(1),
            limits: Limits::default(),
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server is unreachable, or did not respond in time.
    #[error("could not connect to {address}: {source}")]
    Connect {
        address: String,
        /// The error of the operating system, or that the deadline passed.
        source: io::Error,
    },
    /// The server does not accept the credentials.
    #[error("{0}")]
    Unauthenticated(String),
    /// The deadline passed: the connection is broken, and the outcome of the call is unknown.
    #[error("no answer to {call} within {} ms", deadline.as_millis())]
    Timeout { call: String, deadline: Duration },
    /// An earlier call was abandoned, or the server has closed the connection since. Nothing was sent.
    #[error("the connection was closed, or given up by an earlier call")]
    Broken,
    /// The connection or the server's message failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The server responded with an error.
    #[error("{0}")]
    Refused(UserError),
}

impl From<ScanError> for ClientError {
    fn from(error: ScanError) -> Self {
        Self::Wire(error.into())
    }
}

impl ClientError {
    /// As the error of a user's statement.
    pub fn user_error(&self) -> UserError {
        match self {
            Self::Unauthenticated(text) => UserError::from_text(ErrorKind::InvalidAuthorization, text),
            Self::Timeout { .. } => UserError::new(ErrorKind::Timeout, self.to_string()),
            Self::Connect { .. } | Self::Broken => UserError::new(ErrorKind::ConnectionLost, self.to_string()),
            Self::Wire(error) => error.user_error("the server"),
            Self::Refused(error) => error.clone(),
        }
    }

    /// Whether the server responded, so that the connection is usable and the call had no effect.
    pub fn is_answer(&self) -> bool {
        match self {
            Self::Refused(_) => true,
            Self::Wire(error) => error.kind() == WireErrorKind::Application,
            _ => false,
        }
    }
}

impl From<ClientError> for UserError {
    fn from(error: ClientError) -> Self {
        error.user_error()
    }
}

/// A call that was sent and has no response yet.
#[derive(Debug)]
pub struct Sent {
    method: String,
    seqid: i32,
    deadline: Duration,
    until: Instant,
}

impl Sent {
    fn timeout(self) -> ClientError {
        ClientError::Timeout { call: self.method, deadline: self.deadline }
    }
}

/// Those of the [`Limits`] that a client has to know for each message: a connection that is idle keeps no others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageLimits {
    pub(crate) frame_bytes: usize,
    pub(crate) reply_bytes: usize,
    pub(crate) buffered_reply_bytes: usize,
    pub(crate) stall: Duration,
}

impl MessageLimits {
    fn new(limits: &Limits) -> Self {
        let Limits { frame_bytes, reply_bytes, buffered_reply_bytes, stall, .. } = *limits;
        Self { frame_bytes, reply_bytes, buffered_reply_bytes, stall }
    }
}

/// A connection to a server.
pub struct Client {
    pub(crate) wire: Wire,
    framing: Framing,
    limits: MessageLimits,
    call_deadline: Duration,
    seqid: i32,
    broken: bool,
}

impl Client {
    /// Connects and authenticates.
    pub async fn connect(options: &ClientOptions) -> Result<Self, ClientError> {
        let failed = |source: io::Error| ClientError::Connect { address: options.address.clone(), source };
        let connecting = async {
            let stream = TcpStream::connect(&options.address).await.map_err(failed)?;
            set_options(&stream);
            let mut wire = Wire::new(stream, options.limits.stall);
            if let Some(tls) = &options.tls {
                // In a box: few connections have it, and its state is large.
                let handshake = Box::pin(async { wire.start_tls(tls.session(&options.address)?).await });
                handshake.await.map_err(|error| failed(handshake_error(&error)))?;
            }
            let framing = match &options.auth {
                Auth::None => Framing::Walked(None),
                Auth::Plain { authzid, user, password } => {
                    if [authzid, user, password].iter().any(|part| part.contains('\0')) {
                        let text = "a user name or password must not contain a null character";
                        return Err(ClientError::Unauthenticated(text.to_owned()));
                    }
                    wire.write(&sasl::initial(authzid, user, password), &[]).await?;
                    authenticated(&mut wire).await?;
                    Framing::Length(None)
                }
                Auth::Service(login) => {
                    if login.user.contains('\0') {
                        let text = "a user name must not contain a null character";
                        return Err(ClientError::Unauthenticated(text.to_owned()));
                    }
                    sasl::service::prove(&mut wire, login).await?.map_err(ClientError::Unauthenticated)?;
                    authenticated(&mut wire).await?;
                    Framing::Length(None)
                }
            };
            Ok(Self {
                wire,
                framing,
                limits: MessageLimits::new(&options.limits),
                call_deadline: options.call_deadline,
                seqid: 0,
                broken: false,
            })
        };
        timeout(options.connect_deadline, connecting).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} ms", options.connect_deadline.as_millis());
            Err(failed(io::Error::new(io::ErrorKind::TimedOut, reason)))
        })
    }

    /// The deadline of the typed calls.
    pub fn call_deadline(&self) -> Duration {
        self.call_deadline
    }

    /// Changes the deadline of the typed calls.
    pub fn set_call_deadline(&mut self, deadline: Duration) {
        self.call_deadline = deadline;
    }

    /// Whether an earlier call left the connection between two messages.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Completes when the server has closed the connection. Reads nothing.
    pub async fn closed(&self) {
        self.wire.hung_up().await;
    }

    /// Waits until unexpected bytes arrive (`true`) or the server closes the connection. Reads nothing.
    pub async fn has_unread(&self) -> bool {
        self.wire.has_unread().await
    }

    /// Calls a method of `TCLIService` or of a service that extends it. Does not check the response's status.
    pub async fn call<Q, A>(&mut self, method: &str, request: &Q, deadline: Duration) -> Result<A, ClientError>
    where
        Q: TSerializable,
        A: TSerializable,
    {
        let sent = self.send_call(method, request, deadline).await?;
        self.answer_to(sent).await
    }

    /// The first half of [`Client::call`]: when it returns, the call is sent. After an error other than
    /// [`ClientError::Broken`] it may have been. The other half is [`Client::answer_to`]; until then the connection
    /// cannot be used otherwise.
    pub async fn send_call<Q>(&mut self, method: &str, request: &Q, deadline: Duration) -> Result<Sent, ClientError>
    where
        Q: TSerializable,
    {
        self.seqid = self.seqid.wrapping_add(1).max(1);
        let message = encode_call(method, self.seqid, request)?;
        let sent = Sent { method: method.to_owned(), seqid: self.seqid, deadline, until: Instant::now() + deadline };
        self.send_request(sent, &message).await
    }

    /// Sends a request whose reply is read next, unless unexpected bytes have arrived since the last one.
    async fn send_request(&mut self, sent: Sent, message: &[u8]) -> Result<Sent, ClientError> {
        if self.broken || !self.wire.is_quiet() {
            self.broken = true;
            return Err(ClientError::Broken);
        }
        self.broken = true;
        match timeout_at(sent.until, self.write(message)).await {
            Ok(written) => written?,
            Err(_) => return Err(sent.timeout()),
        }
        Ok(sent)
    }

    /// The response to a call, within the deadline that it was sent with.
    pub async fn answer_to<A>(&mut self, sent: Sent) -> Result<A, ClientError>
    where
        A: TSerializable,
    {
        let reply = self.reply_to(sent).await?;
        Ok(decode_reply(reply.bytes())?)
    }

    async fn reply_to(&mut self, sent: Sent) -> Result<Message, ClientError> {
        let limit = self.limits.buffered_reply_bytes;
        let reply = match timeout_at(sent.until, self.read(limit)).await {
            Ok(reply) => reply?,
            Err(_) => return Err(sent.timeout()),
        };
        if reply.name() != sent.method || reply.seqid() != sent.seqid {
            return Err(WireError::Decode(format!("the answer to {} is one to another call", sent.method)).into());
        }
        self.broken = false;
        Ok(reply)
    }

    /// Calls a method of `TCLIService` within the connection's own deadline. An error in the response's status is
    /// [`ClientError::Refused`].
    pub(crate) async fn checked<Q, A>(&mut self, method: Method, request: &Q) -> Result<A, ClientError>
    where
        Q: TSerializable,
        A: Answer,
    {
        let answer: A = self.call(method.name(), request, self.call_deadline).await?;
        status::check(answer.status()).map_err(ClientError::Refused)?;
        Ok(answer)
    }

    /// Sends one whole message. The caller must receive its reply before it sends the next.
    pub async fn send(&mut self, message: &[u8]) -> Result<(), ClientError> {
        if self.broken {
            return Err(ClientError::Broken);
        }
        self.broken = true;
        self.write(message).await?;
        self.broken = false;
        Ok(())
    }

    /// Receives one whole message.
    pub async fn receive(&mut self, deadline: Duration) -> Result<Message, ClientError> {
        if self.broken {
            return Err(ClientError::Broken);
        }
        self.broken = true;
        let limit = self.limits.buffered_reply_bytes;
        let message = within(deadline, "the deadline of the call", self.read(limit)).await?;
        self.broken = false;
        Ok(message)
    }

    /// Marks the connection as unusable: a relay does so before a step that it may not finish.
    pub(crate) fn set_broken(&mut self, broken: bool) {
        self.broken = broken;
    }

    pub(crate) fn limits(&self) -> &MessageLimits {
        &self.limits
    }

    /// Whether messages are preceded by their lengths, so that a relay can copy them.
    pub(crate) fn is_framed(&self) -> bool {
        self.framing.has_lengths()
    }

    pub(crate) async fn write(&self, message: &[u8]) -> Result<(), WireError> {
        self.framing.write_message(&self.wire, message).await
    }

    pub(crate) async fn read(&mut self, limit: usize) -> Result<Message, WireError> {
        let bytes = match &mut self.framing {
            Framing::Length(expected) => {
                let mut budget_guard = BudgetGuard::default();
                if let Some(length) = frame_length(&mut self.wire, expected, limit).await? {
                    budget_guard.acquire_for_reply(length, self.limits.stall).await?;
                }
                next_frame(&mut self.wire, expected, limit, None).await?
            }
            Framing::Walked(walker) => next_walked(&mut self.wire, walker, limit, None).await?,
        };
        Ok(Message::new(bytes.ok_or(WireError::ClosedInside)?)?)
    }
}

/// Reads the server's response to the credentials.
async fn authenticated(wire: &mut Wire) -> Result<(), ClientError> {
    loop {
        let (status, payload) = sasl::read(wire).await?;
        match status {
            sasl::COMPLETE => return Ok(()),
            // A challenge: PLAIN has none, and the server will complete.
            sasl::OK => {}
            _ => return Err(ClientError::Unauthenticated(String::from_utf8_lossy(&payload).into_owned())),
        }
    }
}
