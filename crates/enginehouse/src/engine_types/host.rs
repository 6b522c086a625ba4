//! The host of this engine: a state directory of this machine, or a pod.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use orchestrator::kubernetes::render::{ADDRESS_VARIABLE, PORT_VARIABLE};
use orchestrator::{UID_VARIABLE, kubernetes, process};

use crate::telemetry::{self, LastLines};

/// The variables of an engine agent in a pod, beside those of its image.
const POD_VARIABLES: [&str; 5] =
    [UID_VARIABLE, ADDRESS_VARIABLE, PORT_VARIABLE, telemetry::LOG_VARIABLE, telemetry::FORMAT_VARIABLE];

pub enum EngineHost {
    /// A local process.
    Process(process::Guest),
    /// A pod.
    Pod(kubernetes::Guest),
}

impl EngineHost {
    /// Determines the host from the environment.
    pub fn from_environment() -> anyhow::Result<Self> {
        if let Some(inside) = process::Guest::from_environment() {
            return Ok(Self::Process(inside));
        }
        let inside = kubernetes::Guest::from_environment()
            .context("an engine agent can only be started by a master\nHint: Use START ENGINE.")?;
        inside.map(Self::Pod).map_err(|error| anyhow!("invalid environment of the pod: {error}"))
    }

    pub fn uid(&self) -> &str {
        match self {
            Self::Process(inside) => inside.uid(),
            Self::Pod(inside) => inside.uid(),
        }
    }

    /// An error if the files in that folder are those of another engine.
    pub fn check_files(&self, folder: &Path) -> anyhow::Result<()> {
        match self {
            Self::Process(_) => Ok(()),
            Self::Pod(inside) => inside.check_files(folder).map_err(|owner| {
                anyhow!(
                    "the Secret of this engine belongs to another pod, with uid {owner}; this one has uid {}",
                    inside.uid()
                )
            }),
        }
    }

    /// The file behind standard error, if it is known.
    pub fn log_file(&self) -> Option<PathBuf> {
        match self {
            Self::Process(inside) => Some(inside.log_file()),
            Self::Pod(_) => None,
        }
    }

    /// The environment variables that identify processes of this engine on this machine.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        match self {
            Self::Process(inside) => inside.variables(),
            Self::Pod(_) => Vec::new(),
        }
    }

    /// The variables of this process that a child of it does not inherit; `None` if it inherits none at all. A pod has the
    /// environment of its image, which a local process does not need.
    pub fn hidden_variables(&self) -> Option<&'static [&'static str]> {
        match self {
            Self::Process(_) => None,
            Self::Pod(_) => Some(&POD_VARIABLES),
        }
    }

    /// Whether the engine shares this machine with others without an external limit.
    pub fn is_shared_machine(&self) -> bool {
        matches!(self, Self::Process(_))
    }

    /// The address for proxies.
    pub fn listen(&self) -> SocketAddr {
        match self {
            Self::Process(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            Self::Pod(inside) => inside.listen(),
        }
    }

    /// Returns when the engine has lost its state directory without a signal. A pod always receives one.
    pub async fn until_unwanted(&self) {
        match self {
            Self::Process(inside) => inside.until_unwanted().await,
            Self::Pod(_) => std::future::pending().await,
        }
    }

    /// Stores the reason of the imminent exit. For a local process the orchestrator has the log.
    pub fn leave_reason(&self, reason: &str, log: &LastLines) -> io::Result<()> {
        match self {
            Self::Process(inside) => inside.leave_reason(reason),
            Self::Pod(inside) => inside.leave_reason(reason, &log.text()),
        }
    }
}
