//! `enginehouse run-child`: becomes a child process of an engine agent, with a clean signal mask and bound to the agent's life.
//!
//! The agent starts its child through this hidden subcommand, because a child's signal mask and its parent-death signal can
//! be set only inside the child, and the standard library offers no way to run code there that is not unsafe. The steps, in
//! this order: unblock every signal (the agent blocks SIGTERM and SIGINT, and children inherit that); request SIGKILL for
//! the moment at which the parent ends; compare the parent with the expected one; exec. The comparison closes a gap: an
//! agent that ended before the request was made would never be noticed.
//!
//! The kernel delivers the signal when the *thread* that started this process ends, so the agent keeps that thread for as
//! long as the child runs: `engine_types::child_process`.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::cli::RunChildArguments;

/// Replaces this process by the program; returns only on failure.
pub fn run(arguments: &RunChildArguments) -> anyhow::Result<ExitCode> {
    SigSet::empty().thread_set_mask().context("cannot reset the signal mask")?;
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot set the parent-death signal")?;
    if getppid().map(Pid::as_raw_pid) != Some(arguments.parent) {
        bail!("parent process {} has ended", arguments.parent);
    }
    let Some((program, words)) = arguments.command.split_first() else { bail!("no program specified") };
    let error = Command::new(program).args(words).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
