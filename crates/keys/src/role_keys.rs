//! The keys of one role: its file, and what a process of the role does with it.
//!
//! A file has one or more generations. In each it has the secrets of its own role and the public keys of the others.

use std::sync::Arc;

use model::credential::keys_match;
use model::engine_name::{EngineName, hex};
use model::error::{ErrorKind, UserError};
use model::key_generation::KeyGeneration;
use model::signed_tls_key::SignedTlsKey;
use serde::{Deserialize, Serialize};

use crate::callers::{CallerGeneration, CallerKeys, Callers};
use crate::cluster_secret::{ClusterSecret, Purpose};
use crate::current::Current;
use crate::engine::{EngineKeys, EngineSecret, EngineSecrets, EngineTlsKey};
use crate::role::{MasterSecrets, MetadataAgentSecrets, ProxySecrets, Role, RoleDigests, RoleSecrets};
use crate::secret_key::SecretKey;
use crate::signature::{PublicKey, SIGNATURE_BYTES, SigningKey};
use crate::tls;

/// The most generations of one file.
pub const MAX_GENERATIONS: usize = 4;

/// The file of a role.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleFile<S> {
    pub role: Role,
    /// The name of the installation.
    pub cluster: String,
    /// The generation that the role signs with.
    #[serde(rename = "use")]
    pub in_use: KeyGeneration,
    /// Those that it accepts.
    #[serde(rename = "generation")]
    pub generations: Vec<RoleFileGeneration<S>>,
}

/// One generation of a role's file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleFileGeneration<S> {
    pub number: KeyGeneration,
    /// The public key that metadata agents prove in TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_agent_tls: Option<PublicKey>,
    /// Of generation 0 only, which has no other keys.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub cluster_secret: Option<ClusterSecret>,
    /// The secrets of the role.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub secret: Option<S>,
    /// The public keys of the roles that call others.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub callers: Option<CallerGeneration>,
    /// The ZooKeeper identities of all roles.
    pub zookeeper: RoleDigests,
}

/// Without requiring that a generic type has a default.
fn none<T>() -> Option<T> {
    None
}

/// The keys of one role, verified.
#[derive(Debug)]
pub struct RoleKeys<S> {
    pub cluster: String,
    in_use: KeyGeneration,
    /// The one in use first, then from the newest to the oldest.
    generations: Vec<Generation<S>>,
}

pub type ProxyKeys = RoleKeys<ProxySecrets>;
pub type MasterKeys = RoleKeys<MasterSecrets>;
pub type MetadataAgentKeys = RoleKeys<MetadataAgentSecrets>;

/// The keys of all roles, in a process that runs all of them.
#[derive(Debug, Clone)]
pub struct AllKeys {
    pub proxy: Current<ProxyKeys>,
    pub master: Current<MasterKeys>,
    pub metadata_agent: Current<MetadataAgentKeys>,
}

#[derive(Debug)]
struct Generation<S> {
    number: KeyGeneration,
    keys: Keys<S>,
    zookeeper: RoleDigests,
}

#[derive(Debug)]
enum Keys<S> {
    Derived {
        secret: S,
        signing: Option<Arc<SigningKey>>,
        callers: CallerGeneration,
        metadata_agent_tls: PublicKey,
    },
    /// Generation 0.
    ClusterSecret(ClusterSecret),
}

/// The first lines of a role's file, which those of every role have.
#[derive(Debug, Clone, Deserialize)]
pub struct RoleFileHeader {
    pub role: Role,
    pub cluster: String,
}

impl RoleFileHeader {
    /// An error if it is the file of another role or installation.
    pub fn check(&self, role: Role, cluster: &str) -> Result<(), UserError> {
        let refused =
            |message: &str, detail: String| Err(UserError::new(ErrorKind::InvalidValue, message).detail(detail));
        if self.role != role {
            return refused(
                "these are the keys of another role",
                format!("They are keys of the role {}, and not of the role {role}.", self.role),
            );
        }
        if self.cluster != cluster {
            return refused(
                "these are the keys of another installation",
                format!("They are keys of the installation \"{}\"; cluster.name is \"{cluster}\".", self.cluster),
            );
        }
        Ok(())
    }
}

impl<S: RoleSecrets> RoleFile<S> {
    /// The keys of the file; an error if it is that of another role or installation, or is incomplete.
    pub fn verified(self, cluster: &str) -> Result<RoleKeys<S>, UserError> {
        let refused = |message: &str, detail: String| UserError::new(ErrorKind::InvalidValue, message).detail(detail);
        RoleFileHeader { role: self.role, cluster: self.cluster.clone() }.check(S::ROLE, cluster)?;
        if self.generations.len() > MAX_GENERATIONS {
            let count = self.generations.len();
            return Err(refused(
                "too many generations of keys",
                format!("It has {count} of at most {MAX_GENERATIONS}."),
            ));
        }
        let mut generations = Vec::with_capacity(self.generations.len());
        for generation in self.generations {
            let RoleFileGeneration { number, metadata_agent_tls, cluster_secret, secret, callers, zookeeper } =
                generation;
            if generations.iter().any(|earlier: &Generation<S>| earlier.number == number) {
                return Err(refused("invalid key file", format!("It has generation {number} twice.")));
            }
            let is_old = number == KeyGeneration::CLUSTER_SECRET;
            let keys = match (is_old, cluster_secret, secret, callers, metadata_agent_tls) {
                (true, Some(secret), None, None, None) => Keys::ClusterSecret(secret),
                (false, None, Some(secret), Some(callers), Some(metadata_agent_tls))
                    if callers.generation == number =>
                {
                    let signing = secret.signing().map(|seed| Arc::new(SigningKey::from_seed(seed)));
                    Keys::Derived { secret, signing, callers, metadata_agent_tls }
                }
                _ => return Err(refused("invalid key file", format!("Generation {number} is incomplete."))),
            };
            generations.push(Generation { number, keys, zookeeper });
        }
        generations.sort_by_key(|generation| std::cmp::Reverse((generation.number == self.in_use, generation.number)));
        if generations.first().is_none_or(|first| first.number != self.in_use) {
            let in_use = self.in_use;
            return Err(refused("invalid key file", format!("It has no generation {in_use}, which is to be used.")));
        }
        Ok(RoleKeys { cluster: self.cluster, in_use: self.in_use, generations })
    }
}

impl<S: RoleSecrets> RoleKeys<S> {
    /// The generation that the role signs with.
    pub fn in_use(&self) -> KeyGeneration {
        self.in_use
    }

    /// The accepted generations; the one in use first.
    pub fn accepted(&self) -> Vec<KeyGeneration> {
        self.generations.iter().map(|generation| generation.number).collect()
    }

    /// Whether it uses keys for TLS: generation 0 has none.
    pub fn has_tls(&self) -> bool {
        self.in_use != KeyGeneration::CLUSTER_SECRET
    }

    /// The passwords of its ZooKeeper identity, in the order of [`RoleKeys::accepted`].
    pub fn zookeeper_passwords(&self) -> Vec<String> {
        let password = |generation: &Generation<S>| match &generation.keys {
            Keys::Derived { secret, .. } => secret.zookeeper().password(),
            Keys::ClusterSecret(secret) => secret.derive(S::ROLE.old_zookeeper_purpose()),
        };
        self.generations.iter().map(password).collect()
    }

    /// The ZooKeeper identities of all roles, in the order of [`RoleKeys::accepted`].
    pub fn digests(&self) -> Vec<RoleDigests> {
        self.generations.iter().map(|generation| generation.zookeeper.clone()).collect()
    }

    fn cluster_secret_if_accepted(&self) -> Option<&ClusterSecret> {
        self.generations.iter().find_map(|generation| match &generation.keys {
            Keys::ClusterSecret(secret) => Some(secret),
            Keys::Derived { .. } => None,
        })
    }

    fn caller_generations(&self) -> Vec<CallerGeneration> {
        let callers = |generation: &Generation<S>| match &generation.keys {
            Keys::Derived { callers, .. } => Some(callers.clone()),
            Keys::ClusterSecret(_) => None,
        };
        self.generations.iter().filter_map(callers).collect()
    }

    /// Something of each accepted generation, the one in use first: of its secrets, or of the cluster secret.
    fn of_each<T>(
        &self,
        derived: impl Fn(KeyGeneration, &S) -> T,
        old: impl Fn(&ClusterSecret) -> T,
    ) -> Vec<(KeyGeneration, T)> {
        let value = |generation: &Generation<S>| match &generation.keys {
            Keys::Derived { secret, .. } => (generation.number, derived(generation.number, secret)),
            Keys::ClusterSecret(secret) => (generation.number, old(secret)),
        };
        self.generations.iter().map(value).collect()
    }
}

impl<S: RoleSecrets + Send + Sync> CallerKeys for RoleKeys<S> {
    fn role(&self) -> Role {
        S::ROLE
    }

    fn generations(&self) -> Vec<KeyGeneration> {
        self.accepted()
    }

    fn sign(&self, generation: KeyGeneration, message: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
        let generation = self.generations.iter().find(|known| known.number == generation)?;
        match &generation.keys {
            Keys::Derived { signing, .. } => Some(signing.as_ref()?.sign(message)),
            Keys::ClusterSecret(_) => None,
        }
    }

    fn cluster_secret(&self) -> Option<&ClusterSecret> {
        self.cluster_secret_if_accepted()
    }

    fn metadata_agent_tls(&self) -> Vec<PublicKey> {
        let key = |generation: &Generation<S>| match &generation.keys {
            Keys::Derived { metadata_agent_tls, .. } => Some(metadata_agent_tls.clone()),
            Keys::ClusterSecret(_) => None,
        };
        self.generations.iter().filter_map(key).collect()
    }

    fn engine_tls(&self, engine: &EngineName, signed: &SignedTlsKey) -> Option<PublicKey> {
        let generation = self.generations.iter().find(|known| known.number == signed.generation)?;
        match &generation.keys {
            Keys::Derived { callers, .. } => tls::verified(&callers.master, &self.cluster, engine, signed),
            Keys::ClusterSecret(_) => None,
        }
    }
}

impl ProxyKeys {
    /// The keys of cookies, each with its generation; new cookies have the first one.
    pub fn cookies(&self) -> Vec<(KeyGeneration, String)> {
        self.of_each(|_, secret| secret.cookie.password(), |secret| secret.derive(Purpose::HttpCookie))
    }
}

impl MetadataAgentKeys {
    /// Who may call a metadata agent.
    pub fn callers(&self) -> Callers {
        Callers {
            password: self.cluster_secret_if_accepted().map(|secret| secret.derive(Purpose::MetadataAgent)),
            generations: self.caller_generations(),
        }
    }

    /// The seed of the key that it proves in TLS, with its generation, which is the one in use; `None` as long as that is
    /// generation 0. Callers may not accept another one yet.
    pub fn tls(&self) -> Option<(KeyGeneration, SecretKey)> {
        match &self.generations.first()?.keys {
            Keys::Derived { secret, .. } => Some((self.in_use, secret.tls.clone())),
            Keys::ClusterSecret(_) => None,
        }
    }

    /// The key of new fingerprints.
    pub fn fingerprint(&self) -> String {
        let keys =
            self.of_each(|_, secret| secret.fingerprint.password(), |secret| secret.derive(Purpose::Fingerprint));
        keys.into_iter().next().map(|(_, key)| key).unwrap_or_default()
    }

    /// The key that seals secret properties in this generation; `None` if it is not accepted, or is generation 0.
    pub(crate) fn seal_key(&self, generation: KeyGeneration) -> Option<&SecretKey> {
        match &self.generations.iter().find(|known| known.number == generation)?.keys {
            Keys::Derived { secret, .. } => Some(&secret.seal),
            Keys::ClusterSecret(_) => None,
        }
    }
}

impl MasterKeys {
    /// The keys of a new engine.
    pub fn engine(&self, engine: &EngineName) -> EngineKeys {
        EngineKeys {
            generation: self.in_use,
            zookeeper_password: self.engine_passwords(engine).into_iter().next().unwrap_or_default(),
            callers: Callers {
                password: self.cluster_secret_if_accepted().map(|secret| secret.derive(Purpose::Engine(engine))),
                generations: self.caller_generations(),
            },
            readers: self.digests(),
            tls: self.engine_tls_key(engine),
        }
    }

    /// The TLS key of a new engine; `None` as long as generation 0 is in use.
    fn engine_tls_key(&self, engine: &EngineName) -> Option<EngineTlsKey> {
        match &self.generations.first()?.keys {
            Keys::Derived { secret, signing: Some(signing), .. } => {
                let seed = secret.engines.derive("tls", self.in_use, engine.as_str());
                let signed = tls::signed(signing, self.in_use, &self.cluster, engine, &seed);
                Some(EngineTlsKey { seed, signed })
            }
            Keys::Derived { .. } | Keys::ClusterSecret(_) => None,
        }
    }

    /// The ZooKeeper passwords that the engine may have, one for each accepted generation.
    pub fn engine_passwords(&self, engine: &EngineName) -> Vec<String> {
        self.engine_secrets().passwords(engine)
    }

    /// What the passwords of engines are derived from.
    pub fn engine_secrets(&self) -> EngineSecrets {
        let secrets = self.of_each(
            |generation, secret| EngineSecret::Derived { generation, engines: secret.engines.clone() },
            |secret| EngineSecret::ClusterSecret(secret.clone()),
        );
        EngineSecrets::new(secrets.into_iter().map(|(_, secret)| secret).collect())
    }

    /// Proves that this installation created the pod `<namespace>/<name>`.
    pub fn sign_pod(&self, pod: &str) -> String {
        let signatures = self.pod_signatures(pod);
        signatures.into_iter().next().map(|(_, signature)| signature).unwrap_or_default()
    }

    /// Whether a master with these keys created the pod `<namespace>/<name>`.
    pub fn verifies_pod(&self, pod: &str, signature: &str) -> bool {
        let generation = signature
            .split_once(':')
            .map_or(Some(KeyGeneration::CLUSTER_SECRET), |(number, _)| number.parse().ok().map(KeyGeneration));
        self.pod_signatures(pod)
            .into_iter()
            .any(|(number, expected)| Some(number) == generation && keys_match(&expected, signature))
    }

    fn pod_signatures(&self, pod: &str) -> Vec<(KeyGeneration, String)> {
        // Neither installation, namespace nor name contains "/", so no two pods have the same text.
        let text = format!("{}/{pod}", self.cluster);
        self.of_each(
            |generation, secret| format!("{generation}:{}", hex(&secret.pods.hmac(&["pod", &text]))),
            |secret| secret.derive(Purpose::PodSignature(&text)),
        )
    }
}

#[cfg(test)]
mod tests;
