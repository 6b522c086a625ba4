//! The keys of one engine: they open nothing but this engine's own nodes in ZooKeeper.
//!
//! A master derives them from its own secrets and puts them into the engine's file, which the engine's users can read.
//! An engine has no key that signs.

use model::engine_name::EngineName;
use model::key_generation::KeyGeneration;
use model::signed_tls_key::SignedTlsKey;
use serde::{Deserialize, Serialize};

use crate::callers::Callers;
use crate::cluster_secret::{ClusterSecret, Purpose};
use crate::role::RoleDigests;
use crate::secret_key::SecretKey;

/// The keys of one engine.
#[derive(Clone)]
pub struct EngineKeys {
    /// The generation of its own keys.
    pub generation: KeyGeneration,
    /// The password of its ZooKeeper identity.
    pub zookeeper_password: String,
    /// Who may call its agent.
    pub callers: Callers,
    /// The roles that read its registration, in each accepted generation.
    pub readers: Vec<RoleDigests>,
    /// What its agent proves in TLS; `None` as long as generation 0 is in use.
    pub tls: Option<EngineTlsKey>,
}

/// The key that an engine's agent proves in TLS.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineTlsKey {
    pub seed: SecretKey,
    /// What it registers.
    pub signed: SignedTlsKey,
}

impl std::fmt::Debug for EngineKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineKeys").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// What the passwords of all engines are derived from, in one generation.
#[derive(Debug, Clone)]
pub(crate) enum EngineSecret {
    Derived { generation: KeyGeneration, engines: SecretKey },
    ClusterSecret(ClusterSecret),
}

/// The same in each accepted generation; the one in use first.
#[derive(Debug, Clone)]
pub struct EngineSecrets(Vec<EngineSecret>);

impl EngineSecrets {
    pub(crate) fn new(secrets: Vec<EngineSecret>) -> Self {
        Self(secrets)
    }

    /// The passwords that the engine's ZooKeeper identity may have.
    pub fn passwords(&self, engine: &EngineName) -> Vec<String> {
        let password = |secret: &EngineSecret| match secret {
            EngineSecret::Derived { generation, engines } => {
                engines.derive("zookeeper", *generation, engine.as_str()).password()
            }
            EngineSecret::ClusterSecret(secret) => secret.derive(Purpose::ZookeeperEngine(engine)),
        };
        self.0.iter().map(password).collect()
    }
}
