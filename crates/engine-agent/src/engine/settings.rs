//! What an engine agent is told when it starts, and its limits.

use std::net::SocketAddr;
use std::time::Duration;

use model::engine_name::EngineName;
use model::table_catalog::TableCatalog;

/// What an engine agent is told when it starts. Everything secret in it opens this engine and nothing else.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The engine's name.
    pub engine: EngineName,
    /// Which one of that name: the orchestrator's id.
    pub uid: String,
    /// Where proxies connect; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What is registered instead of the listen address' host, where that is not what others reach.
    pub advertise_host: Option<String>,
    /// The key that proxies and masters show.
    pub key: Key,
    /// The hash of the configuration, for the registry.
    pub config: String,
    /// Whether the engine's tables are its own, for the registry and for what a session leaves in it.
    pub catalog: TableCatalog,
    /// The session with ZooKeeper, as this engine.
    pub zookeeper: coordination::SessionSettings,
    /// How long the engine may take to answer its warm-up query, and how long a permit is waited for.
    pub start_deadline: Duration,
    /// Limits of the wire.
    pub limits: hs2::Limits,
}

/// A key that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub String);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(******)")
    }
}

/// Sessions that one engine may have.
pub const MAX_SESSIONS: usize = 2_000;
/// Connections beyond those of sessions, for cancels and status calls.
pub const SIDE_CONNECTIONS: usize = 200;
/// Operations that one session may have open.
pub const MAX_OPERATIONS: usize = 1_000;
/// Connecting to the engine.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// One small call to the engine.
pub const CALL_DEADLINE: Duration = Duration::from_mins(1);
/// A call that may run a whole statement.
pub const STATEMENT_DEADLINE: Duration = Duration::from_hours(24);
/// Cancelling and closing what a lost connection leaves behind.
pub const CLEAN_UP_DEADLINE: Duration = Duration::from_secs(30);
/// How long a connection is still listened to when the engine is about to end.
pub const LINGER: Duration = Duration::from_millis(50);
/// How often an engine that drains is asked about statements that nobody asks about.
pub const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// In each of how many such rounds, the first included, it is asked about results that wait, too: it closes those that
/// nobody fetches after many minutes.
pub const RESULTS_ASKED_EACH: u32 = 10;
/// One such question: the engine may hold its answer back for as long as its own poll.
pub const ASK_DEADLINE: Duration = Duration::from_secs(10);
/// How many sessions' statements the engine is asked about at once: each question has a connection of its own.
pub const ASKED_AT_ONCE: usize = 32;
/// How often the agent looks whether its engine is stopped.
pub const STOPPED_LOOK: Duration = Duration::from_millis(500);
/// Looks in a row that find the engine stopped before its agent leaves the registry and gives no status.
pub const STOPPED_LOOKS: u32 = 10;
/// Ending the engine.
pub const STOP_DEADLINE: Duration = Duration::from_secs(10);
/// One warm-up query.
pub const WARM_UP_DEADLINE: Duration = Duration::from_secs(30);
/// Between two warm-up queries that fail.
pub const WARM_UP_PAUSE: Duration = Duration::from_millis(100);
/// How long an idle agent without permit and fact goes on after it was registered once.
pub const UNWANTED_AFTER: Duration = Duration::from_hours(1);
/// How often it looks at its permit and fact, whatever the watches say.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(2);
