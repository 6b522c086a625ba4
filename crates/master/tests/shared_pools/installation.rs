//! A whole installation in this process.

#[path = "../cluster/engines.rs"]
mod engines;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use authentication::ImpersonationRules;
use coordination::{Identity, Layout, SessionSettings};
use engine_agent::metadata::MetadataAgent;
use hs2::{Auth, Client, ClientOptions, Session};
use master::{CandidateState, Launch, Launcher, Master, Parts};
use metadata::{Store, StoreSettings};
use model::change::Rules;
use model::error::UserError;
use model::instance::InstanceKind;
use model::observation::ObservedNode;
use model::rights::RoleLists;
use orchestrator::memory::Memory;
use orchestrator::{Orchestrator, Spec};
use proxy::{Limits, Product, Proxy};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tokio::task::JoinHandle;

use crate::agents::{self, column, run};
use crate::fixture::{Fixture, WAIT, eventually, within};
use engines::Engines;

/// Where the metadata is.
#[derive(Debug, Clone, Copy)]
pub enum Database {
    Sqlite,
    Postgres,
    Mariadb,
}

impl Database {
    /// The settings of an empty database of this kind.
    async fn settings(self, folder: &Path) -> StoreSettings {
        let name = format!("eh_pools_{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
        match self {
            Self::Sqlite => StoreSettings::sqlite(&folder.join("metadata.db")),
            Self::Postgres => {
                let url = std::env::var("EH_TEST_POSTGRES").expect("EH_TEST_POSTGRES is a postgres:// URL");
                execute(&url, format!("CREATE SCHEMA {name}")).await;
                let sign = if url.contains('?') { '&' } else { '?' };
                StoreSettings::new(format!("{url}{sign}options[search_path]={name}"))
            }
            Self::Mariadb => {
                let url = std::env::var("EH_TEST_MARIADB").expect("EH_TEST_MARIADB is a mysql:// URL");
                execute(&url, format!("CREATE DATABASE {name}")).await;
                let (scheme, rest) = url.split_once("://").unwrap();
                let server = rest.split(['/', '?']).next().unwrap();
                StoreSettings::new(format!("{scheme}://{server}/{name}"))
            }
        }
    }
}

async fn execute(url: &str, statement: String) {
    sqlx::any::install_default_drivers();
    let mut connection = sqlx::AnyConnection::connect(url).await.unwrap();
    connection.execute(AssertSqlSafe(statement)).await.unwrap();
    connection.close().await.unwrap();
}

pub struct Installation {
    pub memory: Memory,
    pub proxy: Proxy,
    pub master: Master,
    engines: JoinHandle<()>,
    /// Everything that the parts above need for as long as they live.
    _parts: (Fixture, MetadataAgent),
}

impl Drop for Installation {
    fn drop(&mut self) {
        self.engines.abort();
    }
}

/// A launcher whose engines are entries of the fake.
struct Entries;

impl Launcher for Entries {
    fn spec(&self, launch: &Launch<'_>) -> Result<Spec, UserError> {
        // The master sets everything else.
        Ok(Spec::new(launch.engine.clone(), vec!["/bin/true".to_owned()]))
    }
}

impl Installation {
    /// Engines that are local processes.
    pub async fn of_processes(database: Database) -> Self {
        Self::new(database, InstanceKind::Process, &[]).await
    }

    /// Engines that are pods, on `node-1` and so on with so many cores each, and with 16 GiB of memory for each core.
    pub async fn of_pods(database: Database, cores: &[u64]) -> Self {
        Self::new(database, InstanceKind::Pod, cores).await
    }

    async fn new(database: Database, instances: InstanceKind, cores: &[u64]) -> Self {
        let mut rules = Rules::default();
        rules.defaults.instances = instances;
        let settings = master::Settings { tick: Duration::from_millis(100), ..master::Settings::default() };
        Self::with(database, rules, settings, cores, |fixture, memory| {
            let engines = Engines {
                memory: memory.clone(),
                servers: fixture.zookeeper.addr().to_string(),
                keys: fixture.keys.master.clone(),
                clock: Arc::clone(&fixture.clock),
                broken: Arc::default(),
                sessions: BTreeMap::new(),
            };
            (Arc::new(memory.clone()) as Arc<dyn Orchestrator>, engines.live())
        })
        .await
    }

    /// With rules, settings of the master, an orchestrator around the fake, and engine agents of the caller.
    pub async fn with<Agents: Future<Output = ()> + Send + 'static>(
        database: Database,
        rules: Rules,
        settings: master::Settings,
        cores: &[u64],
        engines: impl FnOnce(&Fixture, &Memory) -> (Arc<dyn Orchestrator>, Agents),
    ) -> Self {
        let fixture = Fixture::new().await;
        let database = database.settings(fixture.folder.path()).await;
        Store::migrate(&database).await.unwrap();
        let store = Store::open(&database, rules.clone(), Arc::clone(&fixture.clock)).await.unwrap();
        let agent = engine_agent::metadata::Settings { rules: rules.clone(), ..agents::settings(&fixture) };
        let agent = MetadataAgent::start(agent, store, Arc::clone(&fixture.clock)).await.unwrap();
        within("the agent's registration", agent.ready()).await;
        let proxy = Proxy::start(proxy_settings(&fixture), Arc::clone(&fixture.clock)).await.unwrap();
        let memory = fake(&fixture, cores);
        let (orchestrator, agents) = engines(&fixture, &memory);
        let parts = Parts {
            coordination: fixture.coordination(master::identity(&fixture.keys.master)),
            keys: fixture.keys.master.clone(),
            cluster_tls: agent_api::ClusterTls::Optional,
            orchestrator,
            launcher: Arc::new(Entries),
            clock: Arc::clone(&fixture.clock),
            holder: "a test".to_owned(),
        };
        let master = Master::start(master::Settings { defaults: rules.defaults, ..settings }, parts);
        Self { memory, proxy, master, engines: tokio::spawn(agents), _parts: (fixture, agent) }
    }

    pub async fn session(&self, user: &str) -> Session {
        let options = ClientOptions::new(self.proxy.addr().to_string(), Auth::user(user, ""));
        Session::open(Client::connect(&options).await.unwrap(), &[]).await.unwrap()
    }

    /// The session of an admin who has issued these statements.
    pub async fn set_up(&self, statements: &[&str]) -> Session {
        let mut admin = self.session("admin").await;
        for statement in statements {
            run(&mut admin, statement).await;
        }
        admin
    }

    /// Waits until the master has completed several further ticks.
    pub async fn ticks(&self) {
        let mut state = self.master.state();
        let ticks = |state: &CandidateState| if let CandidateState::Acting { ticks, .. } = state { *ticks } else { 0 };
        let enough = ticks(&state.borrow()) + 4;
        within("further ticks", state.wait_for(|state| ticks(state) >= enough)).await.unwrap();
    }
}

/// An orchestrator's fake that reports nodes with so many cores each.
fn fake(fixture: &Fixture, cores: &[u64]) -> Memory {
    let node = |(at, cores): (usize, &u64)| ObservedNode {
        name: format!("node-{}", at + 1),
        cpu_millis: cores * 1_000,
        memory_bytes: cores << 34,
        ready: true,
        open: true,
        ..ObservedNode::default()
    };
    let nodes: Vec<ObservedNode> = cores.iter().enumerate().map(node).collect();
    let memory = Memory::new(Arc::clone(&fixture.clock));
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let memory = if names.is_empty() { memory } else { memory.with_capacity(&names, None) };
    memory.set_nodes(nodes);
    memory
}

fn proxy_settings(fixture: &Fixture) -> proxy::Settings {
    proxy::Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        discovery: None,
        hosts: Vec::new(),
        tls: None,
        zookeeper: fixture.coordination(proxy::identity(&fixture.keys.proxy)),
        keys: fixture.keys.proxy.clone(),
        cluster_tls: agent_api::ClusterTls::Optional,
        serves_clients: true,
        authentication: None,
        roles: RoleLists::of_admins(&["admin"]),
        principal: None,
        impersonation: ImpersonationRules::default(),
        snapshot_poll: Duration::from_millis(200),
        bind_deadline: WAIT,
        idle: proxy::IdleLimits::default(),
        session_age: None,
        demand_lease: Duration::from_secs(15),
        defaults: model::configuration::Defaults::default(),
        load_cache: Duration::from_millis(200),
        product: Product::default(),
        limits: Limits::default(),
    }
}

/// How the engine agents of the fake reach ZooKeeper.
fn zookeeper_settings(servers: &str, identity: Identity) -> SessionSettings {
    SessionSettings::new(servers, Layout::default(), identity)
}

/// Starts engines of unit `uc_1` in pool `rp_1`; their names.
pub async fn start(session: &mut Session, tenant: &str, count: usize) -> Vec<String> {
    start_of(session, tenant, "uc_1", count).await
}

pub async fn start_of(session: &mut Session, tenant: &str, unit: &str, count: usize) -> Vec<String> {
    let mut engines = Vec::new();
    for _ in 0..count {
        let answer = run(session, &format!("START ENGINE {tenant} rp_1 {unit}")).await;
        engines.push(column(&answer, "engine").remove(0));
    }
    engines
}

/// Waits until SHOW ENGINES lists so many engines of a tenant as ready, and so many others, whose reasons it returns.
pub async fn ready(session: &mut Session, tenant: &str, ready: usize, others: usize) -> Vec<String> {
    let what = format!("{ready} engines of {tenant} that are ready, and {others} others");
    let mut last = String::new();
    let shown = tokio::time::timeout(WAIT, async {
        loop {
            let table = run(session, &format!("SHOW ENGINES POOL {tenant} rp_1")).await;
            let rows: Vec<(String, String)> =
                column(&table, "state").into_iter().zip(column(&table, "reason")).collect();
            let (is_ready, waits): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(state, _)| state == "ready");
            let reasons: Vec<String> = waits.into_iter().map(|(_, reason)| reason).collect();
            let has_reasons =
                reasons.iter().all(|reason| reason.starts_with("queued at") || reason.starts_with("cannot"));
            if is_ready.len() == ready && reasons.len() == others && has_reasons {
                return reasons;
            }
            last = format!("{} and {reasons:?}", is_ready.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let shown = shown.await;
    shown.unwrap_or_else(|_| panic!("not in time: {what}, but {last}"))
}

/// The row of SHOW QUOTAS for a scope and a resource: guarantee, limit, locked, used, left.
pub async fn quota(session: &mut Session, filter: &str, scope: &str, resource: &str) -> [String; 5] {
    let table = run(session, &format!("SHOW QUOTAS {filter}")).await;
    let at = column(&table, "scope").into_iter().zip(column(&table, "resource"));
    let at = at.into_iter().position(|(of, what)| of == scope && what == resource);
    let at = at.unwrap_or_else(|| panic!("no row of {scope} and {resource}: {table:?}"));
    ["guarantee", "limit", "locked", "used", "left"].map(|name| column(&table, name).remove(at))
}

/// Waits until SHOW QUOTAS has this row.
pub async fn holds(session: &mut Session, filter: &str, scope: &str, resource: &str, row: [&str; 5]) {
    let mut last = None;
    let found = tokio::time::timeout(WAIT, async {
        loop {
            let now = quota(session, filter, scope, resource).await;
            if now == row {
                return;
            }
            last = Some(now);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(found.await.is_ok(), "{scope}: {last:?} instead of {row:?}");
}

/// Waits until the pool has so many queued requests, as SHOW QUOTAS has them.
pub async fn queued(admin: &mut Session, count: usize) {
    eventually("the number of queued requests", async || {
        let table = run(admin, "SHOW QUOTAS POOL rp_1").await;
        let at = column(&table, "scope").iter().position(|scope| scope == "pool rp_1")?;
        (column(&table, "queued")[at] == count.to_string()).then_some(())
    })
    .await;
}
