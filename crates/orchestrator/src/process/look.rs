//! What is seen of one engine: its files, its lock, its process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::time::Duration;

use model::EngineName;
use model::clock::utc;
use model::engine_state::Phase;
use model::observation::{MAX_REASON_BYTES, cut};

use super::identity::{self, Identity, Stop};
use super::layout::{self, EngineDir};
use super::record::{self, Ended, Ending, Record, Started, VERSION};
use super::state::{State, is_held};
use crate::observed::{DETAIL_DIRECTORY, DETAIL_LOG, DETAIL_PID, has_to_end};
use crate::{Exit, Observed, Unreadable};

/// One engine, looked at.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) directory: EngineDir,
    pub(super) record: Record,
    /// Its process, if one lives.
    pub(super) leader: Option<Identity>,
    /// Whether it lives, or is being started at this moment.
    pub(super) alive: bool,
    pub(super) ending: Option<Ending>,
    pub(super) observed: Observed,
}

impl Look {
    /// Whether it was deleted and is dead: only its files are left.
    pub(super) fn is_over(&self) -> bool {
        self.ending.is_some() && !self.alive
    }
}

impl State {
    /// Looks at what has the name; `None` if nothing has.
    pub(super) fn look(&self, name: &str) -> Result<Option<Look>, Unreadable> {
        let directory = self.layout.engine(name);
        match self.look_into(&directory, name) {
            Ok(look) => Ok(Some(look)),
            // It was taken away while we looked.
            Err(_) if is_absent(&directory) => Ok(None),
            Err(error) => {
                let reason = cut(&format!("{}: {error}", directory.0.display()), MAX_REASON_BYTES).to_owned();
                Err(Unreadable { name: name.to_owned(), reason })
            }
        }
    }

    fn look_into(&self, directory: &EngineDir, name: &str) -> io::Result<Look> {
        let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
        let record: Record = record::read(&directory.record())?.ok_or_else(|| invalid("it has no engine.json"))?;
        EngineName::new(name).map_err(|error| invalid(&error.message))?;
        if record.name.as_str() != name || record.version != VERSION {
            return Err(invalid("engine.json belongs to another name or version"));
        }
        // The lock first: whoever starts an engine holds it until the process is written down, and a lock that is free
        // is never taken again.
        let held = match File::open(directory.lock()) {
            Ok(file) => is_held(&file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        let started: Option<Started> = record::read(&directory.process()).unwrap_or_default();
        let leader = match &started {
            Some(started) => Some(started.leader).filter(|leader| held && leader.is_alive()),
            None if held => identity::leader(&identity::holders(&directory.lock(), &[0])),
            None => None,
        };
        let alive = leader.is_some() || (held && started.is_none());
        let ending = read_ending(directory)?;
        let exit = if alive || ending.is_some() { None } else { Some(self.exit_of(directory, &record.uid)?) };
        let phase = match (alive, &ending, leader) {
            (false, ..) => Phase::Ended,
            (true, Some(_), _) => Phase::Terminating,
            (true, None, Some(_)) => Phase::Running,
            (true, None, None) => Phase::Pending,
        };
        let stop = leader.and_then(Identity::stop);
        let process = leader.or(started.as_ref().map(|started| started.leader));
        let observed = Observed {
            incomplete: false,
            name: record.name.clone(),
            uid: record.uid.clone(),
            labels: record.labels.clone().into(),
            annotations: record.annotations.clone().into(),
            phase,
            reason: reason(directory, phase, ending.as_ref(), exit.as_ref(), started.is_some())?
                .or_else(|| stop.map(|stop| format!("its process is stopped: state {}", stop.name()))),
            node: Some(record.node.clone()),
            started_at_ms: started.as_ref().map(|started| started.started_at_ms),
            log_tail: exit.as_ref().filter(|exit| exit.code != Some(0)).and_then(|_| super::log::tail(directory)),
            details: details(directory, process, stop, exit.as_ref())?.into(),
            exit,
        };
        Ok(Look { directory: directory.clone(), record, leader, alive, ending, observed })
    }

    /// How it ended. If nobody has written that down, the first who notices writes down when that was.
    fn exit_of(&self, directory: &EngineDir, uid: &str) -> io::Result<Exit> {
        let path = directory.exit();
        let written = || record::read::<Ended>(&path);
        if let Ok(Some(ended)) = written() {
            return Ok(ended.into());
        }
        self.children.wait_for_exit(uid);
        let noticed = Ended { code: None, signal: None, ended_at_ms: self.clock.wall_ms() };
        if self.only_looks {
            return Ok(noticed.into());
        }
        match written() {
            Ok(Some(ended)) => return Ok(ended.into()),
            Ok(None) => {
                // Its parent is gone, and what it started may run.
                super::end::kill_leftovers(directory, uid)?;
                let _ = layout::put_first(&path, &record::text(&noticed)?)?;
            }
            // Cut short with the machine: it says nothing, and must not hide that the engine is dead.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                layout::replace(&path, &record::text(&noticed)?)?;
            }
            Err(error) => return Err(error),
        }
        written()?.map(Exit::from).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn is_absent(directory: &EngineDir) -> bool {
    matches!(fs::symlink_metadata(&directory.0), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// A mark that can't be read is still a mark: whoever made it wanted an end, and there is no way back from it.
fn read_ending(directory: &EngineDir) -> io::Result<Option<Ending>> {
    match record::read(&directory.ending()) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Ok(Some(Ending { asked_at_ms: 0, asked_boottime_ms: 0, grace_ms: 0 }))
        }
        other => other,
    }
}

fn reason(
    directory: &EngineDir,
    phase: Phase,
    ending: Option<&Ending>,
    exit: Option<&Exit>,
    was_started: bool,
) -> io::Result<Option<String>> {
    Ok(match (phase, ending, exit) {
        (Phase::Pending, ..) => Some("it is being started".to_owned()),
        (Phase::Terminating, Some(ending), _) => Some(has_to_end(Duration::from_millis(ending.grace_ms))),
        (_, _, Some(_)) if !was_started => Some("it never started: whoever was starting it died".to_owned()),
        (_, _, Some(exit)) => {
            let words = layout::read_limited(&directory.last_words(), MAX_REASON_BYTES as u64)?;
            let words = words.map(|words| String::from_utf8_lossy(&words).trim().to_owned());
            // An exit that was no failure adds nothing to what the program said of it.
            let failed = exit.signal.is_some() || exit.code.is_some_and(|code| code != 0);
            Some(match words.filter(|words| !words.is_empty()) {
                Some(words) if !failed => words,
                Some(words) => format!("{words} ({})", exit.describe()),
                None => exit.describe(),
            })
        }
        _ => None,
    })
}

/// What a person may want to know besides; the words stand in DESCRIBE ENGINE.
fn details(
    directory: &EngineDir,
    process: Option<Identity>,
    stop: Option<Stop>,
    exit: Option<&Exit>,
) -> io::Result<BTreeMap<String, String>> {
    let mut details = BTreeMap::from([
        (DETAIL_DIRECTORY.to_owned(), directory.0.display().to_string()),
        (DETAIL_LOG.to_owned(), directory.log().display().to_string()),
    ]);
    if let Some(process) = process {
        details.insert(DETAIL_PID.to_owned(), process.pid.to_string());
    }
    if let Some(exit) = exit {
        details.insert("process state".to_owned(), format!("ended: {}", exit.describe()));
        details.insert("process ended at".to_owned(), utc(exit.ended_at_ms));
    } else if process.is_some() {
        details.insert("process state".to_owned(), stop.map_or("runs", Stop::name).to_owned());
    }
    if let Some(words) = layout::read_limited(&directory.last_words(), MAX_REASON_BYTES as u64)? {
        details.insert("last words".to_owned(), String::from_utf8_lossy(&words).trim().to_owned());
    }
    Ok(details)
}
