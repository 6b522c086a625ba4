//! The two cores of the benchmark: which processes run where.
//!
//! *Pinned*, the relays of every route share the first core, and the driver, the backend and the rest of the installation the
//! second one. *Free*, every process may run on both. A machine with more cores behaves as one with two.

use std::io::ErrorKind;

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How often the threads of a process are listed, until none is new.
const PASSES: usize = 5;

/// Where the processes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    Pinned,
    Free,
}

impl Placement {
    /// In the order of the tables.
    pub const ALL: [Self; 2] = [Self::Pinned, Self::Free];

    /// As the tables and raw lines have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Free => "free",
        }
    }
}

/// The numbers of the cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cores {
    pub relays: usize,
    pub others: usize,
}

impl Cores {
    /// The first two cores that this process may use.
    pub fn new() -> Result<Self> {
        let allowed = sched_getaffinity(None).context("cannot read the cores of this process")?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        match (cores.next(), cores.next()) {
            (Some(relays), Some(others)) => Ok(Self { relays, others }),
            _ => bail!("the benchmark needs two cores"),
        }
    }

    /// Places the processes; `driver` is the calling thread.
    pub fn place(self, placement: Placement, relays: &[u32], others: &[u32]) -> Result<()> {
        let (for_relays, for_others) = match placement {
            Placement::Pinned => (set(&[self.relays]), set(&[self.others])),
            Placement::Free => (set(&[self.relays, self.others]), set(&[self.relays, self.others])),
        };
        for pid in relays {
            place_process(*pid, &for_relays)?;
        }
        for pid in others {
            place_process(*pid, &for_others)?;
        }
        sched_setaffinity(None, &for_others).context("cannot place the driver")
    }
}

fn set(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    set
}

/// Places every thread of a process. A thread inherits the cores of the one that starts it, so one that is new after a pass had
/// the old cores, and is placed by the next pass.
fn place_process(pid: u32, cores: &CpuSet) -> Result<()> {
    let cannot_place = || format!("cannot place process {pid}");
    let mut placed: Vec<i32> = Vec::new();
    for _ in 0..PASSES {
        let mut new = threads(pid).with_context(cannot_place)?;
        new.retain(|thread| !placed.contains(thread));
        if new.is_empty() {
            return Ok(());
        }
        for thread in &new {
            match sched_setaffinity(Pid::from_raw(*thread), cores) {
                // It has ended.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error).with_context(cannot_place),
            }
        }
        placed.extend(new);
    }
    bail!("process {pid} starts threads faster than they can be placed")
}

/// The threads of a process, by their numbers.
pub fn threads(pid: u32) -> std::io::Result<Vec<i32>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = entry?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok());
        threads.push(thread.ok_or_else(|| std::io::Error::from(ErrorKind::InvalidData))?);
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;
    use crate::process::Process;

    #[test]
    fn every_thread_is_placed() {
        let Ok(cores) = Cores::new() else { return };
        let folder = tempfile::tempdir().unwrap();
        let command = &mut Command::new("/bin/sleep");
        let process = Process::start("sleep", command.arg("1000"), folder.path()).unwrap();
        let pid = Pid::from_raw(process.pid().cast_signed());
        let of_process = || {
            let set = sched_getaffinity(pid).unwrap();
            [cores.relays, cores.others].map(|core| set.is_set(core))
        };
        // In a thread of its own, whose cores nothing else depends on.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cores.place(Placement::Pinned, &[process.pid()], &[]).unwrap();
                assert_eq!(of_process(), [true, false]);
                cores.place(Placement::Pinned, &[], &[process.pid()]).unwrap();
                assert_eq!(of_process(), [false, true]);
                cores.place(Placement::Free, &[process.pid()], &[]).unwrap();
                assert_eq!(of_process(), [true, true]);
            });
        });
        assert!(threads(std::process::id()).unwrap().len() > 1);
    }
}
