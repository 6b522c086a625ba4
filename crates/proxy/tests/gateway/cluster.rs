//! A whole installation in this process.

use std::time::Duration;

use authentication::ImpersonationRules;
use coordination::{Identity, Lock};
use engine_agent::metadata::MetadataAgent;
use hs2::{Auth, Client, ClientError, ClientOptions, Session};
use metadata::Store;
use model::rights::RoleLists;
use model::slot::SlotKey;
use proxy::{Limits, Product, Proxy, Settings};

use crate::agents::{self, ManualMaster, column, ready, run};
use crate::engines::RunningEngine;
use crate::fixture::{Fixture, WAIT, eventually, permit, registered, wire::Wire};

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
            zookeeper: fixture.coordination(Identity::Proxy(fixture.secret.clone())),
            secret: fixture.secret.clone(),
            serves_clients: true,
            authentication: None,
            roles: RoleLists::of_admins(&["admin"]),
            impersonation: ImpersonationRules::default(),
            snapshot_poll: Duration::from_millis(200),
            bind_deadline: Duration::from_secs(30),
            load_cache: Duration::from_millis(200),
            product: Product::default(),
            // Which engine is taken must not depend on how busy the machine is.
            limits: Limits { status_deadline: WAIT, ..Limits::default() },
        };
        change(&mut settings);
        let proxy = Proxy::start(settings, fixture.clock.clone()).await.unwrap();
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
        let name = column(&run(admin, "START ENGINE t_1 rp_1 uc_1").await, "engine").remove(0);
        let slots = self.store.snapshot().await.unwrap().slots;
        let slot = slots.into_iter().find(|slot| slot.engine().to_string() == name).unwrap();
        self.launch(&slot.key, slot.engine()).await
    }

    /// What the master does for an engine that is wished for.
    pub async fn launch(&self, slot: &SlotKey, name: model::EngineName) -> RunningEngine {
        let running = RunningEngine::start(&self.fixture, name);
        permit(&self.master.lock, slot, &running.name, Some(&running.uid)).await;
        let address = self.address(&running).await;
        self.master.seen(ready(running.name.as_str(), &address)).await;
        running
    }

    pub async fn address(&self, engine: &RunningEngine) -> String {
        let node = registered(&self.master.lock, &engine.name).await;
        node.ready().unwrap().content.clone().unwrap().address
    }

    /// Objects and one engine, which the proxy has seen: a statement that comes before waits, and goes on when it is asked
    /// about.
    pub async fn with_engine() -> (Self, Session, RunningEngine) {
        let cluster = Self::new().await;
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
