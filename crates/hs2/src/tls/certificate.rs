//! The certificate of a listener, which can be replaced while it serves.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// A certificate and key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("the certificate cannot be read: {0}")]
    Certificate(#[source] pem::Error),
    #[error("there is no certificate")]
    NoCertificate,
    #[error("the private key cannot be read: {0}")]
    Key(#[source] pem::Error),
    #[error("the certificate and the private key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// The certificate that new handshakes present. Sessions keep the one that they began with.
pub struct ServerCertificate {
    current: RwLock<Arc<CertifiedKey>>,
}

/// A certificate chain with its key, known to match.
pub struct Certified {
    key: Arc<CertifiedKey>,
}

impl Certified {
    /// Reads a chain, the server's own certificate first, and its key, both in PEM.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(CertificateError::Certificate)?;
        if chain.is_empty() {
            return Err(CertificateError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(CertificateError::Key)?;
        Ok(Self { key: Arc::new(CertifiedKey::from_der(chain, key, &ring::default_provider())?) })
    }
}

impl ServerCertificate {
    pub fn new(certified: Certified) -> Self {
        Self { current: RwLock::new(certified.key) }
    }

    /// From now on, new handshakes present this certificate.
    pub fn replace(&self, certified: Certified) {
        *self.current.write() = certified.key;
    }
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}
