//! Upkeep of the state directory: carries on deletions that any candidate began, limits logs, clears debris.

use std::fs;
use std::io;

use super::dir_lock::DirLock;
use super::engine_entry::{self, EngineEntry};
use super::layout::MAX_ENTRIES;
use super::state_dir::StateDir;
use super::{leftovers, log, remove};

/// Does what is due for the given entries: kills engines whose grace is over, removes deleted engines that are dead, limits
/// logs, clears debris. Returns whether anything was done that the next read would show. Does nothing while another process
/// holds the directory lock; the next read tries again.
pub(super) fn run(state_dir: &StateDir, entries: &[EngineEntry]) -> bool {
    let is_due = |entry: &EngineEntry| {
        entry.deletion.as_ref().is_some_and(|deletion| !entry.alive || deletion.is_due(state_dir.clock.boottime()))
    };
    let is_long = |entry: &EngineEntry| {
        fs::metadata(entry.directory.log()).is_ok_and(|log| log.len() > entry.record.log_keep_bytes)
    };
    let due: Vec<&EngineEntry> = entries.iter().filter(|entry| is_due(entry)).collect();
    let long: Vec<&EngineEntry> = entries.iter().filter(|entry| is_long(entry)).collect();
    let has_debris = || state_dir.layout.all_hidden(MAX_ENTRIES).is_ok_and(|hidden| !hidden.is_empty());
    if due.is_empty() && long.is_empty() && !has_debris() {
        return false;
    }
    let Ok(Some(_lock)) = DirLock::try_acquire(&state_dir.layout.dir_lock()) else { return false };
    for stale in &due {
        // Another process may have done it since that read, and the name may have been taken again: act only on what is
        // there now, under the lock.
        let Ok(Some(entry)) = engine_entry::read(state_dir, stale.record.name.as_str()) else { continue };
        if entry.record.uid != stale.record.uid || !is_due(&entry) {
            continue;
        }
        let done = if entry.alive {
            leftovers::kill_all(entry.leader, &entry.directory, &entry.record.uid)
        } else {
            remove::remove(state_dir, &entry)
        };
        log_outcome(state_dir, "end an engine", entry.record.name.as_str(), done);
    }
    for entry in long {
        let limited = log::limit(&entry.directory, entry.record.log_keep_bytes);
        log_outcome(state_dir, "limit the log of an engine", entry.record.name.as_str(), limited);
    }
    clear_debris(state_dir);
    !due.is_empty()
}

/// Removes hidden directories. A process that was creating or removing one held the lock that we hold now, so it is dead.
fn clear_debris(state_dir: &StateDir) {
    for path in state_dir.layout.all_hidden(MAX_ENTRIES).unwrap_or_default() {
        let removed = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        log_outcome(state_dir, "remove debris", &path.display().to_string(), removed);
    }
}

/// Throttled: a failure here recurs twice a second for as long as its reason lasts.
fn log_outcome(state_dir: &StateDir, task: &'static str, object: &str, done: io::Result<()>) {
    let mut throttle = state_dir.upkeep_log.lock();
    let key = (task, object.to_owned());
    if let Err(error) = done {
        if let Some(times) = throttle.hit(key, state_dir.clock.boottime()) {
            tracing::warn!(task, object, %error, times, "upkeep of the state directory failed");
        }
    } else if let Some(times) = throttle.clear(&key) {
        tracing::info!(task, object, times, "upkeep of the state directory succeeds again");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use model::clock::SystemClock;
    use model::{EngineName, Epoch};

    use super::super::{Config, delete, ensure};
    use super::*;
    use crate::Spec;

    const EPOCH: Epoch = Epoch(1);
    const DEADLINE: Duration = Duration::from_secs(20);

    fn sleeper() -> Spec {
        Spec::new(EngineName::new("one").unwrap(), ["/bin/sleep", "1000"].map(str::to_owned).to_vec())
    }

    #[tokio::test]
    async fn a_stale_entry_ends_no_later_engine_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = Arc::new(StateDir::open(Config::new(folder.path()), SystemClock::shared()).unwrap());
        let read = || engine_entry::read(&state_dir, "one").unwrap().unwrap();
        let spec = sleeper();
        let first = ensure::ensure(&state_dir, &spec, EPOCH).unwrap();
        delete::delete(&state_dir, &spec.name, &first.uid, Duration::ZERO, EPOCH).unwrap();
        let dying = async {
            while !read().is_over() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, dying).await.unwrap();
        // Two keepers read the same; the slower one acts when the name has been taken again.
        let (quick, slow) = (read(), read());
        assert!(run(&state_dir, &[quick]));
        let second = ensure::ensure(&state_dir, &spec, EPOCH).unwrap();
        run(&state_dir, &[slow]);
        let entry = read();
        assert_eq!((&entry.record.uid, entry.alive), (&second.uid, true));
        delete::delete(&state_dir, &spec.name, &second.uid, Duration::ZERO, EPOCH).unwrap();
    }
}
