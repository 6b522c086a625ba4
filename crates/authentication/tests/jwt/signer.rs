//! Keys of an issuer, made when the test runs, and what they sign.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

/// An issuer's key pair.
pub enum Signer {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A token with this signature.
pub fn assemble(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
    let signed = sign(message.as_bytes());
    format!("{message}.{}", encode(signed))
}

impl Signer {
    pub fn rsa() -> Self {
        // Only ring's own algorithms have generators.
        let made = Command::new("openssl")
            .args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
            .output()
            .expect("openssl");
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(&made.stdout).unwrap();
        Self::Rsa(Box::new(RsaKeyPair::from_pkcs8(pkcs8.secret_pkcs8_der()).unwrap()))
    }

    pub fn p256() -> Self {
        Self::P256(ecdsa(&signature::ECDSA_P256_SHA256_FIXED_SIGNING))
    }

    pub fn p384() -> Self {
        Self::P384(ecdsa(&signature::ECDSA_P384_SHA384_FIXED_SIGNING))
    }

    pub fn ed25519() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }

    /// The public key, as an entry of a key set.
    pub fn jwk(&self, id: &str) -> Value {
        let point = |pair: &EcdsaKeyPair, curve: &str| {
            let (x, y) = pair.public_key().as_ref()[1..].split_at((pair.public_key().as_ref().len() - 1) / 2);
            json!({ "kty": "EC", "crv": curve, "x": encode(x), "y": encode(y), "kid": id })
        };
        match self {
            Self::Rsa(pair) => {
                let public: signature::RsaPublicKeyComponents<Vec<u8>> = pair.public().into();
                json!({ "kty": "RSA", "n": encode(public.n), "e": encode(public.e), "kid": id })
            }
            Self::P256(pair) => point(pair, "P-256"),
            Self::P384(pair) => point(pair, "P-384"),
            Self::Ed25519(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref()), "kid": id })
            }
        }
    }

    pub fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let padding: &dyn signature::RsaEncoding = match algorithm {
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    "PS512" => &signature::RSA_PSS_SHA512,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut signed = vec![0; pair.public().modulus_len()];
                pair.sign(padding, &random, message, &mut signed).unwrap();
                signed
            }
            Self::P256(pair) | Self::P384(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    pub fn token(&self, header: &Value, claims: &Value) -> String {
        assemble(header, claims, |message| self.sign(header["alg"].as_str().unwrap_or_default(), message))
    }
}

fn ecdsa(algorithm: &'static signature::EcdsaSigningAlgorithm) -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap()
}
