//! `enginehouse proxy`: a proxy, and by default a candidate for master.

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cli::ConfigurationArgument;
use crate::configuration::Configuration;
use crate::output::print_line;
use crate::{key_files, orchestrators, roles, telemetry};

pub async fn run(arguments: ConfigurationArgument, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    telemetry::start(telemetry::DEFAULT_FILTER)?;
    let configuration = Configuration::load(&arguments.config)?;
    roles::warn_about_zookeeper(&configuration);
    let clock = roles::clock();
    let keys = key_files::open(&configuration, &clock)?;
    // Both are read before the proxy listens.
    let of_master = configuration.master.candidate.then(|| key_files::open(&configuration, &clock)).transpose()?;
    let proxy = roles::proxy(&configuration, &keys, &clock).await?;
    let master = match &of_master {
        Some(keys) => {
            let orchestrator = orchestrators::open(&configuration, keys, &clock).await?;
            Some(roles::master(&configuration, keys, orchestrator, roles::holder("proxy"), &clock)?)
        }
        None => None,
    };
    tokio::select! {
        () = proxy.ready() => {
            let address = proxy.addr();
            let serves_clients = configuration.proxy.serves_clients;
            let ready = if serves_clients { roles::client_url(&configuration, address) } else { address.to_string() };
            print_line(&format!("ready: {ready}"));
            stop.cancelled().await;
        }
        () = stop.cancelled() => {}
    }
    info!("shutting down");
    // The lease first: another master takes over while this proxy closes its sessions.
    if let Some(master) = master {
        master.shutdown().await;
    }
    proxy.drain(configuration.proxy.drain_grace.0).await;
    proxy.shutdown().await;
    Ok(ExitCode::SUCCESS)
}
