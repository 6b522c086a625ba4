//! Whom to look at: an installation as its configuration file names it, or a running `standalone` by its data directory.
//!
//! A section that the file does not have is not looked at: its defaults would name servers of somebody else. Only
//! `[zookeeper]` and `[cluster]` have defaults that are believed, because every role needs both.

use std::path::{Path, PathBuf};
use std::time::Duration;

use coordination::{Identity, Session};
use model::clock::SharedClock;
use model::credential::ClusterSecret;
use orchestrator::kubernetes::Kubernetes;
use tokio::time::timeout;

use crate::command::standalone;
use crate::configuration::{Configuration, OrchestratorKind};
use crate::{orchestrators, roles};

/// The longest time for a connection to be made.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// The longest time for one call of anybody.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// The installation.
pub struct Target {
    /// Its configuration.
    pub configuration: Configuration,
    /// Its secret.
    pub secret: ClusterSecret,
    /// The clocks of this machine.
    pub clock: SharedClock,
    /// How it was named, for the first line.
    pub named: String,
    /// What commands against it say: `--config FILE`.
    pub argument: String,
    /// Why the database itself is not looked at, if it isn't.
    pub no_database: Option<String>,
    /// The database is this `SQLite` file, which another process has: it is looked at beside that one, and metadata agents
    /// say what is wanted.
    pub file_of_database: Option<PathBuf>,
    /// Why the place of engines is not looked at, if it isn't.
    pub no_orchestrator: Option<String>,
    /// The cluster, where engines are pods; why it can't be asked.
    pub cluster: Option<Result<Kubernetes, String>>,
    /// Why the file's own proxy is not looked at, if it isn't.
    pub no_proxy: Option<String>,
}

impl Target {
    /// From a configuration file.
    pub async fn of_file(file: &Path, clock: &SharedClock) -> anyhow::Result<Self> {
        let configuration = Configuration::load(file)?;
        let sections = Configuration::named_sections(file)?;
        let secret = roles::read_secret(&configuration.cluster.secret_file)?;
        let absent = |section: &str, what: &str| {
            (!sections.contains(section)).then(|| format!("{} has no section [{section}]{what}", file.display()))
        };
        let no_database = absent("database", "; metadata agents are asked instead");
        let file_of_database = if no_database.is_none() && configuration.database.url.starts_with("sqlite:") {
            Some(metadata::StoreSettings::new(&configuration.database.url).sqlite_path()?)
        } else {
            None
        };
        let any_port = (configuration.proxy.listen.port() == 0)
            .then(|| "proxy.listen has port 0, so where it listens is not in the file".to_owned());
        let no_orchestrator = absent("orchestrator", "");
        let pods = no_orchestrator.is_none() && configuration.orchestrator.kind == OrchestratorKind::Kubernetes;
        let cluster = if pods {
            Some(
                orchestrators::open_kubernetes(&configuration, &secret, clock).await.map_err(|error| error.to_string()),
            )
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
            secret,
            clock: clock.clone(),
        })
    }

    /// The `standalone` that runs in this folder.
    pub fn of_standalone(folder: &Path, clock: &SharedClock) -> anyhow::Result<Self> {
        let running = standalone::Running::find(folder)?;
        Ok(Self {
            named: format!("standalone, process {}, in {}", running.pid, folder.display()),
            argument: format!("--data-dir {}", folder.display()),
            no_database: None,
            file_of_database: Some(metadata::StoreSettings::new(&running.configuration.database.url).sqlite_path()?),
            no_orchestrator: None,
            cluster: None,
            no_proxy: (!running.listens)
                .then(|| "the standalone has not started yet: its proxy does not listen".to_owned()),
            configuration: running.configuration,
            secret: running.secret,
            clock: clock.clone(),
        })
    }

    /// How ZooKeeper is reached, as a master that stands in no queue: only a master may read everything.
    pub fn zookeeper(&self) -> anyhow::Result<coordination::SessionSettings> {
        let mut settings = roles::zookeeper(&self.configuration, Identity::Master(self.secret.clone()))?;
        settings.connect_timeout = CONNECT_DEADLINE;
        settings.request_timeout = CALL_DEADLINE;
        settings.watch_events = false;
        Ok(settings)
    }

    /// How the database is reached: one connection or two, and not for long.
    pub fn database(&self) -> metadata::StoreSettings {
        let mut settings = metadata::StoreSettings::new(&self.configuration.database.url);
        settings.connections = 2;
        settings.connect_deadline = CONNECT_DEADLINE;
        settings.call_deadline = CALL_DEADLINE;
        settings
    }

    /// How long the master may be silent: three of its ticks.
    pub fn stale_after(&self) -> Duration {
        self.configuration.master.tick_interval.0 * engine_agent::metadata::STALE_AFTER_TICKS
    }

    /// Whether one process is everything by design.
    pub fn is_standalone(&self) -> bool {
        self.named.starts_with("standalone")
    }

    /// What brings the tables up to date.
    pub fn migrate(&self) -> String {
        if self.is_standalone() {
            return "end this standalone and start it again: it migrates when it starts".to_owned();
        }
        format!("enginehouse migrate {}", self.argument)
    }

    /// How a master is started.
    pub fn start_a_master(&self) -> String {
        if self.is_standalone() {
            return "end this standalone and start it again; enginehouse.log in its folder says why it has no master"
                .to_owned();
        }
        format!("start a proxy that may become master: enginehouse proxy {} (master.candidate = true)", self.argument)
    }
}

/// Ends a wait that takes too long.
pub async fn bounded<T, E: std::fmt::Display>(
    what: &str,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout(CALL_DEADLINE * 2, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("{what} took longer than {} s", (CALL_DEADLINE * 2).as_secs())),
    }
}

/// Builds a session within its time.
pub async fn session(target: &Target) -> Result<Session, String> {
    let settings = target.zookeeper().map_err(|error| format!("{error:#}"))?;
    bounded("a session with zookeeper", Session::connect(&settings, &target.clock)).await
}
