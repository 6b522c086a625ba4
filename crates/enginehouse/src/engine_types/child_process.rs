//! A child process that ends with this process, however this one ends, with its whole process group.
//!
//! Invariants:
//!
//! - The child is started through `enginehouse run-child`, which sets its parent-death signal. The kernel sends that
//!   signal when the thread that started the child ends, not when the process does. So each child has a thread of its own,
//!   which starts it, waits for its end and lives exactly as long.
//! - The child leads a process group. Signals go to the whole group, and when the leader has ended the rest of the group is
//!   killed. Between the leader's end and its reaping the kernel gives its number to no other process, so the signal can
//!   reach no stranger.
//! - Processes that leave the group are found by the orchestrator, by the engine's files that they have open.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::{oneshot, watch};

/// This very program, also after its file was replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The child; dropping it kills its group.
#[derive(Debug)]
pub struct ChildProcess {
    group: Arc<Group>,
    ended: watch::Receiver<Option<Ended>>,
}

/// How the child ended, or why that is not known.
type Ended = Result<ExitStatus, String>;

/// The child's process group, which has the number of the child.
#[derive(Debug)]
struct Group {
    leader: Pid,
    /// Whether the leader was reaped, after which the number may belong to another process.
    reaped: Mutex<bool>,
}

impl Group {
    fn reaped(&self) -> MutexGuard<'_, bool> {
        self.reaped.lock()
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let reaped = self.reaped();
        if *reaped { Ok(()) } else { send(self.leader, signal) }
    }
}

/// A group without processes is one that has ended.
fn send(leader: Pid, signal: Signal) -> io::Result<()> {
    match kill_process_group(leader, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The command that runs these words as a child of this process which ends with it.
pub fn bound(words: &[String]) -> Command {
    let mut command = Command::new(THIS_PROGRAM);
    command.args(["run-child", "--parent", &std::process::id().to_string(), "--"]).args(words);
    command
}

impl ChildProcess {
    /// Starts the command as the leader of a process group.
    pub async fn start(mut command: Command) -> io::Result<Self> {
        let (send_started, started) = oneshot::channel();
        let (send_ended, ended) = watch::channel(None);
        thread::Builder::new().name("child process".to_owned()).spawn(move || {
            let mut child = match command.process_group(0).spawn() {
                Ok(child) => child,
                Err(error) => {
                    let _ = send_started.send(Err(error));
                    return;
                }
            };
            let group = Arc::new(Group { leader: Pid::from_child(&child), reaped: Mutex::new(false) });
            // A caller that was cancelled drops it, which kills the group.
            let _ = send_started.send(Ok(Self { group: Arc::clone(&group), ended }));
            wait_without_reaping(group.leader);
            let mut reaped = group.reaped();
            if let Err(error) = send(group.leader, Signal::KILL) {
                tracing::warn!(%error, "could not kill the process group of an ended child");
            }
            let status = child.wait().map_err(|error| error.to_string());
            *reaped = true;
            drop(reaped);
            send_ended.send_replace(Some(status));
        })?;
        started.await.map_err(|_| io::Error::other("the thread that starts it panicked"))?
    }

    /// Its process id, which is also the number of its group.
    pub fn pid(&self) -> i32 {
        self.group.leader.as_raw_pid()
    }

    /// Sends the signal to the whole group; a group that has ended receives nothing.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.group.signal(signal)
    }

    /// Waits for the end of the child. Cancel safe.
    pub async fn ended(&mut self) -> Ended {
        match self.ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or_else(|| Err("its end is unknown".to_owned())),
            Err(_) => Err("the thread that waits for it panicked".to_owned()),
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        if let Err(error) = self.signal(Signal::KILL) {
            tracing::warn!(%error, "could not kill a child");
        }
    }
}

/// Returns when the process has ended and is a zombie.
fn wait_without_reaping(pid: Pid) {
    while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {}
}
