//! How many files and connections this process may have open.
//!
//! A login shell often allows 1,024, and the system many more to whoever asks. A server that runs out of them can't
//! accept, can't reach its database and can't start an engine, so it asks, and takes no more clients than fit.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Files that are kept for everything but clients: logs, the database, ZooKeeper, state of engines.
const RESERVED: u64 = 256;
/// What one client takes at most: its own connection, one to an engine, one to a metadata agent.
const PER_CLIENT: u64 = 3;
/// Clients that are served whatever the limit is.
const FEWEST: u64 = 16;

/// Raises the limit as far as the system allows; engines inherit it.
pub fn allow_all() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused, it stays as it was, and `connections` reckons with that.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// How many clients fit.
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
    fn clients_leave_room_for_everything_else() {
        assert_eq!(clients_within(None), usize::MAX);
        assert_eq!(clients_within(Some(20_000)), 6_581);
        assert_eq!(clients_within(Some(1_024)), 256);
        assert_eq!(clients_within(Some(10)), 16);
    }
}
