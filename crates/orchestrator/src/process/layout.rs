//! Where things stand in the state directory, and how files in it are written so that no reader sees half of one.
//!
//! ```text
//! <state dir>/lock                      the directory lock; its content is the highest epoch seen
//! <state dir>/engines/<name>/lock       held by the engine as long as it lives
//!                            engine.json   what it is: name, uid, labels (written once; edit labels here); the one
//!                                          file that is on the disk before the engine has its name, because only
//!                                          without it nobody could say whose directory this is
//!                            process.json  its pid and when it was started
//!                            ending.json   it was told to end: when, and what grace it has
//!                            exit.json     how it ended
//!                            last-words    why, in the engine's own words
//!                            log, log.1    its output, and what was before
//!                            files/        its working directory, with the files of its spec
//! <state dir>/engines/.<anything>       on its way in or out; debris if nobody holds the directory lock
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// The whole state directory.
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

    pub(super) fn gate(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(super) fn engines(&self) -> PathBuf {
        self.root.join("engines")
    }

    pub(super) fn engine(&self, name: &str) -> EngineDir {
        EngineDir(self.engines().join(name))
    }

    /// A hidden directory: on its way in or out.
    pub(super) fn hidden(&self, uid: &str) -> EngineDir {
        EngineDir(self.engines().join(format!(".{uid}")))
    }

    /// The names that are taken, sorted, by engines or by what is foreign here.
    pub(super) fn names(&self, limit: usize) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = self.entries(limit)?.into_iter().filter(|name| !name.starts_with('.')).collect();
        names.sort();
        Ok(names)
    }

    /// What is on its way in or out.
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
    pub(super) fn ending(&self) -> PathBuf {
        self.0.join("ending.json")
    }
    pub(super) fn exit(&self) -> PathBuf {
        self.0.join("exit.json")
    }
    pub(super) fn last_words(&self) -> PathBuf {
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

/// Writes a new file with these permissions; fails if it is there.
pub(super) fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)?;
    // The mask of this process must not decide what the spec decides.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
}

/// Puts what was written to a new file, and that it is in this directory, on the disk: after that a loss of power leaves the
/// whole file, or a directory that is not there at all.
pub(super) fn settle(path: &Path, directory: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    File::open(directory)?.sync_all()
}

/// Puts a file into the place of whatever is there.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = written_beside(path, content)?;
    fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Puts a file where none is; `false` if one was there.
pub(super) fn put_first(path: &Path, content: &[u8]) -> io::Result<bool> {
    let beside = written_beside(path, content)?;
    let moved = move_to_free(&beside, path);
    if !matches!(moved, Ok(true)) {
        fs::remove_file(&beside)?;
    }
    moved
}

/// Renames where nothing is; `false` if something was there.
pub(super) fn move_to_free(from: &Path, to: &Path) -> io::Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn written_beside(path: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let beside = path.with_extension(uuid::Uuid::new_v4().simple().to_string());
    write_new(&beside, content, 0o600).inspect_err(|_| drop(fs::remove_file(&beside)))?;
    Ok(beside)
}

/// Reads a file of at most `limit` bytes; `None` if there is none.
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
