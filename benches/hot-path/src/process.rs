//! The processes that the benchmark starts. Each is stopped by its pid when its owner is dropped, also after an error.
//!
//! SIGINT and SIGTERM end them too: the measurement then fails at its next call, and everything is stopped as after any error.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::waiting;

/// Lines of a log that an error shows.
const SHOWN_LINES: usize = 20;
/// How long a process has to end after SIGTERM; then it receives SIGKILL. A standalone drains its engines for 10 s.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// The processes that run, for the signal handler.
static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// Whether a signal has requested the end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A process with its output in a file.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the command, with its output in `<name>.log` of the folder.
    pub fn start(name: &str, command: &mut Command, folder: &Path) -> Result<Self> {
        ensure!(!is_interrupted(), "interrupted");
        let log = folder.join(format!("{name}.log"));
        let program = command.get_program().display().to_string();
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let errors = output.try_clone()?;
        let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        let child = child.with_context(|| format!("cannot start {name}: {program}"))?;
        RUNNING.lock().push(child.id());
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// The process, which is running or has not been waited for.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The rest of the first line of its output that begins so.
    pub fn wait_for_line(&mut self, begin: &str, deadline: Duration) -> Result<String> {
        let what = format!("{} prints \"{begin}\"", self.name);
        let found = waiting::until(&what, deadline, || {
            self.check()?;
            // A line is complete once its end is there.
            let output = std::fs::read_to_string(&self.log)?;
            let mut lines = output.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            Ok(lines.find_map(|line| line.strip_prefix(begin)).map(|rest| rest.trim().to_owned()))
        });
        found.with_context(|| self.last_lines())
    }

    /// An error if it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} has ended with {status}", self.name),
        }
    }

    fn last_lines(&self) -> String {
        let output = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = output.lines().collect();
        let from = lines.len().saturating_sub(SHOWN_LINES);
        format!("The last lines of {}:\n{}", self.name, lines[from..].join("\n"))
    }

    /// Requests the end and waits for it.
    fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let what = format!("{} ends after SIGTERM", self.name);
        let ended = waiting::until(&what, STOP_DEADLINE, || Ok(self.child.try_wait()?));
        if ended.is_err() {
            self.child.kill()?;
            self.child.wait()?;
        }
        ended.map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("warning: {error:#}");
        }
        let pid = self.child.id();
        RUNNING.lock().retain(|running| *running != pid);
    }
}

/// Whether a signal has requested the end.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Whether a process of that number exists and has not ended.
pub fn is_running(pid: u32) -> bool {
    // The state follows the name, which is in parentheses and may contain anything.
    let state = |stat: String| stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.ok().and_then(state).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// From now on SIGINT and SIGTERM end the processes that run.
pub fn stop_on_signals() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        loop {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            INTERRUPTED.store(true, Ordering::SeqCst);
            for pid in RUNNING.lock().iter() {
                if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shell(script: &str, folder: &Path) -> Process {
        Process::start("shell", Command::new("/bin/sh").args(["-c", script]), folder).unwrap()
    }

    #[test]
    fn a_process_ends_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell("echo begun; echo 'ready: yes'; exec sleep 1000", folder.path());
        assert_eq!(process.wait_for_line("ready: ", Duration::from_mins(1)).unwrap(), "yes");
        let pid = process.pid();
        assert!(is_running(pid) && RUNNING.lock().contains(&pid));
        drop(process);
        assert!(!is_running(pid) && !RUNNING.lock().contains(&pid));
    }

    #[test]
    fn the_error_of_a_process_that_has_ended_shows_its_output() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = shell("echo cannot; exit 3", folder.path());
        let error = process.wait_for_line("ready: ", Duration::from_mins(1)).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("exit status: 3") && error.contains("\ncannot"), "{error}");
    }
}
