//! The callers of a server of the installation: metadata agents and engine agents accept proxies and masters.

use model::credential::keys_match;
use model::engine_name::EngineName;
use model::key_generation::KeyGeneration;
use model::signed_tls_key::SignedTlsKey;
use serde::{Deserialize, Serialize};

use crate::cluster_secret::ClusterSecret;
use crate::role::Role;
use crate::signature::{PublicKey, SIGNATURE_BYTES};

/// The keys of a role that calls others.
pub trait CallerKeys: Send + Sync {
    fn role(&self) -> Role;

    /// The generations that it can sign with; the one in use first.
    fn generations(&self) -> Vec<KeyGeneration>;

    /// A signature of that generation; `None` if the role has no signing key of it.
    fn sign(&self, generation: KeyGeneration, message: &[u8]) -> Option<[u8; SIGNATURE_BYTES]>;

    /// Generation 0, as long as it is accepted.
    fn cluster_secret(&self) -> Option<&ClusterSecret>;

    /// The keys that metadata agents may prove in TLS: those of all accepted generations, since an agent may begin to use
    /// another one at any time.
    fn metadata_agent_tls(&self) -> Vec<PublicKey>;

    /// The key that the engine's agent proves in TLS; `None` if no accepted master signed it for this engine.
    fn engine_tls(&self, engine: &EngineName, signed: &SignedTlsKey) -> Option<PublicKey>;
}

/// The public keys of one generation of callers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallerGeneration {
    pub generation: KeyGeneration,
    pub proxy: PublicKey,
    pub master: PublicKey,
}

/// What a server verifies its callers with. No key in it signs, except that generation 0 has a password.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Callers {
    /// The key that callers of generation 0 present to this server; absent if they are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    #[serde(default)]
    pub generations: Vec<CallerGeneration>,
}

impl std::fmt::Debug for Callers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callers").field("accepted", &self.accepted()).finish_non_exhaustive()
    }
}

impl Callers {
    /// The generations of callers that are accepted.
    pub fn accepted(&self) -> Vec<KeyGeneration> {
        let password = self.password.iter().map(|_| KeyGeneration::CLUSTER_SECRET);
        password.chain(self.generations.iter().map(|keys| keys.generation)).collect()
    }

    /// The same, with one of them first.
    pub fn accepted_from(&self, first: KeyGeneration) -> Vec<KeyGeneration> {
        let mut accepted = self.accepted();
        accepted.sort_by_key(|generation| *generation != first);
        accepted
    }

    /// Whether a process with the role's key of that generation signed the message.
    pub fn verify(&self, role: Role, generation: KeyGeneration, message: &[u8], signature: &[u8]) -> bool {
        let Some(keys) = self.generations.iter().find(|keys| keys.generation == generation) else { return false };
        match role {
            Role::Proxy => keys.proxy.verifies(message, signature),
            Role::Master => keys.master.verifies(message, signature),
            // It calls no server of the installation.
            Role::MetadataAgent => false,
        }
    }

    /// Whether a caller of generation 0 presents the right key.
    pub fn accepts_password(&self, presented: &str) -> bool {
        self.password.as_ref().is_some_and(|password| keys_match(password, presented))
    }
}
