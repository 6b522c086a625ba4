//! The limit of open files, and the number of clients that fits into it.
//!
//! A login shell often allows 1,024 files, and the system many more on request. A server without free file descriptors cannot
//! accept connections, reach its database or start an engine. So it raises its limit, and accepts no more clients than fit.

use rustix::process::{Resource, getrlimit, setrlimit};

/// File descriptors that are reserved for logs, the database, ZooKeeper and state of engines.
const RESERVED: u64 = 256;
/// The file descriptors of one client: its own connection, one to an engine, one to a metadata agent.
const PER_CLIENT: u64 = 3;
/// The part of all file descriptors that connections before authentication may take, and as many again those that wait.
const PART_UNAUTHENTICATED: u64 = 8;
/// The number of clients that are served with any limit.
const FEWEST: u64 = 16;

/// Raises the limit as far as the system allows; engines inherit it.
pub fn allow_all() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails the limit stays, and `connections` accounts for it.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The number of connections before authentication that fit.
pub fn unauthenticated() -> usize {
    unauthenticated_within(getrlimit(Resource::Nofile).current)
}

/// The number of clients that fit, with this many connections before authentication and as many that wait.
pub fn connections(unauthenticated: usize) -> usize {
    clients_within(getrlimit(Resource::Nofile).current, unauthenticated)
}

fn unauthenticated_within(files: Option<u64>) -> usize {
    let connections = files.map_or(u64::MAX, |files| files / PART_UNAUTHENTICATED);
    usize::try_from(connections.max(FEWEST)).unwrap_or(usize::MAX)
}

fn clients_within(files: Option<u64>, unauthenticated: usize) -> usize {
    let others = RESERVED.saturating_add((unauthenticated as u64).saturating_mul(2));
    let clients = files.map_or(u64::MAX, |files| files.saturating_sub(others) / PER_CLIENT);
    usize::try_from(clients.max(FEWEST)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_file_descriptors_for_other_uses() {
        assert_eq!(clients_within(None, 1_000), usize::MAX);
        assert_eq!(clients_within(Some(20_000), 1_000), 5_914);
        assert_eq!((unauthenticated_within(Some(20_000)), unauthenticated_within(Some(1_024))), (2_500, 128));
        assert_eq!(clients_within(Some(1_024), 128), 170);
        assert_eq!((clients_within(Some(10), 16), unauthenticated_within(Some(10))), (16, 16));
    }
}
