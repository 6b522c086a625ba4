//! The output of a command that must succeed.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Runs the command and returns its standard output. The error of a command that fails contains its standard error.
pub fn stdout(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} cannot be run"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of {command:?} is not UTF-8"))
}
