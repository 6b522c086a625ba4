//! The settings of a proxy, and its limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_api::ClusterTls;
use authentication::{Chain, ImpersonationRules};
use hs2::ServerTls;
use keys::{Current, ProxyKeys};
use model::UserError;
use model::configuration::Defaults;
use model::rights::RoleLists;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The address that clients connect to.
    pub listen: SocketAddr,
    /// The address for discovery (`host`, `host:port`, or empty for the listener's own); `None`: not registered.
    pub discovery: Option<String>,
    /// The names under which clients may reach this proxy over HTTP (`Host`), the advertised one included; `*` for any.
    pub hosts: Vec<String>,
    /// TLS for clients on the same port; `None`: a TLS client is refused.
    pub tls: Option<Arc<ServerTls>>,
    /// The session with ZooKeeper, as a proxy.
    pub zookeeper: coordination::SessionSettings,
    /// For calls of metadata agents and engine agents, and for cookies.
    pub keys: Current<ProxyKeys>,
    /// Whether it reaches agents by TLS.
    pub cluster_tls: ClusterTls,
    /// Whether clients may log in; otherwise the probes alone are served.
    pub serves_clients: bool,
    /// The methods that authenticate clients; `None`: their user names are trusted.
    pub authentication: Option<Arc<Chain>>,
    /// The Kerberos principal with which drivers log in that find the proxy through discovery, with `_HOST` in place of its host; `None`:
    /// their URL says how they log in.
    pub principal: Option<String>,
    /// Who has a role of the installation.
    pub roles: RoleLists,
    /// Who may impersonate whom.
    pub impersonation: ImpersonationRules,
    /// How often the catalog is read again.
    pub snapshot_poll: Duration,
    /// How long a statement waits for an engine that is starting.
    pub bind_deadline: Duration,
    /// How long sessions may be idle.
    pub idle: IdleLimits,
    /// The age from which a session begins no new call, and is closed when its statements have ended; `None`: never.
    pub session_age: Option<Duration>,
    /// How long reported demand is valid.
    pub demand_lease: Duration,
    /// The installation's defaults for what units leave open.
    pub defaults: Defaults,
    /// How long the load that an engine agent reported is cached.
    pub load_cache: Duration,
    /// The name and version of the server in `GetInfo`.
    pub product: Product,
    pub limits: Limits,
}

/// How long sessions may be idle; `None`: for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleLimits {
    /// After this time without a statement, a session that can move leaves its engine.
    pub unbind_after: Option<Duration>,
    /// After this time without a call, a session is closed.
    pub session: Option<Duration>,
    /// The same of a session over HTTP: no connection ends with its client.
    pub http_session: Option<Duration>,
}

impl Default for IdleLimits {
    fn default() -> Self {
        Self {
            unbind_after: Some(Duration::from_mins(5)),
            session: Some(Duration::from_hours(24)),
            http_session: Some(Duration::from_hours(1)),
        }
    }
}

/// The product that clients see. It does not depend on the engine: drivers ask for it before and after one is bound, and
/// choose a dialect by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// `CLI_DBMS_NAME` and `CLI_SERVER_NAME`.
    pub name: String,
    /// `CLI_DBMS_VER`.
    pub version: String,
}

impl Default for Product {
    fn default() -> Self {
        Self { name: "Enginehouse".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// Limits of a proxy; the constants below are fixed ones.
#[derive(Debug, Clone)]
pub struct Limits {
    pub wire: hs2::Limits,
    /// The most sessions of one user.
    pub sessions_per_user: usize,
    /// The most sessions of one tenant.
    pub sessions_per_tenant: usize,
    /// The most statements of one user that run at engines or wait for one.
    pub statements_per_user: usize,
    /// The same of one tenant.
    pub statements_per_tenant: usize,
    /// The most sessions: over HTTP they are not bounded by connections, and user names cost nothing.
    pub sessions: usize,
    /// The most sessions over HTTP from one address.
    pub http_sessions_per_peer: usize,
    /// How long a connection without a session may be silent.
    pub without_session: Duration,
    /// The longest time between two sweeps of idle sessions.
    pub sweep_interval: Duration,
    /// How long an engine agent may take to report its load; after that only the proxy's own count is used.
    pub status_deadline: Duration,
    /// The longest key, value or statement of a session's settings, in bytes.
    pub setting_bytes: usize,
    /// The settings and the replay log of one session, in bytes.
    pub session_settings_bytes: usize,
    /// The statements of one session that wait or run, and the small results that the proxy keeps for it, in bytes.
    pub session_statement_bytes: usize,
    /// The bytes that all sessions may make the proxy keep.
    pub held_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wire: hs2::Limits {
                connections: 5_000,
                connections_per_user: 1_000,
                connections_per_peer: 4_000,
                unauthenticated_connections: 1_000,
                unauthenticated_per_address: 32,
                waiting_connections: 1_000,
                ..hs2::Limits::default()
            },
            sessions_per_user: 500,
            sessions_per_tenant: 2_000,
            statements_per_user: 100,
            statements_per_tenant: 500,
            sessions: 20_000,
            http_sessions_per_peer: 10_000,
            without_session: Duration::from_mins(1),
            sweep_interval: Duration::from_secs(10),
            status_deadline: Duration::from_millis(300),
            setting_bytes: 64 << 10,
            session_settings_bytes: 1 << 20,
            session_statement_bytes: 32 << 20,
            held_bytes: 1 << 30,
        }
    }
}

/// The most open operations of one session.
pub const MAX_OPERATIONS: usize = 1_000;
/// The most statements in a replay log.
pub const MAX_REMEMBERED: usize = 1_000;
/// The most settings of a session.
pub const MAX_SESSION_KEYS: usize = 1_000;
/// The most log lines that the proxy writes for an operation.
pub const MAX_LOG_LINES: usize = 100;
/// The most rows or log lines of the proxy's own in one fetch.
pub const MAX_FETCH_ROWS: usize = 100_000;
/// The longest error text that is kept for an operation, in bytes: message, detail and hint each.
pub const MAX_ERROR_BYTES: usize = 16 << 10;
/// How long after its timeout an engine may take to end a statement before its connection is cut.
pub const TIMEOUT_GRACE: Duration = Duration::from_secs(10);
/// The most engines that are tried for one statement because others drain or are unreachable.
pub const MAX_HANDOVERS: usize = 5;
/// The most engines that are tried for one statement because others are full.
pub const MAX_FULL_TRIED: usize = 16;
/// For connecting to an agent and opening a session there.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// For one small call to an agent.
pub const CALL_DEADLINE: Duration = Duration::from_mins(1);
/// For a statement that the client waits for without polling.
pub const SYNCHRONOUS_DEADLINE: Duration = Duration::from_hours(24);
/// For closing an engine's session in the background: Spark can take 21 s.
pub const BACKGROUND_CLOSE_DEADLINE: Duration = Duration::from_secs(30);
/// How long a status call of a statement that waits for an engine is held before the reply that it still runs.
pub const POLL_STEP: Duration = Duration::from_millis(500);
/// How long a metadata agent has to begin a control statement's transaction.
pub const CONTROL_DEADLINE: Duration = Duration::from_mins(1);
/// For one call about a control statement: agents reply at once and are polled.
pub const CONTROL_CALL_DEADLINE: Duration = Duration::from_secs(10);
/// How long a client that reads the result of an ended statement may pause, in a session that is too old.
pub const RESULT_PAUSE: Duration = Duration::from_mins(1);
/// Idle sessions are looked for this often within the shortest of their limits, but not more often than the next one says.
pub const SWEEPS_PER_LIMIT: u32 = 10;
pub const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// The most idle sessions whose engine's session is being closed at the same time.
pub const MAX_SWEPT_AT_ONCE: usize = 256;
/// The longest reply of an engine that is buffered whole, in bytes. Results are not, and agents cut the error texts of
/// their engines far below that.
pub const MAX_BUFFERED_REPLY_BYTES: usize = 1 << 20;
/// How long a control statement looks for a metadata agent that answers.
pub const AGENT_DEADLINE: Duration = Duration::from_secs(5);

/// Why a proxy could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("could not listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The address for discovery is invalid.
    #[error("{}", .0.text())]
    Advertise(UserError),
}
