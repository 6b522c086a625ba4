//! Engine agents with DataFusion beside them.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent_api::EngineStatus;
use async_trait::async_trait;
use coordination::{EngineCredential, Identity};
use datafusion_engine::{Config, Credential, Engine, Limits, Server};
use engine_agent::engine::{self, Backend, Ended, EngineAgentError, EngineRuntime, Key, RuntimeError, Settings};
use hs2::{Auth, Client, ClientError, ClientOptions, Session};
use model::credential::Purpose;
use model::engine_name::EngineName;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::rig::{Ground, within};

/// How long the end of an engine's runtime is waited for.
const DIES_WITHIN: Duration = Duration::from_secs(5);

/// DataFusion in this process, with a runtime of its own, so that it can die in the middle of a word as a process does.
pub struct DataFusion {
    config: Config,
    key: Key,
    /// What the agent is told instead of the engine's key.
    told_key: Key,
    stop: CancellationToken,
    ended: watch::Sender<Option<String>>,
    engine: OnceLock<Arc<Engine>>,
    runtime: Mutex<Option<Runtime>>,
    /// Why it is stopped, as its place says.
    stopped: Mutex<Option<String>>,
}

impl Drop for DataFusion {
    fn drop(&mut self) {
        // A runtime must not be waited for where others run.
        if let Some(runtime) = self.take_runtime() {
            runtime.shutdown_background();
        }
    }
}

impl DataFusion {
    pub fn new(ground: &Ground, name: &EngineName) -> Self {
        let key = Key(ground.secret.derive(&Purpose::EngineBackend(name)));
        let config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            tenant: "t_1".to_owned(),
            engine: name.to_string(),
            catalog_dir: ground.folder.path().join("catalog"),
            catalog: None,
            scratch_dir: ground.folder.path().join("scratch"),
            allowed_locations: vec![PathBuf::from(ground.folder.path())],
            own_paths: vec![],
            memory_bytes: 256 << 20,
            cpu_threads: 2,
            credential: Credential::new(key.0.clone()),
            properties: BTreeMap::new(),
            limits: Limits::default(),
        };
        Self {
            config,
            told_key: key.clone(),
            key,
            stop: CancellationToken::new(),
            ended: watch::Sender::new(None),
            engine: OnceLock::new(),
            runtime: Mutex::new(None),
            stopped: Mutex::new(None),
        }
    }

    /// Reports it as stopped from now on, or as running.
    pub fn report_stopped(&self, reason: Option<&str>) {
        *self.stopped.lock() = reason.map(str::to_owned);
    }

    fn take_runtime(&self) -> Option<Runtime> {
        self.runtime.lock().take()
    }

    /// The agent will not get in.
    pub fn locked(mut self) -> Self {
        self.told_key = Key("not the engine's key".to_owned());
        self
    }

    /// It closes results that nobody fetches after this time.
    pub fn forgetting(mut self, idle: Duration) -> Self {
        self.config.limits.operation_idle_ms = idle.as_millis() as u64;
        self
    }

    /// Sessions and running statements, as the engine itself counts them.
    pub fn load(&self) -> (u32, u32) {
        self.engine.get().map_or((0, 0), |it| (it.load().sessions, it.load().running_statements))
    }

    /// Closes all its sessions, as it does with those that were idle for long; it goes on.
    pub fn close_sessions(&self) {
        if let Some(engine) = self.engine.get() {
            engine.close_all();
        }
    }

    /// Whether its server was made.
    pub fn is_started(&self) -> bool {
        self.engine.get().is_some()
    }

    /// Ends as if by itself: its connections close, and nothing that runs is answered any more.
    pub fn die(&self, reason: &str) {
        let (runtime, engine) = (self.take_runtime(), self.engine.get().cloned());
        let died = std::thread::spawn(move || {
            if let Some(runtime) = runtime {
                runtime.shutdown_timeout(DIES_WITHIN);
            }
            // Statements have threads of the engine's own. An orderly end would answer those who wait for them first.
            if let Some(engine) = engine {
                engine.close_all();
            }
        });
        died.join().unwrap();
        self.ended.send_replace(Some(reason.to_owned()));
    }
}

#[async_trait]
impl EngineRuntime for DataFusion {
    async fn start(&self) -> Result<Backend, RuntimeError> {
        assert_eq!(self.key.0.len(), 64, "the key is a derived one");
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let bound = runtime.spawn(Server::bind(self.config.clone())).await.unwrap();
        let server = match bound {
            Ok(server) => server,
            Err(error) => {
                runtime.shutdown_background();
                return Err(RuntimeError(error.to_string()));
            }
        };
        let address = server.local_addr().to_string();
        let _ = self.engine.set(server.engine());
        runtime.spawn(server.run(self.stop.clone().cancelled_owned()));
        *self.runtime.lock() = Some(runtime);
        Ok(Backend { address, key: self.told_key.clone() })
    }

    fn stopped(&self) -> Option<String> {
        self.stopped.lock().clone()
    }

    async fn ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        let reason = ended.wait_for(Option::is_some).await.unwrap().clone();
        reason.unwrap()
    }

    async fn stop(&self) {
        self.stop.cancel();
    }
}

/// An engine agent that runs in this process.
pub struct Running {
    pub name: EngineName,
    pub uid: String,
    pub datafusion: Arc<DataFusion>,
    pub terminate: CancellationToken,
    pub forgotten: CancellationToken,
    key: String,
    task: JoinHandle<Result<Ended, EngineAgentError>>,
}

impl Running {
    pub fn start(ground: &Ground, name: EngineName) -> Self {
        let datafusion = DataFusion::new(ground, &name);
        Self::start_with(ground, name, datafusion, Duration::from_mins(1))
    }

    pub fn start_with(ground: &Ground, name: EngineName, datafusion: DataFusion, start_deadline: Duration) -> Self {
        let uid = format!("uid-of-{name}");
        let key = ground.secret.derive(&Purpose::Engine(&name));
        let settings = Settings {
            engine: name.clone(),
            uid: uid.clone(),
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise_host: None,
            catalog: model::table_catalog::TableCatalog::Shared,
            key: Key(key.clone()),
            config: "0123456789abcdef".to_owned(),
            zookeeper: ground.coordination(Identity::Engine(EngineCredential::derive(&ground.secret, &name))),
            start_deadline,
            limits: hs2::Limits::default(),
        };
        let datafusion = Arc::new(datafusion);
        let (terminate, forgotten) = (CancellationToken::new(), CancellationToken::new());
        let task = tokio::spawn(engine::run(
            settings,
            Arc::clone(&datafusion) as Arc<dyn EngineRuntime>,
            ground.clock.clone(),
            terminate.clone(),
            forgotten.clone().cancelled_owned(),
        ));
        Self { name, uid, datafusion, terminate, forgotten, key, task }
    }

    pub fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// How it ended.
    pub async fn ended(&mut self) -> Result<Ended, EngineAgentError> {
        within("the end of the engine agent", &mut self.task).await.unwrap()
    }

    /// How it ended, if that was within the time.
    pub async fn ended_within(&mut self, limit: Duration) -> Option<Result<Ended, EngineAgentError>> {
        tokio::time::timeout(limit, &mut self.task).await.ok().map(Result::unwrap)
    }

    pub async fn connect(&self, address: &str, user: &str) -> Client {
        self.try_connect(address, agent_api::SERVICE_PROXY, &self.key, user).await.unwrap()
    }

    pub async fn try_connect(&self, address: &str, role: &str, key: &str, user: &str) -> Result<Client, ClientError> {
        Client::connect(&ClientOptions::new(address, Auth::service(role, key, user))).await
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub async fn open(&self, address: &str, user: &str) -> Session {
        self.open_polling(address, user, "500ms").await
    }

    /// A session whose questions for a status are answered after this time at most.
    pub async fn open_polling(&self, address: &str, user: &str, poll: &str) -> Session {
        let poll = ("set:hiveconf:hive.server2.long.polling.timeout".to_owned(), poll.to_owned());
        Session::open(self.connect(address, user).await, &[poll]).await.unwrap()
    }

    pub async fn status(&self, address: &str) -> EngineStatus {
        self.try_status(address).await.unwrap()
    }

    pub async fn try_status(&self, address: &str) -> Result<EngineStatus, agent_api::ApiError> {
        let mut client = self.try_connect(address, agent_api::SERVICE_MASTER, &self.key, "").await.unwrap();
        agent_api::engine_status(&mut client, Duration::from_secs(10)).await
    }
}
