//! The settings of a metadata agent, and its limits.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use agent_api::ClusterTls;
use keys::{Current, MetadataAgentKeys};
use model::UserError;
use model::change::Rules;
use model::rights::RoleLists;

use super::holders::HolderSettings;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The address that proxies and masters connect to.
    pub listen: SocketAddr,
    /// The address to register (`host` or `host:port`); `None`: the listen address.
    pub advertise: Option<String>,
    /// The session with ZooKeeper, as a metadata agent.
    pub zookeeper: coordination::SessionSettings,
    /// Authenticates proxies and masters.
    pub keys: Current<MetadataAgentKeys>,
    /// Whether it offers or requires TLS.
    pub tls: ClusterTls,
    pub cluster: String,
    /// Who has a role of the installation.
    pub roles: RoleLists,
    /// Defaults and secret keys.
    pub rules: Rules,
    /// The limits of plans, for EXPLAIN.
    pub plan_limits: planner::Limits,
    /// How long an alteration waits for the one before it; zero refuses at once.
    pub alter_wait: Duration,
    /// How long an alteration may be in doubt before a master aborts it.
    pub alter_grace: Duration,
    /// How long a draining engine may take to finish its statements.
    pub drain_grace: Duration,
    /// The longest grace that a statement may name.
    pub drain_grace_max: Duration,
    /// How long an engine may take to start, which its agent has too; reported with engines that are starting.
    pub start_deadline: Duration,
    /// The interval of the master's ticks: observations are stale after three of them.
    pub tick_interval: Duration,
    /// The retention of the audit; zero keeps it for ever.
    pub audit_keep: Duration,
    /// What applies to external holders of reservations.
    pub holders: HolderSettings,
    /// The retention of reservations that have ended.
    pub reservation_keep: Duration,
    pub limits: hs2::Limits,
}

/// The most sessions.
pub const MAX_SESSIONS: usize = 10_000;
/// The most open operations of one session.
pub const MAX_OPERATIONS: usize = 1_000;
/// The most statements that run at once, including those whose operation was closed: a statement always runs to its end.
pub const MAX_RUNNING: usize = 10_000;
/// The most lines of one operation's log.
pub const MAX_LOG_LINES: usize = 1_000;
/// How long a status call is held before it reports that the operation runs.
pub const LONG_POLL: Duration = Duration::from_millis(500);
/// The deadline for the begin of the transaction, for statements that name none.
pub const DEFAULT_DEADLINE: Duration = Duration::from_mins(1);
/// The interval of readings for WAIT, shared by all waiting statements.
pub const WAIT_POLL: Duration = Duration::from_millis(250);
/// The most statements that wait at the same time.
pub const MAX_WAITERS: usize = 1_000;
/// The most statements of one user that wait at the same time.
pub const MAX_WAITERS_PER_USER: usize = 20;
/// The longest WAIT.
pub const MAX_WAIT: Duration = Duration::from_hours(24);
/// How often an agent checks a transaction that is in doubt.
pub const SETTLE_POLL: Duration = Duration::from_millis(500);
/// How long it does so.
pub const SETTLE_DEADLINE: Duration = Duration::from_secs(30);
/// How long a request retries while the database does not respond.
pub const UNAVAILABLE_PATIENCE: Duration = Duration::from_secs(5);
/// The number of alterations that SHOW ALTERATIONS lists without a LIMIT.
pub const DEFAULT_ALTERATIONS: u32 = 20;
/// The number of rows that SHOW AUDIT returns without a LIMIT.
pub const DEFAULT_AUDIT_ROWS: u32 = 100;
/// The most refused statements of one user that are audited within a minute.
pub const MAX_REFUSALS_PER_MINUTE: u32 = 100;
/// The most users whose refused statements are audited within a minute.
pub const MAX_REFUSED_USERS: usize = 10_000;
/// How long SHOW waits to read the name of the master from its lock.
pub const WHO_DEADLINE: Duration = Duration::from_secs(1);
/// Tick intervals without a tick after which the master's observations are stale.
pub const STALE_AFTER_TICKS: u32 = 3;

/// Why a metadata agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("could not listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The address to register is invalid.
    #[error("{}", .0.text())]
    Advertise(UserError),
    #[error("{}", .0.text())]
    Tls(UserError),
}
