//! `enginehouse engine-agent`: the agent of one engine, started by the master with a file for this engine.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use coordination::{Identity, Layout, Logins};
use engine_agent::engine::{self, Ended, EngineAgentError};
use model::cause::chain;
use model::end::EXIT_CONFIGURATION;
use model::table_catalog::TableCatalog;
use orchestrator::UID_VARIABLE;
use orchestrator::kubernetes::render::{ADDRESS_VARIABLE, PORT_VARIABLE};
use orchestrator::process::DIRECTORY_VARIABLE;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::cli::ConfigurationArgument;
use crate::configuration::refuse_other_variables;
use crate::engine_file::EngineFile;
use crate::engine_types::host::EngineHost;
use crate::engine_types::{Connector, connector};
use crate::output::with_causes;
use crate::telemetry::LastLines;
use crate::{roles, telemetry};

mod limits;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

pub async fn run(arguments: ConfigurationArgument, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let log = telemetry::start_keeping_last_lines(telemetry::DEFAULT_FILTER)?;
    let path = &arguments.config;
    let shown = || format!("cannot read the file of the engine, {}", path.display());
    if std::fs::metadata(path).with_context(shown)?.len() > MAX_FILE_BYTES {
        anyhow::bail!("the engine's file {} is too large", path.display());
    }
    let file: EngineFile = toml::from_str(&std::fs::read_to_string(path).with_context(shown)?).with_context(shown)?;
    refuse_other_variables(&[UID_VARIABLE, DIRECTORY_VARIABLE, ADDRESS_VARIABLE, PORT_VARIABLE])?;
    let host = EngineHost::from_environment()?;
    if let Err(error) = host.check_files(path.parent().unwrap_or(Path::new(""))) {
        // The name is used up; a master gives the slot another one.
        leave(&host, &log, &with_causes(&error));
        return Err(error);
    }
    let connector = connector(file.engine_type);
    let settings = settings(&file, connector.catalog(&file, &host), &host)?;
    limits::apply(&file, connector.limits_address_space(), &host);
    let runtime = connector.runtime(&file, &host)?;
    let ended = engine::run(settings, runtime, roles::clock(), stop, host.until_unwanted()).await;
    match ended {
        Ok(Ended::Drained) => {
            info!("drained");
            leave(&host, &log, "drained");
            Ok(ExitCode::SUCCESS)
        }
        Ok(Ended::Unwanted(reason)) => {
            info!(reason, "shutting down");
            leave(&host, &log, &reason);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Ok(failed(connector, &host, &log, &error)),
    }
}

/// The exit code tells the master whether the same start may succeed later.
fn failed(connector: &dyn Connector, host: &EngineHost, log: &LastLines, error: &EngineAgentError) -> ExitCode {
    let reason = chain(error).to_string();
    error!(reason, "the engine failed");
    leave(host, log, &reason);
    if connector.is_misconfigured(error) { ExitCode::from(EXIT_CONFIGURATION) } else { ExitCode::FAILURE }
}

/// Stores the reason for SHOW.
fn leave(host: &EngineHost, log: &LastLines, reason: &str) {
    if let Err(error) = host.leave_reason(reason, log) {
        error!(%error, "could not store the reason for the master");
    }
}

fn settings(file: &EngineFile, catalog: TableCatalog, host: &EngineHost) -> anyhow::Result<engine::Settings> {
    let layout = Layout::new(&file.zookeeper.root, None).context("zookeeper.root")?;
    let identity = Identity::fixed(Logins::engine(&file.credential));
    let mut zookeeper = coordination::SessionSettings::new(file.zookeeper.connect.clone(), layout, identity);
    zookeeper.tls = file.zookeeper.trust()?;
    zookeeper.session_timeout = file.zookeeper.session_timeout.0;
    zookeeper.watch_events = file.zookeeper.watch_events;
    Ok(engine::Settings {
        engine: file.name.clone(),
        uid: host.uid().to_owned(),
        listen: host.listen(),
        advertise_host: None,
        run_as: file.run_as.clone(),
        keys: file.keys,
        callers: file.callers(),
        tls: file.tls.clone(),
        config: file.config.clone(),
        catalog,
        zookeeper,
        start_deadline: file.start_deadline.0,
        limits: hs2::Limits::default(),
    })
}
