//! What a process uses: processor time, memory and threads, from `/proc`.
//!
//! Processor time comes from the scheduler's statistics of each thread, in nanoseconds: `utime` and `stime` count in
//! hundredths of a second. What a thread used that has ended between two readings is lost; relays keep their threads.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::cores::threads;

/// The processor time of each thread of a process since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessorTime(BTreeMap<i32, u64>);

impl ProcessorTime {
    /// Reads it from `/proc`; an error if the process has ended.
    pub fn read(pid: u32) -> Result<Self> {
        let cannot_read = || format!("cannot read the processor time of process {pid}");
        let mut times = BTreeMap::new();
        for thread in threads(pid).with_context(cannot_read)? {
            // A thread that has ended meanwhile has no file.
            let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")) else { continue };
            let nanoseconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
            times.insert(thread, nanoseconds.with_context(cannot_read)?);
        }
        Ok(Self(times))
    }

    /// The time that was used since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Duration {
        let used = |(thread, time): (&i32, &u64)| time.saturating_sub(earlier.0.get(thread).copied().unwrap_or(0));
        Duration::from_nanos(self.0.iter().map(used).sum())
    }
}

/// The memory and the threads of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resident {
    /// The resident set, in KiB.
    pub rss_kib: u64,
    /// Its share of it: pages that several processes have are divided among them.
    pub pss_kib: u64,
    pub threads: usize,
}

impl Resident {
    /// Reads it from `/proc`; an error if the process has ended.
    pub fn read(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let kib = |field: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(field));
            let number = value.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok());
            number.with_context(|| format!("no {field} in {path}"))
        };
        Ok(Self { rss_kib: kib("Rss:")?, pss_kib: kib("Pss:")?, threads: threads(pid)?.len() })
    }

    /// The sum over several processes.
    pub fn of_all(pids: &[u32]) -> Result<Self> {
        let mut sum = Self::default();
        for pid in pids {
            let one = Self::read(*pid)?;
            sum.rss_kib += one.rss_kib;
            sum.pss_kib += one.pss_kib;
            sum.threads += one.threads;
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Instant;

    use super::*;

    const BUSY: Duration = Duration::from_millis(30);

    fn compute(time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            std::hint::black_box(0);
        }
    }

    #[test]
    fn computing_is_counted_also_that_of_a_new_thread() {
        let me = std::process::id();
        let before = ProcessorTime::read(me).unwrap();
        assert_eq!(before.since(&before), Duration::ZERO);
        let (after, computed) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                compute(BUSY);
                // Read here, while the thread exists.
                ProcessorTime::read(me).unwrap()
            });
            (thread.join().unwrap(), BUSY / 4)
        });
        // Another process may have taken part of the time.
        assert!(after.since(&before) > computed, "{:?}", after.since(&before));
    }

    #[test]
    fn memory_that_was_written_is_resident() {
        let before = Resident::read(std::process::id()).unwrap();
        let memory = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = Resident::read(std::process::id()).unwrap();
        assert!(after.rss_kib >= before.rss_kib + 48 * 1024, "{before:?}, {after:?}");
        assert!(after.pss_kib > before.pss_kib && after.threads > 0);
        drop(memory);
        // Other tests start and end threads meanwhile.
        assert!(Resident::of_all(&[std::process::id(); 2]).unwrap().threads >= 2);
    }
}
