//! Ed25519: keys that sign, made from derived seeds, and keys that verify.

use std::fmt;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::secret_key::{KEY_BYTES, SecretKey, decode, encode};

/// The bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// A key that signs. Never printed.
pub struct SigningKey(Ed25519KeyPair);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {:?})", self.public())
    }
}

impl SigningKey {
    /// The key with this seed.
    pub fn from_seed(seed: &SecretKey) -> Self {
        match Ed25519KeyPair::from_seed_unchecked(seed.bytes()) {
            Ok(pair) => Self(pair),
            Err(_) => unreachable!("a seed of 32 bytes is refused only if its length is another one"),
        }
    }

    /// The same for the same key and message.
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let mut bytes = [0; SIGNATURE_BYTES];
        bytes.copy_from_slice(self.0.sign(message).as_ref());
        bytes
    }

    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; KEY_BYTES];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(bytes)
    }
}

/// A key that verifies. In a file it is base64.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey([u8; KEY_BYTES]);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", encode(&self.0))
    }
}

impl PublicKey {
    pub(crate) const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Whether the holder of the other half signed the message.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        decode(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_holder_of_the_seed_signs_and_only_this_message() {
        let key = SigningKey::from_seed(&SecretKey::new([1; KEY_BYTES]));
        let other = SigningKey::from_seed(&SecretKey::new([2; KEY_BYTES]));
        let signature = key.sign(b"message");
        assert!(key.public().verifies(b"message", &signature));
        assert!(!key.public().verifies(b"messagf", &signature));
        assert!(!other.public().verifies(b"message", &signature));
        assert!(!key.public().verifies(b"message", &signature[..63]));
        assert!(!key.public().verifies(b"message", b""));
    }
}
