//! Keys derived from the one cluster secret: HMAC-SHA-256 over purpose and name.
//!
//! A derived key reveals neither the secret nor another key. An engine's key is readable by its tenant, so it opens
//! that engine only; the cluster secret itself never reaches an engine.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::engine_name::{EngineName, hex};
use crate::error::{ErrorKind, UserError};

/// The shortest cluster secret that is accepted, in bytes.
pub const MIN_SECRET_BYTES: usize = 16;

/// The one secret of an installation. Never printed.
#[derive(Clone)]
pub struct ClusterSecret(Vec<u8>);

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(******)")
    }
}

/// The purpose of a derived key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// Connections to a metadata agent (from proxies and masters).
    MetadataAgent,
    /// Connections to one engine agent (from proxies and masters).
    Engine(&'a EngineName),
    /// Connections of one engine agent to its engine.
    EngineBackend(&'a EngineName),
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
                .detail(format!("It has {} bytes and needs at least {MIN_SECRET_BYTES}.", bytes.len()))
                .hint("Write 32 random bytes in hex to the secret file, with mode 0600."));
        }
        Ok(Self(bytes))
    }

    /// The key for a purpose: 64 hex digits.
    pub fn derive(&self, purpose: &Purpose<'_>) -> String {
        let (word, name) = match purpose {
            Purpose::MetadataAgent => ("metadata-agent", ""),
            Purpose::Engine(name) => ("engine", name.as_str()),
            Purpose::EngineBackend(name) => ("engine-backend", name.as_str()),
            Purpose::ZookeeperProxy => ("zookeeper-proxy", ""),
            Purpose::ZookeeperMaster => ("zookeeper-master", ""),
            Purpose::ZookeeperAgent => ("zookeeper-agent", ""),
            Purpose::ZookeeperEngine(name) => ("zookeeper-engine", name.as_str()),
            Purpose::PodSignature(pod) => ("pod-signature", *pod),
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

/// Compares two keys in constant time.
pub fn keys_match(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn every_purpose_and_name_has_a_key_of_its_own() {
        let secret = ClusterSecret::new(*b"0123456789abcdef").unwrap();
        let (one, two) = (EngineName::new("a").unwrap(), EngineName::new("b").unwrap());
        let keys = [
            secret.derive(&Purpose::MetadataAgent),
            secret.derive(&Purpose::Engine(&one)),
            secret.derive(&Purpose::Engine(&two)),
            secret.derive(&Purpose::EngineBackend(&one)),
            secret.derive(&Purpose::ZookeeperEngine(&one)),
            secret.derive(&Purpose::ZookeeperMaster),
            secret.derive(&Purpose::Fingerprint),
            secret.derive(&Purpose::HttpCookie),
            secret.derive(&Purpose::PodSignature("rp-1--t-1/a")),
            secret.derive(&Purpose::PodSignature("rp-1--t-2/a")),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(key.len(), 64);
            assert!(keys_match(key, key));
            assert!(keys.iter().skip(i + 1).all(|other| !keys_match(key, other)));
        }
    }

    #[test]
    fn a_short_secret_is_refused_and_none_is_ever_printed() {
        assert_eq!(ClusterSecret::new("short").unwrap_err().sqlstate(), "22023");
        let secret = ClusterSecret::new("a secret that must not be printed").unwrap();
        assert!(!format!("{secret:?}").contains("must not"));
    }
}
