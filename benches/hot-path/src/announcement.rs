//! The announcement of a backend: a file that names its process, its agent and its address.
//!
//! An engine agent chooses the port of its server. The driver needs it for the direct route and for HAProxy.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};

/// The end of the name of a file that is being written.
const UNFINISHED: &str = ".unfinished";

/// A backend that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    pub backend: u32,
    /// The process that started the backend.
    pub agent: u32,
    pub address: SocketAddr,
}

impl Announcement {
    /// Writes the file, whole or not at all.
    pub fn write(&self, file: &Path) -> Result<()> {
        let mut unfinished = file.as_os_str().to_owned();
        unfinished.push(UNFINISHED);
        fs::write(&unfinished, format!("{} {} {}\n", self.backend, self.agent, self.address))
            .and_then(|()| fs::rename(&unfinished, file))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// The announcements of a folder, in the order of their names.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>> {
        let cannot_read = || format!("cannot read {}", folder.display());
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).with_context(cannot_read)? {
            files.push(entry.with_context(cannot_read)?.path());
        }
        files.retain(|file| !file.to_string_lossy().ends_with(UNFINISHED));
        files.sort();
        files.iter().map(|file| Self::parse(&fs::read_to_string(file).with_context(cannot_read)?)).collect()
    }

    fn parse(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [backend, agent, address] = words[..] else { anyhow::bail!("no announcement: {text:?}") };
        Ok(Self { backend: backend.parse()?, agent: agent.parse()?, address: address.parse()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn announcements_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let of = |backend| Announcement { backend, agent: 7, address: ([127, 0, 0, 1], 10_000).into() };
        of(2).write(&folder.path().join("b")).unwrap();
        of(1).write(&folder.path().join("a")).unwrap();
        fs::write(folder.path().join("c.unfinished"), "3").unwrap();
        assert_eq!(Announcement::read_all(folder.path()).unwrap(), [of(1), of(2)]);
        fs::write(folder.path().join("d"), "1 2").unwrap();
        assert!(Announcement::read_all(folder.path()).is_err());
    }
}
