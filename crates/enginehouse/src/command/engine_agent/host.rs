//! The place of the engine that this process is: a state directory of this machine, or a pod.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use orchestrator::{kubernetes, process};

use crate::telemetry::LastLines;

/// Where this engine runs.
pub enum EngineHost {
    /// A local process.
    Process(process::Inside),
    /// A pod.
    Pod(kubernetes::Inside),
}

impl EngineHost {
    /// What the environment says.
    pub fn from_environment() -> anyhow::Result<Self> {
        if let Some(inside) = process::Inside::from_environment() {
            return Ok(Self::Process(inside));
        }
        let inside = kubernetes::Inside::from_environment().context(
            "an engine agent is started by a master, and this process was not\nHint: START ENGINE starts one",
        )?;
        inside.map(Self::Pod).map_err(|error| anyhow!("the pod's environment is wrong: {error}"))
    }

    /// The engine's uid.
    pub fn uid(&self) -> &str {
        match self {
            Self::Process(inside) => inside.uid(),
            Self::Pod(inside) => inside.uid(),
        }
    }

    /// The file that the standard error of this process is, where that is known.
    pub fn log_file(&self) -> Option<PathBuf> {
        match self {
            Self::Process(inside) => Some(inside.log_file()),
            Self::Pod(_) => None,
        }
    }

    /// The variables by which processes of this engine are known on this machine.
    pub fn marks(&self) -> Vec<(&'static str, OsString)> {
        match self {
            Self::Process(inside) => inside.marks(),
            Self::Pod(_) => Vec::new(),
        }
    }

    /// Whether the engine shares this machine with others, without a limit that its place sets.
    pub fn is_shared_machine(&self) -> bool {
        matches!(self, Self::Process(_))
    }

    /// Where proxies connect.
    pub fn listen(&self) -> SocketAddr {
        match self {
            Self::Process(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            Self::Pod(inside) => inside.listen(),
        }
    }

    /// Returns when the engine has lost its place without being told to end, which a pod always is.
    pub async fn until_unwanted(&self) {
        match self {
            Self::Process(inside) => inside.until_unwanted().await,
            Self::Pod(_) => std::future::pending().await,
        }
    }

    /// Leaves the reason for which the program is about to exit. Of a local process the orchestrator has the log.
    pub fn leave_reason(&self, reason: &str, log: &LastLines) -> io::Result<()> {
        match self {
            Self::Process(inside) => inside.leave_reason(reason),
            Self::Pod(inside) => inside.leave_reason(reason, &log.text()),
        }
    }
}
