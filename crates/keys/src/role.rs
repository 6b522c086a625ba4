//! The roles, and the secrets that each has in one generation.

use std::fmt;

use model::key_generation::KeyGeneration;
use serde::{Deserialize, Serialize};

pub use model::role_digests::RoleDigests;

use crate::cluster_secret::Purpose;
use crate::secret_key::SecretKey;

/// A role with a key file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Proxy,
    Master,
    MetadataAgent,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Proxy, Self::Master, Self::MetadataAgent];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Master => "master",
            Self::MetadataAgent => "metadata-agent",
        }
    }

    /// The user of its ZooKeeper identity.
    pub const fn zookeeper_user(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Master => "master",
            Self::MetadataAgent => "agent",
        }
    }

    /// The purpose of its ZooKeeper password in generation 0.
    pub(crate) const fn old_zookeeper_purpose(self) -> Purpose<'static> {
        match self {
            Self::Proxy => Purpose::ZookeeperProxy,
            Self::Master => Purpose::ZookeeperMaster,
            Self::MetadataAgent => Purpose::ZookeeperAgent,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The secrets of one role in one generation.
pub trait RoleSecrets: Sized {
    const ROLE: Role;

    fn derive(root: &SecretKey, generation: KeyGeneration) -> Self;

    /// The password of its ZooKeeper identity.
    fn zookeeper(&self) -> &SecretKey;

    /// The seed of the key that it signs with when it calls others; `None` if it calls none.
    fn signing(&self) -> Option<&SecretKey>;
}

/// The key of the role's ZooKeeper identity.
pub(crate) fn zookeeper_key(root: &SecretKey, role: Role, generation: KeyGeneration) -> SecretKey {
    root.derive("zookeeper", generation, role.name())
}

/// The seed of the role's signing key.
pub(crate) fn signing_key(root: &SecretKey, role: Role, generation: KeyGeneration) -> SecretKey {
    root.derive("sign", generation, role.name())
}

/// The seed of the key that metadata agents prove in TLS.
pub(crate) fn metadata_agent_tls_key(root: &SecretKey, generation: KeyGeneration) -> SecretKey {
    root.derive("tls", generation, Role::MetadataAgent.name())
}

/// The secrets of proxies.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxySecrets {
    /// The seed of the key that signs calls of engine agents and metadata agents.
    pub signing: SecretKey,
    pub zookeeper: SecretKey,
    /// Signs the cookies of HTTP clients.
    pub cookie: SecretKey,
}

impl RoleSecrets for ProxySecrets {
    const ROLE: Role = Role::Proxy;

    fn derive(root: &SecretKey, generation: KeyGeneration) -> Self {
        Self {
            signing: signing_key(root, Self::ROLE, generation),
            zookeeper: zookeeper_key(root, Self::ROLE, generation),
            cookie: root.derive("cookie", generation, ""),
        }
    }

    fn zookeeper(&self) -> &SecretKey {
        &self.zookeeper
    }

    fn signing(&self) -> Option<&SecretKey> {
        Some(&self.signing)
    }
}

/// The secrets of candidates for master.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MasterSecrets {
    /// The seed of the key that signs calls of engine agents and metadata agents.
    pub signing: SecretKey,
    pub zookeeper: SecretKey,
    /// Marks the pods of this installation.
    pub pods: SecretKey,
    /// The keys of engines are derived from it.
    pub engines: SecretKey,
}

impl RoleSecrets for MasterSecrets {
    const ROLE: Role = Role::Master;

    fn derive(root: &SecretKey, generation: KeyGeneration) -> Self {
        Self {
            signing: signing_key(root, Self::ROLE, generation),
            zookeeper: zookeeper_key(root, Self::ROLE, generation),
            pods: root.derive("pods", generation, ""),
            engines: root.derive("engines", generation, ""),
        }
    }

    fn zookeeper(&self) -> &SecretKey {
        &self.zookeeper
    }

    fn signing(&self) -> Option<&SecretKey> {
        Some(&self.signing)
    }
}

/// The secrets of metadata agents.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetadataAgentSecrets {
    pub zookeeper: SecretKey,
    /// The seed of the key that it proves in TLS.
    pub tls: SecretKey,
    /// Keys the fingerprints of secret properties.
    pub fingerprint: SecretKey,
    /// Seals secret properties in the database.
    pub seal: SecretKey,
}

impl RoleSecrets for MetadataAgentSecrets {
    const ROLE: Role = Role::MetadataAgent;

    fn derive(root: &SecretKey, generation: KeyGeneration) -> Self {
        Self {
            zookeeper: zookeeper_key(root, Self::ROLE, generation),
            tls: metadata_agent_tls_key(root, generation),
            fingerprint: root.derive("fingerprint", generation, ""),
            seal: root.derive("seal", generation, ""),
        }
    }

    fn zookeeper(&self) -> &SecretKey {
        &self.zookeeper
    }

    fn signing(&self) -> Option<&SecretKey> {
        None
    }
}
