//! The subcommands, one file each.

pub mod config;
mod doctor;
mod engine_agent;
pub mod failpoints;
pub mod keys;
mod metadata_agent;
mod migrate;
mod passwd;
mod proxy;
mod run_child;
mod sql;
mod standalone;

use std::process::ExitCode;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use crate::cli::{Arguments, Command, ConfigCommand};
use crate::{core_files, open_files, termination};

/// The time that the runtime waits for blocking work at exit.
const SHUTDOWN_DEADLINE: std::time::Duration = std::time::Duration::from_secs(2);

/// Runs the subcommand of the command line.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    if arguments.list_failpoints {
        failpoints::list();
        return Ok(ExitCode::SUCCESS);
    }
    let Some(command) = arguments.command else {
        anyhow::bail!("a command is required: see enginehouse --help");
    };
    // The program that it becomes is no role, and inherits the agent's environment.
    if let Command::RunChild(arguments) = &command {
        return run_child::run(arguments);
    }
    failpoints::arm_from_environment()?;
    open_files::allow_all();
    core_files::forbid();
    match command {
        Command::Config { command: ConfigCommand::Check(arguments) } => block_on(config::check(&arguments)),
        Command::Keys { command } => keys::run(&command),
        Command::Passwd(arguments) => passwd::run(&arguments),
        Command::RunChild(arguments) => run_child::run(&arguments),
        Command::Doctor(arguments) => block_on(doctor::run(arguments)),
        Command::Migrate(arguments) => block_on(migrate::run(&arguments)),
        Command::Sql(arguments) => block_on(sql::run(arguments)),
        Command::Proxy(arguments) => until_stopped(|stop| proxy::run(arguments, stop)),
        Command::MetadataAgent(arguments) => until_stopped(|stop| metadata_agent::run(arguments, stop)),
        Command::EngineAgent(arguments) => until_stopped(|stop| engine_agent::run(arguments, stop)),
        Command::Standalone(arguments) => until_stopped(|stop| standalone::run(arguments, stop)),
    }
}

/// Runs a role until the process is asked to terminate.
fn until_stopped<W>(work: impl FnOnce(CancellationToken) -> W) -> anyhow::Result<ExitCode>
where
    W: Future<Output = anyhow::Result<ExitCode>>,
{
    let stop = termination::requested()?;
    block_on(async {
        termination::survive_hang_up()?;
        work(stop).await
    })
}

fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("enginehouse")
        .build()
        .context("could not start the runtime")?;
    let outcome = runtime.block_on(async {
        termination::survive_file_size_limit()?;
        work.await
    });
    runtime.shutdown_timeout(SHUTDOWN_DEADLINE);
    outcome
}
