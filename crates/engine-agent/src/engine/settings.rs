//! The settings of an engine agent, and its limits.

use std::net::SocketAddr;
use std::time::Duration;

use agent_api::ClusterTls;
use hs2::ServerTls;
use keys::{Callers, EngineTlsKey, KeyGeneration};
use model::engine_name::EngineName;
use model::error::UserError;
use model::table_catalog::TableCatalog;
use serde::{Deserialize, Serialize};

/// The settings of an engine agent. Its secrets give access to this engine only.
#[derive(Debug, Clone)]
pub struct Settings {
    pub engine: EngineName,
    /// The orchestrator's id of this instance.
    pub uid: String,
    /// The address that proxies connect to; port 0 selects a free one.
    pub listen: SocketAddr,
    /// The host to register, if others cannot reach the listen address.
    pub advertise_host: Option<String>,
    /// The only user whose sessions it opens, whatever its permit says: the one that it runs as. `None`: the permit decides alone.
    pub run_as: Option<String>,
    /// The generation of its own keys; registered.
    pub keys: KeyGeneration,
    /// Authenticates proxies and masters.
    pub callers: Callers,
    /// The key that it proves in TLS; `None` if it does not offer TLS.
    pub tls: Option<EngineTls>,
    /// The hash of the configuration, for the registry.
    pub config: String,
    /// Whether the engine's tables are its own; registered, and it decides which statements pin a session.
    pub catalog: TableCatalog,
    /// The session with ZooKeeper, as this engine.
    pub zookeeper: coordination::SessionSettings,
    /// How long the engine may take until its warm-up query succeeds, and how long the agent waits for a permit.
    pub start_deadline: Duration,
    pub limits: hs2::Limits,
}

/// TLS of an engine's agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineTls {
    /// Whether callers without TLS are refused.
    pub required: bool,
    /// What it proves and registers.
    pub key: EngineTlsKey,
}

impl EngineTls {
    pub(super) fn server(&self) -> Result<Option<ServerTls>, UserError> {
        let seed = self.key.seed.clone();
        let mode = if self.required { ClusterTls::Required } else { ClusterTls::Optional };
        mode.server(move || Some(seed.clone()))
    }
}

/// The key of an engine, which its agent presents. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub String);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(******)")
    }
}

/// The most sessions of one engine; a permit can only lower it.
pub const MAX_SESSIONS: usize = model::on_demand::MAX_SESSIONS_PER_ENGINE as usize;
/// Connections beyond those of sessions, for cancels and status calls.
pub const SIDE_CONNECTIONS: usize = 200;
/// The most open operations of one session.
pub const MAX_OPERATIONS: usize = 1_000;
/// For connecting to the engine.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// For one small call to the engine.
pub const CALL_DEADLINE: Duration = Duration::from_mins(1);
/// For a call that may run a whole statement.
pub const STATEMENT_DEADLINE: Duration = Duration::from_hours(24);
/// For cancelling the statements of a closed connection and closing its sessions.
pub const CLEAN_UP_DEADLINE: Duration = Duration::from_secs(30);
/// How long connections are still read when the engine is about to end.
pub const LINGER: Duration = Duration::from_millis(50);
/// How often a draining engine is polled for statements that no client polls.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Unread results are polled in one of this many rounds, beginning with the first: the engine closes them only after
/// many minutes.
pub const RESULTS_POLLED_EACH: u32 = 10;
/// For one such poll: the engine may hold its reply for as long as its own long poll.
pub const POLL_DEADLINE: Duration = Duration::from_secs(10);
/// The most concurrent polls; each has a connection of its own.
pub const MAX_CONCURRENT_POLLS: usize = 32;
/// How often the agent checks whether its engine is stopped.
pub const STOPPED_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Consecutive checks that find the engine stopped before its agent leaves the registry and refuses status calls.
pub const STOPPED_CHECKS: u32 = 10;
/// How long an agent that has agreed to retire opens no sessions: longer than a master needs to give its slot another engine.
pub const RETIRE_CONSENT: Duration = Duration::from_secs(30);
/// For stopping the engine.
pub const STOP_DEADLINE: Duration = Duration::from_secs(10);
/// For one warm-up query.
pub const WARM_UP_DEADLINE: Duration = Duration::from_secs(30);
/// The pause between two failed warm-up queries.
pub const WARM_UP_PAUSE: Duration = Duration::from_millis(100);
/// How long an idle agent that was registered before continues without permit and drain order.
pub const UNWANTED_AFTER: Duration = Duration::from_hours(1);
/// How often the agent reads its permit and drain order, regardless of watches.
pub const READ_INTERVAL: Duration = Duration::from_secs(2);
