//! `delete`, and carrying on what was begun: an end that was asked for happens, whoever asked.

use std::fs;
use std::io;
use std::time::Duration;

use model::{EngineName, Epoch, failpoint};
use rustix::process::Signal;

use super::gate::Gate;
use super::identity;
use super::layout::{self, EngineDir};
use super::log;
use super::look::Look;
use super::record::{self, Ending};
use super::state::{MAX_ENTRIES, State, into_error};
use crate::{Deleted, Error, UID_VARIABLE, failpoints};

/// Ends this very engine.
pub(super) fn delete(
    state: &State,
    name: &EngineName,
    uid: &str,
    grace: Duration,
    epoch: Epoch,
) -> Result<Deleted, Error> {
    failpoint!(failpoints::DELETE_BEGUN);
    let gate = Gate::enter(&state.layout.gate())?;
    gate.admit(epoch)?;
    failpoint!(failpoints::DELETE_ADMITTED);
    let Some(look) = state.look(name.as_str()).map_err(into_error)? else { return Ok(Deleted::Gone) };
    if look.record.uid != uid {
        if look.is_over() {
            return Ok(Deleted::Gone);
        }
        let present = look.record.uid.clone();
        return Err(Error::Gone { name: name.clone(), uid: uid.to_owned(), present });
    }
    end(state, &look, grace).map_err(|error| Error::transient(format!("engine \"{name}\" can't be ended: {error}")))
}

fn end(state: &State, look: &Look, grace: Duration) -> io::Result<Deleted> {
    if !look.alive {
        remove(state, look)?;
        return Ok(Deleted::Gone);
    }
    let ending = mark(state, look, grace)?;
    failpoint!(failpoints::DELETE_MARKED);
    if ending.is_due(state.clock.boottime()) {
        kill(look)?;
    } else if let Some(leader) = look.leader {
        leader.signal(Signal::TERM)?;
    }
    failpoint!(failpoints::DELETE_SIGNALLED);
    tracing::info!(engine = %look.record.name, uid = look.record.uid, grace_ms = ending.grace_ms, "engine told to end");
    Ok(Deleted::Terminating)
}

/// Writes down that it must end, unless that stands there with a deadline that is no later.
fn mark(state: &State, look: &Look, grace: Duration) -> io::Result<Ending> {
    let asked = Ending {
        asked_at_ms: state.clock.wall_ms(),
        asked_boottime_ms: state.clock.boottime().as_millis() as u64,
        grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
    };
    match &look.ending {
        Some(before) if before.deadline() <= asked.deadline() => Ok(before.clone()),
        _ => {
            layout::replace(&look.directory.ending(), &record::text(&asked)?)?;
            Ok(asked)
        }
    }
}

/// Does what is due for the engines that were looked at: kills those whose grace is over, removes what is left of dead
/// ones, limits logs, clears debris. Whether anything was done that another look would see. Does nothing
/// while another works on the directory: then the next look does.
pub(super) fn carry_on(state: &State, looks: &[Look]) -> bool {
    let is_due =
        |look: &Look| look.ending.as_ref().is_some_and(|ending| !look.alive || ending.is_due(state.clock.boottime()));
    let is_long =
        |look: &Look| fs::metadata(look.directory.log()).is_ok_and(|log| log.len() > look.record.log_keep_bytes);
    let due: Vec<&Look> = looks.iter().filter(|look| is_due(look)).collect();
    let long: Vec<&Look> = looks.iter().filter(|look| is_long(look)).collect();
    let has_debris = || state.layout.all_hidden(MAX_ENTRIES).is_ok_and(|hidden| !hidden.is_empty());
    if due.is_empty() && long.is_empty() && !has_debris() {
        return false;
    }
    let Ok(Some(_gate)) = Gate::try_enter(&state.layout.gate()) else { return false };
    for seen in &due {
        // Since that look another may have done it, and the name may have been taken again: only what is there now, under
        // the lock, is ended.
        let Ok(Some(look)) = state.look(seen.record.name.as_str()) else { continue };
        if look.record.uid != seen.record.uid || !is_due(&look) {
            continue;
        }
        let done = if look.alive { kill(&look) } else { remove(state, &look) };
        tell(state, "end an engine", look.record.name.as_str(), done);
    }
    for look in long {
        let limited = log::limit(&look.directory, look.record.log_keep_bytes);
        tell(state, "limit the log of an engine", look.record.name.as_str(), limited);
    }
    clear_debris(state);
    !due.is_empty()
}

/// Kills the process with its group and its session, and what left both. The children of an engine agent lead groups of
/// their own, in its session.
fn kill(look: &Look) -> io::Result<()> {
    if let Some(leader) = look.leader {
        let members = identity::session_of(leader);
        leader.kill_with_group()?;
        for member in members {
            member.signal(Signal::KILL)?;
        }
    }
    kill_leftovers(&look.directory, &look.record.uid)
}

/// What an engine started and left behind: killed one by one, each known by the engine's lock or log that it has as
/// standard input or output (a shell gives its background jobs another input), or by the engine's uid in the environment
/// that it began with, which a daemon keeps when it has left session and descriptors. A session's number would not do: it
/// is given away again when the session is empty.
pub(super) fn kill_leftovers(directory: &EngineDir, uid: &str) -> io::Result<()> {
    let by_lock = identity::holders(&directory.lock(), &[0]);
    let by_log = identity::holders(&directory.log(), &[1, 2]);
    for leftover in by_lock.into_iter().chain(by_log).chain(identity::started_with(UID_VARIABLE, uid)) {
        leftover.signal(Signal::KILL)?;
    }
    Ok(())
}

/// Removes what is left of a dead engine. Held: the directory lock.
pub(super) fn remove(state: &State, look: &Look) -> io::Result<()> {
    kill_leftovers(&look.directory, &look.record.uid)?;
    remove_directory(state, &look.directory, &look.record.uid)
}

/// Takes the directory out of the list in one step, then removes it.
pub(super) fn remove_directory(state: &State, directory: &EngineDir, uid: &str) -> io::Result<()> {
    let hidden = state.layout.hidden(&format!("{uid}.gone"));
    match fs::rename(&directory.0, &hidden.0) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed?,
    }
    failpoint!(failpoints::REMOVE_RENAMED);
    fs::remove_dir_all(&hidden.0)
}

/// Whoever was making or removing a hidden directory held the lock that we hold now, so it is dead.
fn clear_debris(state: &State) {
    for path in state.layout.all_hidden(MAX_ENTRIES).unwrap_or_default() {
        let removed = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        tell(state, "remove debris", &path.display().to_string(), removed);
    }
}

/// What fails here fails twice a second for as long as its reason lasts.
fn tell(state: &State, what: &'static str, of: &str, done: io::Result<()>) {
    let mut throttles = state.throttles.lock();
    let key = (what, of.to_owned());
    if let Err(error) = done {
        if let Some(times) = throttles.hit(key, state.clock.boottime()) {
            tracing::warn!(what, of, %error, times, "the state directory's keeper failed");
        }
    } else if let Some(times) = throttles.clear(&key) {
        tracing::info!(what, of, times, "the state directory's keeper succeeded at last");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use model::Generation;
    use model::clock::SystemClock;
    use model::engine_type::ResourceRequests;
    use model::labels::{self, LabelMap};

    use super::super::{Config, launch};
    use super::*;
    use crate::{LogPolicy, PodWish, Spec};

    const EPOCH: Epoch = Epoch(1);
    const DEADLINE: Duration = Duration::from_secs(20);

    fn sleeper() -> Spec {
        Spec {
            name: EngineName::new("one").unwrap(),
            labels: LabelMap::from([(labels::NAME.to_owned(), "one".to_owned())]),
            generation: Generation(1),
            annotations: BTreeMap::new(),
            namespace: String::new(),
            image: String::new(),
            argv: ["/bin/sleep", "1000"].map(str::to_owned).to_vec(),
            files: Vec::new(),
            environment: BTreeMap::new(),
            requests: ResourceRequests {
                driver_cpu_millis: 1,
                driver_memory_bytes: 1,
                executor_cpu_millis: 0,
                executor_memory_bytes: 0,
                executors: 0,
            },
            nodes: None,
            grace: Duration::ZERO,
            log: LogPolicy::default(),
            pod: PodWish::default(),
        }
    }

    #[tokio::test]
    async fn an_old_look_at_an_engine_ends_no_later_one_of_its_name() {
        let place = tempfile::tempdir().unwrap();
        let state = Arc::new(State::open(Config::new(place.path()), SystemClock::shared()).unwrap());
        let look = || state.look("one").unwrap().unwrap();
        let spec = sleeper();
        let first = launch::ensure(&state, &spec, EPOCH).unwrap();
        delete(&state, &spec.name, &first.uid, Duration::ZERO, EPOCH).unwrap();
        let dying = async {
            while !look().is_over() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, dying).await.unwrap();
        // Two keepers see the same; the slower one acts when the name has been taken again.
        let (quick, slow) = (look(), look());
        assert!(carry_on(&state, &[quick]));
        let second = launch::ensure(&state, &spec, EPOCH).unwrap();
        carry_on(&state, &[slow]);
        let seen = look();
        assert_eq!((&seen.record.uid, seen.alive), (&second.uid, true));
        delete(&state, &spec.name, &second.uid, Duration::ZERO, EPOCH).unwrap();
    }
}
