//! A whole installation in this process.

use std::time::Duration;

use authentication::ImpersonationRules;
use coordination::{Lock, Permit, permits};
use engine_agent::metadata::MetadataAgent;
use hs2::{Auth, Client, ClientError, ClientOptions, Session};
use metadata::Store;
use model::clock::SharedClock;
use model::configuration::Defaults;
use model::on_demand::OnDemandDefaults;
use model::owner::Owner;
use model::rights::RoleLists;
use model::slot::SlotKey;
use proxy::{IdleLimits, Limits, Product, Proxy, Settings};

use crate::agents::{self, ManualMaster, column, ready, run};
use crate::engines::RunningEngine;
use crate::fixture::{Fixture, WAIT, eventually, registered, wire::Wire};

pub struct Cluster {
    pub fixture: Fixture,
    pub store: Store,
    pub master: ManualMaster,
    pub proxy: Proxy,
    /// Each behind its wire.
    pub agents: Vec<(MetadataAgent, Wire)>,
}

impl Cluster {
    pub async fn new() -> Self {
        Self::with(1, |_| {}).await
    }

    pub async fn with(agents: usize, change: impl FnOnce(&mut Settings)) -> Self {
        Self::with_agents(agents, |_| {}, change).await
    }

    /// With other settings of the metadata agents, too.
    pub async fn with_agents(
        agents: usize,
        change_agent: impl Fn(&mut engine_agent::metadata::Settings),
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        Self::build(agents, change_agent, |settings| {
            change(settings);
            None
        })
        .await
    }

    /// With a clock of the proxy's own.
    pub async fn with_clock(clock: SharedClock, change: impl FnOnce(&mut Settings)) -> Self {
        Self::build(
            1,
            |_| {},
            |settings| {
                change(settings);
                Some(clock)
            },
        )
        .await
    }

    async fn build(
        agents: usize,
        change_agent: impl Fn(&mut engine_agent::metadata::Settings),
        change: impl FnOnce(&mut Settings) -> Option<SharedClock>,
    ) -> Self {
        let fixture = Fixture::new().await;
        let store = agents::store(&fixture).await;
        let lock = fixture.master().await;
        let mut started = Vec::new();
        for _ in 0..agents {
            started.push(agent(&fixture, &lock, &store, &change_agent).await);
        }
        let mut settings = Settings {
            listen: "127.0.0.1:0".parse().unwrap(),
            discovery: None,
            hosts: Vec::new(),
            tls: None,
            zookeeper: fixture.coordination(proxy::identity(&fixture.keys.proxy)),
            keys: fixture.keys.proxy.clone(),
            cluster_tls: agent_api::ClusterTls::Required,
            serves_clients: true,
            authentication: None,
            roles: RoleLists::of_admins(&["admin"]),
            principal: None,
            impersonation: ImpersonationRules::default(),
            snapshot_poll: Duration::from_millis(200),
            bind_deadline: Duration::from_secs(30),
            idle: IdleLimits::default(),
            session_age: None,
            demand_lease: Duration::from_secs(15),
            // No master starts engines here, so a session without one has the error with the START statement; tests of demand alter
            // their units.
            defaults: Defaults {
                on_demand: OnDemandDefaults { start_on_demand: false, ..OnDemandDefaults::default() },
                ..Defaults::default()
            },
            load_cache: Duration::from_millis(200),
            product: Product::default(),
            // Which engine is taken must not depend on how busy the machine is.
            limits: Limits { status_deadline: WAIT, ..Limits::default() },
        };
        let clock = change(&mut settings).unwrap_or_else(|| fixture.clock.clone());
        let proxy = Proxy::start(settings, clock).await.unwrap();
        let master = ManualMaster::new(lock, store.clone()).await;
        Self { fixture, store, master, proxy, agents: started }
    }

    pub async fn connect(&self, user: &str) -> Client {
        Client::connect(&ClientOptions::new(self.proxy.addr().to_string(), Auth::user(user, ""))).await.unwrap()
    }

    pub async fn try_session(&self, user: &str, keys: &[(&str, &str)]) -> Result<Session, ClientError> {
        self.try_session_as(Auth::user(user, ""), keys).await
    }

    pub async fn try_session_as(&self, auth: Auth, keys: &[(&str, &str)]) -> Result<Session, ClientError> {
        let client = Client::connect(&ClientOptions::new(self.proxy.addr().to_string(), auth)).await?;
        let keys: Vec<(String, String)> = keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Session::open(client, &keys).await
    }

    pub async fn session(&self, user: &str) -> Session {
        self.try_session(user, &[]).await.unwrap()
    }

    /// Unit `uc_1` in pool `rp_1` in tenant `t_1` of ann and bob.
    pub async fn objects(&self) -> Session {
        let mut admin = self.session("admin").await;
        let _settling = self.master.keep_settling();
        run(&mut admin, "CREATE RESOURCE UNIT uc_1").await;
        run(&mut admin, "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1')").await;
        run(&mut admin, "CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann', 'bob')").await;
        self.settled().await;
        admin
    }

    /// Waits until no alteration is in flight: two tasks that settle the same one disturb each other.
    pub async fn settled(&self) {
        let session = self.master.lock.session();
        eventually("no alteration", async || {
            coordination::alter_node::read(session).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// What a client and the master do until there is one more engine.
    pub async fn engine(&self, admin: &mut Session) -> RunningEngine {
        self.start_engine(admin, None).await
    }

    /// The same, with this number of seats.
    pub async fn engine_with_seats(&self, admin: &mut Session, seats: u32) -> RunningEngine {
        self.start_engine(admin, Some(seats)).await
    }

    async fn start_engine(&self, admin: &mut Session, seats: Option<u32>) -> RunningEngine {
        let name = column(&run(admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
        let slots = self.store.snapshot().await.unwrap().slots;
        let slot = slots.into_iter().find(|slot| slot.engine().to_string() == name).unwrap();
        self.launch_with(&slot.key, slot.engine(), seats).await
    }

    /// What the master does for an engine that is wished for.
    pub async fn launch(&self, slot: &SlotKey, name: model::EngineName) -> RunningEngine {
        self.launch_with(slot, name, None).await
    }

    async fn launch_with(&self, slot: &SlotKey, name: model::EngineName, sessions: Option<u32>) -> RunningEngine {
        let running = self.register(slot, name, sessions, None).await;
        let address = self.address(&running).await;
        self.master.seen(ready(running.name.as_str(), &address)).await;
        running
    }

    /// An engine that is registered and has no row in the database.
    pub async fn register(
        &self,
        slot: &SlotKey,
        name: model::EngineName,
        sessions: Option<u32>,
        owner: Option<Owner>,
    ) -> RunningEngine {
        let running = RunningEngine::start(&self.fixture, name);
        let (tenant, pool, unit) = (slot.tenant.clone(), slot.pool.clone(), slot.unit.clone());
        let permit = Permit { tenant, pool, unit, uid: None, sessions, owner };
        permits::create(&self.master.lock, &running.name, &permit).await.unwrap();
        permits::record_uid(&self.master.lock, &running.name, &running.uid).await.unwrap();
        registered(&self.master.lock, &running.name).await;
        running
    }

    pub async fn address(&self, engine: &RunningEngine) -> String {
        let node = registered(&self.master.lock, &engine.name).await;
        node.ready().unwrap().content.clone().unwrap().address
    }

    /// Objects and one engine, which the proxy has seen: a statement that comes before waits, and goes on when it is asked
    /// about.
    pub async fn with_engine() -> (Self, Session, RunningEngine) {
        Self::with_engine_and(|_| {}).await
    }

    /// The same, with other settings of the proxy.
    pub async fn with_engine_and(change: impl FnOnce(&mut Settings)) -> (Self, Session, RunningEngine) {
        let cluster = Self::with(1, change).await;
        let mut admin = cluster.objects().await;
        let engine = cluster.engine(&mut admin).await;
        let mut first = cluster.session("ann").await;
        run(&mut first, "SELECT 1").await;
        first.close().await.unwrap();
        sessions_of(&engine, 0).await;
        (cluster, admin, engine)
    }
}

/// A metadata agent behind a wire that can be cut.
pub async fn agent(
    fixture: &Fixture,
    lock: &Lock,
    store: &Store,
    change: impl Fn(&mut engine_agent::metadata::Settings),
) -> (MetadataAgent, Wire) {
    let (wire, listener) = Wire::listen().await;
    let mut settings = agents::settings(fixture);
    settings.advertise = Some(wire.address().to_string());
    change(&mut settings);
    let agent = agents::agent(fixture, lock, store, settings).await;
    wire.connect(listener, agent.addr());
    (agent, wire)
}

/// Until the proxy itself can say so: engines know their sessions.
pub async fn sessions_of(engine: &RunningEngine, count: u32) {
    eventually("the engine's sessions", async || (engine.datafusion.load().0 == count).then_some(())).await;
}
