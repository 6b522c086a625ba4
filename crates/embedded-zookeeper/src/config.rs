//! What the server is started with.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How to start a [`Server`](crate::Server).
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen. Port 0 takes the port kept in `data_dir`, or any free one.
    pub listen: SocketAddr,
    /// Where the port is kept, and nothing else: file `zookeeper-port`. The folder is made if it is missing.
    pub data_dir: Option<PathBuf>,
    /// How often expired sessions and empty containers are looked for.
    pub tick: Duration,
    /// The shortest session timeout that is granted; shorter wishes are raised to it.
    pub min_session_timeout: Duration,
    /// The longest session timeout that is granted; longer wishes are lowered to it.
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
