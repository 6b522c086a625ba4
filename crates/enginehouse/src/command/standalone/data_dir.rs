//! The data directory of a standalone, with an exclusive lock.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ::keys::{KeyGeneration, Role};
use anyhow::{Context as _, bail};
use rustix::fs::{FlockOperation, flock};

use crate::command::keys;
use crate::configuration::Configuration;
use crate::key_files;

/// The file that the owner of the folder locks.
pub const LOCK_FILE: &str = "standalone.lock";
/// The file with the address of the proxy.
const ADDRESS_FILE: &str = "proxy-address";
/// The file with the configuration of the running process, for the doctor.
const CONFIGURATION_FILE: &str = "configuration.toml";
/// The root key, in the folder of the key files.
const ROOT_FILE: &str = "root.key";
/// The secret of a data directory of version 0.1.0.
const OLD_SECRET_FILE: &str = "cluster.secret";

/// The data directory; locked until dropped.
pub struct DataDir {
    root: PathBuf,
    /// `None` for a read-only view.
    _lock: Option<File>,
}

impl DataDir {
    /// Creates the folder if necessary, and locks it; fails if another process has the lock.
    pub fn open(root: &Path) -> anyhow::Result<Self> {
        let cannot_use = || format!("cannot use the data directory {}", root.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root).with_context(cannot_use)?;
        let root = fs::canonicalize(root).with_context(cannot_use)?;
        keep_private(&root)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join(LOCK_FILE))
            .with_context(cannot_use)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "another enginehouse standalone has the data directory {}\nHint: Stop it, or choose another directory with --data-dir.",
                root.display()
            );
        }
        let data = Self { root, _lock: Some(lock) };
        // That of the previous process.
        let _ = fs::remove_file(data.root.join(ADDRESS_FILE));
        for folder in [data.engines(), data.engine_data(), data.samples(), data.zookeeper()] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(cannot_use)?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).with_context(cannot_use)?;
        }
        Ok(data)
    }

    /// A read-only view of another process's data directory.
    pub fn open_read_only(root: &Path) -> anyhow::Result<Self> {
        let root =
            fs::canonicalize(root).with_context(|| format!("cannot use the data directory {}", root.display()))?;
        if !root.join(LOCK_FILE).is_file() {
            bail!("{} is not a data directory of enginehouse standalone", root.display());
        }
        Ok(Self { root, _lock: None })
    }

    /// Makes the root key and the key files at the first start. An installation of version 0.1.0 keeps its cluster secret as
    /// generation 0, for engines that still run.
    pub fn make_keys(&self, cluster: &str) -> anyhow::Result<()> {
        let folder = self.keys();
        let root_file = folder.join(ROOT_FILE);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        if !root_file.exists() {
            let old = self.root.join(OLD_SECRET_FILE);
            keys::write_root(&root_file, &keys::new_root(cluster, old.exists().then_some(old.as_path()))?)?;
        }
        let root = keys::read_root(&root_file)?;
        let mut accepted = vec![KeyGeneration::FIRST];
        if root.has_cluster_secret() {
            accepted.push(KeyGeneration::CLUSTER_SECRET);
        }
        let missing = Role::ALL.into_iter().filter(|role| !key_files::path(&folder, *role).exists());
        for role in missing {
            keys::write_role(&root, role, KeyGeneration::FIRST, &accepted, &folder)?;
        }
        Ok(())
    }

    /// Writes the configuration of this process, for the doctor. It may contain secrets.
    pub fn keep_configuration(&self, configuration: &Configuration) -> anyhow::Result<()> {
        let path = self.root.join(CONFIGURATION_FILE);
        let text = toml::to_string(configuration)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// The configuration of the running process; `None` if it cannot be read.
    pub fn kept_configuration(&self) -> Option<Configuration> {
        toml::from_str(&fs::read_to_string(self.root.join(CONFIGURATION_FILE)).ok()?).ok()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes the address of the proxy, for the doctor.
    pub fn keep_address(&self, address: SocketAddr) {
        let path = self.root.join(ADDRESS_FILE);
        if let Err(error) = fs::write(&path, format!("{address}\n")) {
            tracing::warn!(path = %path.display(), %error, "could not write the address of the proxy");
        }
    }

    /// The address of the proxy; `None` before it listens.
    pub fn kept_address(&self) -> Option<SocketAddr> {
        fs::read_to_string(self.root.join(ADDRESS_FILE)).ok()?.trim().parse().ok()
    }

    /// The key files of the roles.
    pub fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    pub fn log_file(&self) -> PathBuf {
        self.root.join("enginehouse.log")
    }

    pub fn database(&self) -> PathBuf {
        self.root.join("metadata.sqlite")
    }

    pub fn zookeeper(&self) -> PathBuf {
        self.root.join("zookeeper")
    }

    /// State and logs of engines.
    pub fn engines(&self) -> PathBuf {
        self.root.join("engines")
    }

    /// Catalogs of tenants, scratch space of engines.
    pub fn engine_data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// The folder of external tables.
    pub fn samples(&self) -> PathBuf {
        self.root.join("samples")
    }
}

/// Removes the permissions of other users: the folder has catalogs, logs and spilled rows. A folder with foreign files is
/// refused instead, since its mode may be intended for them.
fn keep_private(root: &Path) -> anyhow::Result<()> {
    let cannot_use = || format!("cannot use the data directory {}", root.display());
    let mode = fs::metadata(root).with_context(cannot_use)?.permissions().mode();
    if mode.trailing_zeros() >= 6 {
        return Ok(());
    }
    let is_ours = root.join(LOCK_FILE).exists() || fs::read_dir(root).with_context(cannot_use)?.next().is_none();
    if !is_ours {
        bail!(
            "{}: other users of this machine have permissions there (mode {:o})\nHint: Run chmod 700 {}, or choose an empty folder with --data-dir.",
            cannot_use(),
            mode & 0o777,
            root.display()
        );
    }
    fs::set_permissions(root, fs::Permissions::from_mode(0o700)).with_context(cannot_use)
}
