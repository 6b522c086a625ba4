//! The sections of the configuration, each with its defaults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use model::engine_type::EngineType;
use serde::{Deserialize, Serialize};

use super::Span;

/// Which installation: several can share a ZooKeeper, a database server and a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSection {
    /// Its name; stands in the labels of every engine.
    pub name: String,
    /// The file with the cluster secret, mode 0600.
    pub secret_file: PathBuf,
}

impl Default for ClusterSection {
    fn default() -> Self {
        Self { name: "enginehouse".to_owned(), secret_file: PathBuf::from("cluster.secret") }
    }
}

/// How clients prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Authentication {
    /// The name that the client gives is believed.
    None,
}

/// Who may do what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// How clients prove who they are.
    pub authentication: Authentication,
    /// Accepts `authentication = "none"` on an address that is not loopback.
    pub insecure: bool,
    /// Users who may say everything.
    pub admins: Vec<String>,
}

impl Default for Access {
    fn default() -> Self {
        Self { authentication: Authentication::None, insecure: false, admins: vec!["admin".to_owned()] }
    }
}

/// The coordination service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZookeeperSection {
    /// `host:port,host:port,…`
    pub connect: String,
    /// The node below which everything stands; one or two levels.
    pub root: String,
    /// How long a process may be silent before its ephemeral nodes go.
    pub session_timeout: Span,
    /// Whether watch events are listened to; without them everything converges by polling alone.
    pub watch_events: bool,
}

impl Default for ZookeeperSection {
    fn default() -> Self {
        Self {
            connect: "127.0.0.1:2181".to_owned(),
            root: "/enginehouse".to_owned(),
            session_timeout: Span::seconds(10),
            watch_events: true,
        }
    }
}

/// The metadata database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatabaseSection {
    /// `postgres://…`, `mysql://…`, or `sqlite://file` where one process has it to itself.
    pub url: String,
}

impl Default for DatabaseSection {
    fn default() -> Self {
        Self { url: "postgres://enginehouse@127.0.0.1:5432/enginehouse".to_owned() }
    }
}

/// The gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxySection {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// What discovery tells clients to connect to; the listen address when empty.
    pub advertise: String,
    /// The namespace of Hive JDBC's ZooKeeper discovery; empty: not registered.
    pub discovery_namespace: String,
    /// Whether it registers there.
    pub discoverable: bool,
    /// How often the catalog is read again.
    pub snapshot_poll: Span,
    /// How long the first statement waits for an engine that is starting.
    pub bind_deadline: Span,
    /// How long the load of an engine that its agent told is believed.
    pub load_cache_ms: u64,
    /// Further names that clients may connect to over HTTP; `*` for any.
    pub hosts: Vec<String>,
    /// Client connections at most.
    pub max_connections: usize,
    /// Client connections of one user at most.
    pub max_connections_per_user: usize,
    /// Client connections from one address at most.
    pub max_connections_per_address: usize,
    /// Sessions of one user at most.
    pub max_sessions_per_user: usize,
    /// The settings and the replay log of one session at most, in bytes.
    pub max_session_setting_bytes: usize,
    /// The statements of one session that wait or run, and results that the proxy keeps for it, at most, in bytes.
    pub max_session_statement_bytes: usize,
    /// What all sessions together make the proxy keep at most, in bytes.
    pub max_held_bytes: usize,
    /// The product name that clients are given.
    pub product_name: String,
    /// The product version that clients are given; Enginehouse's own when empty.
    pub product_version: String,
    /// How long a proxy that is told to end lets its sessions end by themselves.
    pub drain_grace: Span,
}

impl Default for ProxySection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 10009)),
            advertise: String::new(),
            discovery_namespace: String::new(),
            discoverable: true,
            snapshot_poll: Span::seconds(2),
            bind_deadline: Span::seconds(300),
            load_cache_ms: 1_000,
            hosts: Vec::new(),
            max_connections: 5_000,
            max_connections_per_user: 1_000,
            max_connections_per_address: 4_000,
            max_sessions_per_user: 500,
            max_session_setting_bytes: 1 << 20,
            max_session_statement_bytes: 32 << 20,
            max_held_bytes: 1 << 30,
            product_name: "Enginehouse".to_owned(),
            product_version: String::new(),
            drain_grace: Span::seconds(0),
        }
    }
}

impl ProxySection {
    /// Whether clients find it by discovery.
    pub fn registers(&self) -> bool {
        self.discoverable && !self.discovery_namespace.is_empty()
    }

    /// Whether only this machine can connect.
    pub fn listens_on_loopback(&self) -> bool {
        self.listen.ip().is_loopback()
    }
}

/// The master inside a proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MasterSection {
    /// Whether this proxy may become master.
    pub candidate: bool,
    /// How long between two ticks at most; also how often the alter node is looked at.
    pub tick_interval: Span,
    /// How long an alteration may be undecided once it was seen.
    pub alter_grace: Span,
    /// How often engine agents are asked what they do.
    pub status_poll: Span,
    /// How many slots with a stand-in may have a replacement that is not ready.
    pub surge: u32,
    /// How long an engine that runs may be without its registration and give no answer before it is replaced.
    pub replace_after: Span,
}

impl Default for MasterSection {
    fn default() -> Self {
        Self {
            candidate: true,
            tick_interval: Span::seconds(2),
            alter_grace: Span::seconds(30),
            status_poll: Span::seconds(5),
            surge: 1,
            replace_after: Span::seconds(60),
        }
    }
}

/// The metadata agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetadataAgentSection {
    /// Where proxies and masters connect.
    pub listen: SocketAddr,
    /// What it registers in ZooKeeper; the listen address when empty.
    pub advertise: String,
    /// How long an alteration waits for the one before it; 0 refuses at once.
    pub alter_wait: Span,
    /// How long an alteration may converge before it is called stalled.
    pub alter_deadline: Span,
    /// How long an engine that is told to end may finish its statements.
    pub drain_grace: Span,
    /// The longest grace that a statement may name.
    pub drain_grace_max: Span,
    /// Words that make a property's value secret.
    pub secret_keys: model::secret::SecretKeys,
    /// The most engines that all tenants together may ask for.
    pub max_engines: usize,
}

impl Default for MetadataAgentSection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 10020)),
            advertise: String::new(),
            alter_wait: Span::seconds(10),
            alter_deadline: Span::seconds(60),
            drain_grace: Span::seconds(30 * 60),
            drain_grace_max: Span::seconds(24 * 3600),
            secret_keys: model::secret::SecretKeys::default(),
            max_engines: model::change::DEFAULT_MAX_ENGINES,
        }
    }
}

/// Where engines run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrchestratorKind {
    /// Local processes: for one machine and for tests.
    Process,
    /// Pods of a Kubernetes cluster.
    Kubernetes,
}

impl OrchestratorKind {
    /// Whether a pool must say on which nodes its engines run. A machine is one node, whatever it is called.
    pub const fn needs_nodes(self) -> bool {
        match self {
            Self::Process => false,
            Self::Kubernetes => true,
        }
    }
}

/// Where engines run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OrchestratorSection {
    /// How.
    pub kind: OrchestratorKind,
    /// The directory that all candidates of this machine share.
    pub state_dir: PathBuf,
    /// Logical names of this machine, so that `NODE_LIST` can be used; empty: the host's name.
    pub nodes: Vec<String>,
    /// Engines at most on this machine.
    pub max_engines: usize,
}

impl Default for OrchestratorSection {
    fn default() -> Self {
        Self {
            kind: OrchestratorKind::Process,
            state_dir: PathBuf::from("engines"),
            nodes: Vec::new(),
            max_engines: 200,
        }
    }
}

/// What engines are given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnginesSection {
    /// The engine type of a unit that names none.
    pub default_type: EngineType,
    /// The image of each engine type, for pools that name none.
    pub images: BTreeMap<EngineType, String>,
    /// Below it each tenant's catalog and each engine's scratch space.
    pub data_dir: PathBuf,
    /// Where the catalogs of DataFusion engines are: `file://` is `catalog` below `data_dir`.
    pub catalog_url: String,
    /// Options of the object store that `catalog_url` names.
    pub catalog_options: BTreeMap<String, String>,
    /// Folders that an external table's LOCATION may be in.
    pub allowed_locations: Vec<PathBuf>,
    /// How long an engine may take to answer its warm-up query.
    pub start_deadline: Span,
}

impl Default for EnginesSection {
    fn default() -> Self {
        Self {
            default_type: EngineType::Datafusion,
            images: BTreeMap::new(),
            data_dir: PathBuf::from("data"),
            catalog_url: "file://".to_owned(),
            catalog_options: BTreeMap::new(),
            allowed_locations: Vec::new(),
            start_deadline: Span::seconds(300),
        }
    }
}
