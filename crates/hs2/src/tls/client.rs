//! TLS of a client: the roots that it trusts, and the name that the server must prove.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore};

use super::TlsVersion;

/// The TLS settings of a client. The server's certificate is always verified.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
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
        Ok(Self { config: Arc::new(config) })
    }

    /// For a library that opens its connections itself.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// A session with the server at `host:port`, whose certificate must be for that host.
    pub(crate) fn session(&self, address: &str) -> io::Result<rustls::Connection> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error: InvalidDnsNameError| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let session = ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        Ok(session.into())
    }
}

/// The error of a handshake, with the cause that is likely when the server does not speak TLS.
pub(crate) fn handshake_error(error: &io::Error) -> io::Error {
    let plain = error.get_ref().and_then(|source| source.downcast_ref()).is_some_and(|error| {
        matches!(
            error,
            rustls::Error::InvalidMessage(_) | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)
        )
    });
    let text = if plain { "the server does not speak TLS on this port" } else { "TLS handshake failed" };
    io::Error::new(error.kind(), format!("{text}: {error}"))
}
