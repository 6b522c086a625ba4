//! The public TLS key of an engine's agent, signed by a master.

use serde::{Deserialize, Serialize};

use crate::key_generation::KeyGeneration;

/// What an engine registers so that its callers know its TLS key. The texts may be arbitrary, since engines write their
/// registrations themselves: they count once the signature is verified.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SignedTlsKey {
    /// The generation of the master's key that signed.
    pub generation: KeyGeneration,
    /// The public key, in base64.
    pub key: String,
    /// The signature over installation, engine and key, in base64.
    pub signature: String,
}
