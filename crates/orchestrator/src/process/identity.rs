//! Process identity: a pid with its start time, so that a reused pid is not mistaken for an engine.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// `PF_KTHREAD` of Linux (`include/linux/sched.h`): a thread of the kernel, which has no environment.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// How often a search waits for processes that begin another program, in all, and how long each time.
const PROGRAM_WAITS: u32 = 200;
const PROGRAM_WAIT: Duration = Duration::from_millis(5);

/// A process of this machine, since its boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) pid: i32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub(super) start_ticks: u64,
}

/// The fields of `/proc/<pid>/stat` that are used.
#[derive(Debug)]
struct Stat {
    /// Of the first thread.
    state: char,
    session: i32,
    flags: u32,
    threads: u32,
    start_ticks: u64,
    /// Where its environment ends; 0 while there is none.
    env_end: u64,
}

impl Stat {
    fn of_pid(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    // The program's name is in parentheses and may contain any character, including parentheses and blanks.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            session: fields.get(3)?.parse().ok()?,
            flags: fields.get(6)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
            env_end: fields.get(48)?.parse().ok()?,
        })
    }

    // A process is a zombie as soon as its first thread has ended. While others run, it still has its files and can be
    // signalled; without them it has nothing but a pid.
    fn is_alive(&self) -> bool {
        match self.state {
            'Z' => self.threads > 1,
            'X' | 'x' => false,
            _ => true,
        }
    }

    // execve(2) gives a process its new memory before its arguments and environment are there. A process that ends has none
    // either, for a moment.
    fn begins_a_program(&self) -> bool {
        self.env_end == 0 && self.flags & KERNEL_THREAD == 0 && !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Why a process that is alive does not run. Other states (running, sleeping, waiting for a disk) change all the time and do
/// not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// By a signal.
    Stopped,
    /// By a debugger.
    Traced,
}

impl Stop {
    /// In the words of `ps`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stopped => "T (stopped)",
            Self::Traced => "t (tracing stop)",
        }
    }
}

impl Identity {
    /// Whether the process is stopped, and how.
    pub(super) fn stop(self) -> Option<Stop> {
        match Stat::of_pid(self.pid).filter(|stat| stat.start_ticks == self.start_ticks)?.state {
            'T' => Some(Stop::Stopped),
            't' => Some(Stop::Traced),
            _ => None,
        }
    }

    /// The process that has the pid now, dead or alive.
    pub(super) fn of_pid(pid: i32) -> Option<Self> {
        Stat::of_pid(pid).map(|stat| Self { pid, start_ticks: stat.start_ticks })
    }

    /// Whether a thread of this very process runs.
    pub(super) fn is_alive(self) -> bool {
        Stat::of_pid(self.pid).is_some_and(|stat| stat.start_ticks == self.start_ticks && stat.is_alive())
    }

    /// Sends a signal to this very process: the pidfd is opened before the start time is compared, so the signal cannot
    /// reach another one. `false` if it is gone.
    pub(super) fn signal(self, signal: Signal) -> rustix::io::Result<bool> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(false) };
        let opened = pidfd_open(pid, PidfdFlags::empty());
        let sent = opened.and_then(|fd| if self.is_alive() { pidfd_send_signal(fd, signal) } else { Err(Errno::SRCH) });
        match sent {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Kills the process and its group. The group has the pid's number as long as this process, its leader, exists, which
    /// is checked just before.
    pub(super) fn kill_with_group(self) -> rustix::io::Result<()> {
        if let Some(pid) = Pid::from_raw(self.pid)
            && self.is_alive()
        {
            // There is no such group if the process was killed before it could start a session.
            match kill_process_group(pid, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error),
            }
        }
        self.signal(Signal::KILL).map(|_| ())
    }
}

/// The live processes of the session that this process leads, including itself. Must be called while it is alive: the number
/// of a session without members may be reused.
pub(super) fn session_of(leader: Identity) -> Vec<Identity> {
    let members = live_processes(|pid| Stat::of_pid(pid).is_some_and(|stat| stat.session == leader.pid));
    if leader.is_alive() { members } else { Vec::new() }
}

/// The live processes whose initial environment had this variable with this value. Unknown for processes of other users. It
/// waits, for one second in all, for processes that begin another program: until that runs, they show no environment.
pub(super) fn started_with(variable: &str, value: &str) -> Vec<Identity> {
    let wanted = format!("{variable}={value}");
    let mut waits = PROGRAM_WAITS;
    live_processes(|pid| {
        let environment = initial_environment(pid, &mut waits);
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    })
}

#[allow(clippy::disallowed_methods, reason = "called on a thread that may block")]
fn initial_environment(pid: i32, waits: &mut u32) -> Vec<u8> {
    loop {
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return Vec::new() };
        let is_there = !environment.is_empty() || !Stat::of_pid(pid).is_some_and(|stat| stat.begins_a_program());
        if is_there || *waits == 0 {
            return environment;
        }
        *waits -= 1;
        thread::sleep(PROGRAM_WAIT);
    }
}

/// The live processes that satisfy the predicate.
fn live_processes(mut is_wanted: impl FnMut(i32) -> bool) -> Vec<Identity> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| is_wanted(*pid)).filter_map(Identity::of_pid).filter(|process| process.is_alive()).collect()
}

/// The live processes that have this file open as one of these descriptors. An engine has its lock as standard input and its
/// log as standard output and error, and so have the processes that it started without redirecting them.
pub(super) fn holders(file: &Path, descriptors: &[u32]) -> Vec<Identity> {
    let Ok(wanted) = fs::metadata(file) else { return Vec::new() };
    let is_file = |pid: i32, descriptor: u32| {
        let open = fs::metadata(format!("/proc/{pid}/fd/{descriptor}"));
        open.is_ok_and(|open| open.dev() == wanted.dev() && open.ino() == wanted.ino())
    };
    live_processes(|pid| descriptors.iter().any(|descriptor| is_file(pid, *descriptor)))
}

/// The holder that is the engine: the session leader, or the oldest one before there is a session leader.
pub(super) fn leader(holders: &[Identity]) -> Option<Identity> {
    let leads = |holder: &&Identity| Stat::of_pid(holder.pid).is_some_and(|stat| stat.session == holder.pid);
    holders.iter().find(leads).or_else(|| holders.iter().min_by_key(|holder| holder.start_ticks)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of the kernel, of a program with an unusual name.
    fn text(state: char, flags: u32, threads: u32, env_end: u64) -> String {
        let memory = "1 1 -1 1 1 1 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 1 1 1 1 1 1";
        format!("7 (a) b (c)) {state} 1 7 9 0 -1 {flags} 1 0 0 0 0 0 0 0 20 0 {threads} 0 4711 {memory} {env_end} 0")
    }

    #[test]
    fn a_program_name_may_contain_any_character() {
        let stat = Stat::parse(&text('S', 4_194_560, 1, 8000)).unwrap();
        assert_eq!((stat.state, stat.session, stat.flags, stat.threads), ('S', 9, 4_194_560, 1));
        assert_eq!((stat.start_ticks, stat.env_end), (4711, 8000));
        assert!(Stat::parse("7 (a").is_none());
    }

    #[test]
    fn a_process_is_alive_until_its_last_thread_has_ended() {
        let stat = |state, threads| Stat::parse(&text(state, 0, threads, 8000)).unwrap();
        assert!(stat('S', 1).is_alive() && stat('Z', 2).is_alive());
        assert!(!stat('Z', 1).is_alive() && !stat('Z', 0).is_alive() && !stat('X', 0).is_alive());
    }

    #[test]
    fn a_program_that_begins_has_no_environment_yet() {
        let begins = |state, flags, env_end| Stat::parse(&text(state, flags, 1, env_end)).unwrap().begins_a_program();
        assert!(begins('R', 0, 0) && begins('D', 0, 0));
        assert!(!begins('R', 0, 8000) && !begins('S', KERNEL_THREAD, 0) && !begins('Z', 0, 0));
        let own = Stat::of_pid(std::process::id() as i32).unwrap();
        assert!(own.env_end > 0 && !own.begins_a_program());
        // An environment that is empty is there, if perhaps not at once: spawn returns as soon as execve cannot fail.
        let mut child = std::process::Command::new("/bin/sleep").arg("1000").env_clear().spawn().unwrap();
        let mut waits = PROGRAM_WAITS;
        assert!(initial_environment(child.id() as i32, &mut waits).is_empty());
        assert!(!Stat::of_pid(child.id() as i32).unwrap().begins_a_program());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_pid_with_another_start_time_is_another_process() {
        let own = Identity::of_pid(std::process::id() as i32).unwrap();
        assert!(own.is_alive());
        let other = Identity { start_ticks: own.start_ticks + 1, ..own };
        assert!(!other.is_alive());
        assert_eq!(other.signal(Signal::TERM), Ok(false));
        assert_eq!(other.kill_with_group(), Ok(()));
    }

    #[test]
    fn a_stopped_process_is_alive_and_named_as_stopped() {
        let mut child = std::process::Command::new("/bin/sleep").arg("1000").spawn().unwrap();
        let identity = Identity::of_pid(child.id() as i32).unwrap();
        assert_eq!(identity.stop(), None);
        identity.signal(Signal::STOP).unwrap();
        while identity.stop().is_none() {
            thread::yield_now();
        }
        assert_eq!(identity.stop().map(Stop::name), Some("T (stopped)"));
        assert!(identity.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(identity.stop(), None);
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let identity = Identity::of_pid(child.id() as i32).unwrap();
        // Polls until the child has ended; only then can it be a zombie.
        while Stat::of_pid(identity.pid).is_some_and(|stat| stat.state != 'Z') {
            thread::yield_now();
        }
        assert!(!identity.is_alive());
        child.wait().unwrap();
        assert!(!identity.is_alive());
    }
}
