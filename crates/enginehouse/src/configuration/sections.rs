//! The sections of the configuration, each with its defaults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use model::engine_type::EngineType;
use model::instance::InstanceKind;
use model::on_demand::{IdleTimeout, OnDemandDefaults};
use orchestrator::process::DEFAULT_MIN_UID;
use serde::{Deserialize, Serialize};

use super::{Span, TlsMode};

/// The installation; several can share a ZooKeeper, a database server and a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSection {
    /// Its name, which is in the labels of every engine.
    pub name: String,
    /// The folder with the key files of the roles of this machine, each with mode 0600.
    pub keys: PathBuf,
    /// Whether connections between roles have TLS.
    pub tls: TlsMode,
    /// Of version 0.1.0; refused with the way to its replacement.
    #[serde(skip_serializing)]
    pub secret_file: Option<PathBuf>,
}

impl Default for ClusterSection {
    fn default() -> Self {
        Self { name: "enginehouse".to_owned(), keys: PathBuf::from("keys"), tls: TlsMode::Required, secret_file: None }
    }
}

/// The gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxySection {
    /// The address for clients.
    pub listen: SocketAddr,
    /// The address that discovery gives to clients; the listen address if empty.
    pub advertise: String,
    /// The namespace of Hive JDBC's ZooKeeper discovery; not registered if empty.
    pub discovery_namespace: String,
    /// Whether this proxy registers there.
    pub discoverable: bool,
    /// Whether this proxy serves clients; otherwise its port serves the probes only.
    pub serves_clients: bool,
    /// The interval of catalog reads.
    pub snapshot_poll: Span,
    /// The time that the first statement of a session waits for a starting engine.
    pub bind_deadline: Span,
    /// How long reported demand is valid: with a proxy that has died, its sessions are forgotten.
    pub demand_lease: Span,
    /// The time without a statement after which a session leaves its engine; `0s`: never.
    pub unbind_after: Span,
    /// The time without a call after which a session is closed; `0s`: never.
    pub session_idle: Span,
    /// The same of a session over HTTP.
    pub http_session_idle: Span,
    /// The time after its opening from which a session runs no new statement and is closed; `0s`: never.
    pub session_age: Span,
    /// The time for which a reported load of an engine is valid.
    #[serde(rename = "load_cache_ms", with = "model::millis")]
    pub load_cache: Duration,
    /// Additional host names for clients over HTTP; `*` for any.
    pub hosts: Vec<String>,
    /// Client connections at most.
    pub max_connections: usize,
    /// Client connections of one user at most.
    pub max_connections_per_user: usize,
    /// Client connections from one address at most.
    pub max_connections_per_address: usize,
    /// Client connections that have not authenticated yet at most.
    pub max_unauthenticated: usize,
    /// The same from one address at most; further ones wait.
    pub max_unauthenticated_per_address: usize,
    /// New client connections per second from one address at most; 0: no limit.
    pub connect_rate: u32,
    /// Sessions of one user at most.
    pub max_sessions_per_user: usize,
    /// Sessions of one tenant at most.
    pub max_sessions_per_tenant: usize,
    /// Statements of one user that run at engines or wait for one at most.
    pub max_statements_per_user: usize,
    /// The same of one tenant.
    pub max_statements_per_tenant: usize,
    /// The settings and the replay log of one session at most, in bytes.
    pub max_session_setting_bytes: usize,
    /// The statements of one session that wait or run, and results that the proxy keeps for it, at most, in bytes.
    pub max_session_statement_bytes: usize,
    /// The state that all sessions may make the proxy keep, in bytes.
    pub max_held_bytes: usize,
    /// The bytes of all requests of more than 64 KiB that are being received.
    pub request_memory: usize,
    /// Of these, those of one user.
    pub request_memory_per_user: usize,
    /// The product name in `GetInfo`.
    pub product_name: String,
    /// The product version in `GetInfo`; Enginehouse's own if empty.
    pub product_version: String,
    /// The time that open sessions have to end at shutdown.
    pub drain_grace: Span,
}

impl Default for ProxySection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 10009)),
            advertise: String::new(),
            discovery_namespace: String::new(),
            discoverable: true,
            serves_clients: true,
            snapshot_poll: Span::seconds(2),
            bind_deadline: Span::seconds(300),
            demand_lease: Span::seconds(15),
            unbind_after: Span::seconds(300),
            session_idle: Span::seconds(24 * 3600),
            http_session_idle: Span::seconds(3600),
            session_age: Span::seconds(0),
            load_cache: Duration::from_secs(1),
            hosts: Vec::new(),
            max_connections: 5_000,
            max_connections_per_user: 1_000,
            max_connections_per_address: 4_000,
            max_unauthenticated: 1_000,
            max_unauthenticated_per_address: 32,
            connect_rate: 1_000,
            max_sessions_per_user: 500,
            max_sessions_per_tenant: 2_000,
            max_statements_per_user: 100,
            max_statements_per_tenant: 500,
            max_session_setting_bytes: 1 << 20,
            max_session_statement_bytes: 32 << 20,
            max_held_bytes: 1 << 30,
            request_memory: 256 << 20,
            request_memory_per_user: 64 << 20,
            product_name: "Enginehouse".to_owned(),
            product_version: String::new(),
            drain_grace: Span::seconds(0),
        }
    }
}

impl ProxySection {
    /// Whether the proxy registers for discovery.
    pub fn registers(&self) -> bool {
        self.serves_clients && self.discoverable && !self.discovery_namespace.is_empty()
    }

    /// Whether the proxy listens on a loopback address.
    pub fn listens_on_loopback(&self) -> bool {
        self.listen.ip().is_loopback()
    }
}

/// The master inside a proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MasterSection {
    /// Whether this proxy is a candidate for master.
    pub candidate: bool,
    /// The maximum interval of ticks, and the interval of reads of the alter node.
    pub tick_interval: Span,
    /// The time that an observed alteration may be in doubt.
    pub alter_grace: Span,
    /// The interval of status calls to engine agents.
    pub status_poll: Span,
    /// The number of slots with a stand-in whose replacement may be starting.
    pub surge: u32,
    /// The time after which a running engine without a registration and without a response is replaced.
    pub replace_after: Span,
    /// How long the node of an engine without a registration may be not ready before the engine is replaced.
    pub node_grace: Span,
    /// The most engines that demand starts for one tenant, pool and unit at a time.
    pub burst: u32,
    /// For how long demand must have been low before an engine that has not registered is cancelled.
    pub cancel_after: Span,
    /// For how long no further idle engine of the tenant, pool and unit is released, unless all of them are.
    pub cooldown: Span,
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
            node_grace: Span(planner::NODE_GRACE),
            burst: planner::BURST,
            cancel_after: Span(planner::CANCEL_AFTER),
            cooldown: Span(planner::COOLDOWN),
        }
    }
}

/// The metadata agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetadataAgentSection {
    /// The address for proxies and masters.
    pub listen: SocketAddr,
    /// The address that it registers in ZooKeeper; the listen address if empty.
    pub advertise: String,
    /// The time that an alteration waits for the previous one; 0 refuses at once.
    pub alter_wait: Span,
    /// The time after which a converging alteration is stalled.
    pub alter_deadline: Span,
    /// The grace of a drained engine.
    pub drain_grace: Span,
    /// The maximum grace of a statement.
    pub drain_grace_max: Span,
    /// Parts of property names whose values are secret.
    pub secret_keys: model::secret::SecretKeys,
    /// The maximum number of engines of all tenants.
    pub max_engines: usize,
    /// The retention of the audit; 0 keeps it for ever.
    pub audit_keep: Span,
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
            audit_keep: Span::seconds(400 * 24 * 3600),
        }
    }
}

/// The orchestrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrchestratorKind {
    /// Local processes, for one machine and tests.
    Process,
    /// Pods of a Kubernetes cluster.
    Kubernetes,
}

impl OrchestratorKind {
    /// What its engines run in.
    pub const fn instances(self) -> InstanceKind {
        match self {
            Self::Process => InstanceKind::Process,
            Self::Kubernetes => InstanceKind::Pod,
        }
    }
}

/// The orchestrator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OrchestratorSection {
    pub kind: OrchestratorKind,
    /// The state directory, shared by all candidates of this machine.
    pub state_dir: PathBuf,
    /// Logical names of this machine for `NODE_LIST`; the host name if empty.
    pub nodes: Vec<String>,
    /// The maximum number of engines on this machine.
    pub max_engines: usize,
    /// The lowest uid of an account that an engine runs as.
    pub min_uid: u32,
}

impl Default for OrchestratorSection {
    fn default() -> Self {
        Self {
            kind: OrchestratorKind::Process,
            state_dir: PathBuf::from("engines"),
            nodes: Vec::new(),
            max_engines: 200,
            min_uid: DEFAULT_MIN_UID,
        }
    }
}

/// The configuration of engines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnginesSection {
    /// The engine type of units without one.
    pub default_type: EngineType,
    /// The image of each engine type, for pools without one.
    pub images: BTreeMap<EngineType, String>,
    /// The parent of the tenants' catalogs and the engines' scratch folders.
    pub data_dir: PathBuf,
    /// The location of the catalogs of DataFusion engines; `file://` is `catalog` below `data_dir`.
    pub catalog_url: String,
    /// Options of the object store that `catalog_url` names.
    pub catalog_options: BTreeMap<String, String>,
    /// Folders in which the LOCATION of an external table may be.
    pub allowed_locations: Vec<PathBuf>,
    /// The deadline of an engine's warm-up query.
    pub start_deadline: Span,
    /// Whether sessions that wait start engines, for units that leave it open.
    pub start_on_demand: bool,
    /// When idle engines on demand are released, for units that leave it open.
    pub idle_timeout: IdleTimeout,
}

impl Default for EnginesSection {
    fn default() -> Self {
        let on_demand = OnDemandDefaults::default();
        Self {
            default_type: EngineType::Datafusion,
            images: BTreeMap::new(),
            data_dir: PathBuf::from("data"),
            catalog_url: "file://".to_owned(),
            catalog_options: BTreeMap::new(),
            allowed_locations: Vec::new(),
            start_deadline: Span::seconds(300),
            start_on_demand: on_demand.start_on_demand,
            idle_timeout: on_demand.idle_timeout,
        }
    }
}
