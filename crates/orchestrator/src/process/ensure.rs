//! `ensure`: takes the name, locks it, starts the process, records which one it is.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use model::engine_state::Phase;
use model::{Epoch, failpoint};
use rustix::fs::{FlockOperation, flock};
use tokio::process::{Child, Command};

use super::account::{self, Account};
use super::dir_lock::DirLock;
use super::engine_entry::{self, EngineEntry};
use super::guest::DIRECTORY_VARIABLE;
use super::identity::Identity;
use super::layout::{self, EngineDir};
use super::reap::{self, Spawned};
use super::record::{self, EngineRecord, ProcessRecord, VERSION};
use super::remove;
use super::state_dir::{StateDir, is_executable};
use crate::observed::{annotations, differing_label};
use crate::{Ensured, Error, Spec, UID_VARIABLE, failpoints};

/// Creates the engine unless it exists. Must run inside a tokio runtime, which then waits for the child.
pub(super) fn ensure(state_dir: &Arc<StateDir>, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
    spec.validate()?;
    let program = Path::new(&spec.argv[0]);
    if !is_executable(program) {
        return Err(Error::refused(format!("\"{}\" is not an executable program", program.display())));
    }
    failpoint!(failpoints::ENSURE_BEGUN);
    // Before the lock, which a slow name service would hold for everyone; needed only if the engine does not exist.
    let account = spec.run_as.as_ref().map(|run_as| {
        let account = Account::of(&run_as.user, state_dir.config.min_uid)?;
        account.prepare(program, &state_dir.layout.engines(), run_as)?;
        Ok::<_, Error>(account)
    });
    let dir_lock = DirLock::acquire(&state_dir.layout.dir_lock())?;
    dir_lock.check(epoch)?;
    failpoint!(failpoints::ENSURE_ADMITTED);
    match engine_entry::read(state_dir, spec.name.as_str()) {
        Ok(Some(entry)) if entry.is_over() => {
            remove::remove(state_dir, &entry)
                .map_err(|error| failed("could not remove the files of its predecessor", error))?;
        }
        Ok(Some(entry)) => return existing(&entry, spec),
        Ok(None) => {}
        Err(unreadable) => {
            let reason = format!("could not read the entry of its name: {}", unreadable.reason);
            return Err(Error::Conflict { name: spec.name.clone(), reason });
        }
    }
    let account = account.transpose()?;
    let account = account.as_ref();
    let node = choose_node(state_dir, spec)?;
    let uid = uuid::Uuid::new_v4().to_string();
    let (directory, lock) = create_directory(state_dir, spec, account, &uid, &node, epoch)
        .map_err(|error| failed("could not create its directory", error))?;
    failpoint!(failpoints::ENSURE_PLACED);
    let child = start(state_dir, spec, account, &uid, &directory, &lock)?;
    state_dir.children.add(&uid);
    let spawned = Spawned { child, uid: uid.clone(), directory };
    failpoint!(failpoints::ENSURE_SPAWNED);
    if let Err(error) = record_process(state_dir, &spawned) {
        // It runs, and its lock leads to it: that is enough to list and to delete it.
        tracing::warn!(engine = %spec.name, %error, "could not record the pid of an engine");
    }
    // Only now: before, a free lock would mean an engine that never started.
    drop(lock);
    failpoint!(failpoints::ENSURE_RECORDED);
    tracing::info!(engine = %spec.name, uid, pid = spawned.child.id(), node, "engine started");
    tokio::spawn(reap::reap(Arc::clone(state_dir), spawned));
    Ok(Ensured { uid, created: true })
}

/// Succeeds if the existing engine is the one that the spec describes.
fn existing(entry: &EngineEntry, spec: &Spec) -> Result<Ensured, Error> {
    let conflict = |reason: String| Err(Error::Conflict { name: spec.name.clone(), reason });
    if !entry.alive {
        return conflict("it has ended".to_owned());
    }
    if entry.deletion.is_some() {
        return conflict("it is terminating".to_owned());
    }
    if let Some(label) = differing_label(&entry.record.labels, &spec.labels) {
        return conflict(format!("its label \"{label}\" has another value"));
    }
    Ok(Ensured { uid: entry.record.uid.clone(), created: false })
}

/// The least loaded of the nodes that the spec allows.
fn choose_node(state_dir: &StateDir, spec: &Spec) -> Result<String, Error> {
    let (entries, unreadable) = engine_entry::read_all(state_dir)?;
    if entries.len() + unreadable.len() >= state_dir.config.max_engines {
        return Err(Error::too_many(entries.len() + unreadable.len(), "orchestrator.max_engines"));
    }
    let load = |node: &String| {
        let occupies =
            |entry: &&EngineEntry| entry.observed.phase != Phase::Ended && entry.record.node == node.as_str();
        entries.iter().filter(occupies).count()
    };
    let allowed = |node: &&String| spec.nodes.as_ref().is_none_or(|nodes| nodes.contains(node));
    let chosen = state_dir.config.nodes.iter().filter(allowed).min_by_key(|node| load(node));
    chosen.cloned().ok_or_else(|| {
        Error::refused(format!(
            "none of the nodes {} is one of {}",
            spec.nodes.as_deref().unwrap_or_default().join(", "),
            state_dir.config.nodes.join(", ")
        ))
    })
}

/// Fills a hidden directory, locks it, and renames it to the engine's name.
fn create_directory(
    state_dir: &StateDir,
    spec: &Spec,
    account: Option<&Account>,
    uid: &str,
    node: &str,
    epoch: Epoch,
) -> io::Result<(EngineDir, File)> {
    let hidden = state_dir.layout.hidden(uid);
    let created = fill(state_dir, spec, uid, node, epoch, &hidden).and_then(|lock| {
        if let Some(account) = account {
            account.give(&hidden.files())?;
            account::let_pass(&hidden.0)?;
        }
        let directory = state_dir.layout.engine(spec.name.as_str());
        if layout::move_to_free(&hidden.0, &directory.0)? {
            return Ok((directory, lock));
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "the name is taken"))
    });
    created.inspect_err(|_| drop(fs::remove_dir_all(&hidden.0)))
}

fn fill(
    state_dir: &StateDir,
    spec: &Spec,
    uid: &str,
    node: &str,
    epoch: Epoch,
    hidden: &EngineDir,
) -> io::Result<File> {
    DirBuilder::new().mode(0o700).create(&hidden.0)?;
    let lock = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(hidden.lock())?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    let mut folders = DirBuilder::new();
    folders.recursive(true).mode(0o700);
    folders.create(hidden.files())?;
    for file in &spec.files {
        let path = hidden.files().join(&file.path);
        folders.create(path.parent().unwrap_or(&hidden.0))?;
        layout::write_new(&path, &file.content, file.mode)?;
    }
    let record = EngineRecord {
        version: VERSION,
        name: spec.name.clone(),
        uid: uid.to_owned(),
        labels: spec.labels.clone(),
        annotations: annotations(spec, epoch),
        node: node.to_owned(),
        created_at_ms: state_dir.clock.wall_ms(),
        log_keep_bytes: spec.log.keep_bytes,
        argv: spec.argv.clone(),
    };
    layout::write_new(&hidden.record(), &record::text(&record)?, 0o600)?;
    // Before it gets its name: a power loss kills every engine, but a directory that has the name and cannot be read would
    // keep its slot empty until an administrator removes it.
    layout::sync(&hidden.record(), &hidden.0)?;
    Ok(lock)
}

/// Starts the process with the lock as its standard input. On failure, removes the directory.
fn start(
    state_dir: &StateDir,
    spec: &Spec,
    account: Option<&Account>,
    uid: &str,
    directory: &EngineDir,
    lock: &File,
) -> Result<Child, Error> {
    let spawn = || {
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(directory.log())?;
        if let Some(account) = account {
            account.give_file(&log)?;
        }
        let is_withheld = |name: &&String| account.is_some() && account::WITHHELD.contains(&name.as_str());
        let inherited = state_dir.config.inherit.iter().filter(|name| !is_withheld(name));
        let inherited = inherited.filter_map(|name| Some((name, std::env::var_os(name)?)));
        let argv = account.map_or_else(|| spec.argv.clone(), |account| account.command_line(&spec.argv));
        Command::new(&state_dir.session_program)
            .args(argv)
            .current_dir(directory.files())
            .env_clear()
            .envs(inherited)
            .envs(account.map(Account::environment).into_iter().flatten())
            .envs(&spec.environment)
            .env(UID_VARIABLE, uid)
            .env(DIRECTORY_VARIABLE, &directory.0)
            .stdin(Stdio::from(lock.try_clone()?))
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .kill_on_drop(false)
            .spawn()
    };
    spawn().map_err(|error| {
        if let Err(error) = remove::remove_directory(state_dir, directory, uid) {
            tracing::warn!(engine = %spec.name, %error, "could not remove the directory of an engine that did not start");
        }
        failed("could not start its process", error)
    })
}

fn record_process(state_dir: &StateDir, spawned: &Spawned) -> io::Result<()> {
    let pid = spawned.child.id().ok_or_else(|| io::Error::other("the process is gone"))?;
    let leader = Identity::of_pid(pid as i32).ok_or_else(|| io::Error::other("the process is gone"))?;
    let process = ProcessRecord { leader, started_at_ms: state_dir.clock.wall_ms() };
    layout::replace(&spawned.directory.process(), &record::text(&process)?)
}

/// Missing permissions and missing files last until an administrator acts; every other failure may be transient.
fn failed(what: &str, error: io::Error) -> Error {
    let failed = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Error::refused(what)
        }
        _ => Error::transient(what),
    };
    failed.caused_by(error)
}
