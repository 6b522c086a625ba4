//! `enginehouse standalone`: every role on this machine, with embedded parts and nothing to configure.
//!
//! The parts are the same as in separate processes and speak the same protocols; only ZooKeeper and the database are
//! embedded, and engines are child processes. Engines outlive a killed `standalone`: the next one finds those that are
//! wanted, with their pids, and ends the others. Told to end, it drains its engines for at most [`DRAIN`].

mod data_dir;
mod running;
mod settings;
mod shutdown;
mod tour;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use engine_agent::metadata::MetadataAgent;
use master::{CandidateState, Master};
use metadata::Store;
use model::clock::SharedClock;
use orchestrator::Orchestrator;
use proxy::Proxy;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cli::StandaloneArguments;
use crate::configuration::Configuration;
use crate::output::{print_error, print_line};
use crate::{orchestrators, roles, telemetry};
use data_dir::DataDir;
pub use running::Running;
use shutdown::DRAIN;

/// How long the parts may take until the master acts.
const START_DEADLINE: Duration = Duration::from_mins(1);

/// The parts that run.
struct Parts {
    zookeeper: embedded_zookeeper::Server,
    agent: MetadataAgent,
    store: Store,
    proxy: Proxy,
    master: Master,
    orchestrator: Arc<dyn Orchestrator>,
    /// Where the orchestrator keeps engines.
    processes: orchestrator::process::Config,
    cluster: String,
}

pub async fn run(arguments: StandaloneArguments, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let asked = settings::asked_for(&arguments)?;
    if !asked.proxy.listen.ip().is_loopback() {
        bail!(
            "standalone believes every name that a client gives, so it listens on a loopback address only, not on {}\n\
             Hint: run the roles as separate processes with access.insecure = true if this network is trusted",
            asked.proxy.listen
        );
    }
    let data = DataDir::open(&arguments.data_dir)?;
    telemetry::start_in_file(&data.log_file())?;
    let clock = roles::clock();
    let parts = start(&data, asked, &clock).await?;
    let acting = tokio::select! {
        acting = wait_until_acting(&parts.master) => acting,
        () = stop.cancelled() => Ok(()),
    };
    if let Err(error) = acting {
        // Nobody says ready, so nobody would end what it may have started.
        return Err(match shutdown::shut_down(parts).await {
            Ok(()) => error,
            Err(left) => error.context(left),
        });
    }
    let address = parts.proxy.addr();
    if !stop.is_cancelled() {
        info!("every role runs");
        data.keep_address(address);
        print_line(&format!("ready: jdbc:hive2://{address}/"));
        print_line(&format!("data, engine logs and our own log: {}", data.root().display()));
    }
    let mut code = ExitCode::SUCCESS;
    if arguments.tour && !stop.is_cancelled() {
        let played = tokio::select! {
            played = tour::play(address, &data, arguments.seed) => played,
            () = stop.cancelled() => Ok(true),
        };
        match played {
            Ok(true) => {}
            Ok(false) => code = ExitCode::FAILURE,
            Err(error) => {
                print_error(&format!("the tour ended early: {error:#}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    if !arguments.exit && !stop.is_cancelled() {
        print_line(&how_to_connect(address));
        stop.cancelled().await;
    }
    print_line(&format!("ending: engines may finish what runs for at most {} s", DRAIN.as_secs()));
    shutdown::shut_down(parts).await?;
    print_line("ended, nothing is left running");
    Ok(code)
}

async fn start(data: &DataDir, asked: Configuration, clock: &SharedClock) -> anyhow::Result<Parts> {
    let secret = data.secret()?;
    let zookeeper = embedded_zookeeper::Server::start(embedded_zookeeper::Config {
        data_dir: Some(data.zookeeper()),
        ..embedded_zookeeper::Config::default()
    })
    .await
    .context("the embedded ZooKeeper did not start")?;
    let configuration = settings::complete(asked, data, zookeeper.addr())?;
    data.keep_configuration(&configuration)?;
    roles::migrate(&configuration).await?;
    let store = roles::open_store(&configuration, &secret, clock).await?;
    let listener = roles::metadata_agent_port(&configuration).await?;
    let agent = roles::metadata_agent(listener, &configuration, &secret, store.clone(), clock)?;
    let orchestrator = orchestrators::open(&configuration, &secret, clock).await?;
    let proxy = roles::proxy(&configuration, &secret, clock).await?;
    let holder = roles::holder("standalone");
    let processes = orchestrators::process_config(&configuration)?;
    let master = roles::master(&configuration, &secret, Arc::clone(&orchestrator), holder, clock)?;
    Ok(Parts { zookeeper, agent, store, proxy, master, orchestrator, processes, cluster: configuration.cluster.name })
}

async fn wait_until_acting(master: &Master) -> anyhow::Result<()> {
    let mut state = master.state();
    let acting = state.wait_for(|state| matches!(state, CandidateState::Acting { ticks, .. } if *ticks > 0));
    match tokio::time::timeout(START_DEADLINE, acting).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => bail!("the master ended while it started"),
        Err(_) => bail!("the master did not act within {} s; the log says why", START_DEADLINE.as_secs()),
    }
}

fn how_to_connect(address: SocketAddr) -> String {
    let (host, port) = (address.ip(), address.port());
    format!(
        "\nconnect while this runs (user admin, no password):\n\
         \x20 enginehouse  enginehouse sql --url {address}\n\
         \x20 BeeLine      beeline -u jdbc:hive2://{address}/ -n admin\n\
         \x20 DBeaver      Apache Hive 2+, JDBC URL jdbc:hive2://{address}/, user admin\n\
         \x20 PyHive       hive.connect(host='{host}', port={port}, username='admin')\n\
         Ctrl-C ends everything."
    )
}
