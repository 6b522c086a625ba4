//! Why a server did not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

/// Why [`Server::start`](crate::Server::start) failed. Nothing is left running after any of them.
#[derive(Debug, Error)]
pub enum StartError {
    /// The address is not to be had: another process listens there, or it is not this machine's.
    #[error("can't listen on {address}")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The port kept in the data folder stayed taken for the whole wait.
    #[error("port {port} kept in {} is taken by another process; delete the file to choose another", file.display())]
    KeptPortTaken {
        /// The port.
        port: u16,
        /// The file that names it.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file that keeps the port holds something else.
    #[error("{} does not hold a port number", file.display())]
    PortFile {
        /// The file.
        file: PathBuf,
    },
    /// The data folder can't be made, read or written.
    #[error("can't use data folder {}", folder.display())]
    DataDir {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The shortest session timeout is above the longest, or a duration is zero.
    #[error("session timeouts and tick must be above zero, the shortest timeout not above the longest")]
    Timeouts,
}

/// What to do about a [`StartError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The configuration is wrong; trying again gives the same.
    Configuration,
    /// Something else has the port; trying again later may help.
    Taken,
    /// The file system failed.
    Storage,
}

impl StartError {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Listen { .. } | Self::KeptPortTaken { .. } => ErrorKind::Taken,
            Self::PortFile { .. } | Self::Timeouts => ErrorKind::Configuration,
            Self::DataDir { .. } => ErrorKind::Storage,
        }
    }
}
