//! The root key of an installation. It derives the file of every role; no running process needs it.

use model::error::{ErrorKind, UserError};
use model::key_generation::KeyGeneration;
use serde::{Deserialize, Serialize};

use crate::callers::CallerGeneration;
use crate::cluster_secret::ClusterSecret;
use crate::current::Current;
use crate::role::{Role, RoleDigests, RoleSecrets, metadata_agent_tls_key, signing_key, zookeeper_key};
use crate::role_keys::{AllKeys, MAX_GENERATIONS, RoleFile, RoleFileGeneration};
use crate::secret_key::SecretKey;
use crate::signature::SigningKey;

/// ZooKeeper's public form of a user and a password.
pub type Digest = fn(user: &str, password: &str) -> String;

/// The root key, as its file has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// The name of the installation, which the roles compare with `cluster.name`.
    pub cluster: String,
    key: SecretKey,
    /// Generation 0, in an installation that began with version 0.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster_secret: Option<ClusterSecret>,
}

impl Root {
    pub fn new(cluster: impl Into<String>, key: SecretKey) -> Self {
        Self { cluster: cluster.into(), key, cluster_secret: None }
    }

    /// Its generation 0 is the cluster secret.
    #[must_use]
    pub fn with_cluster_secret(self, secret: ClusterSecret) -> Self {
        Self { cluster_secret: Some(secret), ..self }
    }

    pub fn has_cluster_secret(&self) -> bool {
        self.cluster_secret.is_some()
    }

    /// The file of a role that uses one generation and accepts these. 22023 if the generations do not fit.
    pub fn role_file<S: RoleSecrets>(
        &self,
        in_use: KeyGeneration,
        accepted: &[KeyGeneration],
        digest: Digest,
    ) -> Result<RoleFile<S>, UserError> {
        let refused =
            |detail: String| Err(UserError::new(ErrorKind::InvalidValue, "invalid generations of keys").detail(detail));
        if !accepted.contains(&in_use) {
            return refused(format!("Generation {in_use} is to be used and is not accepted."));
        }
        if accepted.len() > MAX_GENERATIONS {
            return refused(format!("At most {MAX_GENERATIONS} are accepted at the same time."));
        }
        let mut numbers = accepted.to_vec();
        numbers.sort_unstable();
        if let Some([twice, _]) = numbers.array_windows().find(|[one, next]| one == next) {
            return refused(format!("Generation {twice} is named twice."));
        }
        let mut generations = Vec::with_capacity(numbers.len());
        for number in numbers {
            generations.push(if number == KeyGeneration::CLUSTER_SECRET {
                let Some(secret) = &self.cluster_secret else {
                    return refused(
                        "Generation 0 is the cluster secret of version 0.1.0; this root key has none.".to_owned(),
                    );
                };
                old_generation(secret, digest)
            } else {
                self.generation(number, digest)
            });
        }
        Ok(RoleFile { role: S::ROLE, cluster: self.cluster.clone(), in_use, generations })
    }

    /// The keys of all roles, which use one generation and accept these.
    pub fn all_roles(
        &self,
        in_use: KeyGeneration,
        accepted: &[KeyGeneration],
        digest: Digest,
    ) -> Result<AllKeys, UserError> {
        let cluster = &self.cluster;
        Ok(AllKeys {
            proxy: Current::fixed(self.role_file(in_use, accepted, digest)?.verified(cluster)?),
            master: Current::fixed(self.role_file(in_use, accepted, digest)?.verified(cluster)?),
            metadata_agent: Current::fixed(self.role_file(in_use, accepted, digest)?.verified(cluster)?),
        })
    }

    fn generation<S: RoleSecrets>(&self, number: KeyGeneration, digest: Digest) -> RoleFileGeneration<S> {
        let password = |role| zookeeper_key(&self.key, role, number).password();
        let public = |role| SigningKey::from_seed(&signing_key(&self.key, role, number)).public();
        RoleFileGeneration {
            number,
            metadata_agent_tls: Some(SigningKey::from_seed(&metadata_agent_tls_key(&self.key, number)).public()),
            cluster_secret: None,
            secret: Some(S::derive(&self.key, number)),
            callers: Some(CallerGeneration {
                generation: number,
                proxy: public(Role::Proxy),
                master: public(Role::Master),
            }),
            zookeeper: digests(digest, password),
        }
    }
}

fn old_generation<S>(secret: &ClusterSecret, digest: Digest) -> RoleFileGeneration<S> {
    RoleFileGeneration {
        number: KeyGeneration::CLUSTER_SECRET,
        metadata_agent_tls: None,
        cluster_secret: Some(secret.clone()),
        secret: None,
        callers: None,
        zookeeper: digests(digest, |role| secret.derive(role.old_zookeeper_purpose())),
    }
}

fn digests(digest: Digest, password: impl Fn(Role) -> String) -> RoleDigests {
    let of = |role: Role| digest(role.zookeeper_user(), &password(role));
    RoleDigests { master: of(Role::Master), proxy: of(Role::Proxy), metadata_agent: of(Role::MetadataAgent) }
}
