//! The error for a file that the configuration names and this process cannot read.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A file that cannot be read. The text contains the cause, because a hint ends it.
#[derive(Debug)]
pub struct UnreadableFile {
    /// What it holds, such as "private key".
    content: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl UnreadableFile {
    pub fn new(content: &'static str, path: &Path, source: io::Error) -> Self {
        Self { content, path: path.to_owned(), source }
    }
}

impl Error for UnreadableFile {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

impl fmt::Display for UnreadableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read the {} {}: {}", self.content, self.path.display(), self.source)?;
        match std::env::current_dir() {
            Ok(folder) if self.path.is_relative() => {
                write!(f, "\nHint: Relative paths start at the working directory, {}.", folder.display())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::with_causes;

    #[test]
    fn the_cause_is_printed_once_and_before_the_hint() {
        let error = |path: &str| {
            let denied = io::Error::from(io::ErrorKind::PermissionDenied);
            anyhow::Error::new(UnreadableFile::new("private key", Path::new(path), denied)).context("tls.key_file")
        };
        assert_eq!(
            with_causes(&error("/etc/key")),
            "tls.key_file: cannot read the private key /etc/key: permission denied"
        );
        let relative = with_causes(&error("key"));
        let text = "tls.key_file: cannot read the private key key: permission denied\nHint: Relative paths start at ";
        assert!(relative.starts_with(text), "{relative}");
        assert!(error("key").root_cause().is::<io::Error>());
    }
}
