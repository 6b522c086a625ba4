//! The doctor's target: an installation by its configuration file, or a running `standalone` by its data directory.
//!
//! A section that the file does not have is skipped, since its defaults may name servers of another installation. Only
//! `[zookeeper]` and `[cluster]` are used with their defaults, because every role needs both.

use std::path::{Path, PathBuf};
use std::time::Duration;

use coordination::Session;
use model::cause::chain;
use model::clock::SharedClock;
use orchestrator::kubernetes::Kubernetes;
use tokio::time::timeout;

use super::role_files::RoleFiles;
use crate::command::standalone;
use crate::configuration::{Configuration, OrchestratorKind};
use crate::output::with_causes;
use crate::{orchestrators, roles};

/// The deadline of a connection attempt.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// The deadline of a call.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// The time after a deadline within which the master must have acted.
pub const REACTION_TIME: Duration = Duration::from_secs(10);

pub struct Target {
    pub configuration: Configuration,
    pub keys: RoleFiles,
    pub clock: SharedClock,
    /// Its name in the first line of the report.
    pub named: String,
    /// The argument of commands for it: `--config FILE`.
    pub argument: String,
    /// Why the database itself is skipped, if it is.
    pub no_database: Option<String>,
    /// The `SQLite` file that is the database, if another process owns it: the file is read as it is, and metadata agents
    /// report the desired state.
    pub file_of_database: Option<PathBuf>,
    /// Why the orchestrator is skipped, if it is.
    pub no_orchestrator: Option<String>,
    /// The cluster if engines are pods, or why it cannot be used.
    pub cluster: Option<Result<Kubernetes, String>>,
    /// Why the proxy of the file is skipped, if it is.
    pub no_proxy: Option<String>,
}

impl Target {
    pub async fn of_file(file: &Path, clock: &SharedClock) -> anyhow::Result<Self> {
        let configuration = Configuration::load(file)?;
        let sections = Configuration::named_sections(file)?;
        let keys = RoleFiles::read(&configuration)?;
        let absent = |section: &str, what: &str| {
            (!sections.contains(section)).then(|| format!("{} has no section [{section}]{what}", file.display()))
        };
        let no_database = absent("database", "; using metadata agents instead");
        let file_of_database = if no_database.is_none() && configuration.database.url.starts_with("sqlite:") {
            Some(metadata::StoreSettings::new(&configuration.database.url).sqlite_path()?)
        } else {
            None
        };
        let any_port = (configuration.proxy.listen.port() == 0)
            .then(|| "proxy.listen has port 0, so the file does not have the port of the proxy".to_owned());
        let no_orchestrator = absent("orchestrator", "");
        let pods = no_orchestrator.is_none() && configuration.orchestrator.kind == OrchestratorKind::Kubernetes;
        let cluster = if pods {
            Some(match &keys.master {
                Ok(keys) => orchestrators::open_kubernetes(&configuration, keys, clock)
                    .await
                    .map_err(|error| with_causes(&error)),
                Err(reason) => Err(reason.clone()),
            })
        } else {
            None
        };
        Ok(Self {
            cluster,
            named: format!("configuration {}", file.display()),
            argument: format!("--config {}", file.display()),
            no_database,
            file_of_database,
            no_orchestrator,
            no_proxy: absent("proxy", "").or(any_port),
            configuration,
            keys,
            clock: clock.clone(),
        })
    }

    /// The `standalone` that runs in this folder.
    pub fn of_standalone(folder: &Path, clock: &SharedClock) -> anyhow::Result<Self> {
        let running = standalone::RunningStandalone::find(folder)?;
        Ok(Self {
            named: format!("standalone, process {}, in {}", running.pid, folder.display()),
            argument: format!("--data-dir {}", folder.display()),
            no_database: None,
            file_of_database: Some(metadata::StoreSettings::new(&running.configuration.database.url).sqlite_path()?),
            no_orchestrator: None,
            cluster: None,
            no_proxy: (!running.listens)
                .then(|| "the standalone is starting: its proxy does not listen yet".to_owned()),
            keys: RoleFiles::read(&running.configuration)?,
            configuration: running.configuration,
            clock: clock.clone(),
        })
    }

    /// ZooKeeper, if possible with a master's identity but without a candidacy: only masters may read everything.
    pub fn zookeeper(&self) -> anyhow::Result<coordination::SessionSettings> {
        let identity = self.keys.zookeeper().map_err(|reason| anyhow::anyhow!("{reason}"))?;
        let mut settings = roles::zookeeper(&self.configuration, identity)?;
        settings.connect_timeout = CONNECT_DEADLINE;
        settings.request_timeout = CALL_DEADLINE;
        settings.watch_events = false;
        Ok(settings)
    }

    /// The database, with at most two connections and short deadlines.
    pub fn database(&self) -> metadata::StoreSettings {
        let mut settings = self.configuration.database.settings();
        settings.connections = 2;
        settings.connect_deadline = CONNECT_DEADLINE;
        settings.call_deadline = CALL_DEADLINE;
        settings
    }

    /// The age of the last tick from which on it is stale.
    pub fn stale_after(&self) -> Duration {
        self.configuration.master.tick_interval.0 * engine_agent::metadata::STALE_AFTER_TICKS
    }

    /// Whether one process is the whole installation.
    pub fn is_standalone(&self) -> bool {
        self.named.starts_with("standalone")
    }

    /// The command that migrates the database.
    pub fn migrate(&self) -> String {
        if self.is_standalone() {
            return "restart this standalone, which migrates at its start".to_owned();
        }
        format!("enginehouse migrate {}", self.argument)
    }

    /// The command that starts a master.
    pub fn start_a_master(&self) -> String {
        if self.is_standalone() {
            return "restart this standalone; enginehouse.log in its folder has the reason".to_owned();
        }
        format!(
            "start a proxy that is a candidate for master: enginehouse proxy {} (master.candidate = true)",
            self.argument
        )
    }
}

/// Runs a call with a deadline.
pub async fn bounded<T, E: std::error::Error + 'static>(
    what: &str,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout(CALL_DEADLINE * 2, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(chain(&error).to_string()),
        Err(_) => Err(format!("{what} took longer than {} s", (CALL_DEADLINE * 2).as_secs())),
    }
}

/// Opens a session within its deadline.
pub async fn session(target: &Target) -> Result<Session, String> {
    let settings = target.zookeeper().map_err(|error| with_causes(&error))?;
    bounded("opening a session with ZooKeeper", Session::connect(&settings, &target.clock)).await
}
