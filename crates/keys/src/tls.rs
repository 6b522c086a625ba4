//! How a master states the TLS key of an engine: signed, for this engine of this installation.
//!
//! An engine registers its address itself. Whatever address that is, a caller reaches only who has the key that a master
//! signed for the name; and since no name is used twice, the key of an engine that has ended is that of no other one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::engine_name::EngineName;
use model::key_generation::KeyGeneration;
use model::signed_tls_key::SignedTlsKey;

use crate::secret_key::{SecretKey, decode, encode};
use crate::signature::{PublicKey, SigningKey};

/// The first field of what is signed: a master signs other messages with the same key.
const CONTEXT: &str = "enginehouse engine tls 1";

/// No two statements have the same message: names have no zero byte, and a key has a fixed length.
fn message(cluster: &str, engine: &EngineName, key: &PublicKey) -> Vec<u8> {
    let mut message = format!("{CONTEXT}\0{cluster}\0{engine}\0").into_bytes();
    message.extend_from_slice(key.bytes());
    message
}

/// The statement of a master about the key with this seed.
pub(crate) fn signed(
    master: &SigningKey,
    generation: KeyGeneration,
    cluster: &str,
    engine: &EngineName,
    seed: &SecretKey,
) -> SignedTlsKey {
    let key = SigningKey::from_seed(seed).public();
    let signature = STANDARD.encode(master.sign(&message(cluster, engine, &key)));
    SignedTlsKey { generation, key: encode(key.bytes()), signature }
}

/// The key, if the master with this public key signed it for the engine.
pub(crate) fn verified(
    master: &PublicKey,
    cluster: &str,
    engine: &EngineName,
    signed: &SignedTlsKey,
) -> Option<PublicKey> {
    let key = PublicKey::new(decode(&signed.key).ok()?);
    let signature = STANDARD.decode(&signed.signature).ok()?;
    master.verifies(&message(cluster, engine, &key), &signature).then_some(key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::secret_key::KEY_BYTES;

    #[test]
    fn a_statement_holds_for_one_engine_of_one_installation_and_one_key() {
        let key = |byte| SecretKey::new([byte; KEY_BYTES]);
        let (master, seed) = (SigningKey::from_seed(&key(1)), key(2));
        let engine = EngineName::new("eh-1").unwrap();
        let statement = signed(&master, KeyGeneration(1), "eh", &engine, &seed);
        let public = SigningKey::from_seed(&seed).public();
        assert_eq!(verified(&master.public(), "eh", &engine, &statement), Some(public));

        let other = SigningKey::from_seed(&key(3)).public();
        let another = EngineName::new("eh-2").unwrap();
        assert_eq!(verified(&other, "eh", &engine, &statement), None);
        assert_eq!(verified(&master.public(), "eh2", &engine, &statement), None);
        assert_eq!(verified(&master.public(), "eh", &another, &statement), None);
        for changed in [
            SignedTlsKey { key: encode(other.bytes()), ..statement.clone() },
            SignedTlsKey { key: "x".to_owned(), ..statement.clone() },
            SignedTlsKey { signature: "x".to_owned(), ..statement.clone() },
            SignedTlsKey { signature: String::new(), ..statement },
        ] {
            assert_eq!(verified(&master.public(), "eh", &engine, &changed), None);
        }
    }
}
