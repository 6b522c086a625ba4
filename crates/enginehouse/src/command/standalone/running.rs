//! A standalone that runs, found by its folder from another process, which changes nothing there.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, bail};
use model::credential::ClusterSecret;

use super::data_dir::{DataDir, LOCK_FILE};
use super::settings;
use crate::configuration::Configuration;

/// What one needs to know to look at it.
pub struct Running {
    /// Its process.
    pub pid: u32,
    /// What it made of its folder. Where its metadata agent listens is not in it, and where its proxy does only if
    /// [`Running::listens`].
    pub configuration: Configuration,
    /// Whether its proxy listens already.
    pub listens: bool,
    /// Its secret.
    pub secret: ClusterSecret,
}

impl Running {
    /// Finds it; an error if none runs there.
    pub fn find(folder: &Path) -> anyhow::Result<Self> {
        let data = DataDir::of_another(folder)?;
        let Some(pid) = holder(&data.root().join(LOCK_FILE)) else {
            bail!(
                "no enginehouse standalone runs in {}, or none that this user may see\nHint: enginehouse standalone --data-dir \
                 {}",
                folder.display(),
                folder.display()
            );
        };
        let port = embedded_zookeeper::kept_port(&data.zookeeper())
            .context("the port of the embedded ZooKeeper can't be read")?;
        let port = port.with_context(|| format!("the standalone in {} has not started yet", folder.display()))?;
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
        Ok(Self { pid, configuration, listens: listen.is_some(), secret: data.kept_secret()? })
    }
}

/// The process that has the file open. Whoever runs in the folder keeps it open for its lock, and nobody else does for
/// longer than it takes to be refused.
fn holder(lock: &Path) -> Option<u32> {
    let has_it = |pid: u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        descriptors.flatten().any(|it| fs::read_link(it.path()).is_ok_and(|path| path == lock)).then_some(pid)
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|it| it.file_name().to_str()?.parse().ok()).find_map(has_it)
}
