//! TLS of a client: the roots that it trusts, and the name that the server must prove.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore};

use super::{TlsVersion, pinned};

/// The TLS settings of a client. The server's certificate is always verified.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    verifies: Verifies,
}

/// What a client verifies of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verifies {
    /// Its certificate, for the host of the address.
    Host,
    /// Its key, wherever it is.
    Key,
}

/// The roots of a client cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    #[error("{0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("there are no certificates")]
    Empty,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Trusts the certificates of a PEM file alone.
    pub fn from_ca_file(path: &Path) -> Result<Self, RootsError> {
        let certificates: Vec<_> = CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
        Self::new(certificates)
    }

    /// Trusts the certificates of the machine.
    pub fn from_machine() -> Result<Self, RootsError> {
        let mut roots = RootCertStore::empty();
        // A machine may hold certificates that cannot be parsed; the others count.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::from_roots(roots)
    }

    /// Trusts these certificates alone.
    pub fn new(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Result<Self, RootsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate)?;
        }
        Self::from_roots(roots)
    }

    fn from_roots(roots: RootCertStore) -> Result<Self, RootsError> {
        if roots.is_empty() {
            return Err(RootsError::Empty);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(TlsVersion::Tls12.and_later())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config), verifies: Verifies::Host })
    }

    /// Accepts a server that proves one of these public keys of Ed25519, and no other one.
    pub fn pinned(keys: &[[u8; 32]]) -> Result<Self, rustls::Error> {
        Ok(Self { config: Arc::new(pinned::client_config(keys)?), verifies: Verifies::Key })
    }

    /// For a library that opens its connections itself.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// A session with the server at `host:port`.
    pub(crate) fn session(&self, address: &str) -> io::Result<rustls::Connection> {
        let name = match self.verifies {
            Verifies::Host => server_name(address)?,
            Verifies::Key => ServerName::IpAddress(IpAddr::V4(Ipv4Addr::UNSPECIFIED).into()),
        };
        let session = ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        Ok(session.into())
    }
}

/// The host of `host:port`.
fn server_name(address: &str) -> io::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned())
        .map_err(|error: InvalidDnsNameError| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// The error of a handshake, with the cause that is likely when the server does not speak TLS.
pub(crate) fn handshake_error(error: &io::Error) -> io::Error {
    let text = match error.get_ref().and_then(|source| source.downcast_ref()) {
        Some(rustls::Error::InvalidMessage(_) | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)) => {
            "the server does not speak TLS on this port"
        }
        Some(rustls::Error::InvalidCertificate(reason)) if *reason == pinned::OTHER_KEY => {
            return io::Error::new(error.kind(), "TLS handshake failed: the server does not have the expected key");
        }
        _ => "TLS handshake failed",
    };
    io::Error::new(error.kind(), format!("{text}: {error}"))
}
