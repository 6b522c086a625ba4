//! `enginehouse metadata-agent`: the only role with database credentials.

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cli::ConfigurationArgument;
use crate::configuration::Configuration;
use crate::output::print_line;
use crate::{key_files, roles, telemetry};

pub async fn run(arguments: ConfigurationArgument, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    telemetry::start(telemetry::DEFAULT_FILTER)?;
    let configuration = Configuration::load(&arguments.config)?;
    if configuration.database.url.starts_with("sqlite:") {
        anyhow::bail!(
            "database.url is SQLite, which only one process can use\nHint: Use PostgreSQL or MariaDB for separate processes, or run enginehouse standalone."
        );
    }
    roles::warn_about_zookeeper(&configuration);
    let clock = roles::clock();
    let keys = key_files::open(&configuration, &clock)?;
    // Bound first, so that a port in use is reported even if the database is down.
    let listener = roles::metadata_agent_port(&configuration).await?;
    let store = tokio::select! {
        store = roles::open_store(&configuration, &keys, &clock) => store?,
        () = stop.cancelled() => return Ok(ExitCode::SUCCESS),
    };
    let agent = roles::metadata_agent(listener, &configuration, &keys, store, &clock)?;
    tokio::select! {
        () = agent.ready() => {
            print_line(&format!("ready: {}", agent.addr()));
            stop.cancelled().await;
        }
        () = stop.cancelled() => {}
    }
    info!("shutting down");
    agent.shutdown().await;
    Ok(ExitCode::SUCCESS)
}
