//! The paths of the state directory, and atomic writes: no reader sees half a file.
//!
//! ```text
//! <state dir>/lock                      the directory lock; its content is the highest epoch seen
//! <state dir>/engines/<name>/lock       held by the engine as long as it is alive
//!                            engine.json   name, uid, labels (written once; labels may be edited here); the one file
//!                                          that is synced before the engine gets its name, because without it the
//!                                          directory could not be identified
//!                            process.json  its pid and its start time
//!                            ending.json   its deletion: when it was requested, and the grace
//!                            exit.json     its exit status
//!                            log, log.1    its output, and the part before
//!                            files/        its working directory, with the files of its spec; the one folder that belongs to
//!                                          the account of an engine that runs as its owner
//!                            files/last-words  the reason, written by the engine
//! <state dir>/engines/.<anything>       being created or removed; debris if the directory lock is free
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, open, renameat_with};

/// The most entries of the state directory that are read: engines, foreign ones, and those being created or removed.
pub(super) const MAX_ENTRIES: usize = 4_096;

/// The paths of the whole state directory.
#[derive(Debug)]
pub(super) struct Layout {
    root: PathBuf,
}

/// The directory of one engine.
#[derive(Debug, Clone)]
pub(super) struct EngineDir(pub(super) PathBuf);

impl Layout {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn dir_lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(super) fn engines(&self) -> PathBuf {
        self.root.join("engines")
    }

    pub(super) fn engine(&self, name: &str) -> EngineDir {
        EngineDir(self.engines().join(name))
    }

    /// A hidden directory: one that is being created or removed.
    pub(super) fn hidden(&self, uid: &str) -> EngineDir {
        EngineDir(self.engines().join(format!(".{uid}")))
    }

    /// The names that are taken, by engines or by foreign entries, sorted.
    pub(super) fn names(&self, limit: usize) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = self.entries(limit)?.into_iter().filter(|name| !name.starts_with('.')).collect();
        names.sort();
        Ok(names)
    }

    /// The directories that are being created or removed.
    pub(super) fn all_hidden(&self, limit: usize) -> io::Result<Vec<PathBuf>> {
        let hidden = self.entries(limit)?.into_iter().filter(|name| name.starts_with('.'));
        Ok(hidden.map(|name| self.engines().join(name)).collect())
    }

    fn entries(&self, limit: usize) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.engines())? {
            if names.len() == limit {
                return Err(io::Error::other(format!("more than {limit} entries")));
            }
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }
}

impl EngineDir {
    pub(super) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }
    pub(super) fn record(&self) -> PathBuf {
        self.0.join("engine.json")
    }
    pub(super) fn process(&self) -> PathBuf {
        self.0.join("process.json")
    }
    pub(super) fn deletion(&self) -> PathBuf {
        self.0.join("ending.json")
    }
    pub(super) fn exit(&self) -> PathBuf {
        self.0.join("exit.json")
    }
    pub(super) fn last_words(&self) -> PathBuf {
        self.files().join("last-words")
    }
    /// Where engines of version 0.1.0 write it.
    pub(super) fn former_last_words(&self) -> PathBuf {
        self.0.join("last-words")
    }
    pub(super) fn log(&self) -> PathBuf {
        self.0.join("log")
    }
    pub(super) fn old_log(&self) -> PathBuf {
        self.0.join("log.1")
    }
    pub(super) fn files(&self) -> PathBuf {
        self.0.join("files")
    }
}

/// Writes a new file with this mode; fails if it exists.
pub(super) fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)?;
    // The spec decides the mode, not the umask of this process.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
}

/// Syncs a new file and its entry in the directory: from then on a power loss leaves the whole file, or no directory at
/// all.
pub(super) fn sync(path: &Path, directory: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    File::open(directory)?.sync_all()
}

/// Writes a file atomically, replacing an existing one.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, content)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// Writes a file atomically unless it exists; `false` if it does.
pub(super) fn write_if_absent(path: &Path, content: &[u8]) -> io::Result<bool> {
    let temporary = write_temporary(path, content)?;
    let moved = move_to_free(&temporary, path);
    if !matches!(moved, Ok(true)) {
        fs::remove_file(&temporary)?;
    }
    moved
}

/// Renames without replacing anything; `false` if the target exists.
pub(super) fn move_to_free(from: &Path, to: &Path) -> io::Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Writes the content under a random name in the same directory.
fn write_temporary(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let temporary = path.with_extension(uuid::Uuid::new_v4().simple().to_string());
    write_new(&temporary, content, 0o600).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    Ok(temporary)
}

/// The first `limit` bytes of a file that another account may have written; `None` if there is no such file. Neither a link nor a pipe
/// in its place is opened.
pub(super) fn read_foreign(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, flags | OFlags::RDONLY, Mode::empty()).ok()?);
    let mut content = Vec::new();
    let is_file = file.metadata().ok()?.is_file();
    (is_file && file.take(limit).read_to_end(&mut content).is_ok()).then_some(content)
}

/// Reads a file of at most `limit` bytes; `None` if it does not exist.
pub(super) fn read_limited(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("more than {limit} bytes")));
    }
    Ok(Some(content))
}
