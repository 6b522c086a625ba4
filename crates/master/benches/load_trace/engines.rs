//! The orchestrator's fake, and the engine agents of its engines: each has a session of its own, registers below its permit,
//! and ends when it is ordered to drain, as the engine agent of the program does.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use coordination::{
    EngineCredential, Error as ZkError, Identity, Layout, Logins, Registration, Session, SessionSettings, registry,
};
use keys::{Current, KeyGeneration, MasterKeys};
use model::clock::SharedClock;
use model::labels::LabelMap;
use model::observation::ObservedNode;
use model::{EngineName, Epoch};
use orchestrator::memory::{End, Memory};
use orchestrator::{Deleted, Ensured, Error, Listing, ObservedInstance, Orchestrator, Spec, WakeUps};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How often an agent reads its nodes without an event.
const REREAD: Duration = Duration::from_secs(2);
/// The pause after a request to ZooKeeper failed.
const RETRY: Duration = Duration::from_millis(100);
/// The fake keeps all calls until they are cleared; this many creates, with the calls around them, are within its limit.
const CREATES_BETWEEN_CLEARS: usize = 1_000;

/// The moments in the life of an instance.
#[derive(Debug, Clone, Copy, Default)]
pub struct Life {
    pub created: Option<Instant>,
    pub ready: Option<Instant>,
    /// When it read its drain order.
    pub ordered: Option<Instant>,
    pub gone: Option<Instant>,
}

#[derive(Clone)]
pub struct Engines {
    pub memory: Memory,
    servers: String,
    keys: Current<MasterKeys>,
    clock: SharedClock,
    lives: Arc<Mutex<HashMap<EngineName, watch::Sender<Life>>>>,
    created: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Engines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engines").finish_non_exhaustive()
    }
}

impl Engines {
    pub fn new(servers: String, keys: Current<MasterKeys>, clock: SharedClock) -> Self {
        let memory = Memory::new(Arc::clone(&clock));
        Self { memory, servers, keys, clock, lives: Arc::default(), created: Arc::default() }
    }

    /// The life of the engine, which may not have begun.
    pub fn life(&self, engine: &EngineName) -> watch::Receiver<Life> {
        self.lives.lock().entry(engine.clone()).or_default().subscribe()
    }

    fn note(&self, engine: &EngineName, change: impl FnOnce(&mut Life)) {
        self.lives.lock().entry(engine.clone()).or_default().send_modify(change);
    }

    /// Lives until it is ordered to drain.
    async fn live(self, engine: EngineName, uid: String) {
        let keys = self.keys.get().engine(&engine);
        let credential = EngineCredential::new(engine.clone(), keys.zookeeper_password, keys.readers);
        let settings = SessionSettings::new(
            self.servers.as_str(),
            Layout::default(),
            Identity::fixed(Logins::engine(&credential)),
        );
        let session = loop {
            match Session::connect(&settings, &self.clock).await {
                Ok(session) => break session,
                Err(_) => sleep(RETRY).await,
            }
        };
        let mut watch = registry::watch_own(&session, &engine);
        loop {
            match self.reconcile(&session, &engine, &uid, &mut watch).await {
                Ok(true) => break,
                Ok(false) => drop(timeout(REREAD, watch.next()).await),
                Err(_) => sleep(RETRY).await,
            }
        }
        self.note(&engine, |life| life.ordered = Some(Instant::now()));
        session.close().await;
        self.memory.end(&engine, &End::code(0).with_reason("drained"));
        self.note(&engine, |life| life.gone = Some(Instant::now()));
    }

    /// Registers if it may; returns whether it is ordered to drain.
    async fn reconcile(
        &self,
        session: &Session,
        engine: &EngineName,
        uid: &str,
        watch: &mut registry::OwnWatch,
    ) -> Result<bool, ZkError> {
        watch.arm().await?;
        let own = registry::read_own(session, engine).await?;
        let order = own.drain.and_then(|node| node.content.ok());
        if order.is_some_and(|order| order.uid.as_deref() == Some(uid)) {
            return Ok(true);
        }
        let Some(permit) = own.permit.filter(|permit| permit.uid() == Some(uid)) else { return Ok(false) };
        if permit.registration.is_none() {
            let registration = Registration {
                address: "127.0.0.1:9".to_owned(),
                capacity: 10,
                config: String::new(),
                version: "0".to_owned(),
                uid: uid.to_owned(),
                catalog: None,
                owner: None,
                keys: vec![KeyGeneration::FIRST],
                tls: None,
            };
            registry::register(session, &permit, &registration).await?;
            self.note(engine, |life| life.ready = Some(Instant::now()));
        }
        Ok(false)
    }
}

#[async_trait]
impl Orchestrator for Engines {
    async fn list(&self, selector: &LabelMap) -> Result<Listing, Error> {
        self.memory.list(selector).await
    }

    async fn get(&self, name: &EngineName, locality: Option<&str>) -> Result<Option<ObservedInstance>, Error> {
        self.memory.get(name, locality).await
    }

    async fn ensure(&self, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
        let ensured = self.memory.ensure(spec, epoch).await?;
        if ensured.created {
            self.note(&spec.name, |life| life.created = Some(Instant::now()));
            tokio::spawn(self.clone().live(spec.name.clone(), ensured.uid.clone()));
            if self.created.fetch_add(1, Ordering::SeqCst).is_multiple_of(CREATES_BETWEEN_CLEARS) {
                self.memory.clear_calls();
            }
        }
        Ok(ensured)
    }

    async fn delete(&self, name: &EngineName, uid: &str, grace: Duration, epoch: Epoch) -> Result<Deleted, Error> {
        self.memory.delete(name, uid, grace, epoch).await
    }

    fn watch(&self) -> WakeUps {
        self.memory.watch()
    }

    async fn nodes(&self) -> Result<Vec<ObservedNode>, Error> {
        self.memory.nodes().await
    }
}
