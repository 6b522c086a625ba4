//! `ensure`: take the name, lock it, start the process, write down which one it is.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use model::{Epoch, failpoint};
use rustix::fs::{Access, FlockOperation, access, flock};
use tokio::process::{Child, Command};

use super::child::{self, Spawned};
use super::end;
use super::gate::Gate;
use super::identity::Identity;
use super::inside::DIRECTORY_VARIABLE;
use super::layout::{self, EngineDir};
use super::look::Look;
use super::record::{self, Record, Started, VERSION};
use super::state::State;
use crate::observed::{annotations, bears};
use crate::{Ensured, Error, Spec, UID_VARIABLE, failpoints};

/// Makes the engine unless it is there. Must run inside a tokio runtime, which then waits for the child.
pub(super) fn ensure(state: &Arc<State>, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
    spec.validate()?;
    let program = Path::new(&spec.argv[0]);
    if !is_executable(program) {
        return Err(Error::refused(format!("{} is no program that can be run", program.display())));
    }
    failpoint!(failpoints::ENSURE_BEGUN);
    let gate = Gate::enter(&state.layout.gate())?;
    gate.admit(epoch)?;
    failpoint!(failpoints::ENSURE_ADMITTED);
    match state.look(spec.name.as_str()) {
        Ok(Some(look)) if look.is_over() => {
            end::remove(state, &look).map_err(|error| failed("its old files", &error))?;
        }
        Ok(Some(look)) => return answer_for(&look, spec),
        Ok(None) => {}
        Err(unreadable) => {
            let reason = format!("what has its name can't be read: {}", unreadable.reason);
            return Err(Error::Conflict { name: spec.name.clone(), reason });
        }
    }
    let node = choose_node(state, spec)?;
    let uid = uuid::Uuid::new_v4().to_string();
    let (directory, lock) =
        place(state, spec, &uid, &node, epoch).map_err(|error| failed("its directory can't be made", &error))?;
    failpoint!(failpoints::ENSURE_PLACED);
    let child = start(state, spec, &uid, &directory, &lock)?;
    state.children.add(&uid);
    let spawned = Spawned { child, uid: uid.clone(), directory };
    failpoint!(failpoints::ENSURE_SPAWNED);
    if let Err(error) = write_down(state, &spawned) {
        // It runs, and its lock leads to it: that is enough to see and to delete it.
        tracing::warn!(engine = %spec.name, %error, "the pid of an engine could not be written down");
    }
    // Only now: before, a free lock would mean an engine that never started.
    drop(lock);
    failpoint!(failpoints::ENSURE_RECORDED);
    tracing::info!(engine = %spec.name, uid, pid = spawned.child.id(), node, "engine started");
    tokio::spawn(child::reap(Arc::clone(state), spawned));
    Ok(Ensured { uid, created: true })
}

/// Whether what is there is what was asked for.
fn answer_for(look: &Look, spec: &Spec) -> Result<Ensured, Error> {
    let conflict = |reason: String| Err(Error::Conflict { name: spec.name.clone(), reason });
    if !look.alive {
        return conflict("it has ended".to_owned());
    }
    if look.ending.is_some() {
        return conflict("it was told to end".to_owned());
    }
    if !bears(&look.record.labels, &spec.labels) {
        let differs = |(label, value): &(&String, &String)| look.record.labels.get(*label) != Some(*value);
        let label = spec.labels.iter().find(differs).map_or("", |(label, _)| label.as_str());
        return conflict(format!("its label \"{label}\" has another value"));
    }
    Ok(Ensured { uid: look.record.uid.clone(), created: false })
}

/// The least loaded of the nodes that the spec allows.
fn choose_node(state: &State, spec: &Spec) -> Result<String, Error> {
    let (looks, unreadable) = state.look_at_all()?;
    if looks.len() + unreadable.len() >= state.config.max_engines {
        return Err(Error::too_many(looks.len() + unreadable.len(), "orchestrator.max_engines"));
    }
    let allowed = |node: &&String| spec.nodes.as_ref().is_none_or(|wanted| wanted.contains(node));
    let chosen = state.config.nodes.iter().filter(allowed).min_by_key(|node| State::load_of(&looks, node));
    chosen.cloned().ok_or_else(|| {
        Error::refused(format!(
            "none of the nodes {} is one of {}",
            spec.nodes.as_deref().unwrap_or_default().join(", "),
            state.config.nodes.join(", ")
        ))
    })
}

/// Fills a hidden directory, locks it, and gives it the engine's name.
fn place(state: &State, spec: &Spec, uid: &str, node: &str, epoch: Epoch) -> io::Result<(EngineDir, File)> {
    let hidden = state.layout.hidden(uid);
    let placed = fill(state, spec, uid, node, epoch, &hidden).and_then(|lock| {
        let directory = state.layout.engine(spec.name.as_str());
        if layout::move_to_free(&hidden.0, &directory.0)? {
            return Ok((directory, lock));
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "something has its name"))
    });
    placed.inspect_err(|_| drop(fs::remove_dir_all(&hidden.0)))
}

fn fill(state: &State, spec: &Spec, uid: &str, node: &str, epoch: Epoch, hidden: &EngineDir) -> io::Result<File> {
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
    let record = Record {
        version: VERSION,
        name: spec.name.clone(),
        uid: uid.to_owned(),
        labels: spec.labels.clone(),
        annotations: annotations(spec, epoch),
        node: node.to_owned(),
        created_at_ms: state.clock.wall_ms(),
        log_keep_bytes: spec.log.keep_bytes,
        argv: spec.argv.clone(),
    };
    layout::write_new(&hidden.record(), &record::text(&record)?, 0o600)?;
    // Before it gets its name. With the power everything here is dead, but a directory that has the name and can't be read
    // would keep its slot empty until somebody comes.
    layout::settle(&hidden.record(), &hidden.0)?;
    Ok(lock)
}

/// Starts the process with the lock as its standard input. What can't be started leaves nothing.
fn start(state: &State, spec: &Spec, uid: &str, directory: &EngineDir, lock: &File) -> Result<Child, Error> {
    let spawn = || {
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(directory.log())?;
        let inherited = state.config.inherit.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        Command::new(&state.session_program)
            .args(&spec.argv)
            .current_dir(directory.files())
            .env_clear()
            .envs(inherited)
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
        if let Err(error) = end::remove_directory(state, directory, uid) {
            tracing::warn!(engine = %spec.name, %error, "the directory of an engine that did not start is left");
        }
        failed("its process can't be started", &error)
    })
}

fn write_down(state: &State, spawned: &Spawned) -> io::Result<()> {
    let pid = spawned.child.id().ok_or_else(|| io::Error::other("the process is gone"))?;
    let leader = Identity::of(pid as i32).ok_or_else(|| io::Error::other("the process is gone"))?;
    let started = Started { leader, started_at_ms: state.clock.wall_ms() };
    layout::replace(&spawned.directory.process(), &record::text(&started)?)
}

/// Rights and missing things stay as they are until somebody changes them; everything else may pass.
fn failed(what: &str, error: &io::Error) -> Error {
    let reason = format!("{what}: {error}");
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Error::refused(reason)
        }
        _ => Error::transient(reason),
    }
}

/// Whether there is a program of that name that we may run.
pub(super) fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}
