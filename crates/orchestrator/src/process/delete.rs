//! `delete`: records that the engine must end, and signals it; upkeep carries a recorded deletion on.

use std::io;
use std::time::Duration;

use model::{EngineName, Epoch, failpoint};
use rustix::process::Signal;

use super::dir_lock::DirLock;
use super::engine_entry::{self, EngineEntry};
use super::layout;
use super::record::{self, DeletionRecord};
use super::state_dir::StateDir;
use super::{leftovers, remove};
use crate::{Deleted, Error, failpoints};

/// Ends the engine with this uid.
pub(super) fn delete(
    state_dir: &StateDir,
    name: &EngineName,
    uid: &str,
    grace: Duration,
    epoch: Epoch,
) -> Result<Deleted, Error> {
    failpoint!(failpoints::DELETE_BEGUN);
    let lock = DirLock::acquire(&state_dir.layout.dir_lock())?;
    lock.check(epoch)?;
    failpoint!(failpoints::DELETE_ADMITTED);
    let Some(entry) = engine_entry::read(state_dir, name.as_str())? else { return Ok(Deleted::Gone) };
    if entry.record.uid != uid {
        if entry.is_over() {
            return Ok(Deleted::Gone);
        }
        let present = entry.record.uid.clone();
        return Err(Error::Gone { name: name.clone(), uid: uid.to_owned(), present });
    }
    terminate(state_dir, &entry, grace)
        .map_err(|error| Error::transient(format!("could not end engine \"{name}\"")).caused_by(error))
}

fn terminate(state_dir: &StateDir, entry: &EngineEntry, grace: Duration) -> io::Result<Deleted> {
    if !entry.alive {
        remove::remove(state_dir, entry)?;
        return Ok(Deleted::Gone);
    }
    let deletion = record_deletion(state_dir, entry, grace)?;
    failpoint!(failpoints::DELETE_MARKED);
    if deletion.is_due(state_dir.clock.boottime()) {
        leftovers::kill_all(entry.leader, &entry.directory, &entry.record.uid)?;
    } else if let Some(leader) = entry.leader {
        leader.signal(Signal::TERM)?;
    }
    failpoint!(failpoints::DELETE_SIGNALLED);
    tracing::info!(
        engine = %entry.record.name,
        uid = entry.record.uid,
        grace_ms = deletion.grace.as_millis(),
        "terminating engine"
    );
    Ok(Deleted::Terminating)
}

/// Records the deletion unless one with a deadline that is not later is recorded already.
fn record_deletion(state_dir: &StateDir, entry: &EngineEntry, grace: Duration) -> io::Result<DeletionRecord> {
    let deletion =
        DeletionRecord { asked_at_ms: state_dir.clock.wall_ms(), asked_boottime: state_dir.clock.boottime(), grace };
    match &entry.deletion {
        Some(before) if before.deadline() <= deletion.deadline() => Ok(before.clone()),
        _ => {
            layout::replace(&entry.directory.deletion(), &record::text(&deletion)?)?;
            Ok(deletion)
        }
    }
}
