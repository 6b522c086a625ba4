//! The `enginehouse` program, built from this checkout.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result};

use crate::output::stdout;
use crate::repository::{files, root};

/// The environment variable with the path of a program that is built already; the scenarios use it too.
const BUILT: &str = "EH_TEST_BINARY";

/// The path of the program, built from the current sources.
///
/// A program that the environment names is used as it is. So is the one in this test's target folder if it is newer than
/// every source: `cargo build` with another selection of packages may select other features and recompile dependencies.
pub fn path() -> Result<PathBuf> {
    if let Some(built) = std::env::var_os(BUILT) {
        return Ok(PathBuf::from(built));
    }
    match in_target_folder() {
        Some(program) if is_up_to_date(&program)? => Ok(program),
        _ => build(),
    }
}

/// `<target>/debug/enginehouse`, if this test is `<target>/debug/deps/<test>`.
fn in_target_folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.parent()?.parent()?.join("enginehouse");
    program.is_file().then_some(program)
}

fn is_up_to_date(program: &Path) -> Result<bool> {
    let age = |path: &Path| Ok::<_, anyhow::Error>(std::fs::metadata(path)?.modified()?);
    let built = age(program).context("the modification time of the program cannot be read")?;
    for file in files()? {
        let is_source = file.path.starts_with("crates/") || matches!(file.path.as_str(), "Cargo.toml" | "Cargo.lock");
        if is_source
            && age(&root().join(&file.path)).with_context(|| format!("the modification time of {}", file.path))? > built
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Prefixes of variables that cargo sets for a test. A build script that depends on one of them would run again, and every
/// crate above it would be recompiled.
const SET_BY_CARGO: [&str; 3] = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_CRATE_"];

fn build() -> Result<PathBuf> {
    let mut build = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        if SET_BY_CARGO.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            build.env_remove(name);
        }
    }
    build.current_dir(root());
    build.args(["build", "--package", "enginehouse", "--message-format", "json-render-diagnostics"]);
    let text = stdout(&mut build).context("the program cannot be built")?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let executable = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    executable.context("cargo reported no executable")
}

/// Runs the program to completion.
pub fn run(arguments: &[&str]) -> Result<Output> {
    command(arguments)?.output().context("the program cannot be run")
}

/// The standard output of the program; an error if it fails.
pub fn printed(arguments: &[&str]) -> Result<String> {
    stdout(&mut command(arguments)?)
}

/// The command that runs the program without `ENGINEHOUSE_` variables.
fn command(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(path()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ENGINEHOUSE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments);
    Ok(command)
}
