//! `enginehouse engine-agent`: the agent of one engine, started by the master with a file for this engine.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use coordination::{Identity, Layout};
use engine_agent::engine::{self, Ended, EngineRuntime};
use model::cause::chain;
use model::engine_type::EngineType;
use model::table_catalog::TableCatalog;
use orchestrator::UID_VARIABLE;
use orchestrator::kubernetes::render::{ADDRESS_VARIABLE, PORT_VARIABLE};
use orchestrator::process::DIRECTORY_VARIABLE;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::cli::ConfigurationArgument;
use crate::configuration::refuse_other_variables;
use crate::launch::EngineFile;
use crate::telemetry::LastLines;
use crate::{roles, telemetry};

mod child_process;
mod datafusion;
mod host;
mod limits;
mod spark;
mod supervised;

use host::EngineHost;

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
    let settings = settings(&file, &host)?;
    limits::apply(&file, &host);
    let runtime: Arc<dyn EngineRuntime> = match file.engine_type {
        EngineType::Datafusion => datafusion::runtime(&file)?,
        EngineType::Spark => spark::runtime(&file, &host)?,
    };
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
        Err(error) => Ok(failed(&host, &log, &chain(&error).to_string())),
    }
}

fn failed(host: &EngineHost, log: &LastLines, reason: &str) -> ExitCode {
    error!(reason, "the engine failed");
    leave(host, log, reason);
    ExitCode::FAILURE
}

/// Stores the reason for SHOW.
fn leave(host: &EngineHost, log: &LastLines, reason: &str) {
    if let Err(error) = host.leave_reason(reason, log) {
        error!(%error, "could not store the reason for the master");
    }
}

/// Whether the catalog is the engine's own. Local `DataFusion` engines share their tenant's folder; a pod has its own volume.
fn catalog(file: &EngineFile, host: &EngineHost) -> TableCatalog {
    let is_shared = match file.engine_type {
        EngineType::Datafusion => file.catalog.is_some() || matches!(host, EngineHost::Process(_)),
        EngineType::Spark => file.has_metastore,
    };
    if is_shared { TableCatalog::Shared } else { TableCatalog::Own }
}

fn settings(file: &EngineFile, host: &EngineHost) -> anyhow::Result<engine::Settings> {
    let layout = Layout::new(&file.zookeeper.root, None).context("zookeeper.root")?;
    let identity = Identity::Engine(file.credential.clone());
    let mut zookeeper = coordination::SessionSettings::new(file.zookeeper.connect.clone(), layout, identity);
    zookeeper.session_timeout = file.zookeeper.session_timeout.0;
    zookeeper.watch_events = file.zookeeper.watch_events;
    Ok(engine::Settings {
        engine: file.name.clone(),
        uid: host.uid().to_owned(),
        listen: host.listen(),
        advertise_host: None,
        key: engine::Key(file.key.clone()),
        config: file.config.clone(),
        catalog: catalog(file, host),
        zookeeper,
        start_deadline: file.start_deadline.0,
        limits: hs2::Limits::default(),
    })
}
