//! The files of the checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::output::stdout;

/// The largest text that a check reads, in bytes. Larger files are data.
const MAX_TEXT_BYTES: u64 = 8 << 20;

/// One file of the repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct File {
    /// Its path below the root, with `/` between its parts.
    pub path: String,
}

/// The root of the checkout.
pub fn root() -> PathBuf {
    // Read at run time: two checkouts that share a target folder share this executable too.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().map(Path::to_path_buf).unwrap_or(here)
}

/// Every file that git tracks or would track, in order. Never empty.
pub fn files() -> Result<Vec<File>> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut files: Vec<File> = stdout(&mut git)?
        .split('\0')
        .filter(|path| !path.is_empty() && root().join(path).is_file())
        .map(|path| File { path: path.to_owned() })
        .collect();
    files.sort();
    files.dedup();
    if files.is_empty() {
        bail!("git lists no files below {}", root().display());
    }
    Ok(files)
}

/// The text of a file of the repository, by its path below the root.
pub fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}

impl File {
    /// Its text; `None` if it is not UTF-8 or too large to be one.
    pub fn text(&self) -> Result<Option<String>> {
        let path = root().join(&self.path);
        let cannot_read = || format!("cannot read {}", self.path);
        if std::fs::metadata(&path).with_context(cannot_read)?.len() > MAX_TEXT_BYTES {
            return Ok(None);
        }
        Ok(String::from_utf8(std::fs::read(&path).with_context(cannot_read)?).ok())
    }

    /// Whether its name ends in `.` and the extension.
    pub fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|own| own == extension)
    }

    /// Whether a program wrote it.
    pub fn is_generated(&self) -> bool {
        GENERATED.contains(&self.path.as_str())
    }
}

/// The files that a program wrote; scripts beside their sources compare them.
pub const GENERATED: [&str; 2] = ["crates/hs2/src/tcli.rs", "crates/agent-api/src/wire.rs"];
