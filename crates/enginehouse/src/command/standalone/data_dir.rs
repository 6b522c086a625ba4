//! The folder of a standalone installation: one process has it at a time.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use model::credential::ClusterSecret;
use rustix::fs::{FlockOperation, flock};

use crate::configuration::Configuration;
use crate::roles;

/// The file that is locked by the process that has the folder.
pub const LOCK_FILE: &str = "standalone.lock";
/// The file that says where the proxy listens.
const ADDRESS_FILE: &str = "proxy-address";
/// The file with the settings of the process that runs here, for the doctor.
const CONFIGURATION_FILE: &str = "configuration.toml";
/// Random bytes of a new cluster secret.
const SECRET_BYTES: usize = 32;

/// The folder, held as long as this lives.
pub struct DataDir {
    root: PathBuf,
    /// Held by whoever runs here; `None` for somebody who only looks.
    _lock: Option<File>,
}

impl DataDir {
    /// Makes the folder if it is not there, and takes it; refused while another process has it.
    pub fn open(root: &Path) -> anyhow::Result<Self> {
        let cant = || format!("can't use the data directory {}", root.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root).with_context(cant)?;
        let root = fs::canonicalize(root).with_context(cant)?;
        keep_private(&root)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join(LOCK_FILE))
            .with_context(cant)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "another enginehouse standalone has the data directory {}\nHint: end it, or choose another one with \
                 --data-dir",
                root.display()
            );
        }
        let data = Self { root, _lock: Some(lock) };
        // Somebody else's, who ran here before.
        let _ = fs::remove_file(data.root.join(ADDRESS_FILE));
        for folder in [data.engines(), data.engine_data(), data.samples(), data.zookeeper()] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(cant)?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).with_context(cant)?;
        }
        Ok(data)
    }

    /// For looking only: makes nothing, and takes nothing from whoever runs here.
    pub fn of_another(root: &Path) -> anyhow::Result<Self> {
        let root =
            fs::canonicalize(root).with_context(|| format!("can't use the data directory {}", root.display()))?;
        if !root.join(LOCK_FILE).is_file() {
            bail!("{} is no data directory of enginehouse standalone", root.display());
        }
        Ok(Self { root, _lock: None })
    }

    /// The cluster secret that is there.
    pub fn kept_secret(&self) -> anyhow::Result<ClusterSecret> {
        roles::read_secret(&self.secret_file())
    }

    /// The cluster secret: made at the first start, readable by its owner only.
    pub fn secret(&self) -> anyhow::Result<ClusterSecret> {
        let path = self.secret_file();
        if !path.exists() {
            let mut random = [0_u8; SECRET_BYTES];
            File::open("/dev/urandom").and_then(|mut it| it.read_exact(&mut random)).context("no random bytes")?;
            let mut hex = String::with_capacity(2 * SECRET_BYTES);
            for byte in random {
                let _ = write!(hex, "{byte:02x}");
            }
            let unfinished = self.root.join("cluster.secret.new");
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            writeln!(file, "{hex}")?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
        }
        roles::read_secret(&path)
    }

    /// Writes down the settings of this process, for the doctor. They may hold secrets.
    pub fn keep_configuration(&self, configuration: &Configuration) -> anyhow::Result<()> {
        let path = self.root.join(CONFIGURATION_FILE);
        let text = toml::to_string(configuration)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("can't write {}", path.display()))
    }

    /// The settings of the process that runs here; `None` if they can't be read.
    pub fn kept_configuration(&self) -> Option<Configuration> {
        toml::from_str(&fs::read_to_string(self.root.join(CONFIGURATION_FILE)).ok()?).ok()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes down where the proxy listens, for the doctor, who says so if he can't read it.
    pub fn keep_address(&self, address: SocketAddr) {
        let path = self.root.join(ADDRESS_FILE);
        if let Err(error) = fs::write(&path, format!("{address}\n")) {
            tracing::warn!(path = %path.display(), %error, "where the proxy listens can't be written down");
        }
    }

    /// Where the proxy listens; `None` before it does.
    pub fn kept_address(&self) -> Option<SocketAddr> {
        fs::read_to_string(self.root.join(ADDRESS_FILE)).ok()?.trim().parse().ok()
    }

    pub fn secret_file(&self) -> PathBuf {
        self.root.join("cluster.secret")
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

    /// Where external tables may be.
    pub fn samples(&self) -> PathBuf {
        self.root.join("samples")
    }
}

/// Takes the folder from other users of the machine: it holds catalogs, logs and spilled rows. A folder with other files in
/// it is not changed but refused, because its mode may be meant for them.
fn keep_private(root: &Path) -> anyhow::Result<()> {
    let cant = || format!("can't use the data directory {}", root.display());
    let mode = fs::metadata(root).with_context(cant)?.permissions().mode();
    if mode.trailing_zeros() >= 6 {
        return Ok(());
    }
    let is_ours = root.join(LOCK_FILE).exists() || fs::read_dir(root).with_context(cant)?.next().is_none();
    if !is_ours {
        bail!(
            "{}: other users of this machine have rights there (mode {:o})\nHint: chmod 700 {}, or choose an empty folder with \
             --data-dir",
            cant(),
            mode & 0o777,
            root.display()
        );
    }
    fs::set_permissions(root, fs::Permissions::from_mode(0o700)).with_context(cant)
}
