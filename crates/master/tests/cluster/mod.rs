//! A whole installation in one process: the embedded ZooKeeper, metadata agents over a SQLite file, and engines that
//! are entries of the orchestrator's fake and register, drain and exit as engine agents do.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

mod engines;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coordination::{
    Alteration, CreateOutcome, Error as ZkError, Identity, Layout, Logins, Rebuild, Session, Supervisor, agents,
    alter_node,
};
use embedded_zookeeper::{Config, Server};
use keys::{AllKeys, KeyGeneration, Root, SecretKey};
use master::{CandidateState, Launch, Launcher, Master, Parts, Settings};
use metadata::{Caller, CommitRequest, Request, RestartRequest, StartRequest, StopRequest, Store};
use model::alteration::{RequestId, Source};
use model::change::{Change, Object, ObjectPatch, PoolPatch, TenantPatch, UnitPatch};
use model::clock::{SharedClock, SystemClock};
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::labels::LabelMap;
use model::secret::SecretKeys;
use model::shared::Shared;
use model::slot::Replacement;
use model::{Generation, PoolName, TenantName, UnitName, UserError, rights};
use orchestrator::memory::Memory;
use orchestrator::{InstanceOptions, LogPolicy, ObservedInstance, Orchestrator, Spec};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use engines::Engines;

use crate::agent::Agent;

/// The longest that anything is waited for.
const WAIT: Duration = Duration::from_secs(30);

/// The keys of the agents, which know no ZooKeeper.
fn keys() -> AllKeys {
    let (root, first) = (Root::new("eh", SecretKey::new([1; 32])), KeyGeneration::FIRST);
    root.all_roles(first, &[first], coordination::digest).unwrap()
}

pub fn engine_agent_identity(keys: &AllKeys) -> Identity {
    let keys = keys.metadata_agent.get();
    Identity::fixed(Logins::metadata_agent(keys.zookeeper_passwords(), &keys.digests()))
}

pub struct Cluster {
    pub zookeeper: Option<Server>,
    folder: tempfile::TempDir,
    pub servers: String,
    pub store: Store,
    pub memory: Memory,
    pub clock: SharedClock,
    pub keys: AllKeys,
    pub watch_events: bool,
    /// Sizes of engines that start and never answer.
    pub broken: Arc<Mutex<BTreeSet<String>>>,
    engines: JoinHandle<()>,
    agents: BTreeMap<String, (Agent, Supervisor)>,
    requests: Mutex<u32>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.engines.abort();
    }
}

struct Registered {
    id: String,
    address: String,
}

#[async_trait]
impl Rebuild for Registered {
    async fn rebuild(&self, session: &Session) -> Result<Vec<String>, ZkError> {
        Ok(vec![
            agents::register(
                session,
                &self.id,
                agents::AgentRegistration::plain(&self.address, &[KeyGeneration::FIRST]),
            )
            .await?,
        ])
    }
}

struct Nothing;

/// What a launcher receives in addition to the fields of the spec.
fn launch_parameters(launch: &Launch<'_>) -> BTreeMap<String, String> {
    let mut launch_parameters = launch.node_selector.clone();
    launch_parameters
        .extend(launch.configuration.cpu_overcommit.map(|percent| ("cpu overcommit".to_owned(), percent.to_string())));
    launch_parameters
}

impl Launcher for Nothing {
    fn spec(&self, launch: &Launch<'_>) -> Result<Spec, UserError> {
        Ok(Spec {
            name: launch.engine.clone(),
            labels: LabelMap::new(),
            generation: launch.generation,
            annotations: launch_parameters(launch),
            locality: String::new(),
            image: String::new(),
            argv: vec!["/bin/true".to_owned()],
            files: Vec::new(),
            environment: BTreeMap::new(),
            charge: *launch.charge,
            nodes: None,
            grace: Duration::ZERO,
            log: LogPolicy::default(),
            run_as: None,
            options: InstanceOptions::default(),
        })
    }
}

impl Cluster {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let zookeeper = Server::start(zookeeper(&folder)).await.unwrap();
        let servers = zookeeper.addr().to_string();
        let first = Agent::start().await;
        let clock = SystemClock::shared();
        let keys = keys();
        let memory = Memory::new(Arc::clone(&clock));
        let broken = Arc::new(Mutex::new(BTreeSet::new()));
        let engines = Engines {
            memory: memory.clone(),
            servers: servers.clone(),
            keys: keys.master.clone(),
            clock: Arc::clone(&clock),
            broken: Arc::clone(&broken),
            sessions: BTreeMap::new(),
        };
        let mut cluster = Self {
            zookeeper: Some(zookeeper),
            folder,
            servers,
            store: first.store.clone(),
            memory,
            clock,
            keys,
            watch_events: true,
            broken,
            engines: tokio::spawn(engines.live()),
            agents: BTreeMap::new(),
            requests: Mutex::new(0),
        };
        cluster.register_agent("agent-1", first).await;
        cluster
    }

    /// Tenant `t_1`, which uses pool `rp_1`, which offers unit `uc_1`; `min` engines of it are wanted.
    pub async fn founded(min: u32) -> Self {
        let cluster = Self::new().await;
        cluster.store.raise_epoch(model::Epoch(0), "the setup").await.unwrap();
        let unit = UnitPatch { min_engines: Some(min), max_engines: Some(10), ..UnitPatch::default() };
        let pool = PoolPatch { units: Some(vec![UnitName::new("uc_1").unwrap()]), ..PoolPatch::default() };
        let tenant = TenantPatch { pools: Some(vec![PoolName::new("rp_1").unwrap()]), ..TenantPatch::default() };
        for object in [
            ObjectPatch::ResourceUnit(UnitName::new("uc_1").unwrap(), unit),
            ObjectPatch::ResourcePool(PoolName::new("rp_1").unwrap(), pool),
            ObjectPatch::Tenant(TenantName::new("t_1").unwrap(), tenant),
        ] {
            let record = cluster.commit(Change::Create { if_not_exists: false, object }).await;
            let _ = cluster.store.finish(model::Epoch(1), &record.id, record.generation).await;
        }
        cluster
    }

    async fn register_agent(&mut self, id: &str, agent: Agent) {
        let registered = Registered { id: id.to_owned(), address: agent.address.clone() };
        let settings = self.zookeeper_settings(engine_agent_identity(&self.keys));
        let supervisor = Supervisor::start(settings, Arc::clone(&self.clock), Arc::new(registered));
        supervisor.ready(WAIT).await.unwrap();
        self.agents.insert(id.to_owned(), (agent, supervisor));
    }

    /// Another metadata agent over the same database.
    pub async fn second_agent(&mut self) {
        let agent = Agent::start_at("127.0.0.1:0", self.store.clone()).await;
        self.register_agent("agent-2", agent).await;
    }

    /// The server of a metadata agent ends, its node stands on.
    pub async fn stop_agents_server(&mut self, id: &str) {
        let (agent, supervisor) = self.agents.remove(id).unwrap();
        agent.stop().await;
        std::mem::forget(supervisor);
    }

    /// The ZooKeeper session of a metadata agent.
    pub fn agent_session(&self, id: &str) -> Session {
        self.agents[id].1.session().unwrap()
    }

    pub fn zookeeper_settings(&self, identity: Identity) -> coordination::SessionSettings {
        let mut settings = zookeeper_settings(&self.servers, identity);
        settings.watch_events = self.watch_events;
        settings
    }

    pub fn settings() -> Settings {
        let mut settings =
            Settings { tick: Duration::from_millis(100), alter_grace: Duration::from_secs(2), ..Settings::default() };
        settings.limits.session_timeout = Duration::from_secs(1);
        settings.limits.drain_grace = Duration::from_secs(5);
        settings
    }

    pub fn master(&self) -> Master {
        self.master_with(Self::settings())
    }

    pub fn master_with(&self, settings: Settings) -> Master {
        self.master_of(Arc::new(self.memory.clone()), Arc::new(Nothing), settings)
    }

    /// A master whose engines are elsewhere.
    pub fn master_of(&self, at: Arc<dyn Orchestrator>, launcher: Arc<dyn Launcher>, settings: Settings) -> Master {
        let parts = Parts {
            coordination: self.zookeeper_settings(master::identity(&self.keys.master)),
            keys: self.keys.master.clone(),
            cluster_tls: agent_api::ClusterTls::Off { anywhere: false },
            orchestrator: at,
            launcher,
            clock: Arc::clone(&self.clock),
            holder: "a test".to_owned(),
        };
        Master::start(settings, parts)
    }

    /// ZooKeeper loses all data; every session ends.
    pub async fn restart_zookeeper(&mut self) {
        self.zookeeper.take().unwrap().shutdown().await;
        self.zookeeper = Some(Server::start(zookeeper(&self.folder)).await.unwrap());
    }

    fn next_id(&self) -> RequestId {
        let mut requests = self.requests.lock();
        *requests += 1;
        RequestId::new(format!("r-{requests}")).unwrap()
    }

    fn deadline(&self) -> Duration {
        self.clock.boottime() + Duration::from_mins(1)
    }

    /// The write path of an alteration without its node, as if that had been deleted by hand.
    pub async fn commit(&self, change: Change) -> model::alteration::AlterationRecord {
        let request = self.commit_request(self.next_id(), change).await;
        self.store.commit(&request).await.unwrap().record
    }

    async fn commit_request(&self, id: RequestId, change: Change) -> CommitRequest {
        let found = Object::find(&self.store.catalog().await.unwrap(), &change.object()).unwrap();
        CommitRequest {
            id,
            base: Some(found.map_or(Generation(0), |(_, generation)| generation)),
            statement: format!("{} {}", change.verb(), change.object()),
            change,
            requested_by: "admin".to_owned(),
            source: Source::default(),
            requested_at_ms: 5,
            agent: "agent-1".to_owned(),
            replacement: Replacement::StandIn,
            grace: Duration::from_secs(5),
            deadline: self.deadline(),
        }
    }

    /// Makes the alter node, as a metadata agent does first; answers the request that would commit it.
    pub async fn make_node(&self, session: &Session, change: Change) -> CommitRequest {
        let request = self.commit_request(self.next_id(), change).await;
        let catalog = self.store.catalog().await.unwrap();
        let old = Object::find(&catalog, &request.change.object()).unwrap().map(|(object, _)| object);
        let alteration = Alteration::new(
            request.id.clone(),
            request.change.object(),
            request.base.unwrap(),
            old.as_ref(),
            &SecretKeys::default(),
            request.statement.clone(),
            "admin".to_owned(),
            "agent-1".to_owned(),
            5,
        );
        assert!(alter_node::wait_absent(session, WAIT).await.unwrap());
        assert_eq!(alter_node::create(session, &alteration).await.unwrap(), CreateOutcome::Created);
        request
    }

    /// The whole write path of an alteration. Like the agent, it rings after the commit: the master's watch fired when the node
    /// was created, before there was anything to do.
    pub async fn alter(&self, change: Change) -> RequestId {
        let agent = self.agent_session("agent-1");
        let request = self.make_node(&agent, change).await;
        self.store.commit(&request).await.unwrap();
        coordination::bell::ring(&agent).await.unwrap();
        request.id
    }

    pub async fn memory_of_unit(&self, gib: u32) -> RequestId {
        self.alter(memory(gib)).await
    }

    fn request(&self) -> Request {
        let (id, statement, deadline) = (self.next_id(), "a statement".to_owned(), self.deadline());
        let subject = rights::Subject::new("admin", Vec::new(), &rights::RoleLists::of_admins(&["admin"]));
        Request { id, statement, caller: Caller { subject, source: Source::default() }, deadline }
    }

    pub async fn start(&self) -> EngineName {
        let link = self.store.catalog().await.unwrap().links().into_iter().next().unwrap();
        let start = StartRequest {
            request: self.request(),
            link,
            creator: "default".to_owned(),
            nowait: false,
            reservation_ttl: model::ledger::RESERVATION_TTL,
        };
        self.store.start(&start).await.unwrap().engine
    }

    pub async fn stop(&self, engine: &EngineName) {
        let pool = PoolName::new("rp_1").unwrap();
        let grace = Duration::from_secs(5);
        self.store.stop(&StopRequest { request: self.request(), pool, engine: engine.clone(), grace }).await.unwrap();
    }

    pub async fn restart(&self, engine: &EngineName, force: bool) -> EngineName {
        let pool = PoolName::new("rp_1").unwrap();
        let grace = Duration::from_secs(5);
        let replacement = if force { Replacement::Force } else { Replacement::StandIn };
        let restart = RestartRequest { request: self.request(), pool, engine: engine.clone(), grace, replacement };
        self.store.restart(&restart).await.unwrap().engine
    }

    pub async fn engines(&self) -> Vec<Shared<ObservedInstance>> {
        self.memory.list(&LabelMap::new()).await.unwrap().engines
    }

    pub async fn uids(&self) -> BTreeSet<String> {
        self.engines().await.iter().map(|engine| engine.uid.clone()).collect()
    }

    /// Whether engines equal slots, each is registered, no alter node and no drain order is left, and SHOW knows it.
    pub async fn is_as_desired(&self) -> bool {
        let Ok(overview) = self.store.overview(None).await else { return false };
        let wanted: BTreeSet<EngineName> = overview.snapshot.slots.iter().map(|slot| slot.engine()).collect();
        let running: BTreeSet<EngineName> = self.engines().await.iter().map(|engine| engine.name.clone()).collect();
        let shown: BTreeSet<EngineName> = overview
            .observed
            .iter()
            .filter(|row| row.engine.registered && row.engine.phase == Phase::Running && row.engine.reason.is_none())
            .map(|row| row.engine.name.clone())
            .collect();
        let Ok(session) = self.look().await else { return false };
        let Ok(seen) = coordination::observe(&session).await else { return false };
        session.close().await;
        let ready: BTreeSet<EngineName> =
            seen.permits.iter().filter(|permit| permit.ready().is_some()).map(|permit| permit.engine.clone()).collect();
        wanted == running
            && wanted == shown
            && overview.observed.len() == wanted.len()
            && wanted == ready
            && seen.permits.len() == wanted.len()
            && seen.drains.is_empty()
            && seen.alter.is_none()
            && overview.snapshot.alterations.is_empty()
    }

    async fn look(&self) -> Result<Session, ZkError> {
        let settings = zookeeper_settings(&self.servers, master::identity(&self.keys.master));
        Session::connect(&settings, &self.clock).await
    }

    pub async fn converges(&self) {
        eventually("engines equal slots", || self.is_as_desired()).await;
    }
}

/// `ALTER RESOURCE UNIT uc_1 SET DRIVER_MEMORY`.
pub fn memory(gib: u32) -> Change {
    let patch = UnitPatch { driver_memory: Some(format!("{gib}G").parse().unwrap()), ..UnitPatch::default() };
    Change::Alter { if_exists: false, object: ObjectPatch::ResourceUnit(UnitName::new("uc_1").unwrap(), patch) }
}

fn zookeeper(folder: &tempfile::TempDir) -> Config {
    Config { data_dir: Some(folder.path().to_owned()), ..Config::default() }
}

pub fn zookeeper_settings(servers: &str, identity: Identity) -> coordination::SessionSettings {
    let mut settings = coordination::SessionSettings::new(servers, Layout::default(), identity);
    settings.session_timeout = Duration::from_secs(6);
    settings.reread = Duration::from_millis(200);
    settings.max_children = 50;
    settings
}

/// Asks again until the answer is yes.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let asked = timeout(WAIT, async {
        while !ask().await {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(asked.await.is_ok(), "not in time: {what}");
}

/// Waits until a candidate acts.
pub async fn acting(master: &Master) -> CandidateState {
    let mut state = master.state();
    let acts = state.wait_for(|state| matches!(state, CandidateState::Acting { .. }));
    *timeout(WAIT, acts).await.unwrap().unwrap()
}
