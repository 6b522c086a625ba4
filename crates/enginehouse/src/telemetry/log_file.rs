//! A rotating log file: at its limit it is renamed to `<name>.1`, replacing the previous one, and a new file begins. The
//! newest lines are always kept, in at most twice the limit on disk.
//!
//! One process, the owner of the data directory, writes one event with each call, so no line is split over two files. If the
//! rename fails (for example because `<name>.1` is a folder), the file is truncated: the limit always holds. A deleted file
//! is created again when the limit is reached.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The limit of the log of `standalone`, in bytes; the previous file has as many.
pub const KEEP_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    keep_bytes: u64,
    file: File,
    length: u64,
}

impl LogFile {
    /// Opens the file for appending, or creates it.
    pub fn open(path: &Path, keep_bytes: u64) -> io::Result<Self> {
        let file = append(path)?;
        let length = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), keep_bytes, file, length })
    }

    fn rotate(&mut self) {
        if let Ok(file) = set_aside(&self.path).and_then(|()| append(&self.path)) {
            self.file = file;
        } else {
            // An error here also fails the write, and cannot be logged: this is the log.
            let _ = self.file.set_len(0);
        }
        self.length = 0;
    }
}

impl Write for LogFile {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        if self.length > 0 && self.length + event.len() as u64 > self.keep_bytes {
            self.rotate();
        }
        let written = self.file.write(event)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn set_aside(path: &Path) -> io::Result<()> {
    let mut old = OsString::from(path);
    old.push(".1");
    match fs::rename(path, old) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    /// A folder, its log, and the previous log.
    fn files() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (log, old) = (folder.path().join("x.log"), folder.path().join("x.log.1"));
        (folder, log, old)
    }

    fn write(log: &mut LogFile, lines: std::ops::Range<u32>) {
        for line in lines {
            // One call, as for an event.
            log.write_all(format!("line {line:04}\n").as_bytes()).unwrap();
        }
    }

    #[test]
    fn the_newest_lines_are_kept_whole_within_the_limit() {
        let (_folder, path, old) = files();
        let mut log = LogFile::open(&path, 95).unwrap();
        // Ten bytes a line, so nine fit.
        write(&mut log, 0..9);
        assert!(!old.exists());
        write(&mut log, 9..1_000);
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(text(&path), "line 0999\n");
        assert_eq!(
            text(&old).lines().collect::<Vec<_>>(),
            (990..999).map(|number| format!("line {number:04}")).collect::<Vec<_>>()
        );
        // The next process appends.
        drop(log);
        let mut log = LogFile::open(&path, 95).unwrap();
        write(&mut log, 1_000..1_010);
        assert!(text(&old).starts_with("line 0999\nline 1000\n") && text(&old).len() == 90, "{}", text(&old));
        assert_eq!(text(&path), "line 1008\nline 1009\n");
    }

    #[test]
    fn the_limit_holds_if_the_old_file_cannot_be_kept_or_the_log_was_removed() {
        let (_folder, path, old) = files();
        fs::create_dir(&old).unwrap();
        let mut log = LogFile::open(&path, 95).unwrap();
        write(&mut log, 0..1_000);
        assert!(fs::metadata(&path).unwrap().len() <= 95);
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 0999\n"));
        fs::remove_file(&path).unwrap();
        write(&mut log, 0..20);
        assert!(fs::read_to_string(&path).unwrap().ends_with("line 0019\n"));
    }

    #[test]
    fn an_event_that_is_longer_than_the_limit_is_written() {
        let (_folder, path, _) = files();
        let mut log = LogFile::open(&path, 10).unwrap();
        log.write_all(&[b'x'; 30]).unwrap();
        log.write_all(b"y").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"y");
    }
}
