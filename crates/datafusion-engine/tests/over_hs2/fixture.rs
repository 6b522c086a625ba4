//! The test fixture: engines on free loopback ports with folders of their own, and their clients.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion_engine::{Config, Credential, Engine, EngineError, Limits, Server};
use hs2::tcli::{
    TCloseOperationReq, TExecuteStatementReq, TGetOperationStatusReq, TGetOperationStatusResp, TOperationHandle,
};
use hs2::{Auth, Client, ClientError, ClientOptions, Session, Value};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const SECRET: &str = "of this engine only";
pub const DEADLINE: Duration = Duration::from_mins(1);

/// Tests run concurrently, except those that affect or measure the whole process.
static LOCK: RwLock<()> = RwLock::new(());

/// The folders of a tenant.
pub struct Fixture {
    dir: tempfile::TempDir,
    _isolation: Isolation,
}

#[expect(dead_code, reason = "held, not read")]
enum Isolation {
    Shared(RwLockReadGuard<'static, ()>),
    Exclusive(RwLockWriteGuard<'static, ()>),
}

/// A running engine.
pub struct RunningEngine {
    pub engine: Arc<Engine>,
    address: String,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), EngineError>>,
}

impl Fixture {
    pub fn new() -> Self {
        Self::with_isolation(Isolation::Shared(LOCK.read()))
    }

    /// No other test of this process runs meanwhile.
    pub fn exclusive() -> Self {
        Self::with_isolation(Isolation::Exclusive(LOCK.write()))
    }

    fn with_isolation(isolation: Isolation) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        Self { dir, _isolation: isolation }
    }

    /// The allowed location of tables.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data").canonicalize().unwrap()
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn config(&self, engine: &str) -> Config {
        Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            tenant: "t_1".to_owned(),
            engine: engine.to_owned(),
            catalog_dir: self.dir.path().join("catalog"),
            catalog: None,
            scratch_dir: self.dir.path().join("scratch"),
            allowed_locations: vec![self.data()],
            own_paths: vec![],
            memory_bytes: 256 << 20,
            cpu_threads: 2,
            credential: Credential::new(SECRET),
            properties: BTreeMap::new(),
            limits: Limits { long_poll: Duration::from_millis(500), ..Limits::default() },
        }
    }

    pub async fn start(&self, engine: &str) -> RunningEngine {
        RunningEngine::start(self.config(engine)).await
    }
}

impl RunningEngine {
    pub async fn start(config: Config) -> Self {
        let server = Server::bind(config).await.unwrap();
        let (address, engine) = (server.local_addr().to_string(), server.engine());
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        Self { engine, address, stop, served }
    }

    pub fn options(&self, user: &str) -> ClientOptions {
        ClientOptions::new(&self.address, Auth::service("engine-agent", SECRET, user))
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.options("alice")).await.unwrap()
    }

    pub async fn session(&self) -> Session {
        Session::open(self.client().await, &[]).await.unwrap()
    }

    pub async fn session_with(&self, configuration: &[(&str, &str)]) -> Result<Session, ClientError> {
        let configuration: Vec<_> = configuration.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Session::open(self.client().await, &configuration).await
    }

    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(DEADLINE, self.served).await.unwrap().unwrap().unwrap();
    }
}

/// All rows of a statement as texts.
pub async fn rows(session: &mut Session, sql: &str) -> Vec<Vec<String>> {
    let table = session.run(sql, DEADLINE).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    table.rows.iter().map(|row| row.iter().map(Value::to_string).collect()).collect()
}

/// The one value of a statement.
pub async fn one(session: &mut Session, sql: &str) -> String {
    let rows = rows(session, sql).await;
    assert_eq!((rows.len(), rows.first().map(Vec::len)), (1, Some(1)), "{sql}: {rows:?}");
    rows[0][0].clone()
}

/// Runs a statement that must succeed.
pub async fn run(session: &mut Session, sql: &str) {
    session.run(sql, DEADLINE).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// The number of rows that a statement wrote. It has no result set.
pub async fn written(session: &mut Session, sql: &str) -> i64 {
    let handle = executed(session, sql, None).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert!(!handle.has_result_set, "{sql}");
    let answer = status(session, &handle).await;
    session.client().close_operation(&TCloseOperationReq { operation_handle: handle }).await.unwrap();
    answer.num_modified_rows.unwrap_or_else(|| panic!("{sql}: no count"))
}

/// Runs a statement synchronously, as most drivers do.
pub async fn executed(
    session: &mut Session,
    sql: &str,
    query_timeout: Option<i64>,
) -> Result<TOperationHandle, ClientError> {
    let request = TExecuteStatementReq {
        session_handle: session.handle().clone(),
        statement: sql.to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout,
    };
    session.client().execute_statement(&request).await.map(|answer| answer.operation_handle.unwrap())
}

/// The status of an operation.
pub async fn status(session: &mut Session, handle: &TOperationHandle) -> TGetOperationStatusResp {
    let request = TGetOperationStatusReq { operation_handle: handle.clone(), get_progress_update: None };
    session.client().get_operation_status(&request).await.unwrap()
}

/// The SQLSTATE and text of a statement that must fail.
pub async fn refusal(session: &mut Session, sql: &str) -> (String, String) {
    match session.run(sql, DEADLINE).await {
        Err(ClientError::Refused(error)) => (error.sqlstate().to_owned(), error.text()),
        other => panic!("{sql}: {other:?}"),
    }
}

/// The SQLSTATE of a statement that must fail.
pub async fn state(session: &mut Session, sql: &str) -> String {
    refusal(session, sql).await.0
}

/// CPU time of this process's executor threads, in clock ticks.
pub fn executing_ticks() -> u64 {
    let mut ticks = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.trim() == "execute" {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let after = stat.rsplit(')').next().unwrap_or_default();
            let fields: Vec<_> = after.split_whitespace().collect();
            ticks += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        }
    }
    ticks
}
