//! Sealing of secret properties: AES-256-GCM with a key of each generation, which only metadata agents have.
//!
//! The content of a sealed value is base64 of a random nonce of 96 bits and of the ciphertext with its tag. The place of the
//! value, its unit and its key, is authenticated with it. So a value opens only where it was sealed. An older value of the same
//! place opens too: sealing does not notice that a row was put back. The length of a value shows.
//!
//! Generation 0 seals nothing: every process of version 0.1.0 has its secret, and its agents would take a sealed value for the
//! value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::error::UserError;
use model::key_generation::KeyGeneration;
use model::sealed::{CannotOpen, PropertyRef, SealedValue, SealingKeys};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::current::Current;
use crate::role_keys::MetadataAgentKeys;
use crate::secret_key::SecretKey;

fn cipher(key: &SecretKey) -> Option<LessSafeKey> {
    // A key of 32 bytes is one of AES-256, so this cannot fail.
    UnboundKey::new(&AES_256_GCM, key.bytes()).ok().map(LessSafeKey::new)
}

/// The content of a sealed value. `None` if the operating system has no random bytes, or the value has more bytes than the
/// algorithm can encrypt (64 GiB).
fn seal(key: &SecretKey, place: &PropertyRef<'_>, value: &str) -> Option<String> {
    let mut nonce = [0; NONCE_LEN];
    SystemRandom::new().fill(&mut nonce).ok()?;
    let mut sealed = value.as_bytes().to_vec();
    let aad = Aad::from(place.bytes());
    cipher(key)?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
    Some(STANDARD.encode([&nonce, sealed.as_slice()].concat()))
}

/// `None` if the content was not sealed with this key for this place.
fn open(key: &SecretKey, place: &PropertyRef<'_>, content: &str) -> Option<String> {
    let bytes = STANDARD.decode(content).ok()?;
    let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
    let mut value = sealed.to_vec();
    let aad = Aad::from(place.bytes());
    let length = cipher(key)?.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut value).ok()?.len();
    value.truncate(length);
    String::from_utf8(value).ok()
}

impl SealingKeys for MetadataAgentKeys {
    fn in_use(&self) -> Option<KeyGeneration> {
        self.seal_key(self.in_use()).map(|_| self.in_use())
    }

    fn seal(&self, place: &PropertyRef<'_>, value: &str) -> Result<String, UserError> {
        let generation = self.in_use();
        let Some(key) = self.seal_key(generation) else { return Ok(value.to_owned()) };
        let content = seal(key, place, value)
            .ok_or_else(|| UserError::internal("the operating system has no random bytes to seal a secret property"))?;
        Ok(SealedValue { generation, content: &content }.to_string())
    }

    fn open(&self, place: &PropertyRef<'_>, sealed: &SealedValue<'_>) -> Result<String, CannotOpen> {
        let key = self.seal_key(sealed.generation).ok_or(CannotOpen::NotAccepted(sealed.generation))?;
        open(key, place, sealed.content).ok_or(CannotOpen::NotGenuine)
    }
}

/// With the keys that the file has at the time of each call.
impl SealingKeys for Current<MetadataAgentKeys> {
    fn in_use(&self) -> Option<KeyGeneration> {
        SealingKeys::in_use(&*self.get())
    }

    fn seal(&self, place: &PropertyRef<'_>, value: &str) -> Result<String, UserError> {
        self.get().seal(place, value)
    }

    fn open(&self, place: &PropertyRef<'_>, sealed: &SealedValue<'_>) -> Result<String, CannotOpen> {
        self.get().open(place, sealed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::name::UnitName;

    use super::*;
    use crate::root::Root;
    use crate::secret_key::KEY_BYTES;
    use crate::{ClusterSecret, RoleFile};

    const KEY: &str = "db.password";

    fn agent(root: u8, in_use: u32, accepted: &[u32]) -> MetadataAgentKeys {
        let secret = ClusterSecret::new(*b"0123456789abcdef").unwrap();
        let root = Root::new("eh", SecretKey::new([root; KEY_BYTES])).with_cluster_secret(secret);
        let accepted: Vec<KeyGeneration> = accepted.iter().copied().map(KeyGeneration).collect();
        let file: RoleFile<_> = root.role_file(KeyGeneration(in_use), &accepted, |_, _| String::new()).unwrap();
        file.verified("eh").unwrap()
    }

    fn unit(name: &str) -> UnitName {
        UnitName::new(name).unwrap()
    }

    fn opened(keys: &MetadataAgentKeys, place: &PropertyRef<'_>, text: &str) -> Result<String, CannotOpen> {
        keys.open(place, &SealedValue::parse(text).unwrap())
    }

    #[test]
    fn a_value_opens_at_its_place_only() {
        let keys = agent(7, 1, &[1]);
        let (uc_1, uc_2) = (unit("uc_1"), unit("uc_2"));
        let place = PropertyRef { unit: &uc_1, key: KEY };
        for value in ["", "hunter2", "ü🦀\n\0", &"x".repeat(100_000)] {
            let text = keys.seal(&place, value).unwrap();
            assert!(text.starts_with("sealed:1:1:"), "{text}");
            assert!(value.is_empty() || !text.contains(value));
            assert_eq!(opened(&keys, &place, &text).unwrap(), value);
            for other in [PropertyRef { unit: &uc_2, key: KEY }, PropertyRef { unit: &uc_1, key: "db.token" }] {
                assert_eq!(opened(&keys, &other, &text), Err(CannotOpen::NotGenuine), "{other:?}");
            }
            assert_ne!(keys.seal(&place, value).unwrap(), text, "equal values do not show");
        }
    }

    #[test]
    fn a_value_that_was_altered_anywhere_does_not_open() {
        let keys = agent(7, 1, &[1]);
        let uc_1 = unit("uc_1");
        let place = PropertyRef { unit: &uc_1, key: KEY };
        let text = keys.seal(&place, "hunter2").unwrap();
        let sealed = SealedValue::parse(&text).unwrap();
        let bytes = STANDARD.decode(sealed.content).unwrap();
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            assert_eq!(
                open(keys.seal_key(KeyGeneration(1)).unwrap(), &place, &STANDARD.encode(altered)),
                None,
                "byte {at}"
            );
        }
        for length in 0..bytes.len() {
            let content = STANDARD.encode(&bytes[..length]);
            let cut = SealedValue { content: &content, ..sealed };
            assert_eq!(keys.open(&place, &cut), Err(CannotOpen::NotGenuine), "{length} bytes");
        }
        for content in ["", "=", "no base64", &format!("{}=", sealed.content)] {
            let other = SealedValue { content, ..sealed };
            assert_eq!(keys.open(&place, &other), Err(CannotOpen::NotGenuine), "{content}");
        }
    }

    #[test]
    fn a_value_opens_with_the_keys_of_its_generation_only() {
        let uc_1 = unit("uc_1");
        let place = PropertyRef { unit: &uc_1, key: KEY };
        let text = agent(7, 1, &[1]).seal(&place, "hunter2").unwrap();
        assert_eq!(opened(&agent(7, 2, &[1, 2]), &place, &text).unwrap(), "hunter2");
        let retired = Err(CannotOpen::NotAccepted(KeyGeneration(1)));
        assert_eq!(opened(&agent(7, 2, &[2]), &place, &text), retired);
        assert_eq!(opened(&agent(7, 2, &[2]), &place, &text.replace("1:1:", "1:2:")), Err(CannotOpen::NotGenuine));
        assert_eq!(opened(&agent(8, 1, &[1]), &place, &text), Err(CannotOpen::NotGenuine), "another root key");
    }

    #[test]
    fn generation_0_seals_nothing_and_opens_later_ones() {
        let uc_1 = unit("uc_1");
        let place = PropertyRef { unit: &uc_1, key: KEY };
        let old = agent(7, 0, &[0, 1]);
        assert_eq!(SealingKeys::in_use(&old), None);
        assert_eq!(old.seal(&place, "hunter2").unwrap(), "hunter2");
        let text = agent(7, 1, &[0, 1]).seal(&place, "hunter2").unwrap();
        assert_eq!(opened(&old, &place, &text).unwrap(), "hunter2");
        assert_eq!(opened(&old, &place, "sealed:1:0:AAAA"), Err(CannotOpen::NotAccepted(KeyGeneration(0))));
    }

    #[test]
    fn the_form_never_changes() {
        // Sealed with Python's cryptography module: AESGCM with the key of generation 1 of the root key, and 12 bytes 0 as nonce.
        let text = "sealed:1:1:AAAAAAAAAAAAAAAA46QT27P23QceDbpbmbjLZjiFZm2VAt4=";
        let uc_1 = unit("uc_1");
        assert_eq!(opened(&agent(0, 1, &[1]), &PropertyRef { unit: &uc_1, key: KEY }, text).unwrap(), "hunter2");
    }
}
