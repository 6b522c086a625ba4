//! TLS on a listener and for a client: configurations of rustls with the provider *ring*.
//!
//! TLS 1.2 (ECDHE and AEAD only) and 1.3, without early data. A listener resumes sessions by one stateless ticket, since
//! some clients open a connection for each call.

pub(crate) mod certificate;
pub(crate) mod client;
mod handshakes;
pub(crate) mod log;
pub(crate) mod pinned;
pub(crate) mod session;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use model::error::{ErrorKind, UserError};
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

use crate::auth::{Authenticator, Credentials, HttpScheme, Principal};
use crate::security_context::SecurityContext;
use crate::service_proof::ServiceProof;
use handshakes::Handshakes;
use log::{Mismatch, TlsLog};
use pinned::ServerKey;

/// The protocol that a client may name before its first request; others are detected by their first byte.
const HTTP: &[u8] = b"http/1.1";

/// The oldest version that is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}

static FROM_TLS12: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];

impl TlsVersion {
    fn and_later(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls12 => &FROM_TLS12,
            Self::Tls13 => &FROM_TLS12[..1],
        }
    }
}

/// The TLS settings of a listener. Plain connections reach the same port.
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// Plain clients are rejected in their own protocol; only the probes are served.
    pub(crate) required: bool,
    /// Those with a ticket, which no listener can use again, may log in over SASL all the same.
    pub(crate) accepts_plain_tickets: bool,
    /// The error that they receive.
    pub(crate) refusal: fn() -> UserError,
    pub(crate) handshakes: Handshakes,
}

/// Makes *ring* the provider of the process, for libraries that take the default one. To be called once, before any TLS.
pub fn install_provider() {
    // An error means that a provider is installed already.
    let _ = ring::default_provider().install_default();
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("required", &self.required).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// The certificate may change between two handshakes. If TLS is `required`, plain clients cannot log in.
    pub fn new(
        certificate: Arc<dyn ResolvesServerCert>,
        minimum: TlsVersion,
        required: bool,
    ) -> Result<Self, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(minimum.and_later())?
            .with_no_client_auth()
            .with_cert_resolver(certificate);
        config.alpn_protocols = vec![HTTP.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = ring::Ticketer::new()?;
        config.send_tls13_tickets = 1;
        Ok(Self::from_config(config, required, tls_required))
    }

    /// For a server whose clients know the key that it proves, which may change between two handshakes. Without a key no handshake
    /// succeeds. If TLS is `required`, plain clients are refused with this error.
    pub fn pinned(
        key: impl Fn() -> Option<ServerKey> + Send + Sync + 'static,
        required: bool,
        refusal: fn() -> UserError,
    ) -> Result<Self, rustls::Error> {
        Ok(Self::from_config(pinned::server_config(key)?, required, refusal))
    }

    fn from_config(config: ServerConfig, required: bool, refusal: fn() -> UserError) -> Self {
        let (config, handshakes) = (Arc::new(config), Handshakes::default());
        Self { config, required, accepts_plain_tickets: false, refusal, handshakes }
    }

    /// Accepts tickets over SASL from plain clients, although passwords require TLS.
    #[must_use]
    pub fn with_plain_tickets(self, accepts_plain_tickets: bool) -> Self {
        Self { accepts_plain_tickets, ..self }
    }

    /// Whether plain clients cannot log in.
    pub fn is_required(&self) -> bool {
        self.required
    }

    pub(crate) fn session(&self) -> Result<rustls::Connection, rustls::Error> {
        Ok(ServerConnection::new(Arc::clone(&self.config))?.into())
    }
}

/// The error of a plain client of a proxy that requires TLS.
pub(crate) fn tls_required() -> UserError {
    UserError::new(ErrorKind::InvalidAuthorization, "this login requires TLS: add ssl=true")
}

/// The authenticator of a plain connection where TLS is required: it rejects every login in the client's own protocol, except with a
/// ticket where those are accepted.
pub(crate) struct LacksTls {
    authenticator: Arc<dyn Authenticator>,
    log: Arc<TlsLog>,
    accepts_tickets: bool,
    refusal: fn() -> UserError,
}

impl LacksTls {
    pub(crate) fn new(authenticator: Arc<dyn Authenticator>, log: Arc<TlsLog>, tls: &ServerTls) -> Self {
        Self { authenticator, log, accepts_tickets: tls.accepts_plain_tickets, refusal: tls.refusal }
    }
}

#[async_trait]
impl Authenticator for LacksTls {
    async fn authenticate(&self, peer: SocketAddr, _: &Credentials) -> Result<Principal, UserError> {
        self.log.note(peer, Mismatch::LacksTls, &"");
        Err((self.refusal)())
    }

    fn accepts_services(&self) -> bool {
        self.authenticator.accepts_services()
    }

    async fn authenticate_service(&self, peer: SocketAddr, _: &ServiceProof) -> Result<Principal, UserError> {
        self.log.note(peer, Mismatch::LacksTls, &"");
        Err((self.refusal)())
    }

    fn begin_ticket_login(&self, peer: SocketAddr) -> Result<Box<dyn SecurityContext>, UserError> {
        if self.accepts_tickets {
            return self.authenticator.begin_ticket_login(peer);
        }
        self.log.note(peer, Mismatch::LacksTls, &"");
        Err((self.refusal)())
    }

    async fn authenticate_ticket(
        &self,
        peer: SocketAddr,
        context: Box<dyn SecurityContext>,
        authzid: &str,
    ) -> Result<Principal, UserError> {
        self.authenticator.authenticate_ticket(peer, context, authzid).await
    }

    fn http_schemes(&self) -> Vec<HttpScheme> {
        self.authenticator.http_schemes()
    }

    fn accepts_no_user_name(&self) -> bool {
        self.authenticator.accepts_no_user_name()
    }

    fn serves_host(&self, name: &str) -> bool {
        self.authenticator.serves_host(name)
    }

    fn unready(&self) -> Option<String> {
        self.authenticator.unready()
    }
}
