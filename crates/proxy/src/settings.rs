//! What a proxy is told when it starts, and its limits.

use std::net::SocketAddr;
use std::time::Duration;

use model::UserError;
use model::credential::ClusterSecret;

/// What a proxy is told when it starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// What discovery tells clients to connect to (`host`, `host:port`, or empty for the listener's own); `None`: not
    /// registered.
    pub discovery: Option<String>,
    /// The names under which clients may reach this proxy over HTTP (`Host`), the advertised one included; `*` for any.
    pub hosts: Vec<String>,
    /// The session with ZooKeeper, as a proxy.
    pub zookeeper: coordination::SessionSettings,
    /// The one secret: for the connections to agents.
    pub secret: ClusterSecret,
    /// Users who count as users of every tenant.
    pub admins: Vec<String>,
    /// How often the catalog is read again.
    pub snapshot_poll: Duration,
    /// How long a statement waits for an engine that is starting.
    pub bind_deadline: Duration,
    /// How long the load that an engine agent told is believed.
    pub load_cache: Duration,
    /// What `GetInfo` reports as name and version of the server.
    pub product: Product,
    /// Named limits.
    pub limits: Limits,
}

/// The product that clients see. It does not depend on the session's engine, because drivers ask
/// for it before and after one is bound and choose a dialect by it.
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

/// Named limits of a proxy.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Of the wire.
    pub wire: hs2::Limits,
    /// Sessions of one user at most.
    pub sessions_per_user: usize,
    /// Sessions at most: over HTTP they are not bounded by the connections, and names cost nothing.
    pub sessions: usize,
    /// Sessions over HTTP from one address at most.
    pub http_sessions_per_peer: usize,
    /// How long a connection may be silent over which no session is open.
    pub without_session: Duration,
    /// How long an engine agent has to say how much it has to do; after that only the proxy's own count is known.
    pub status_deadline: Duration,
    /// The longest key, value or statement of a session's settings, in bytes.
    pub setting_bytes: usize,
    /// The settings and the replay log of one session, in bytes.
    pub session_settings_bytes: usize,
    /// The statements of one session that wait or run, and the small results that the proxy keeps for it, in bytes.
    pub session_statement_bytes: usize,
    /// What all sessions together make the proxy keep, in bytes.
    pub held_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wire: hs2::Limits {
                connections: 5_000,
                connections_per_user: 1_000,
                connections_per_peer: 4_000,
                ..hs2::Limits::default()
            },
            sessions_per_user: 500,
            sessions: 20_000,
            http_sessions_per_peer: 10_000,
            without_session: Duration::from_mins(1),
            status_deadline: Duration::from_millis(300),
            setting_bytes: 64 << 10,
            session_settings_bytes: 1 << 20,
            session_statement_bytes: 32 << 20,
            held_bytes: 1 << 30,
        }
    }
}

/// Operations that one session may have open.
pub const MAX_OPERATIONS: usize = 1_000;
/// USE and SET statements that a session remembers for replay.
pub const MAX_REMEMBERED: usize = 1_000;
/// Entries of a session's configuration.
pub const MAX_SESSION_KEYS: usize = 1_000;
/// Lines of an operation's log that the proxy itself writes.
pub const MAX_LOG_LINES: usize = 100;
/// Rows of a result of its own, or lines of a log, that the proxy sends in one fetch.
pub const MAX_FETCH_ROWS: usize = 100_000;
/// The longest error text that is kept for an operation, in bytes: message, detail and hint each.
pub const MAX_ERROR_BYTES: usize = 16 << 10;
/// How much longer than its timeout an engine may take to end a statement before its connection is given up.
pub const TIMEOUT_GRACE: Duration = Duration::from_secs(10);
/// How often one statement may move on because the engine that it met drains or can't be reached.
pub const MAX_HANDOVERS: usize = 5;
/// Connecting to an agent and opening a session there.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// One small call to an agent.
pub const CALL_DEADLINE: Duration = Duration::from_mins(1);
/// A statement that the client waits for without polling.
pub const SYNCHRONOUS_DEADLINE: Duration = Duration::from_hours(24);
/// Closing an engine's session in the background: Spark can take 21 s.
pub const BACKGROUND_CLOSE_DEADLINE: Duration = Duration::from_secs(30);
/// One look at an operation that waits for its engine, before the client is told that it still runs.
pub const POLL_STEP: Duration = Duration::from_millis(500);
/// How long a metadata agent has to begin a control statement's transaction.
pub const CONTROL_DEADLINE: Duration = Duration::from_mins(1);
/// One call about a control statement: agents answer at once and are asked again.
pub const CONTROL_CALL_DEADLINE: Duration = Duration::from_secs(10);
/// A session over HTTP that nobody has named for so long is closed: no connection ends with its client.
pub const HTTP_SESSION_IDLE: Duration = Duration::from_hours(1);
/// How often sessions are looked at for that.
pub const IDLE_INTERVAL: Duration = Duration::from_mins(1);
/// How long a connection over HTTP may be silent between two requests: sessions live on without it.
pub const HTTP_CONNECTION_IDLE: Duration = Duration::from_mins(5);
/// The longest reply of an engine that is held whole, to replace a handle in it or to read it. Results are not held, and
/// agents cut the error texts of their engines far below that.
pub const MAX_HELD_REPLY_BYTES: usize = 1 << 20;
/// How long a control statement looks for a metadata agent that answers.
pub const AGENT_DEADLINE: Duration = Duration::from_secs(5);

/// Why a proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its address can't be had.
    #[error("can't listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's word.
        reason: String,
    },
    /// What discovery would tell is no address.
    #[error("{}", .0.text())]
    Advertise(UserError),
}
