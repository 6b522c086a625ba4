//! An installation in this process: the embedded ZooKeeper, a metadata agent over the database, and a master with the
//! default settings. Clients run their statements in the metadata agent's store, without a proxy.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use coordination::{
    Error as ZkError, Identity, Layout, Logins, Rebuild, Session, SessionSettings, Supervisor, agents, bell,
};
use embedded_zookeeper::{Config, Server};
use keys::{KeyGeneration, Root, SecretKey};
use master::{CandidateState, Launch, Launcher, Master, Parts, Settings};
use metadata::{Caller, CommitRequest, Request, StartRequest, StopRequest, Store, StoreSettings};
use model::alteration::{RequestId, Source};
use model::change::{Change, Object, Rules};
use model::clock::{SharedClock, SystemClock};
use model::instance::InstanceKind;
use model::ledger::{RESERVATION_TTL, ScopeKey};
use model::slot::Replacement;
use model::{EngineName, Epoch, Generation, UserError, rights};
use orchestrator::{Orchestrator, Spec};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use super::agent::Agent;
use super::catalog;
use super::engines::Engines;
use super::schedule::{Request as TraceRequest, Trace};

/// The longest that a statement is tried again.
const STATEMENT_DEADLINE: Duration = Duration::from_mins(10);
/// How long it takes at most until the parts of the installation have found each other.
const READY_DEADLINE: Duration = Duration::from_secs(30);

/// The settings of an empty database in the server that this variable of the environment names, or of SQLite.
pub async fn database(kind: &str, folder: &Path) -> StoreSettings {
    let name = format!("eh_trace_{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
    let server = |variable: &str| std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"));
    match kind {
        "sqlite" => StoreSettings::sqlite(&folder.join("metadata.db")),
        "postgres" => {
            let url = server("EH_TEST_POSTGRES");
            execute(&url, format!("CREATE SCHEMA {name}")).await;
            let sign = if url.contains('?') { '&' } else { '?' };
            StoreSettings::new(format!("{url}{sign}options[search_path]={name}"))
        }
        "mariadb" => {
            let url = server("EH_TEST_MARIADB");
            execute(&url, format!("CREATE DATABASE {name}")).await;
            let (scheme, rest) = url.split_once("://").unwrap();
            StoreSettings::new(format!("{scheme}://{}/{name}", rest.split(['/', '?']).next().unwrap()))
        }
        other => panic!("no database is of kind {other}: sqlite, postgres, mariadb"),
    }
}

async fn execute(url: &str, statement: String) {
    sqlx::any::install_default_drivers();
    let mut connection = sqlx::AnyConnection::connect(url).await.unwrap();
    connection.execute(AssertSqlSafe(statement)).await.unwrap();
    connection.close().await.unwrap();
}

pub struct Installation {
    pub engines: Engines,
    store: Store,
    master: Master,
    clock: SharedClock,
    supervisor: Supervisor,
    requests: AtomicUsize,
    /// Statements that were run again.
    pub retries: AtomicUsize,
    /// What the parts above need for as long as they live.
    _parts: (Server, Agent),
}

struct Registered(String);

#[async_trait]
impl Rebuild for Registered {
    async fn rebuild(&self, session: &Session) -> Result<Vec<String>, ZkError> {
        Ok(vec![
            agents::register(session, "agent-1", agents::AgentRegistration::plain(&self.0, &[KeyGeneration::FIRST]))
                .await?,
        ])
    }
}

struct Entries;

impl Launcher for Entries {
    fn spec(&self, launch: &Launch<'_>) -> Result<Spec, UserError> {
        // The master sets everything else.
        Ok(Spec::new(launch.engine.clone(), vec!["/bin/true".to_owned()]))
    }
}

impl Installation {
    pub async fn new(folder: &Path, database: &StoreSettings, trace: &Trace, guaranteed: Option<i64>) -> Self {
        let config = Config { data_dir: Some(folder.join("zookeeper")), ..Config::default() };
        let zookeeper = Server::start(config).await.unwrap();
        let servers = zookeeper.addr().to_string();
        let (clock, first) = (SystemClock::shared(), KeyGeneration::FIRST);
        let root = Root::new("enginehouse", SecretKey::new([1; 32]));
        let keys = root.all_roles(first, &[first], coordination::digest).unwrap();
        let agent_keys = keys.metadata_agent.get();
        let of_agent = Identity::fixed(Logins::metadata_agent(agent_keys.zookeeper_passwords(), &agent_keys.digests()));
        let mut rules = Rules { max_engines: trace.requests.len(), ..Rules::default() };
        rules.defaults.instances = InstanceKind::Process;
        Store::migrate(database).await.unwrap();
        let store = Store::open(database, rules.clone(), Arc::clone(&clock)).await.unwrap();
        let agent = Agent::start_at("127.0.0.1:0", store.clone()).await;
        let session = |identity| SessionSettings::new(servers.as_str(), Layout::default(), identity);
        let registered = Arc::new(Registered(agent.address.clone()));
        let supervisor = Supervisor::start(session(of_agent), Arc::clone(&clock), registered);
        supervisor.ready(READY_DEADLINE).await.unwrap();
        let requests = AtomicUsize::new(0);
        let epoch = store.raise_epoch(Epoch(0), "the bench").await.unwrap().epoch;
        for change in catalog::creates(trace, guaranteed) {
            let number = requests.fetch_add(1, Ordering::SeqCst);
            create(&store, &clock, number, epoch, change).await;
        }
        let engines = Engines::new(servers.clone(), keys.master.clone(), Arc::clone(&clock));
        let parts = Parts {
            coordination: session(master::identity(&keys.master)),
            keys: keys.master,
            cluster_tls: agent_api::ClusterTls::Off { anywhere: false },
            orchestrator: Arc::new(engines.clone()) as Arc<dyn Orchestrator>,
            launcher: Arc::new(Entries),
            clock: Arc::clone(&clock),
            holder: "the bench".to_owned(),
        };
        let master = Master::start(Settings { defaults: rules.defaults, ..Settings::default() }, parts);
        let mut state = master.state();
        let acts = state.wait_for(|state| matches!(state, CandidateState::Acting { ticks, .. } if *ticks > 2));
        tokio::time::timeout(READY_DEADLINE, acts).await.expect("a master acts").unwrap();
        let parts = (zookeeper, agent);
        Self { engines, store, master, clock, supervisor, requests, retries: AtomicUsize::new(0), _parts: parts }
    }

    /// The master's completed ticks.
    pub fn ticks(&self) -> u64 {
        match *self.master.state().borrow() {
            CandidateState::Acting { ticks, .. } => ticks,
            _ => 0,
        }
    }

    /// START ENGINE, until it is accepted.
    pub async fn start(&self, of: &TraceRequest) -> EngineName {
        let start = StartRequest {
            request: self.request(of.tenant),
            link: catalog::link(of.tenant, of.shape),
            creator: "default".to_owned(),
            nowait: false,
            reservation_ttl: RESERVATION_TTL,
        };
        loop {
            match self.store.start(&start).await {
                Ok(answer) => {
                    self.ring().await;
                    return answer.engine;
                }
                Err(error) => self.again("START", &error),
            }
        }
    }

    /// STOP ENGINE, until it is accepted.
    pub async fn stop(&self, of: &TraceRequest, engine: &EngineName) {
        let request = self.request(of.tenant);
        let stop = StopRequest { request, pool: catalog::pool(), engine: engine.clone(), grace: Duration::ZERO };
        loop {
            match self.store.stop(&stop).await {
                Ok(_) => return self.ring().await,
                Err(error) => self.again("STOP", &error),
            }
        }
    }

    fn again(&self, verb: &str, error: &metadata::Error) {
        use metadata::StoreErrorKind::{Conflict, OutcomeUnknown, Unavailable};
        assert!(
            matches!(error.kind(), Conflict | OutcomeUnknown | Unavailable),
            "{verb}: {}",
            error.user_error().text()
        );
        self.retries.fetch_add(1, Ordering::SeqCst);
    }

    fn request(&self, tenant: usize) -> Request {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let user = catalog::user(tenant);
        let subject = rights::Subject::new(&user, Vec::new(), &rights::RoleLists::of_admins(&[user.as_str()]));
        Request {
            id: RequestId::new(format!("r-{number}")).unwrap(),
            statement: "a statement of the trace".to_owned(),
            caller: Caller { subject, source: Source::default() },
            deadline: self.clock.boottime() + STATEMENT_DEADLINE,
        }
    }

    /// Wakes the master, as a metadata agent does after each statement.
    async fn ring(&self) {
        if let Ok(session) = self.supervisor.session() {
            let _ = bell::ring(&session).await;
        }
    }

    /// The engines that the pool is charged for.
    pub async fn charged(&self) -> i64 {
        let snapshot = self.store.snapshot().await.unwrap();
        snapshot.ledger.scope(&ScopeKey::pool(&catalog::pool())).unwrap().counter.held.engines
    }

    pub async fn shutdown(self) {
        self.master.shutdown().await;
    }
}

async fn create(store: &Store, clock: &SharedClock, number: usize, epoch: Epoch, change: Change) {
    let found = Object::find(&store.catalog().await.unwrap(), &change.object()).unwrap();
    let request = CommitRequest {
        replacement: Replacement::StandIn,
        id: RequestId::new(format!("r-{number}")).unwrap(),
        base: Some(found.map_or(Generation(0), |(_, generation)| generation)),
        statement: format!("{} {}", change.verb(), change.object()),
        change,
        requested_by: "admin".to_owned(),
        source: Source::default(),
        requested_at_ms: 5,
        agent: "agent-1".to_owned(),
        grace: Duration::ZERO,
        deadline: clock.boottime() + STATEMENT_DEADLINE,
    };
    let record = store.commit(&request).await.unwrap().record;
    store.finish(epoch, &record.id, record.generation).await.unwrap();
}
