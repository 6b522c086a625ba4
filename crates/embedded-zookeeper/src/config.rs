//! The configuration of a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The configuration of a [`Server`](crate::Server).
#[derive(Clone, Debug)]
pub struct Config {
    /// The listen address. Port 0 takes the port kept in `data_dir`, or any free one.
    pub listen: SocketAddr,
    /// The folder of the file `zookeeper-port`, the only state that is kept. It is created if it is missing.
    pub data_dir: Option<PathBuf>,
    /// The interval between checks for expired sessions and empty containers.
    pub tick: Duration,
    /// The shortest session timeout; shorter requests are raised to it.
    pub min_session_timeout: Duration,
    /// The longest session timeout; longer requests are lowered to it.
    pub max_session_timeout: Duration,
}

impl Default for Config {
    /// A free port on loopback, no data folder, a tick of 50 ms, timeouts from 500 ms to 60 s.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: None,
            tick: Duration::from_millis(50),
            min_session_timeout: Duration::from_millis(500),
            max_session_timeout: Duration::from_mins(1),
        }
    }
}
