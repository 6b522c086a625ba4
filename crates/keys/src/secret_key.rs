//! 32 secret bytes, and keys derived from them: HMAC-SHA-256 over purpose, generation and name.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use model::engine_name::hex;
use model::key_generation::KeyGeneration;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The bytes of a key.
pub const KEY_BYTES: usize = 32;

/// The version of the derivation: the first field of what is hashed.
const DERIVATION: &str = "eh2";

/// A secret key. Never printed; overwritten when it is dropped. In a file it is base64.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SecretKey([u8; KEY_BYTES]);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(******)")
    }
}

impl SecretKey {
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// A key of random bytes of the operating system; `None` if it has none.
    pub fn random() -> Option<Self> {
        let mut bytes = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The key for a purpose. `name` is empty where a purpose has one key; neither contains a zero byte.
    #[must_use]
    pub fn derive(&self, purpose: &str, generation: KeyGeneration, name: &str) -> Self {
        Self(self.hmac(&[DERIVATION, purpose, &generation.to_string(), name]))
    }

    /// HMAC-SHA-256 over the fields with a zero byte between them.
    pub fn hmac(&self, fields: &[&str]) -> [u8; KEY_BYTES] {
        // HMAC takes a key of any length, so this cannot fail.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return [0; KEY_BYTES] };
        for (at, field) in fields.iter().enumerate() {
            if at > 0 {
                mac.update(&[0]);
            }
            mac.update(field.as_bytes());
        }
        mac.finalize().into_bytes().into()
    }

    /// As a password: 64 hex digits.
    pub fn password(&self) -> String {
        hex(&self.0)
    }

    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

/// 32 bytes in base64; the error says what is wrong with the text and does not contain it.
pub(crate) fn decode(text: &str) -> Result<[u8; KEY_BYTES], String> {
    let bytes = STANDARD.decode(text).map_err(|_| "a key is not base64".to_owned())?;
    let length = bytes.len();
    bytes.try_into().map_err(|_| format!("a key has {length} bytes instead of {KEY_BYTES}"))
}

pub(crate) fn encode(bytes: &[u8; KEY_BYTES]) -> String {
    STANDARD.encode(bytes)
}

impl Serialize for SecretKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for SecretKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        decode(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn purposes_generations_and_names_have_keys_of_their_own() {
        let root = SecretKey::new([7; KEY_BYTES]);
        let one = |purpose: &str, generation: u32, name: &str| {
            root.derive(purpose, KeyGeneration(generation), name).password()
        };
        let keys = [one("a", 1, ""), one("b", 1, ""), one("a", 2, ""), one("a", 1, "x"), one("a", 1, "y")];
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(key.len(), 64);
            assert!(keys.iter().skip(at + 1).all(|other| other != key));
        }
        assert_ne!(one("a", 1, ""), SecretKey::new([8; KEY_BYTES]).derive("a", KeyGeneration(1), "").password());
    }

    #[test]
    fn a_derived_key_never_changes() {
        // Computed with Python's hmac module.
        let key = SecretKey::new([0; KEY_BYTES]).derive("sign-proxy", KeyGeneration(1), "");
        assert_eq!(key.password(), "e9000d95a8f5abd7532e77c3ac949d5764e9aefd6a90417395d7addec6139904");
    }

    #[test]
    fn a_key_is_never_printed_and_survives_a_file() {
        let key = SecretKey::random().unwrap();
        assert_eq!(format!("{key:?}"), "SecretKey(******)");
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<SecretKey>(&text).unwrap().0, key.0);
        for (wrong, why) in [("\"x\"", "not base64"), ("\"QUJD\"", "has 3 bytes")] {
            let error = serde_json::from_str::<SecretKey>(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
