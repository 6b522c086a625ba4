//! The resident set of a process, for tests of memory limits.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

const MIB: usize = 1 << 20;

/// The resident set of the process, in bytes.
pub fn resident_bytes(pid: u32) -> Result<usize> {
    status_bytes(pid, "VmRSS:")
}

/// The largest resident set that the process has had, in bytes.
pub fn peak_bytes(pid: u32) -> Result<usize> {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: u32, field: &str) -> Result<usize> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let value =
        status.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("{field} in {path}"))?;
    let kibibytes: usize =
        value.trim().trim_end_matches(" kB").parse().with_context(|| format!("{field} in {path}"))?;
    Ok(kibibytes << 10)
}

/// The growth of this process's resident set, in bytes, for each of `count` things that `open` opens and that stay open. A few
/// are opened before that: the first ones pay for what all share.
pub async fn bytes_of_each<T>(count: usize, mut open: impl AsyncFnMut() -> T) -> Result<usize> {
    const FIRST: usize = 20;
    let mut opened = Vec::with_capacity(FIRST + count);
    for _ in 0..FIRST {
        opened.push(open().await);
    }
    let before = resident_bytes(std::process::id())?;
    for _ in 0..count {
        opened.push(open().await);
    }
    Ok(resident_bytes(std::process::id())?.saturating_sub(before) / count)
}

/// A measurement of the peak of a process's resident set.
#[derive(Debug)]
pub struct Peak {
    pid: u32,
    /// The resident set at the beginning, in bytes.
    before: usize,
    began: Instant,
}

impl Peak {
    /// Begins a measurement: resets the peak of the process to its current resident set.
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/clear_refs");
        std::fs::write(&path, "5").context(path)?;
        Ok(Self { pid, before: resident_bytes(pid)?, began: Instant::now() })
    }

    /// Begins a measurement of the current process.
    pub fn of_this_process() -> Result<Self> {
        Self::of(std::process::id())
    }

    /// An error if the resident set has grown by more than `limit` bytes at its peak. Prints the growth.
    pub fn ensure_within(&self, limit: usize, what: &str) -> Result<()> {
        let grown = peak_bytes(self.pid)?.saturating_sub(self.before);
        println!("{what}: {} of {} MiB in {} ms", grown / MIB, limit / MIB, self.began.elapsed().as_millis());
        ensure!(grown <= limit, "{what}: the resident set grew by {grown} bytes; the limit is {limit}");
        Ok(())
    }
}
