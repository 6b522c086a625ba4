//! The file of an engine: the start-up parameters of its agent, which the master writes.
//!
//! Secrets in it give access to this engine only. The contents of an engine are public to its tenant, because engines run
//! users' code. No key in it signs, and none is that of a role.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::Context as _;
use coordination::{EngineCredential, ZookeeperTls};
use engine_agent::engine::EngineTls;
use keys::{Callers, KeyGeneration, SecretKey};
use model::engine_name::EngineName;
use model::engine_type::EngineType;
use model::error::UserError;
use model::name::TenantName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::configuration::{Span, ZookeeperSection, ZookeeperTlsMode, zookeeper_trust};
use crate::engine_types::spark::location::SparkLocation;

/// The start-up parameters of an engine agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineFile {
    pub name: EngineName,
    pub tenant: TenantName,
    pub engine_type: EngineType,
    /// The hash of its configuration.
    pub config: String,
    /// CPU of the driver, in threads.
    pub cpu_threads: usize,
    /// Memory of the driver, in bytes.
    pub memory_bytes: u64,
    /// The generation of its own keys.
    #[serde(default = "generation_of_an_old_file")]
    pub keys: KeyGeneration,
    /// Who may call its agent: public keys.
    #[serde(default)]
    pub callers: Callers,
    /// What its agent proves in TLS; absent if it does not offer TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EngineTls>,
    /// In a file of version 0.1.0: the key that proxies and masters present.
    #[serde(default, skip_serializing)]
    pub key: Option<String>,
    /// In a file of version 0.1.0.
    #[expect(dead_code, reason = "the agent draws its own; an unknown key would be refused")]
    #[serde(default, rename = "backend_key", skip_serializing)]
    pub old_backend_key: Option<String>,
    /// The key that the agent presents to the engine. The agent draws it at each start, and no file has it.
    #[serde(skip)]
    pub backend_key: BackendKey,
    /// The deadline of the warm-up query.
    pub start_deadline: Span,
    /// The tenant's catalog, shared by its engines.
    pub catalog_dir: PathBuf,
    /// The catalogs of all tenants in an object store, instead of the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<CatalogBucket>,
    /// Whether an engine that is not our own has its tables in a metastore that outlives it. An agent of version 0.1.0
    /// refuses a file that has this, or `catalog`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_metastore: bool,
    /// The folder for spilled data.
    pub scratch_dir: PathBuf,
    /// Folders that an external table's LOCATION may be in.
    pub allowed_locations: Vec<PathBuf>,
    /// Paths of Enginehouse itself: no statement reads or writes there, whatever is allowed.
    #[serde(default)]
    pub own_paths: Vec<PathBuf>,
    pub zookeeper: EngineZookeeper,
    /// The credential of the engine in ZooKeeper.
    pub credential: EngineCredential,
    /// Free properties of the unit.
    pub properties: BTreeMap<String, String>,
    /// The user that it runs as, and whose sessions alone it opens; absent if that is the account of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as: Option<String>,
    /// The location of Spark, for engines of type `spark`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spark: Option<SparkLocation>,
    /// What the launch part of another type has for its connector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector: Option<toml::Table>,
}

/// ZooKeeper, as an engine reaches it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineZookeeper {
    pub connect: String,
    pub root: String,
    pub session_timeout: Span,
    pub watch_events: bool,
    /// Absent without TLS: an agent of version 0.1.0 refuses a file that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<EngineZookeeperTls>,
}

/// Whose certificates an engine trusts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineZookeeperTls {
    /// The text of `zookeeper.ca_file`, since an engine may run where that file is not; without it the certificates of the machine
    /// or image that the engine runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
}

impl EngineZookeeper {
    /// Reads the CA file.
    pub fn new(section: &ZookeeperSection) -> anyhow::Result<Self> {
        Ok(Self {
            connect: section.connect.clone(),
            root: section.root.clone(),
            session_timeout: section.session_timeout,
            watch_events: section.watch_events,
            tls: match section.tls {
                ZookeeperTlsMode::Off => None,
                ZookeeperTlsMode::Required => Some(EngineZookeeperTls { ca: section.ca()? }),
            },
        })
    }

    /// Whose certificates its sessions trust; `None` without TLS.
    pub fn trust(&self) -> anyhow::Result<Option<ZookeeperTls>> {
        self.tls.as_ref().map(|tls| zookeeper_trust(tls.ca.as_deref())).transpose()
    }
}

/// Of version 0.1.0.
const fn generation_of_an_old_file() -> KeyGeneration {
    KeyGeneration::CLUSTER_SECRET
}

impl EngineFile {
    /// Who may call its agent, also in a file of version 0.1.0.
    pub fn callers(&self) -> Callers {
        match &self.key {
            Some(key) => Callers { password: Some(key.clone()), ..self.callers.clone() },
            None => self.callers.clone(),
        }
    }

    /// Sets what the launch part of a type has for its connector.
    pub fn set_connector(&mut self, value: &impl Serialize) -> Result<(), UserError> {
        let table = toml::Table::try_from(value);
        let failed =
            |error| UserError::internal(format!("could not write the file of engine \"{}\": {error}", self.name));
        self.connector = Some(table.map_err(failed)?);
        Ok(())
    }

    /// What the launch part has for the connector.
    pub fn connector<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        let table = self.connector.clone().context("the file of the engine has no table \"connector\"")?;
        table.try_into().context("the table \"connector\" of the engine's file is invalid")
    }
}

/// A key that is random in each process.
#[derive(Clone)]
pub struct BackendKey(String);

impl Default for BackendKey {
    fn default() -> Self {
        // Without random bytes no engine starts: an empty key opens none.
        Self(SecretKey::random().map(|key| key.password()).unwrap_or_default())
    }
}

impl fmt::Debug for BackendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackendKey(******)")
    }
}

impl BackendKey {
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// The object store of catalogs: `engines.catalog_url` and `engines.catalog_options`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogBucket {
    /// Such as `s3://bucket/prefix`.
    pub url: String,
    /// Options of the store; keys and secrets among them.
    pub options: BTreeMap<String, String>,
}

impl fmt::Debug for CatalogBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogBucket").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_engine_has_the_text_of_the_ca_and_without_tls_no_new_key() {
        let folder = tempfile::tempdir().unwrap();
        let mut section = ZookeeperSection { ca_file: folder.path().join("ca.crt"), ..ZookeeperSection::default() };
        let plain = toml::to_string(&EngineZookeeper::new(&section).unwrap()).unwrap();
        assert_eq!(plain.lines().filter(|line| line.contains("tls") || line.contains("ca")).count(), 0, "{plain}");
        section.tls = ZookeeperTlsMode::Required;
        let error = format!("{:#}", EngineZookeeper::new(&section).unwrap_err());
        assert!(error.starts_with("zookeeper.ca_file: cannot read the CA file"), "{error}");
        std::fs::write(&section.ca_file, "a\nb\n").unwrap();
        let with_tls = EngineZookeeper::new(&section).unwrap();
        assert_eq!(toml::from_str::<EngineZookeeper>(&toml::to_string(&with_tls).unwrap()).unwrap(), with_tls);
        assert_eq!(with_tls.tls.unwrap().ca.unwrap(), "a\nb\n");
        std::fs::write(&section.ca_file, vec![b'a'; 300 << 10]).unwrap();
        assert!(format!("{:#}", EngineZookeeper::new(&section).unwrap_err()).contains("more than 262144"));
    }
}
