//! The issuer's public keys (RFC 7517), and which of them a token may use.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// The longest key set that is read, in bytes.
pub(super) const MAX_BYTES: usize = 256 << 10;
/// The most keys of a set.
const MAX_KEYS: usize = 100;

/// What a key is, which decides about the algorithms that it can verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

/// One public key.
#[derive(Debug, Clone)]
pub(super) struct Key {
    id: Option<String>,
    kind: Kind,
    /// The only algorithm that it is for, if the issuer names one.
    algorithm: Option<Algorithm>,
    pub decoding: DecodingKey,
}

/// The keys that can verify tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct KeySet(Vec<Key>);

/// A key set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    #[error("it has more than {MAX_BYTES} bytes")]
    TooLong,
    #[error("it has {0} keys, and the limit is {MAX_KEYS}")]
    TooMany(usize),
    #[error("it is no key set: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("it has no key that can verify tokens")]
    Empty,
}

/// One entry that cannot be parsed must not hide the others.
#[derive(Deserialize)]
struct Entries {
    keys: Vec<Value>,
}

impl KeySet {
    /// Leaves out keys for encryption, shared secrets, and keys of unknown kinds.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeySetError> {
        if bytes.len() > MAX_BYTES {
            return Err(KeySetError::TooLong);
        }
        let Entries { keys } = serde_json::from_slice(bytes)?;
        if keys.len() > MAX_KEYS {
            return Err(KeySetError::TooMany(keys.len()));
        }
        let keys: Vec<Key> = keys.into_iter().filter_map(Key::from_entry).collect();
        if keys.is_empty() { Err(KeySetError::Empty) } else { Ok(Self(keys)) }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The key with this id that the algorithm needs or, for a token without an id, the only key that it needs.
    pub fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut fitting = self.0.iter().filter(|key| key.fits(algorithm));
        match id {
            Some(id) => fitting.find(|key| key.id.as_deref() == Some(id)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }
}

impl Key {
    fn from_entry(entry: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(entry).ok()?;
        let kind = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Kind::Rsa,
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Kind::P256,
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => Kind::P384,
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Kind::Ed25519,
            _ => return None,
        };
        let is_for_signatures = jwk.common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
        let can_verify = jwk.common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        if !is_for_signatures || !can_verify {
            return None;
        }
        let algorithm = match jwk.common.key_algorithm {
            // One of encryption, or one that is not known.
            Some(named) => Some(Algorithm::try_from(named).ok()?),
            None => None,
        };
        Some(Self { kind, algorithm, decoding: DecodingKey::from_jwk(&jwk).ok()?, id: jwk.common.key_id })
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        let needed = match algorithm {
            Algorithm::RS256
            | Algorithm::RS384
            | Algorithm::RS512
            | Algorithm::PS256
            | Algorithm::PS384
            | Algorithm::PS512 => Kind::Rsa,
            Algorithm::ES256 => Kind::P256,
            Algorithm::ES384 => Kind::P384,
            Algorithm::EdDSA => Kind::Ed25519,
            _ => return false,
        };
        self.kind == needed && self.algorithm.is_none_or(|only| only == algorithm)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn parse(keys: &[Value]) -> Result<KeySet, KeySetError> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
    }

    fn rsa(more: &Value) -> Value {
        let mut key = json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" });
        key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        key
    }

    #[test]
    fn keys_that_cannot_verify_are_left_out() {
        for unusable in [
            rsa(&json!({ "use": "enc" })),
            rsa(&json!({ "alg": "RSA-OAEP" })),
            rsa(&json!({ "alg": "another" })),
            rsa(&json!({ "key_ops": ["encrypt"] })),
            rsa(&json!({ "use": 5 })),
            json!({ "kty": "oct", "k": "c2VjcmV0" }),
            json!({ "kty": "EC", "crv": "P-521", "x": "AQAB", "y": "AQAB" }),
            json!({ "kty": "EC", "crv": "secp256k1", "x": "AQAB", "y": "AQAB" }),
            json!({ "kty": "OKP", "crv": "X25519", "x": "AQAB" }),
            json!({ "kty": "RSA", "n": "?", "e": "AQAB" }),
            json!("no key"),
        ] {
            assert!(matches!(parse(std::slice::from_ref(&unusable)), Err(KeySetError::Empty)), "{unusable}");
            assert_eq!(parse(&[unusable, rsa(&json!({ "kid": "a" }))]).unwrap().len(), 1);
        }
    }

    #[test]
    fn a_token_finds_its_key_by_id_or_the_only_one_that_fits() {
        let p256 = json!({ "kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB", "kid": "b" });
        let set = parse(&[rsa(&json!({ "kid": "a", "alg": "RS256" })), p256, rsa(&json!({ "kid": "c" }))]).unwrap();
        let found = |id, algorithm| set.find(id, algorithm).and_then(|key| key.id.as_deref());
        assert_eq!(found(Some("a"), Algorithm::RS256), Some("a"));
        assert_eq!(found(Some("a"), Algorithm::PS256), None, "it is for another algorithm");
        assert_eq!(found(Some("a"), Algorithm::ES256), None, "it is of another kind");
        assert_eq!(found(Some("a"), Algorithm::HS256), None, "a public key is no secret");
        assert_eq!(found(Some("d"), Algorithm::RS256), None);
        assert_eq!(found(None, Algorithm::ES256), Some("b"));
        assert_eq!(found(None, Algorithm::ES384), None, "it is of another curve");
        assert_eq!(found(None, Algorithm::PS256), Some("c"));
        assert_eq!(found(None, Algorithm::RS256), None, "there are two");
    }

    #[test]
    fn a_key_set_has_limits() {
        let keys: Vec<Value> = (0..=MAX_KEYS).map(|number| rsa(&json!({ "kid": number.to_string() }))).collect();
        assert!(matches!(parse(&keys), Err(KeySetError::TooMany(101))));
        assert_eq!(parse(&keys[1..]).unwrap().len(), MAX_KEYS);
        assert!(matches!(KeySet::parse(&vec![b' '; MAX_BYTES + 1]), Err(KeySetError::TooLong)));
        for text in ["", "[]", "{}", "{\"keys\": {}}"] {
            assert!(matches!(KeySet::parse(text.as_bytes()), Err(KeySetError::Syntax(_))), "{text}");
        }
    }
}
