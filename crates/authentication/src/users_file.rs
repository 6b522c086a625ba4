//! The users file: read at start, and again every few seconds.
//!
//! At start a file that is missing, bad or open to others is an error. Later the users that were read last stay in use,
//! and the reason is logged. The file is compared by its content: a mounted Secret is replaced through a symbolic link.

use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::clock::SharedClock;
use model::log_throttle::LogThrottle;
use parking_lot::{Mutex, RwLock};

use crate::secret_file::is_open_to_others;
use crate::users::{LineError, Users};

/// How often the file is read again.
const REREAD_INTERVAL: Duration = Duration::from_secs(5);
/// The largest users file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Why a users file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UsersFileError {
    #[error("cannot read the users file {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the users file {} has more than {MAX_FILE_BYTES} bytes", .0.display())]
    TooLong(PathBuf),
    #[error("the users file {path} can be read by others\nHint: Run chmod 600 {path}.", path = .0.display())]
    OpenToOthers(PathBuf),
    #[error("the users file {}, {source}", .path.display())]
    Line { path: PathBuf, source: LineError },
}

/// A users file, and the users that were read from it last.
#[derive(Debug)]
pub struct UsersFile {
    path: PathBuf,
    /// The text of `users`, unless the file has been bad since.
    text: Mutex<String>,
    users: RwLock<Arc<Users>>,
    failures: Mutex<LogThrottle>,
}

impl UsersFile {
    /// Reads the file. An error if it cannot be read, is open to others, is too long, or has a bad line.
    pub fn open(path: &Path) -> Result<Self, UsersFileError> {
        let text = read(path)?;
        let users = parse(path, &text)?;
        Ok(Self {
            path: path.to_owned(),
            text: Mutex::new(text),
            users: RwLock::new(Arc::new(users)),
            failures: Mutex::default(),
        })
    }

    /// The users that were read last.
    pub fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users.read())
    }

    /// Starts a task that reads the file again, until the users file is dropped.
    pub fn start_rereading(self: &Arc<Self>, clock: SharedClock) {
        let file = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(REREAD_INTERVAL).await;
                let Some(file) = file.upgrade() else { return };
                let now = clock.boottime();
                // On the blocking pool: the file system may block.
                if let Err(error) = tokio::task::spawn_blocking(move || file.reread(now)).await {
                    tracing::error!(%error, "could not read the users file again");
                }
            }
        });
    }

    /// Reads the file again; logs what it finds. `now` is the time since boot.
    fn reread(&self, now: Duration) {
        match self.replace() {
            Ok(changed) => {
                let failed = self.failures.lock().clear();
                if changed || failed.is_some() {
                    let users = self.users().len();
                    tracing::info!(file = %self.path.display(), users, "read the users file");
                }
            }
            Err(error) => {
                if let Some(count) = self.failures.lock().hit(now) {
                    tracing::warn!(%error, count, "could not reload the users file; keeping the users that were read last");
                }
            }
        }
    }

    /// Returns whether the users were replaced.
    fn replace(&self) -> Result<bool, UsersFileError> {
        let text = read(&self.path)?;
        let mut current = self.text.lock();
        if *current == text {
            return Ok(false);
        }
        let users = parse(&self.path, &text)?;
        *current = text;
        *self.users.write() = Arc::new(users);
        Ok(true)
    }
}

fn parse(path: &Path, text: &str) -> Result<Users, UsersFileError> {
    Users::parse(text).map_err(|source| UsersFileError::Line { path: path.to_owned(), source })
}

fn read(path: &Path) -> Result<String, UsersFileError> {
    let failed = |source| UsersFileError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if is_open_to_others(metadata.permissions().mode(), metadata.uid()) {
        return Err(UsersFileError::OpenToOthers(path.to_owned()));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(UsersFileError::TooLong(path.to_owned()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_missing_bad_or_open_file_is_an_error_at_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        assert!(matches!(UsersFile::open(&path), Err(UsersFileError::Read { .. })));
        write(&path, &format!("ann:{HASH}:\nbob\n"), 0o600);
        let error = UsersFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("users, line 2: "), "{error}");
        write(&path, "", 0o644);
        let error = UsersFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_bad_line_keeps_the_users_that_were_read_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        write(&path, &format!("ann:{HASH}:\n"), 0o600);
        let file = UsersFile::open(&path).unwrap();
        write(&path, "ann\n", 0o600);
        assert!(file.replace().unwrap_err().to_string().contains("line 1"));
        file.reread(Duration::ZERO);
        assert!(file.users().get("ann").is_some());
        std::fs::remove_file(&path).unwrap();
        assert!(file.replace().is_err() && file.users().get("ann").is_some());
        write(&path, &format!("bob:{HASH}:\n"), 0o600);
        assert!(file.replace().unwrap() && !file.replace().unwrap());
        assert!(file.users().get("ann").is_none() && file.users().get("bob").is_some());
    }

    #[test]
    fn a_mounted_secret_is_read_again_through_its_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let project = |version: &str, user: &str| {
            std::fs::create_dir(folder.path().join(version)).unwrap();
            write(&folder.path().join(version).join("users"), &format!("{user}:{HASH}:\n"), 0o400);
            symlink(version, folder.path().join("new")).unwrap();
            std::fs::rename(folder.path().join("new"), folder.path().join("..data")).unwrap();
        };
        project("..1", "ann");
        symlink("..data/users", &path).unwrap();
        let file = UsersFile::open(&path).unwrap();
        project("..2", "bob");
        assert!(file.replace().unwrap());
        assert!(file.users().get("ann").is_none() && file.users().get("bob").is_some());
    }
}
