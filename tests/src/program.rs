//! The program as it is built from this checkout.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};

use crate::repository::root;

/// Names a program that is built already.
const BUILT: &str = "EH_PROGRAM";

/// Builds the program, which costs nothing when it is up to date, and answers where it is. A program that the
/// environment names is taken as it is.
pub fn build() -> Result<PathBuf> {
    if let Some(built) = std::env::var_os(BUILT) {
        return Ok(PathBuf::from(built));
    }
    let built = Command::new(env!("CARGO"))
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
    let mut command = Command::new(build()?);
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
