//! A running standalone, found by its data directory from another process; read-only.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::data_dir::{DataDir, LOCK_FILE};
use super::settings;
use crate::configuration::Configuration;

/// The parameters that a diagnosis needs.
pub struct RunningStandalone {
    /// Its process id.
    pub pid: u32,
    /// Its configuration, without the address of its metadata agent, and with that of its proxy only if [`RunningStandalone::listens`].
    pub configuration: Configuration,
    /// Whether its proxy listens already.
    pub listens: bool,
}

impl RunningStandalone {
    /// Fails if none runs there.
    pub fn find(folder: &Path) -> anyhow::Result<Self> {
        let data = DataDir::open_read_only(folder)?;
        let Some(pid) = holder(&data.root().join(LOCK_FILE)) else {
            bail!(
                "no enginehouse standalone runs in {}, or this user may not see it\nHint: Run enginehouse standalone --data-dir {}.",
                folder.display(),
                folder.display()
            );
        };
        let port = embedded_zookeeper::kept_port(&data.zookeeper())
            .context("cannot read the port of the embedded ZooKeeper")?;
        let port = port.with_context(|| format!("the standalone in {} is still starting", folder.display()))?;
        let zookeeper = SocketAddr::from(([127, 0, 0, 1], port));
        let listen = data.kept_address();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let configuration = match data.kept_configuration() {
            Some(mut kept) => {
                kept.zookeeper.connect = zookeeper.to_string();
                kept.proxy.listen = listen.unwrap_or(nowhere);
                kept
            }
            None => settings::without_settings(&data, listen.unwrap_or(nowhere), zookeeper),
        };
        Ok(Self { pid, configuration, listens: listen.is_some() })
    }
}

/// The process that has the lock file open: the owner of the folder, or briefly a process that is being refused.
fn holder(lock: &Path) -> Option<u32> {
    let has_it = |pid: u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        descriptors
            .flatten()
            .any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|path| path == lock))
            .then_some(pid)
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).find_map(has_it)
}
