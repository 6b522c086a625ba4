//! What a metadata agent is told when it starts, and its limits.

use std::net::SocketAddr;
use std::time::Duration;

use model::UserError;
use model::change::Rules;
use model::credential::ClusterSecret;

/// What a metadata agent is told when it starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where proxies and masters connect.
    pub listen: SocketAddr,
    /// What it registers (`host` or `host:port`); the listen address when `None`.
    pub advertise: Option<String>,
    /// The session with ZooKeeper, as a metadata agent.
    pub zookeeper: coordination::SessionSettings,
    /// The one secret: to recognise proxies and masters.
    pub secret: ClusterSecret,
    /// The installation's name.
    pub cluster: String,
    /// Users who may say everything.
    pub admins: Vec<String>,
    /// Defaults and secret keys.
    pub rules: Rules,
    /// The limits of plans, for EXPLAIN.
    pub plan_limits: planner::Limits,
    /// How long an alteration waits for the one before it; zero refuses at once.
    pub alter_wait: Duration,
    /// How long an alteration may be undecided before a master aborts it.
    pub alter_grace: Duration,
    /// How long an engine that is told to end may finish its statements.
    pub drain_grace: Duration,
    /// The longest grace that a statement may name.
    pub drain_grace_max: Duration,
    /// How long an engine may take to start, which its agent has too; reported with engines that are starting.
    pub start_deadline: Duration,
    /// How often the master ticks: what it observed is stale after three of these.
    pub tick_interval: Duration,
    /// Limits of the wire.
    pub limits: hs2::Limits,
}

/// Sessions at most.
pub const MAX_SESSIONS: usize = 10_000;
/// Operations that one session may have open.
pub const MAX_OPERATIONS: usize = 1_000;
/// Statements that run at once, those included whose operation was closed while they ran: what was begun is brought to
/// its end.
pub const MAX_RUNNING: usize = 10_000;
/// Lines of one operation's log.
pub const MAX_LOG_LINES: usize = 1_000;
/// How long a status call waits for the operation before it says that it still runs.
pub const LONG_POLL: Duration = Duration::from_millis(500);
/// How long a statement that names no deadline has before its transaction must have begun.
pub const DEFAULT_DEADLINE: Duration = Duration::from_mins(1);
/// How often WAIT looks at the engines: once for all statements that wait.
pub const WAIT_POLL: Duration = Duration::from_millis(250);
/// Statements that wait at the same time at most.
pub const MAX_WAITERS: usize = 1_000;
/// Statements of one user that wait at the same time at most.
pub const MAX_WAITERS_PER_USER: usize = 20;
/// The longest WAIT.
pub const MAX_WAIT: Duration = Duration::from_hours(24);
/// How often an agent that does not know what became of its transaction asks, and for how long.
pub const SETTLE_POLL: Duration = Duration::from_millis(500);
/// See [`SETTLE_POLL`].
pub const SETTLE_DEADLINE: Duration = Duration::from_secs(30);
/// How long a request goes on asking a database that does not answer.
pub const UNAVAILABLE_PATIENCE: Duration = Duration::from_secs(5);
/// Alterations that SHOW ALTERATIONS lists when no LIMIT is said.
pub const DEFAULT_ALTERATIONS: u32 = 20;
/// How long a statement that shows what the master observed waits for the master's own word of who it is.
pub const WHO_DEADLINE: Duration = Duration::from_secs(1);
/// Tick intervals without a tick after which what the master observed is stale.
pub const STALE_AFTER_TICKS: u32 = 3;

/// Why a metadata agent did not start.
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
    /// What it would register is no address.
    #[error("{}", .0.text())]
    Advertise(UserError),
}
