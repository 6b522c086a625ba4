//! The key files that the doctor finds: it runs with those of a role, and leaves out what needs another one.

use std::collections::BTreeSet;

use agent_api::{Caller, ClusterTls};
use coordination::Identity;
use keys::role::RoleSecrets;
use keys::{Current, KeyGeneration, MasterKeys, MetadataAgentKeys, ProxyKeys, Role, RoleKeys};
use serde::de::DeserializeOwned;

use crate::configuration::{ClusterSection, Configuration};
use crate::key_files;
use crate::output::with_causes;

/// The keys of each role, or why there are none.
pub struct RoleFiles {
    pub master: Result<Current<MasterKeys>, String>,
    pub proxy: Result<Current<ProxyKeys>, String>,
    pub metadata_agent: Result<Current<MetadataAgentKeys>, String>,
    /// Whether metadata agents are reached by TLS.
    tls: ClusterTls,
}

/// The generations of the keys of one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generations {
    pub role: &'static str,
    pub in_use: KeyGeneration,
    pub accepted: BTreeSet<KeyGeneration>,
}

impl Generations {
    fn new<S: RoleSecrets>(keys: &Current<RoleKeys<S>>) -> Self {
        let keys = keys.get();
        Self { role: S::ROLE.name(), in_use: keys.in_use(), accepted: keys.accepted().into_iter().collect() }
    }

    /// Such as `proxy.key (uses 1, accepts 1, 2)`.
    pub fn text(&self) -> String {
        let accepted: Vec<String> = self.accepted.iter().map(ToString::to_string).collect();
        format!("{}.key (uses {}, accepts {})", self.role, self.in_use, accepted.join(", "))
    }
}

impl RoleFiles {
    /// Those of the files that can be read.
    pub fn generations(&self) -> Vec<Generations> {
        let Self { master, proxy, metadata_agent, .. } = self;
        let files = [
            master.as_ref().ok().map(Generations::new),
            proxy.as_ref().ok().map(Generations::new),
            metadata_agent.as_ref().ok().map(Generations::new),
        ];
        files.into_iter().flatten().collect()
    }

    /// The roles whose files cannot be read.
    pub fn missing(&self) -> Vec<&'static str> {
        let found: Vec<&str> = self.generations().iter().map(|file| file.role).collect();
        Role::ALL.iter().map(|role| role.name()).filter(|role| !found.contains(role)).collect()
    }

    /// Fails if this user can read none of them.
    pub fn read(configuration: &Configuration) -> anyhow::Result<Self> {
        let section = &configuration.cluster;
        key_files::check(section)?;
        let tls = configuration.cluster_tls();
        Ok(Self { master: read(section), proxy: read(section), metadata_agent: read(section), tls })
    }

    /// The identity with the most rights.
    pub fn zookeeper(&self) -> Result<Identity, String> {
        match self {
            Self { master: Ok(keys), .. } => Ok(master::identity(keys)),
            Self { proxy: Ok(keys), .. } => Ok(proxy::identity(keys)),
            Self { metadata_agent: Ok(keys), .. } => Ok(engine_agent::metadata::identity(keys)),
            Self { master: Err(reason), .. } => Err(reason.clone()),
        }
    }

    /// Who calls metadata agents; only a master may read the desired state.
    pub fn caller(&self) -> Result<Caller, String> {
        match self {
            Self { master: Ok(keys), .. } => Ok(Caller::new(keys.clone(), self.tls)),
            Self { proxy: Ok(keys), .. } => Ok(Caller::new(keys.clone(), self.tls)),
            Self { master: Err(reason), .. } => Err(reason.clone()),
        }
    }
}

fn read<S: RoleSecrets + DeserializeOwned>(section: &ClusterSection) -> Result<Current<RoleKeys<S>>, String> {
    key_files::read_once(section).map(Current::fixed).map_err(|error| with_causes(&error))
}
