//! What one engine is told when it starts: where its tenant's catalog is, how much it may use, who may connect.
//!
//! Invariants: every limit has a name here and a default below; a configuration that can't work is refused by
//! [`Config::check`] before a port is bound. A stale configuration only describes the engine that was started with it:
//! another one needs another engine.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, fs};

use model::credential::keys_match;
use serde::{Deserialize, Serialize};

use crate::error::EngineError;

/// The least memory that an engine can work with: below it the buffers of one sort don't fit.
pub const MEMORY_BYTES_MIN: u64 = 8 << 20;
/// The most threads that an engine is given.
pub const CPU_THREADS_MAX: usize = 512;

/// One engine's configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where it listens: a loopback address; port 0 takes a free one.
    #[serde(default = "any_loopback_port")]
    pub listen: SocketAddr,
    /// The tenant whose engine this is.
    pub tenant: String,
    /// The engine's name.
    pub engine: String,
    /// The tenant's catalog: one file per definition, shared by all engines of the tenant. Not used with `catalog`.
    pub catalog_dir: PathBuf,
    /// The catalog of all tenants in an object store, in the place of `catalog_dir`.
    #[serde(default)]
    pub catalog: Option<BucketConfig>,
    /// Where intermediate results spill: `<scratch_dir>/<engine>/spill`, emptied at start and at the end.
    pub scratch_dir: PathBuf,
    /// The folders below which tables may lie and results may be written. None: no file can be read.
    #[serde(default)]
    pub allowed_locations: Vec<PathBuf>,
    /// Files and folders below which nothing is read or written, whatever is allowed: those of Enginehouse itself. The
    /// engine's own catalog and scratch folders are always among them.
    #[serde(default)]
    pub own_paths: Vec<PathBuf>,
    /// The memory pool of all statements together, in bytes (the unit's `DRIVER_MEMORY`).
    pub memory_bytes: u64,
    /// The threads that execute statements (the unit's `DRIVER_CPU`, rounded up).
    pub cpu_threads: usize,
    /// What a client, the engine agent, must present as its password.
    pub credential: Credential,
    /// The unit's PROPERTIES. Those that begin with `datafusion.` are every session's first settings, and one that is
    /// unknown, malformed or not a session's to change keeps the engine from starting; the others are shown by SET.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// The named limits.
    #[serde(default)]
    pub limits: Limits,
}

/// Where catalogs are kept in an object store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketConfig {
    /// Such as `s3://bucket/prefix`.
    pub url: String,
    /// Options of the store, keys and secrets included, by the names of the crate `object_store`.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

impl fmt::Debug for BucketConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketConfig").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A secret that is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Credential(String);

/// Named limits of one engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Open sessions of the engine.
    pub sessions: usize,
    /// Open operations of one session.
    pub operations_per_session: usize,
    /// A finished operation that nobody asked about for so long is closed.
    pub operation_idle_ms: u64,
    /// A session without a call and without a running statement for so long is closed.
    pub session_idle_ms: u64,
    /// The longest life of a statement, from its start to its last row.
    pub statement_timeout_ms: u64,
    /// How long `GetOperationStatus` waits for news, unless the session says otherwise.
    pub long_poll_ms: u64,
    /// The most bytes that spilled intermediate results may take on disk.
    pub spill_bytes: u64,
    /// The longest text of a statement, in bytes.
    pub statement_bytes: usize,
    /// The most bytes of text and binary values in one row: a row is fetched whole, and every relay must be able to carry
    /// it.
    pub row_bytes: usize,
    /// The most bytes that one call of a function may give for one batch of rows. Functions whose result can be much
    /// longer than their arguments (`repeat`, `lpad`, `range` …) are refused beyond it, with SQLSTATE 54000.
    pub function_bytes: usize,
    /// The most rows of a SHOW PARTITIONS; a table with more partitions is refused with SQLSTATE 54000.
    pub partitions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 1_000,
            operations_per_session: 100,
            operation_idle_ms: 30 * 60 * 1_000,
            session_idle_ms: 24 * 60 * 60 * 1_000,
            statement_timeout_ms: 24 * 60 * 60 * 1_000,
            long_poll_ms: 5_000,
            spill_bytes: 100 << 30,
            statement_bytes: 16 << 20,
            row_bytes: 200 << 20,
            function_bytes: 128 << 20,
            partitions: 100_000,
        }
    }
}

impl Limits {
    /// [`Limits::statement_timeout_ms`] as a duration.
    pub const fn statement_timeout(&self) -> Duration {
        Duration::from_millis(self.statement_timeout_ms)
    }

    /// [`Limits::long_poll_ms`] as a duration.
    pub const fn long_poll(&self) -> Duration {
        Duration::from_millis(self.long_poll_ms)
    }
}

fn any_loopback_port() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

impl Config {
    /// Refuses what can't work, naming the key; makes the folders that are the engine's to make.
    pub fn check(&self) -> Result<(), EngineError> {
        let refuse = |key: &str, why: String| Err(EngineError::Config { key: key.to_owned(), why });
        if !self.listen.ip().is_loopback() {
            return refuse("listen", format!("{} is not a loopback address", self.listen));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.engine.is_empty() || self.engine.starts_with('.') || !self.engine.chars().all(plain) {
            return refuse("engine", format!("{:?} is no engine name", self.engine));
        }
        if self.memory_bytes < MEMORY_BYTES_MIN {
            return refuse("memory_bytes", format!("{} is below {MEMORY_BYTES_MIN}", self.memory_bytes));
        }
        if self.cpu_threads == 0 || self.cpu_threads > CPU_THREADS_MAX {
            return refuse("cpu_threads", format!("{} is not in 1..={CPU_THREADS_MAX}", self.cpu_threads));
        }
        if self.credential.0.is_empty() {
            return refuse("credential", "it is empty, so that anybody could connect".to_owned());
        }
        for (key, dir) in [("catalog_dir", &self.catalog_dir), ("scratch_dir", &self.scratch_dir)] {
            if let Err(error) = fs::create_dir_all(dir) {
                return refuse(key, format!("{}: {error}", dir.display()));
            }
        }
        Ok(())
    }
}

impl Credential {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// Compares without telling by its duration how much was right.
    pub fn matches(&self, presented: &str) -> bool {
        !self.0.is_empty() && keys_match(&self.0, presented)
    }

    /// The secret itself, for whoever has to present it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("******")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_credential_is_only_itself_and_never_printed() {
        let credential = Credential::new("open sesame");
        assert!(credential.matches("open sesame"));
        for wrong in ["", "open", "open sesame ", "open sesamf", "open sesameopen sesame"] {
            assert!(!credential.matches(wrong), "{wrong:?}");
        }
        assert!(!Credential::new("").matches(""));
        assert_eq!(format!("{credential:?}"), "******");
    }

    #[test]
    fn an_invalid_configuration_is_rejected_by_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let good = Config {
            listen: any_loopback_port(),
            tenant: "t_1".to_owned(),
            engine: "e-1".to_owned(),
            catalog_dir: dir.path().join("catalog"),
            catalog: None,
            scratch_dir: dir.path().join("scratch"),
            allowed_locations: vec![],
            own_paths: vec![],
            memory_bytes: MEMORY_BYTES_MIN,
            cpu_threads: 1,
            credential: Credential::new("x"),
            properties: BTreeMap::new(),
            limits: Limits::default(),
        };
        good.check().unwrap();
        let key_of = |change: &dyn Fn(&mut Config)| {
            let mut config = good.clone();
            change(&mut config);
            match config.check() {
                Err(EngineError::Config { key, .. }) => key,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(key_of(&|c| c.listen = "0.0.0.0:0".parse().unwrap()), "listen");
        assert_eq!(key_of(&|c| c.engine = "../e".to_owned()), "engine");
        assert_eq!(key_of(&|c| c.memory_bytes = 1), "memory_bytes");
        assert_eq!(key_of(&|c| c.cpu_threads = 0), "cpu_threads");
        assert_eq!(key_of(&|c| c.credential = Credential::new("")), "credential");
    }
}
