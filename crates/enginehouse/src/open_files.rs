//! The limit of open files, and the number of clients that fits into it.
//!
//! A login shell often allows 1,024 files, and the system many more on request. A server without free file descriptors cannot
//! accept connections, reach its database or start an engine. So it raises its limit, and accepts no more clients than fit.

use rustix::process::{Resource, getrlimit, setrlimit};

/// File descriptors that are reserved for logs, the database, ZooKeeper and state of engines.
const RESERVED: u64 = 256;
/// The file descriptors of one client: its own connection, one to an engine, one to a metadata agent.
const PER_CLIENT: u64 = 3;
/// The number of clients that are served with any limit.
const FEWEST: u64 = 16;

/// Raises the limit as far as the system allows; engines inherit it.
pub fn allow_all() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails the limit stays, and `connections` accounts for it.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The number of clients that fit.
pub fn connections() -> usize {
    clients_within(getrlimit(Resource::Nofile).current)
}

fn clients_within(files: Option<u64>) -> usize {
    let clients = files.map_or(u64::MAX, |files| files.saturating_sub(RESERVED) / PER_CLIENT);
    usize::try_from(clients.max(FEWEST)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_file_descriptors_for_other_uses() {
        assert_eq!(clients_within(None), usize::MAX);
        assert_eq!(clients_within(Some(20_000)), 6_581);
        assert_eq!(clients_within(Some(1_024)), 256);
        assert_eq!(clients_within(Some(10)), 16);
    }
}
