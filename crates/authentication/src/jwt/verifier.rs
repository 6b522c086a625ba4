//! The signature algorithms of tokens, on *ring*: the library for tokens has none of its own, and those that it offers bring
//! another provider of cryptography.
//!
//! It verifies and never signs. A key of another kind than the algorithm's verifies nothing.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature as algorithms;
use ring::signature::{RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(unsupported()),
    verifier_factory: |algorithm, key| verifier(*algorithm, key),
    // For keys that are derived from private ones.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes it the provider of the process. Without one the library panics at the first token.
pub(super) fn install() {
    // An error means that it is installed already.
    let _ = PROVIDER.install_default();
}

fn unsupported() -> Error {
    ErrorKind::UnsupportedAlgorithm.into()
}

fn verifier(algorithm: Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(RingVerifier { algorithm, key: key.clone() }))
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> Result<(), signature::Error> {
        match self.algorithm {
            Algorithm::RS256 => self.verify_rsa(&algorithms::RSA_PKCS1_2048_8192_SHA256, message, signed),
            Algorithm::RS384 => self.verify_rsa(&algorithms::RSA_PKCS1_2048_8192_SHA384, message, signed),
            Algorithm::RS512 => self.verify_rsa(&algorithms::RSA_PKCS1_2048_8192_SHA512, message, signed),
            Algorithm::PS256 => self.verify_rsa(&algorithms::RSA_PSS_2048_8192_SHA256, message, signed),
            Algorithm::PS384 => self.verify_rsa(&algorithms::RSA_PSS_2048_8192_SHA384, message, signed),
            Algorithm::PS512 => self.verify_rsa(&algorithms::RSA_PSS_2048_8192_SHA512, message, signed),
            Algorithm::ES256 => self.verify_curve(&algorithms::ECDSA_P256_SHA256_FIXED, message, signed),
            Algorithm::ES384 => self.verify_curve(&algorithms::ECDSA_P384_SHA384_FIXED, message, signed),
            Algorithm::EdDSA => self.verify_curve(&algorithms::ED25519, message, signed),
            // Those with a shared secret.
            _ => Err(signature::Error::new()),
        }
    }
}

impl RingVerifier {
    fn verify_rsa(&self, algorithm: &RsaParameters, message: &[u8], signed: &[u8]) -> Result<(), signature::Error> {
        let DecodingKeyKind::RsaModulusExponent { n, e } = self.key.kind() else { return Err(signature::Error::new()) };
        RsaPublicKeyComponents { n, e }.verify(algorithm, message, signed).map_err(|_| signature::Error::new())
    }

    fn verify_curve(
        &self,
        algorithm: &'static dyn VerificationAlgorithm,
        message: &[u8],
        signed: &[u8],
    ) -> Result<(), signature::Error> {
        let key = self.key.try_get_as_bytes().map_err(|_| signature::Error::new())?;
        UnparsedPublicKey::new(algorithm, key).verify(message, signed).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
