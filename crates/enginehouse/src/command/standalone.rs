//! `enginehouse standalone`: every role in one process, with embedded servers and without configuration.
//!
//! The parts and their protocols are those of separate processes. Only ZooKeeper and the database are embedded, and engines
//! are child processes. Engines survive a kill of `standalone`: the next one adopts those that are still desired, with their
//! pids, and terminates the others. On SIGTERM it drains its engines for at most [`DRAIN`].

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
use crate::configuration::{Authentication, Configuration};
use crate::output::{print_error, print_line, with_causes};
use crate::{key_files, orchestrators, roles, telemetry};
use data_dir::DataDir;
pub use running::RunningStandalone;
use shutdown::DRAIN;

/// The deadline for the master's first tick.
const START_DEADLINE: Duration = Duration::from_mins(1);

/// The running parts.
struct Parts {
    zookeeper: embedded_zookeeper::Server,
    agent: MetadataAgent,
    store: Store,
    proxy: Proxy,
    master: Master,
    orchestrator: Arc<dyn Orchestrator>,
    processes: orchestrator::process::Config,
    cluster: String,
}

pub async fn run(arguments: StandaloneArguments, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let requested = settings::read(&arguments)?;
    settings::check_exposure(&requested, &arguments)?;
    let data = DataDir::open(&arguments.data_dir)?;
    telemetry::start_in_file(&data.log_file())?;
    let clock = roles::clock();
    let configuration = requested.clone();
    let parts = start(&data, requested, &clock).await?;
    let acting = tokio::select! {
        acting = wait_until_acting(&parts.master) => acting,
        () = stop.cancelled() => Ok(()),
    };
    if let Err(error) = acting {
        // Not ready, so engines that it may have started are terminated here.
        return Err(match shutdown::shut_down(parts).await {
            Ok(()) => error,
            Err(left) => error.context(left),
        });
    }
    let address = parts.proxy.addr();
    if !stop.is_cancelled() {
        info!("all roles are running");
        data.keep_address(address);
        print_line(&format!("ready: {}", roles::client_url(&configuration, address)));
        print_line(&format!("data and logs: {}", data.root().display()));
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
                print_error(&format!("the tour failed: {}", with_causes(&error)));
                code = ExitCode::FAILURE;
            }
        }
    }
    if !arguments.exit && !stop.is_cancelled() {
        print_line(&how_to_connect(&configuration, address));
        stop.cancelled().await;
    }
    print_line(&format!("shutting down: running statements have up to {} s to finish", DRAIN.as_secs()));
    shutdown::shut_down(parts).await?;
    print_line("shut down; no engine is left running");
    Ok(code)
}

async fn start(data: &DataDir, requested: Configuration, clock: &SharedClock) -> anyhow::Result<Parts> {
    let zookeeper = embedded_zookeeper::Server::start(embedded_zookeeper::Config {
        data_dir: Some(data.zookeeper()),
        ..embedded_zookeeper::Config::default()
    })
    .await
    .context("could not start the embedded ZooKeeper")?;
    let configuration = settings::complete(requested, data, zookeeper.addr())?;
    data.keep_configuration(&configuration)?;
    data.make_keys(&configuration.cluster.name)?;
    let keys = key_files::open_all(&configuration, clock)?;
    roles::migrate(&configuration).await?;
    let store = roles::open_store(&configuration, &keys.metadata_agent, clock).await?;
    let listener = roles::metadata_agent_port(&configuration).await?;
    let agent = roles::metadata_agent(listener, &configuration, &keys.metadata_agent, store.clone(), clock)?;
    let orchestrator = orchestrators::open(&configuration, &keys.master, clock).await?;
    let proxy = roles::proxy(&configuration, &keys.proxy, clock).await?;
    let holder = roles::holder("standalone");
    let processes = orchestrators::process_config(&configuration)?;
    let master = roles::master(&configuration, &keys.master, Arc::clone(&orchestrator), holder, clock)?;
    Ok(Parts { zookeeper, agent, store, proxy, master, orchestrator, processes, cluster: configuration.cluster.name })
}

async fn wait_until_acting(master: &Master) -> anyhow::Result<()> {
    let mut state = master.state();
    let acting = state.wait_for(|state| matches!(state, CandidateState::Acting { ticks, .. } if *ticks > 0));
    match tokio::time::timeout(START_DEADLINE, acting).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => bail!("the master ended during the start"),
        Err(_) => bail!("no master was elected within {} s; see the log", START_DEADLINE.as_secs()),
    }
}

fn how_to_connect(configuration: &Configuration, address: SocketAddr) -> String {
    let (host, port, url) = (address.ip(), address.port(), roles::client_url(configuration, address));
    let (access, file) = (&configuration.access, configuration.access.users_file.display());
    let login = match (access.uses(Authentication::File), access.uses(Authentication::Ldap)) {
        (false, false) => None,
        (true, false) => Some(format!("as a user of {file}, with the password")),
        (false, true) => Some("as a user of the directory, with the password".to_owned()),
        (true, true) => Some(format!("as a user of {file} or of the directory, with the password")),
    };
    let token =
        access.uses(Authentication::Jwt).then(|| format!("with a token of {} over HTTP", configuration.jwt.issuer));
    let ticket = access.uses(Authentication::Kerberos).then(|| "with a Kerberos ticket".to_owned());
    let ways: Vec<String> = login.into_iter().chain(token).chain(ticket).collect();
    let login = if ways.is_empty() { "as user admin, without a password".to_owned() } else { ways.join(", or ") };
    let (option, trust, pyhive) = if configuration.logins_require_tls() {
        (" --tls --ca FILE", ";sslTrustStore=FILE", "see docs/security.md".to_owned())
    } else {
        ("", "", format!("hive.connect(host='{host}', port={port}, username='admin')"))
    };
    format!(
        "\nconnect {login}:\n\
         \x20 enginehouse  enginehouse sql --url {address}{option}\n\
         \x20 BeeLine      beeline -u '{url}{trust}' -n admin\n\
         \x20 DBeaver      Apache Hive 2+, JDBC URL {url}{trust}, user admin\n\
         \x20 PyHive       {pyhive}\n\
         Press Ctrl-C to stop."
    )
}
