//! TLS on a listener and for a client: configurations of rustls with the provider *ring*.
//!
//! TLS 1.2 (ECDHE and AEAD only) and 1.3, without early data. A listener resumes sessions by one stateless ticket, since
//! some clients open a connection for each call.

pub(crate) mod certificate;
pub(crate) mod client;
pub(crate) mod session;

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use model::error::{ErrorKind, UserError};
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use tokio::sync::Semaphore;

use crate::auth::{Authenticator, Credentials, Principal};

/// The most TLS handshakes of one listener at the same time; further ones wait.
const HANDSHAKES_AT_ONCE: usize = 256;

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
    pub(crate) handshakes: Semaphore,
}

impl ServerTls {
    /// The certificate may change between two handshakes.
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
        Ok(Self { config: Arc::new(config), required, handshakes: Semaphore::new(HANDSHAKES_AT_ONCE) })
    }

    pub(crate) fn session(&self) -> Result<rustls::Connection, rustls::Error> {
        Ok(ServerConnection::new(Arc::clone(&self.config))?.into())
    }
}

/// The error of a plain client where TLS is required.
pub(crate) fn tls_required() -> UserError {
    UserError::new(ErrorKind::InvalidAuthorization, "this login requires TLS: add ssl=true")
}

/// The authenticator of a plain connection where TLS is required: it rejects every login in the client's own protocol.
pub(crate) struct LacksTls {
    authenticator: Arc<dyn Authenticator>,
}

impl LacksTls {
    pub(crate) fn new(authenticator: Arc<dyn Authenticator>) -> Self {
        Self { authenticator }
    }
}

#[async_trait]
impl Authenticator for LacksTls {
    async fn authenticate(&self, _: SocketAddr, _: &Credentials) -> Result<Principal, UserError> {
        Err(tls_required())
    }

    fn serves_host(&self, name: &str) -> bool {
        self.authenticator.serves_host(name)
    }

    fn unready(&self) -> Option<String> {
        self.authenticator.unready()
    }
}
