//! Reading one engine of the state directory: its files, its lock, its process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use model::EngineName;
use model::clock::utc;
use model::engine_state::Phase;
use model::observation::MAX_REASON_BYTES;
use model::text::cut;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::identity::{self, Identity, Stop};
use super::layout::{self, EngineDir, MAX_ENTRIES};
use super::record::{self, DeletionRecord, EngineRecord, ExitRecord, ProcessRecord, VERSION};
use super::state_dir::StateDir;
use super::{leftovers, log};
use crate::observed::{DETAIL_DIRECTORY, DETAIL_LOG, DETAIL_PID, terminating_reason};
use crate::{Error, Exit, ObservedInstance, Unreadable};

/// One engine, as it was read.
#[derive(Debug)]
pub(super) struct EngineEntry {
    pub(super) directory: EngineDir,
    pub(super) record: EngineRecord,
    /// Its process, if one is alive.
    pub(super) leader: Option<Identity>,
    /// Whether it is alive, or being started at this moment.
    pub(super) alive: bool,
    pub(super) deletion: Option<DeletionRecord>,
    pub(super) observed: ObservedInstance,
}

impl EngineEntry {
    /// Whether it was deleted and is dead: only its files are left.
    pub(super) fn is_over(&self) -> bool {
        self.deletion.is_some() && !self.alive
    }
}

/// Reads every entry of the state directory.
pub(super) fn read_all(state_dir: &StateDir) -> Result<(Vec<EngineEntry>, Vec<Unreadable>), Error> {
    let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
    let layout = &state_dir.layout;
    let names = layout
        .names(MAX_ENTRIES)
        .map_err(|error| Error::transient(format!("directory {}", layout.engines().display())).caused_by(error))?;
    for name in names {
        match read(state_dir, &name) {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => {}
            Err(error) => unreadable.push(error),
        }
    }
    Ok((entries, unreadable))
}

/// Reads the entry of that name; `None` if there is none.
pub(super) fn read(state_dir: &StateDir, name: &str) -> Result<Option<EngineEntry>, Unreadable> {
    let directory = state_dir.layout.engine(name);
    match read_directory(state_dir, &directory, name) {
        Ok(entry) => Ok(Some(entry)),
        // It was removed while we were reading.
        Err(_) if is_absent(&directory) => Ok(None),
        Err(error) => {
            let reason = cut(&format!("{}: {error}", directory.0.display()), MAX_REASON_BYTES).to_owned();
            Err(Unreadable { name: name.to_owned(), reason })
        }
    }
}

fn read_directory(state_dir: &StateDir, directory: &EngineDir, name: &str) -> io::Result<EngineEntry> {
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    let record: EngineRecord = record::read(&directory.record())?.ok_or_else(|| invalid("it has no engine.json"))?;
    EngineName::new(name).map_err(|error| invalid(&error.message))?;
    if record.name.as_str() != name || record.version != VERSION {
        return Err(invalid("engine.json belongs to another name or version"));
    }
    // The lock first: the process that starts an engine holds it until the pid is recorded, and a free lock is never taken
    // again.
    let held = match File::open(directory.lock()) {
        Ok(file) => is_held(&file)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    let process: Option<ProcessRecord> = record::read(&directory.process()).unwrap_or_default();
    let leader = match &process {
        Some(process) => Some(process.leader).filter(|leader| held && leader.is_alive()),
        None if held => identity::leader(&identity::holders(&directory.lock(), &[0])),
        None => None,
    };
    let alive = leader.is_some() || (held && process.is_none());
    let deletion = read_deletion(directory)?;
    let exit = if alive || deletion.is_some() { None } else { Some(exit_of(state_dir, directory, &record.uid)?) };
    let phase = match (alive, &deletion, leader) {
        (false, ..) => Phase::Ended,
        (true, Some(_), _) => Phase::Terminating,
        (true, None, Some(_)) => Phase::Running,
        (true, None, None) => Phase::Pending,
    };
    let stop = leader.and_then(Identity::stop);
    let last_process = leader.or(process.as_ref().map(|process| process.leader));
    let observed = ObservedInstance {
        incomplete: false,
        name: record.name.clone(),
        uid: record.uid.clone(),
        labels: record.labels.clone().into(),
        annotations: record.annotations.clone().into(),
        phase,
        reason: reason(directory, phase, deletion.as_ref(), exit.as_ref(), process.is_some())
            .or_else(|| stop.map(|stop| format!("its process is in state {}", stop.name()))),
        node: Some(record.node.clone()),
        started_at_ms: process.as_ref().map(|process| process.started_at_ms),
        log_tail: exit.as_ref().filter(|exit| exit.code != Some(0)).and_then(|_| log::tail(directory)),
        fault: exit.as_ref().and_then(Exit::fault),
        pods: None,
        details: details(directory, last_process, stop, exit.as_ref()).into(),
        exit,
    };
    Ok(EngineEntry { directory: directory.clone(), record, leader, alive, deletion, observed })
}

/// Whether another process holds the lock on the file. Tested by taking it shared, so that two readers do not see each
/// other.
fn is_held(file: &File) -> rustix::io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The exit of a dead engine. If it is not recorded, the first reader records when it was found dead.
fn exit_of(state_dir: &StateDir, directory: &EngineDir, uid: &str) -> io::Result<Exit> {
    let path = directory.exit();
    let recorded = || record::read::<ExitRecord>(&path);
    if let Ok(Some(exit)) = recorded() {
        return Ok(exit.into());
    }
    state_dir.children.wait_for_exit(uid);
    let found_dead = ExitRecord { code: None, signal: None, ended_at_ms: state_dir.clock.wall_ms() };
    if state_dir.read_only {
        return Ok(found_dead.into());
    }
    match recorded() {
        Ok(Some(exit)) => return Ok(exit.into()),
        Ok(None) => {
            // Its parent is gone, and processes that it started may still run.
            leftovers::kill(directory, uid)?;
            let _ = layout::write_if_absent(&path, &record::text(&found_dead)?)?;
        }
        // Truncated by a power loss: it carries no information and must not hide that the engine is dead.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            layout::replace(&path, &record::text(&found_dead)?)?;
        }
        Err(error) => return Err(error),
    }
    recorded()?.map(Exit::from).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn is_absent(directory: &EngineDir) -> bool {
    matches!(fs::symlink_metadata(&directory.0), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// A damaged record still means that the engine was deleted: a deletion is irrevocable.
fn read_deletion(directory: &EngineDir) -> io::Result<Option<DeletionRecord>> {
    match record::read(&directory.deletion()) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Ok(Some(DeletionRecord { asked_at_ms: 0, asked_boottime: Duration::ZERO, grace: Duration::ZERO }))
        }
        other => other,
    }
}

fn reason(
    directory: &EngineDir,
    phase: Phase,
    deletion: Option<&DeletionRecord>,
    exit: Option<&Exit>,
    was_started: bool,
) -> Option<String> {
    match (phase, deletion, exit) {
        (Phase::Pending, ..) => Some("starting".to_owned()),
        (Phase::Terminating, Some(deletion), _) => Some(terminating_reason(deletion.grace)),
        (_, _, Some(_)) if !was_started => Some("never started: the process that was starting it died".to_owned()),
        (_, _, Some(exit)) => {
            let words = last_words(directory);
            // A clean exit adds nothing to the reason that the program gave.
            let failed = exit.signal.is_some() || exit.code.is_some_and(|code| code != 0);
            Some(match words.filter(|words| !words.is_empty()) {
                Some(words) if !failed => words,
                Some(words) => format!("{words} ({})", exit.describe()),
                None => exit.describe(),
            })
        }
        _ => None,
    }
}

/// Details for DESCRIBE ENGINE.
fn details(
    directory: &EngineDir,
    process: Option<Identity>,
    stop: Option<Stop>,
    exit: Option<&Exit>,
) -> BTreeMap<String, String> {
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
        details.insert("process state".to_owned(), stop.map_or("running", Stop::name).to_owned());
    }
    details.extend(last_words(directory).map(|words| ("last words".to_owned(), words)));
    details
}

/// The reason that the engine left.
fn last_words(directory: &EngineDir) -> Option<String> {
    let read = |path: PathBuf| layout::read_foreign(&path, MAX_REASON_BYTES as u64);
    let words = read(directory.last_words()).or_else(|| read(directory.former_last_words()))?;
    Some(String::from_utf8_lossy(&words).trim().to_owned())
}
