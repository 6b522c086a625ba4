//! The errors of starting a server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

/// An error of [`Server::start`](crate::Server::start). Nothing keeps running after any of them.
#[derive(Debug, Error)]
pub enum StartError {
    /// The address cannot be bound: another process listens there, or it is not an address of this machine.
    #[error("could not listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The port kept in the data folder was in use for the whole wait.
    #[error("port {port} kept in {} is in use by another process; delete the file to choose another port", file.display())]
    KeptPortTaken {
        port: u16,
        /// The file that names it.
        file: PathBuf,
        source: io::Error,
    },
    /// The port file does not contain a port number.
    #[error("{} does not contain a port number", file.display())]
    PortFile { file: PathBuf },
    /// The data folder cannot be created, read or written.
    #[error("could not use data folder {}", folder.display())]
    DataDir { folder: PathBuf, source: io::Error },
    /// The shortest session timeout is above the longest, or a duration is zero.
    #[error("session timeouts and tick must be positive, and the shortest timeout at most the longest")]
    Timeouts,
}

/// The class of a [`StartError`], by what resolves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The configuration is invalid; a retry fails again.
    Configuration,
    /// Another process uses the port; a later retry may succeed.
    Taken,
    /// The file system failed.
    Storage,
}

impl StartError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Listen { .. } | Self::KeptPortTaken { .. } => ErrorKind::Taken,
            Self::PortFile { .. } | Self::Timeouts => ErrorKind::Configuration,
            Self::DataDir { .. } => ErrorKind::Storage,
        }
    }
}
