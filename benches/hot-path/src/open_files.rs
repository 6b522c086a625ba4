//! The limit of open files, and how many sessions fit into it.

use anyhow::{Result, ensure};
use rustix::process::{Resource, getrlimit, setrlimit};

/// The files of a process beside its connections.
const OTHER_FILES: usize = 200;
/// A proxy reserves three files for each client, and further ones for logins.
const FILES_OF_A_PROXY: usize = 4;
/// A TCP proxy has a connection on either side.
const FILES_OF_A_TCP_PROXY: usize = 2;

/// The most files that a process may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles(pub usize);

impl OpenFiles {
    /// Raises the limit of this process as far as the system allows. Processes that it starts inherit it.
    pub fn raise() -> Result<Self> {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
        Ok(Self(limit.maximum.map_or(usize::MAX, |files| files as usize)))
    }

    /// How many proxies these sessions need.
    pub fn proxies_for(self, sessions: usize) -> usize {
        sessions.div_ceil((self.0 / FILES_OF_A_PROXY).max(1)).max(1)
    }

    /// The connections that one HAProxy can have.
    pub fn connections_of_haproxy(self) -> usize {
        self.0.saturating_sub(OTHER_FILES) / FILES_OF_A_TCP_PROXY
    }

    /// An error if the driver, or an HAProxy, cannot have so many sessions.
    pub fn check(self, sessions: usize) -> Result<()> {
        let most = self.connections_of_haproxy();
        ensure!(
            sessions <= most,
            "{sessions} sessions need a higher limit of open files; with {} it is {most}",
            self.0
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_distributed_over_the_proxies_that_they_need() {
        let files = OpenFiles(20_000);
        assert_eq!([1, 5_000, 5_001, 9_000].map(|sessions| files.proxies_for(sessions)), [1, 1, 2, 2]);
        assert_eq!(files.connections_of_haproxy(), 9_900);
        assert!(files.check(9_000).is_ok() && files.check(10_000).is_err());
        assert_eq!(OpenFiles(65_536).proxies_for(9_000), 1);
    }
}
