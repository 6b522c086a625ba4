//! The program as it is built from this checkout.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};

use crate::repository::{files, root};

/// Names a program that is built already; the scenarios know it too.
const BUILT: &str = "EH_TEST_BINARY";

/// Where the program is, built from the sources as they are now.
///
/// A program that the environment names is taken as it is. One that stands beside this test and is younger than every
/// source is taken too: cargo would say the same, but another selection of packages than the one that this test was
/// built with may want other features, and compile much for nothing.
pub fn path() -> Result<PathBuf> {
    if let Some(built) = std::env::var_os(BUILT) {
        return Ok(PathBuf::from(built));
    }
    match beside() {
        Some(program) if is_up_to_date(&program)? => Ok(program),
        _ => build(),
    }
}

/// `<target>/debug/enginehouse`, if this test is `<target>/debug/deps/<test>`.
fn beside() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.parent()?.parent()?.join("enginehouse");
    program.is_file().then_some(program)
}

fn is_up_to_date(program: &Path) -> Result<bool> {
    let age = |path: &Path| Ok::<_, anyhow::Error>(std::fs::metadata(path)?.modified()?);
    let built = age(program).context("the program's age can't be read")?;
    for file in files()? {
        let is_source = file.path.starts_with("crates/") || matches!(file.path.as_str(), "Cargo.toml" | "Cargo.lock");
        if is_source && age(&root().join(&file.path)).with_context(|| format!("the age of {}", file.path))? > built {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What cargo sets for a test that it runs. A build script that asks cargo to look at one of them would run again with it,
/// and everything above its crate would be compiled again.
const SET_BY_CARGO: [&str; 3] = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_CRATE_"];

fn build() -> Result<PathBuf> {
    let mut build = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        if SET_BY_CARGO.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            build.env_remove(name);
        }
    }
    let built = build
        .current_dir(root())
        .args(["build", "--package", "enginehouse", "--message-format", "json-render-diagnostics"])
        .output()
        .context("cargo can't be run")?;
    if !built.status.success() {
        bail!("the program can't be built:\n{}", String::from_utf8_lossy(&built.stderr));
    }
    let text = String::from_utf8_lossy(&built.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let executable = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    executable.context("cargo names no program that it built")
}

/// Runs the program to its end, without any variable of ours in its environment.
pub fn run(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(path()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ENGINEHOUSE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).output().context("the program can't be run")
}

/// What the program prints to standard output, if it succeeds.
pub fn printed(arguments: &[&str]) -> Result<String> {
    let output = run(arguments)?;
    if !output.status.success() {
        bail!("enginehouse {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("the program printed no UTF-8")
}
