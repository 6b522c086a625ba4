//! Killing an engine's processes, including the ones that left its session or outlived it.

use std::io;

use rustix::process::Signal;

use super::identity::{self, Identity};
use super::layout::EngineDir;
use crate::UID_VARIABLE;

/// How often the processes that an engine has left are searched for.
const SEARCHES: u32 = 20;

/// Kills the process with its group and its session, then everything that left both. The children of an engine agent lead
/// groups of their own within its session.
pub(super) fn kill_all(leader: Option<Identity>, directory: &EngineDir, uid: &str) -> io::Result<()> {
    if let Some(leader) = leader {
        let members = identity::session_of(leader);
        leader.kill_with_group()?;
        for member in members {
            member.signal(Signal::KILL)?;
        }
    }
    kill(directory, uid)
}

/// Kills, one by one, the processes that an engine started and left behind. Each is recognized by the engine's lock or log
/// as standard input or output (a shell gives its background jobs another input), or by the engine's uid in its initial
/// environment, which a daemon keeps after it has left session and descriptors. The session's number would not do, because
/// it is reused once the session is empty.
///
/// It searches again until a search finds no further one, because a process may have started another one before it was killed;
/// afterwards it cannot. An error if the last of [`SEARCHES`] still finds one.
pub(super) fn kill(directory: &EngineDir, uid: &str) -> io::Result<()> {
    let mut killed: Vec<Identity> = Vec::new();
    for _ in 0..SEARCHES {
        let by_lock = identity::holders(&directory.lock(), &[0]);
        let by_log = identity::holders(&directory.log(), &[1, 2]);
        let by_uid = identity::started_with(UID_VARIABLE, uid);
        let mut found: Vec<Identity> = by_lock.into_iter().chain(by_log).chain(by_uid).collect();
        found.retain(|process| !killed.contains(process));
        if found.is_empty() {
            return Ok(());
        }
        for leftover in &found {
            leftover.signal(Signal::KILL)?;
        }
        killed.append(&mut found);
    }
    let count = killed.len();
    Err(io::Error::other(format!(
        "after {SEARCHES} searches and {count} killed processes, the engine still starts others"
    )))
}
