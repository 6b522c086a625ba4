//! Failpoints: their names, and what a test wants to happen at them.
//!
//! `ENGINEHOUSE_FAILPOINTS=name=kill;name=stop;name=sleep(500)` arms them: `kill` ends the process with SIGKILL, `stop`
//! stops it with SIGSTOP, everything else is an action of crate `fail`. A release build has none, and refuses the
//! variable.

#[cfg(debug_assertions)]
use crate::say::complain;
use crate::say::say;

#[cfg(debug_assertions)]
use rustix::process::{Signal, getpid, kill_process};

/// The variable that arms failpoints.
const VARIABLE: &str = "ENGINEHOUSE_FAILPOINTS";

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

/// Prints the names, one a line.
pub fn list() {
    for name in all() {
        say(name);
    }
}

/// Arms what the environment names. A name that does not exist is refused: a test that waits for it would wait for
/// ever.
pub fn arm_from_environment() -> anyhow::Result<()> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(()) };
    if !cfg!(debug_assertions) {
        anyhow::bail!("{VARIABLE} is set, and this build has no failpoints");
    }
    for entry in text.split(';').filter(|it| !it.is_empty()) {
        let Some((name, action)) = entry.split_once('=') else {
            anyhow::bail!("{VARIABLE}: \"{entry}\" is not of the form name=action");
        };
        if !all().contains(&name) {
            anyhow::bail!("{VARIABLE}: there is no failpoint \"{name}\"\nHint: enginehouse --list-failpoints");
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
    fail::cfg_callback(name, move || {
        complain(&format!("failpoint {shown} reached"));
        let _ = kill_process(getpid(), signal);
    })
    .map_err(refused)
}

#[cfg(not(debug_assertions))]
fn arm(_name: &str, _action: &str) -> anyhow::Result<()> {
    Ok(())
}
