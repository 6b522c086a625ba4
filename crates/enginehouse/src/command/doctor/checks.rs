//! The names of all checks. They are an interface: JSON, the page of operations and tests contain them.

/// One check of the doctor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Check {
    /// The heading of the report below which it is printed.
    pub group: &'static str,
    pub name: &'static str,
}

const fn check(group: &'static str, name: &'static str) -> Check {
    Check { group, name }
}

const ZOOKEEPER: &str = "zookeeper";
const DATABASE: &str = "database";
const AGENTS: &str = "metadata agents";
const MASTER: &str = "master and proxies";
const ORCHESTRATOR: &str = "orchestrator";
const INVARIANTS: &str = "desired and observed engines";
const RESOURCES: &str = "ledger";

pub const SERVERS: Check = check(ZOOKEEPER, "servers");
pub const SESSION_TIMEOUT: Check = check(ZOOKEEPER, "session timeout");
pub const ROOT: Check = check(ZOOKEEPER, "root");
pub const ACCESS_LISTS: Check = check(ZOOKEEPER, "access lists");
pub const DISCOVERY: Check = check(ZOOKEEPER, "discovery");

pub const REACHABLE: Check = check(DATABASE, "reachable");
pub const MIGRATIONS: Check = check(DATABASE, "migrations");
pub const ROUND_TRIPS: Check = check(DATABASE, "round trips");
pub const CLOCK: Check = check(DATABASE, "clock");
pub const TIMEOUTS: Check = check(DATABASE, "timeouts");
pub const DURABILITY: Check = check(DATABASE, "durability");

pub const REGISTERED: Check = check(AGENTS, "registered");
pub const ANSWERS: Check = check(AGENTS, "answers");
pub const VERSIONS: Check = check(AGENTS, "versions");

pub const LOCK: Check = check(MASTER, "lock");
pub const TICK: Check = check(MASTER, "last tick");
pub const PROXIES: Check = check(MASTER, "proxies");
pub const KEYS: Check = check(MASTER, "keys");
pub const CERTIFICATES: Check = check(MASTER, "certificates");
pub const USERS_FILE: Check = check(MASTER, "users file");
pub const DIRECTORY: Check = check(MASTER, "directory");
pub const TOKENS: Check = check(MASTER, "tokens");
pub const KEYTAB: Check = check(MASTER, "keytab");

pub const STATE_DIRECTORY: Check = check(ORCHESTRATOR, "state directory");
pub const DISK: Check = check(ORCHESTRATOR, "disk");
pub const CAPACITY: Check = check(ORCHESTRATOR, "capacity");
pub const ENTRIES: Check = check(ORCHESTRATOR, "entries");
pub const EPOCHS: Check = check(ORCHESTRATOR, "epochs");
pub const API_SERVER: Check = check(ORCHESTRATOR, "api server");
pub const RIGHTS: Check = check(ORCHESTRATOR, "rights");
pub const FOREIGN: Check = check(ORCHESTRATOR, "foreign");

pub const DESIRED: Check = check(INVARIANTS, "desired engines");
pub const READINESS: Check = check(INVARIANTS, "readiness");
pub const ORPHANS: Check = check(INVARIANTS, "orphans");
pub const ENDS: Check = check(INVARIANTS, "ends");
pub const UNREACHABLE: Check = check(INVARIANTS, "unreachable");
pub const DEMAND: Check = check(INVARIANTS, "demand");
pub const IDLE: Check = check(INVARIANTS, "idle");
pub const REGISTRATIONS: Check = check(INVARIANTS, "registrations");
pub const PERMITS: Check = check(INVARIANTS, "permits");
pub const DRAIN_ORDERS: Check = check(INVARIANTS, "drain orders");
pub const ALTER_NODE: Check = check(INVARIANTS, "alter node");
pub const CONVERGING: Check = check(INVARIANTS, "converging");
pub const STALLED: Check = check(INVARIANTS, "stalled");
pub const OBSERVATIONS: Check = check(INVARIANTS, "observations");

pub const LEDGER: Check = check(RESOURCES, "ledger");
pub const RESERVATIONS: Check = check(RESOURCES, "reservations");
pub const QUEUE: Check = check(RESOURCES, "queue");
pub const LIMITS: Check = check(RESOURCES, "limits");

/// Every check, in the order of the report.
pub const ALL: [Check; 49] = [
    SERVERS,
    SESSION_TIMEOUT,
    ROOT,
    ACCESS_LISTS,
    DISCOVERY,
    REACHABLE,
    MIGRATIONS,
    ROUND_TRIPS,
    CLOCK,
    TIMEOUTS,
    DURABILITY,
    REGISTERED,
    ANSWERS,
    VERSIONS,
    LOCK,
    TICK,
    PROXIES,
    KEYS,
    CERTIFICATES,
    USERS_FILE,
    DIRECTORY,
    TOKENS,
    KEYTAB,
    STATE_DIRECTORY,
    DISK,
    CAPACITY,
    ENTRIES,
    EPOCHS,
    API_SERVER,
    RIGHTS,
    FOREIGN,
    DESIRED,
    READINESS,
    ORPHANS,
    ENDS,
    UNREACHABLE,
    DEMAND,
    IDLE,
    REGISTRATIONS,
    PERMITS,
    DRAIN_ORDERS,
    ALTER_NODE,
    CONVERGING,
    STALLED,
    OBSERVATIONS,
    LEDGER,
    RESERVATIONS,
    QUEUE,
    LIMITS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<Check> = ALL.into_iter().collect();
        assert_eq!(names.len(), ALL.len());
    }
}
