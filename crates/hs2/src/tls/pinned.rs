//! TLS between the roles of an installation: version 1.3 with raw public keys (RFC 7250) of Ed25519.
//!
//! A client knows the keys that the server may prove, and nothing else of it counts: no name, address, issuer or date. There are
//! no certificates to issue or renew. A client that is to be authenticated does so inside. Sessions are never resumed,
//! because a resumed one is not verified.

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, ServerConfig, SignatureScheme,
};

use super::TlsVersion;

/// The bytes of a seed, and of a public key.
const KEY_BYTES: usize = 32;

/// What precedes the seed of an Ed25519 key in PKCS #8 (RFC 8410, section 7).
const PKCS8_HEAD: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// What precedes the bytes of a public key in `SubjectPublicKeyInfo` (RFC 8410, section 4).
const PUBLIC_KEY_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// The error of a client whose server has none of the accepted keys.
pub(super) const OTHER_KEY: CertificateError = CertificateError::ApplicationVerificationFailure;

/// The key that a server proves. Never printed.
#[derive(Clone)]
pub struct ServerKey(Arc<CertifiedKey>);

impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerKey(******)")
    }
}

impl ServerKey {
    /// The key with this seed.
    pub fn from_seed(seed: &[u8; KEY_BYTES]) -> Result<Self, Error> {
        let pair = [&PKCS8_HEAD[..], seed].concat();
        let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pair))?;
        let public = key.public_key().ok_or(Error::General("the key has no public half".to_owned()))?;
        Ok(Self(Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key))))
    }
}

/// The key at the time of each handshake.
struct CurrentKey(Box<dyn Fn() -> Option<ServerKey> + Send + Sync>);

impl fmt::Debug for CurrentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentKey")
    }
}

impl ResolvesServerCert for CurrentKey {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        (self.0)().map(|key| key.0)
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

/// The configuration of a server that proves the current key.
pub(super) fn server_config(
    key: impl Fn() -> Option<ServerKey> + Send + Sync + 'static,
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(TlsVersion::Tls13.and_later())?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(CurrentKey(Box::new(key))));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The configuration of a client that accepts a server with one of these keys.
pub(super) fn client_config(keys: &[[u8; KEY_BYTES]]) -> Result<ClientConfig, Error> {
    let keys = keys.iter().map(|key| [&PUBLIC_KEY_HEAD[..], key].concat()).collect();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(TlsVersion::Tls13.and_later())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pins(keys)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// The accepted keys, as `SubjectPublicKeyInfo`.
#[derive(Debug)]
struct Pins(Vec<Vec<u8>>);

impl ServerCertVerifier for Pins {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.0.iter().any(|pin| pin.as_slice() == key.as_ref()) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(OTHER_KEY.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(key.as_ref()),
            signature,
            &algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
