//! The key files of the roles: `<role>.key` in the folder `cluster.keys`, read at start and again every few seconds.
//!
//! At start a file that is missing, bad, of another role or installation, or open to others is an error. Later the keys that
//! were read last stay in use, and the reason is logged. Files are compared by their content: a mounted Secret is replaced
//! through a symbolic link.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use authentication::is_open_to_others;
use keys::role::RoleSecrets;
use keys::role_keys::RoleFileHeader;
use keys::{AllKeys, ClusterSecret, Current, Role, RoleFile, RoleKeys};
use model::clock::SharedClock;
use model::log_throttle::LogThrottle;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::configuration::{ClusterSection, Configuration, UnreadableFile};
use crate::output::with_causes;

/// How often the files are read again.
const REREAD_INTERVAL: Duration = Duration::from_secs(5);
/// The largest key file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// The key of the folder.
const KEY: &str = "cluster.keys";

/// The path of a role's file.
pub fn path(folder: &Path, role: Role) -> PathBuf {
    folder.join(format!("{role}.key"))
}

/// The keys of a role, which follow its file from now on. Its errors name the key of the configuration.
pub fn open<S>(configuration: &Configuration, clock: &SharedClock) -> anyhow::Result<Current<RoleKeys<S>>>
where
    S: RoleSecrets + DeserializeOwned + Send + Sync + 'static,
{
    let section = &configuration.cluster;
    let (text, keys) = read::<S>(section)?;
    let (sender, current) = Current::new(keys);
    tokio::spawn(follow(section.clone(), text, sender, clock.clone()));
    Ok(current)
}

/// The keys of all roles as the files of a folder have them.
pub fn open_all(configuration: &Configuration, clock: &SharedClock) -> anyhow::Result<AllKeys> {
    Ok(AllKeys {
        proxy: open(configuration, clock)?,
        master: open(configuration, clock)?,
        metadata_agent: open(configuration, clock)?,
    })
}

/// The keys of a role as its file has them now.
pub fn read_once<S: RoleSecrets + DeserializeOwned>(section: &ClusterSection) -> anyhow::Result<RoleKeys<S>> {
    read(section).map(|(_, keys)| keys)
}

/// Reads the files of this machine that exist; an error if there is none or one of them is bad.
pub fn check(section: &ClusterSection) -> anyhow::Result<()> {
    let mut found = 0;
    for role in Role::ALL.into_iter().filter(|role| path(&section.keys, *role).exists()) {
        match role {
            Role::Proxy => drop(read_once::<keys::ProxySecrets>(section)?),
            Role::Master => drop(read_once::<keys::MasterSecrets>(section)?),
            Role::MetadataAgent => drop(read_once::<keys::MetadataAgentSecrets>(section)?),
        }
        found += 1;
    }
    if found == 0 {
        // The error that a role would have.
        read_once::<keys::ProxySecrets>(section)?;
    }
    Ok(())
}

fn read<S: RoleSecrets + DeserializeOwned>(section: &ClusterSection) -> anyhow::Result<(String, RoleKeys<S>)> {
    let path = path(&section.keys, S::ROLE);
    let missing = |error: anyhow::Error| {
        if error
            .root_cause()
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::NotFound)
        {
            let hint = format!(
                "cannot read the key file {}: it does not exist\nHint: Make the files of all roles with enginehouse keys init --cluster {} and enginehouse keys derive --keys {} (docs/security.md).",
                path.display(),
                section.name,
                section.keys.display()
            );
            anyhow::anyhow!("{hint}")
        } else {
            error
        }
    };
    let text = read_secret_file("key file", &path).map_err(missing).context(KEY)?;
    let keys = parse(&text, &section.name).with_context(|| format!("{KEY}: {}", path.display()))?;
    Ok((text, keys))
}

fn parse<S: RoleSecrets + DeserializeOwned>(text: &str, cluster: &str) -> anyhow::Result<RoleKeys<S>> {
    // The error of the parser would quote a line with a secret.
    let unreadable = |error: toml::de::Error| anyhow::anyhow!("{}", error.message());
    let header: RoleFileHeader = toml::from_str(text).map_err(unreadable)?;
    header.check(S::ROLE, cluster).map_err(|error| anyhow::anyhow!("{}", error.text()))?;
    let file: RoleFile<S> = toml::from_str(text).map_err(unreadable)?;
    file.verified(cluster).map_err(|error| anyhow::anyhow!("{}", error.text()))
}

/// Replaces the keys when the file has others; ends when no process uses them any more.
async fn follow<S>(
    section: ClusterSection,
    mut text: String,
    sender: watch::Sender<Arc<RoleKeys<S>>>,
    clock: SharedClock,
) where
    S: RoleSecrets + DeserializeOwned + Send + Sync + 'static,
{
    let mut failures = LogThrottle::default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(REREAD_INTERVAL) => {}
            () = sender.closed() => return,
        }
        match read::<S>(&section) {
            Ok((new, keys)) => {
                if failures.clear().is_some() {
                    tracing::info!(role = %S::ROLE, "key file can be read again");
                }
                if new != text {
                    tracing::info!(role = %S::ROLE, in_use = %keys.in_use(), accepted = ?keys.accepted(), "keys replaced");
                    text = new;
                    sender.send_replace(Arc::new(keys));
                }
            }
            Err(error) => {
                if let Some(times) = failures.hit(clock.boottime()) {
                    let error = with_causes(&error);
                    tracing::warn!(role = %S::ROLE, error, times, "could not read the key file; the previous keys stay in use");
                }
            }
        }
    }
}

/// Reads a file with secrets; refuses one that others can read. A file of root's may be readable by its group, as
/// Kubernetes mounts secrets for a process that is not root.
pub fn read_secret_file(what: &'static str, path: &Path) -> anyhow::Result<String> {
    let unreadable = |error| UnreadableFile::new(what, path, error);
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if is_open_to_others(metadata.permissions().mode(), metadata.uid()) {
        bail!("the {what} {} can be read by others\nHint: Run chmod 600 {}.", path.display(), path.display());
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        bail!("the {what} {} has more than {MAX_FILE_BYTES} bytes", path.display());
    }
    Ok(text)
}

/// The cluster secret of an installation of version 0.1.0.
pub fn read_cluster_secret(path: &Path) -> anyhow::Result<ClusterSecret> {
    let text = read_secret_file("cluster secret", path)?;
    ClusterSecret::new(text.trim()).map_err(|error| anyhow::anyhow!("{}: {}", path.display(), error.text()))
}

/// Writes a file with secrets, of mode 0600. An existing file is replaced as a whole, or is an error.
pub fn write_secret_file(path: &Path, text: &str, replaces: bool) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if !replaces && path.exists() {
        bail!("{} exists already\nHint: Delete it first if it is not used.", path.display());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new).with_context(cannot)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(cannot)?;
    std::fs::rename(&new, path).with_context(cannot)
}
