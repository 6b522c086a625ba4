//! Generation 0: the cluster secret of version 0.1.0, from which every role derived every key.
//!
//! A process that has it can act as any role. It is kept only until no process and no engine of that version runs.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use model::engine_name::{EngineName, hex};
use model::error::{ErrorKind, UserError};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The shortest cluster secret that is accepted, in bytes.
pub const MIN_SECRET_BYTES: usize = 16;

/// The one secret of an installation of version 0.1.0. Never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct ClusterSecret(Vec<u8>);

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(******)")
    }
}

/// The purpose of a derived key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// Connections to a metadata agent (from proxies and masters).
    MetadataAgent,
    /// Connections to one engine agent (from proxies and masters).
    Engine(&'a EngineName),
    /// ZooKeeper, as a proxy.
    ZookeeperProxy,
    /// ZooKeeper, as the master.
    ZookeeperMaster,
    /// ZooKeeper, as a metadata agent.
    ZookeeperAgent,
    /// ZooKeeper, as one engine.
    ZookeeperEngine(&'a EngineName),
    /// No access: proves that this installation created the pod `<installation>/<namespace>/<name>`.
    PodSignature(&'a str),
    /// No access: keys the fingerprints of secret properties.
    Fingerprint,
    /// Signs the cookies of HTTP clients (proxies).
    HttpCookie,
}

impl ClusterSecret {
    /// Refuses a secret that is too short to be safe.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, UserError> {
        let bytes: Vec<u8> = bytes.into();
        if bytes.len() < MIN_SECRET_BYTES {
            return Err(UserError::new(ErrorKind::InvalidValue, "the cluster secret is too short")
                .detail(format!("It has {} bytes and needs at least {MIN_SECRET_BYTES}.", bytes.len())));
        }
        Ok(Self(bytes))
    }

    /// The key for a purpose: 64 hex digits.
    pub fn derive(&self, purpose: Purpose<'_>) -> String {
        let (word, name) = match purpose {
            Purpose::MetadataAgent => ("metadata-agent", ""),
            Purpose::Engine(name) => ("engine", name.as_str()),
            Purpose::ZookeeperProxy => ("zookeeper-proxy", ""),
            Purpose::ZookeeperMaster => ("zookeeper-master", ""),
            Purpose::ZookeeperAgent => ("zookeeper-agent", ""),
            Purpose::ZookeeperEngine(name) => ("zookeeper-engine", name.as_str()),
            Purpose::PodSignature(pod) => ("pod-signature", pod),
            Purpose::Fingerprint => ("fingerprint", ""),
            Purpose::HttpCookie => ("http-cookie", ""),
        };
        // HMAC takes a key of any length, so this cannot fail.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(word.as_bytes());
        mac.update(&[0]);
        mac.update(name.as_bytes());
        hex(&mac.finalize().into_bytes())
    }
}

impl Serialize for ClusterSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A secret is read as text.
        serializer.serialize_str(&String::from_utf8_lossy(&self.0))
    }
}

impl<'de> Deserialize<'de> for ClusterSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(|error| serde::de::Error::custom(error.message))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_purpose_and_name_has_the_key_of_version_0_1_0() {
        let secret = ClusterSecret::new(*b"0123456789abcdef").unwrap();
        let (one, two) = (EngineName::new("a").unwrap(), EngineName::new("b").unwrap());
        let keys = [
            secret.derive(Purpose::MetadataAgent),
            secret.derive(Purpose::Engine(&one)),
            secret.derive(Purpose::Engine(&two)),
            secret.derive(Purpose::ZookeeperEngine(&one)),
            secret.derive(Purpose::ZookeeperMaster),
            secret.derive(Purpose::Fingerprint),
            secret.derive(Purpose::HttpCookie),
            secret.derive(Purpose::PodSignature("rp-1--t-1/a")),
            secret.derive(Purpose::PodSignature("rp-1--t-2/a")),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(key.len(), 64);
            assert!(keys.iter().skip(at + 1).all(|other| key != other));
        }
        // Computed with Python's hmac module.
        assert_eq!(keys[0], "2f025917cad801dd8b69f0556e42830a1828fec5c1e1e857c7018312461c4fef");
    }

    #[test]
    fn a_short_secret_is_refused_and_none_is_ever_printed() {
        assert_eq!(ClusterSecret::new("short").unwrap_err().sqlstate(), "22023");
        let secret = ClusterSecret::new("a secret that must not be printed").unwrap();
        assert!(!format!("{secret:?}").contains("must not"));
    }
}
