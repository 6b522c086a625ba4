//! The certificate of a listener, which can be replaced while it serves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError as Invalid, Error, InconsistentKeys, RootCertStore};

/// A time after the end of every certificate, in seconds since 1970: the year 10000.
const AFTER_ALL_S: u64 = 253_402_300_800;

/// A certificate and key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("the certificate cannot be read: {0}")]
    Certificate(#[source] pem::Error),
    #[error("there is no certificate")]
    NoCertificate,
    #[error("the private key cannot be read: {0}")]
    Key(#[source] pem::Error),
    #[error("the certificate does not belong to the private key")]
    Mismatch,
    #[error("the certificate and the private key cannot be used: {0}")]
    Unusable(#[source] Error),
}

impl From<Error> for CertificateError {
    fn from(error: Error) -> Self {
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Self::Mismatch,
            error => Self::Unusable(error),
        }
    }
}

/// The certificate that new handshakes present. Sessions keep the one that they began with.
pub struct ServerCertificate {
    current: RwLock<Arc<CertifiedKey>>,
}

/// A certificate chain with its key, known to match.
#[derive(Debug)]
pub struct Certified {
    key: Arc<CertifiedKey>,
    validity: Validity,
}

/// When every certificate of a chain is valid, in milliseconds since 1970; both ends are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub not_before_ms: i64,
    pub not_after_ms: i64,
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
        let validity = Validity::of_chain(&chain)?;
        Ok(Self { key: Arc::new(CertifiedKey::from_der(chain, key, &ring::default_provider())?), validity })
    }

    /// When the whole chain is valid. An expired chain can be read and presented: the caller decides.
    pub fn validity(&self) -> Validity {
        self.validity
    }
}

impl Validity {
    fn of_chain(chain: &[CertificateDer<'_>]) -> Result<Self, Error> {
        let mut all = Self { not_before_ms: 0, not_after_ms: i64::MAX };
        for certificate in chain {
            let one = Self::of(certificate)?;
            all.not_before_ms = all.not_before_ms.max(one.not_before_ms);
            all.not_after_ms = all.not_after_ms.min(one.not_after_ms);
        }
        Ok(all)
    }

    /// The verifier of rustls reports the times of a certificate in its errors, before it looks at the issuer: verified
    /// at the beginning of time and at its end, each certificate is not valid yet and expired.
    fn of(certificate: &CertificateDer<'_>) -> Result<Self, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = ring::default_provider().signature_verification_algorithms.all;
        let verify_at = |seconds| {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], time, algorithms)
        };
        let not_before_ms = match verify_at(0) {
            Err(Error::InvalidCertificate(Invalid::NotValidYetContext { not_before, .. })) => milliseconds(not_before),
            // Valid since 1970 or earlier.
            _ => 0,
        };
        match verify_at(AFTER_ALL_S) {
            Err(Error::InvalidCertificate(Invalid::ExpiredContext { not_after, .. })) => {
                Ok(Self { not_before_ms, not_after_ms: milliseconds(not_after) })
            }
            Err(error) => Err(error),
            Ok(()) => Ok(Self { not_before_ms, not_after_ms: i64::MAX }),
        }
    }
}

fn milliseconds(time: UnixTime) -> i64 {
    time.as_secs().saturating_mul(1_000) as i64
}

impl ServerCertificate {
    pub fn new(certified: Certified) -> Self {
        Self { current: RwLock::new(certified.key) }
    }

    /// From now on, new handshakes present this certificate. Returns whether it is another one.
    pub fn replace(&self, certified: Certified) -> bool {
        let mut current = self.current.write();
        // The key belongs to the certificate, so it is not compared.
        if current.cert == certified.key.cert {
            return false;
        }
        *current = certified.key;
        true
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ::tests::certificate::Certificate;

    const DAY_MS: i64 = 86_400_000;

    fn certified(name: &str) -> Certified {
        let folder = tempfile::tempdir().unwrap();
        let files = Certificate::create(folder.path(), name).unwrap();
        let read = |path| std::fs::read(path).unwrap();
        Certified::from_pem(&read(&files.certificate), &read(&files.key)).unwrap()
    }

    #[test]
    fn the_validity_of_a_certificate_is_that_of_its_text() {
        let Validity { not_before_ms, not_after_ms } = certified("a").validity();
        // It was made for two days, just now.
        assert_eq!(not_after_ms - not_before_ms, 2 * DAY_MS);
        assert!(not_before_ms > 1_700_000_000_000, "{not_before_ms}");
    }

    #[test]
    fn a_chain_is_valid_while_all_of_its_certificates_are() {
        let (first, second) = (certified("a"), certified("b"));
        let chain: Vec<_> = [&first, &second].iter().flat_map(|certified| certified.key.cert.clone()).collect();
        let validity = Validity::of_chain(&chain).unwrap();
        assert_eq!(validity.not_before_ms, first.validity.not_before_ms.max(second.validity.not_before_ms));
        assert_eq!(validity.not_after_ms, first.validity.not_after_ms.min(second.validity.not_after_ms));
    }

    #[test]
    fn a_key_of_another_certificate_is_a_mismatch() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a", "b"].map(|name| Certificate::create(folder.path(), name).unwrap());
        let read = |path| std::fs::read(path).unwrap();
        let error = Certified::from_pem(&read(&first.certificate), &read(&second.key)).unwrap_err();
        assert!(matches!(error, CertificateError::Mismatch), "{error}");
    }

    #[test]
    fn the_same_certificate_replaces_nothing() {
        let certificate = ServerCertificate::new(certified("a"));
        let same = Certified { key: Arc::clone(&certificate.current.read()), validity: certified("b").validity };
        assert!(!certificate.replace(same));
        assert!(certificate.replace(certified("b")));
    }
}
