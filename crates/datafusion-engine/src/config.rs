//! The configuration of one engine: the tenant's catalog, resource limits, the credential.
//!
//! Invariants: every limit has a name and a default here; [`Config::check`] rejects an invalid configuration before a port
//! is bound. A configuration never changes while its engine runs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, fs};

use model::credential::keys_match;
use serde::{Deserialize, Serialize};

use crate::error::EngineError;

/// The least memory of an engine: the buffers of one sort.
pub const MEMORY_BYTES_MIN: u64 = 8 << 20;
/// The most executor threads of an engine.
pub const CPU_THREADS_MAX: usize = 512;

/// One engine's configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The listen address, on loopback; port 0 takes a free one.
    #[serde(default = "any_loopback_port")]
    pub listen: SocketAddr,
    /// The tenant whose engine this is.
    pub tenant: String,
    /// The engine's name.
    pub engine: String,
    /// The tenant's catalog: one file per definition, shared by all engines of the tenant. Not used with `catalog`.
    pub catalog_dir: PathBuf,
    /// The catalog of all tenants in an object store, instead of `catalog_dir`.
    #[serde(default)]
    pub catalog: Option<BucketConfig>,
    /// Intermediate results spill to `<scratch_dir>/<engine>/spill`, which is emptied at the start and at the end.
    pub scratch_dir: PathBuf,
    /// The folders that tables may be in and results may be written to. Without any, no file can be read.
    #[serde(default)]
    pub allowed_locations: Vec<PathBuf>,
    /// Enginehouse's own files and folders, which statements never read or write, even below an allowed location. The
    /// engine's catalog and scratch folders are always included.
    #[serde(default)]
    pub own_paths: Vec<PathBuf>,
    /// The memory pool of all statements, in bytes (the unit's `DRIVER_MEMORY`).
    pub memory_bytes: u64,
    /// The number of executor threads (the unit's `DRIVER_CPU`, rounded up).
    pub cpu_threads: usize,
    /// The password that the client, the engine agent, must present.
    pub credential: Credential,
    /// The unit's PROPERTIES. Those with the prefix `datafusion.` are every session's initial settings; the engine does
    /// not start if one is unknown, malformed or not changeable in a session. SET shows the others.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// The named limits.
    #[serde(default)]
    pub limits: Limits,
}

/// The object store of catalogs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketConfig {
    /// For example `s3://bucket/prefix`.
    pub url: String,
    /// Options of the store, including keys and secrets, by their names in the crate `object_store`.
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
    /// A finished operation is closed after this time without a call.
    #[serde(rename = "operation_idle_ms", with = "model::millis")]
    pub operation_idle: Duration,
    /// A session is closed after this time without a call or a running statement.
    #[serde(rename = "session_idle_ms", with = "model::millis")]
    pub session_idle: Duration,
    /// The statement timeout, from the start to the last row.
    #[serde(rename = "statement_timeout_ms", with = "model::millis")]
    pub statement_timeout: Duration,
    /// How long `GetOperationStatus` waits for a change, unless the session sets another time.
    #[serde(rename = "long_poll_ms", with = "model::millis")]
    pub long_poll: Duration,
    /// The most bytes that spilled intermediate results may take on disk.
    pub spill_bytes: u64,
    /// The longest text of a statement, in bytes.
    pub statement_bytes: usize,
    /// The most bytes of text and binary values in one row: a row is fetched whole and must fit into every relay.
    pub row_bytes: usize,
    /// The most bytes that one call of a function may return for one batch of rows. Calls of functions whose result can
    /// be much longer than their arguments (`repeat`, `lpad`, `range` …) fail above it with SQLSTATE 54000.
    pub function_bytes: usize,
    /// The most rows of a SHOW PARTITIONS; a table with more partitions is refused with SQLSTATE 54000.
    pub partitions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // The agent refuses first, with an error after which a proxy chooses another engine.
            sessions: model::on_demand::MAX_SESSIONS_PER_ENGINE as usize,
            operations_per_session: 100,
            operation_idle: Duration::from_mins(30),
            session_idle: Duration::from_hours(24),
            statement_timeout: Duration::from_hours(24),
            long_poll: Duration::from_secs(5),
            spill_bytes: 100 << 30,
            statement_bytes: 16 << 20,
            row_bytes: 200 << 20,
            function_bytes: 128 << 20,
            partitions: 100_000,
        }
    }
}

fn any_loopback_port() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

impl Config {
    /// Rejects an invalid configuration, naming the key, and creates the engine's own folders.
    pub fn check(&self) -> Result<(), EngineError> {
        let refuse = |key: &str, why: String| Err(EngineError::Config { key: key.to_owned(), why });
        if !self.listen.ip().is_loopback() {
            return refuse("listen", format!("{} is not a loopback address", self.listen));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.engine.is_empty() || self.engine.starts_with('.') || !self.engine.chars().all(plain) {
            return refuse("engine", format!("\"{}\" is not an engine name", self.engine.escape_debug()));
        }
        if self.memory_bytes < MEMORY_BYTES_MIN {
            return refuse("memory_bytes", format!("{} is below {MEMORY_BYTES_MIN}", self.memory_bytes));
        }
        if self.cpu_threads == 0 || self.cpu_threads > CPU_THREADS_MAX {
            return refuse("cpu_threads", format!("{} is not in 1..={CPU_THREADS_MAX}", self.cpu_threads));
        }
        if self.credential.0.is_empty() {
            return refuse("credential", "it is empty, so any client could connect".to_owned());
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

    /// Compares in constant time.
    pub fn matches(&self, presented: &str) -> bool {
        !self.0.is_empty() && keys_match(&self.0, presented)
    }

    /// The secret itself, for a client that has to present it.
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
