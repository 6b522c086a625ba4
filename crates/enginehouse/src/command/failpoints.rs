//! Failpoints: their names, and the actions that tests arm.
//!
//! `ENGINEHOUSE_FAILPOINTS=name=kill;name=stop;name=sleep(500)` arms them: `kill` sends SIGKILL to the process, `stop`
//! SIGSTOP, everything else is an action of crate `fail`.
//!
//! `ENGINEHOUSE_FAILPOINTS_FOLDER=/folder` arms them at run time, also in engines: a file `/folder/name` with `kill`, `stop`
//! or `hold` in it is claimed by the first process that passes the point, by renaming it to `name.<pid>`. So the action
//! happens once, and the file names the process. `name@<pid>` is for one process only. A held process continues when the
//! claimed file is removed, and after [`HOLD_AT_MOST`] at the latest.
//!
//! A release build has no failpoints, and refuses both variables.

#[cfg(debug_assertions)]
use crate::output::print_error;
use crate::output::print_line;

#[cfg(debug_assertions)]
use rustix::process::{Signal, getpid, kill_process};
#[cfg(debug_assertions)]
use std::path::{Path, PathBuf};
#[cfg(debug_assertions)]
use std::time::{Duration, Instant};

/// The variable that arms failpoints.
const VARIABLE: &str = "ENGINEHOUSE_FAILPOINTS";
/// The variable that names the folder whose files arm failpoints.
pub const FOLDER_VARIABLE: &str = "ENGINEHOUSE_FAILPOINTS_FOLDER";
/// The limit of a hold, in case the test does not end it.
#[cfg(debug_assertions)]
const HOLD_AT_MOST: Duration = Duration::from_mins(1);
/// The time that a thread waits after it has sent SIGSTOP to its process: another thread may receive the signal, and this one
/// must not continue meanwhile.
#[cfg(debug_assertions)]
const STOP_TAKES: Duration = Duration::from_millis(100);
/// The interval of checks of a held process.
#[cfg(debug_assertions)]
const HOLD_LOOK: Duration = Duration::from_millis(5);

/// The names of all failpoints of this build.
fn all() -> Vec<&'static str> {
    if !cfg!(debug_assertions) {
        return Vec::new();
    }
    let crates = [
        agent_api::failpoints::ALL,
        #[cfg(feature = "datafusion-engine")]
        datafusion_engine::failpoints::ALL,
        coordination::failpoints::ALL,
        engine_agent::engine::failpoints::ALL,
        engine_agent::metadata::failpoints::ALL,
        hs2::failpoints::ALL,
        master::failpoints::ALL,
        metadata::failpoints::ALL,
        orchestrator::failpoints::ALL,
        ::proxy::failpoints::ALL,
    ];
    let mut names: Vec<&str> = crates.concat();
    names.sort_unstable();
    names
}

/// Prints the names, one on each line.
pub fn list() {
    for name in all() {
        print_line(name);
    }
}

/// The folder whose files arm failpoints, if the environment names one.
pub fn folder() -> Option<String> {
    std::env::var(FOLDER_VARIABLE).ok()
}

/// Arms the failpoints of the environment. An unknown name is refused: a test would wait for it forever.
pub fn arm_from_environment() -> anyhow::Result<()> {
    if let Some(folder) = folder() {
        if !cfg!(debug_assertions) {
            anyhow::bail!("{FOLDER_VARIABLE} is set, and this build has no failpoints");
        }
        follow(&folder)?;
    }
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(()) };
    if !cfg!(debug_assertions) {
        anyhow::bail!("{VARIABLE} is set, and this build has no failpoints");
    }
    for entry in text.split(';').filter(|entry| !entry.is_empty()) {
        let Some((name, action)) = entry.split_once('=') else {
            anyhow::bail!("{VARIABLE}: \"{entry}\" is not of the form name=action");
        };
        if !all().contains(&name) {
            anyhow::bail!(
                "{VARIABLE}: there is no failpoint \"{name}\"\nHint: enginehouse --list-failpoints lists them."
            );
        }
        arm(name, action)?;
    }
    Ok(())
}

#[cfg(debug_assertions)]
fn arm(name: &str, action: &str) -> anyhow::Result<()> {
    use model::failpoint::fail;
    let refused = |error: String| anyhow::anyhow!("{VARIABLE}: {name}={action}: {error}");
    let signal = match action {
        "kill" => Signal::KILL,
        "stop" => Signal::STOP,
        _ => return fail::cfg(name, action).map_err(refused),
    };
    let shown = name.to_owned();
    fail::cfg_callback(name, move || send_to_itself(&shown, signal)).map_err(refused)
}

#[cfg(debug_assertions)]
fn send_to_itself(name: &str, signal: Signal) {
    print_error(&format!("failpoint {name} reached"));
    let _ = kill_process(getpid(), signal);
    #[allow(clippy::disallowed_methods, reason = "a failpoint blocks its thread on purpose")]
    std::thread::sleep(STOP_TAKES);
}

/// Arms every failpoint with the action of its file.
#[cfg(debug_assertions)]
fn follow(folder: &str) -> anyhow::Result<()> {
    if !Path::new(folder).is_dir() {
        anyhow::bail!("{FOLDER_VARIABLE}: {folder} is not a folder");
    }
    for name in all() {
        let folder = PathBuf::from(folder);
        model::failpoint::fail::cfg_callback(name, move || run_file_action(&folder, name))
            .map_err(|error| anyhow::anyhow!("{FOLDER_VARIABLE}: {name}: {error}"))?;
    }
    Ok(())
}

/// Executes the action of the failpoint's file, if this process claims it first.
#[cfg(debug_assertions)]
fn run_file_action(folder: &Path, name: &str) {
    let pid = std::process::id();
    let claimed = folder.join(format!("{name}.{pid}"));
    let claims = |file: String| std::fs::rename(folder.join(file), &claimed).is_ok();
    if !claims(format!("{name}@{pid}")) && !claims(name.to_owned()) {
        return;
    }
    match std::fs::read_to_string(&claimed).unwrap_or_default().trim() {
        "kill" => send_to_itself(name, Signal::KILL),
        "stop" => send_to_itself(name, Signal::STOP),
        "hold" => {
            print_error(&format!("failpoint {name} holds"));
            let until = Instant::now() + HOLD_AT_MOST;
            while claimed.exists() && Instant::now() < until {
                #[allow(clippy::disallowed_methods, reason = "a failpoint blocks its thread on purpose")]
                std::thread::sleep(HOLD_LOOK);
            }
        }
        other => print_error(&format!("failpoint {name}: \"{other}\" is none of kill, stop, hold")),
    }
}

#[cfg(not(debug_assertions))]
fn follow(_folder: &str) -> anyhow::Result<()> {
    Ok(())
}

#[cfg(not(debug_assertions))]
fn arm(_name: &str, _action: &str) -> anyhow::Result<()> {
    Ok(())
}
