//! The engine agents of the cluster: they register, drain and exit, for all engines of the orchestrator's fake.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use coordination::{
    EngineCredential, Error as ZkError, Identity, Logins, NoRebuild, Registration, Supervisor, registry,
};
use keys::{Current, KeyGeneration, MasterKeys};
use model::clock::SharedClock;
use model::engine_state::Phase;
use model::labels::{LabelMap, UNIT_CONFIGS};
use model::shared::Shared;
use orchestrator::memory::{End, Memory};
use orchestrator::{ObservedInstance, Orchestrator};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::zookeeper_settings;

/// The agents of all engines of the fake.
pub(super) struct Engines {
    pub memory: Memory,
    pub servers: String,
    pub keys: Current<MasterKeys>,
    pub clock: SharedClock,
    pub broken: Arc<Mutex<BTreeSet<String>>>,
    pub sessions: BTreeMap<String, Supervisor>,
}

impl Engines {
    pub async fn live(mut self) {
        loop {
            let engines = self.memory.list(&LabelMap::new()).await.unwrap().engines;
            let alive: Vec<Shared<ObservedInstance>> =
                engines.into_iter().filter(|engine| engine.phase == Phase::Running).collect();
            let gone: Vec<String> =
                self.sessions.keys().filter(|uid| alive.iter().all(|engine| engine.uid != **uid)).cloned().collect();
            for uid in gone {
                self.sessions.remove(&uid).unwrap().close().await;
            }
            for engine in alive {
                // What fails now is tried again.
                let _ = self.live_on(&engine).await;
            }
            sleep(Duration::from_millis(30)).await;
        }
    }

    async fn live_on(&mut self, engine: &ObservedInstance) -> Result<(), ZkError> {
        let sizes = engine.labels.get(UNIT_CONFIGS).cloned().unwrap_or_default();
        let supervisor = self.sessions.entry(engine.uid.clone()).or_insert_with(|| {
            let keys = self.keys.get().engine(&engine.name);
            let credential = EngineCredential::new(engine.name.clone(), keys.zookeeper_password, keys.readers);
            let settings = zookeeper_settings(&self.servers, Identity::fixed(Logins::engine(&credential)));
            Supervisor::start(settings, Arc::clone(&self.clock), Arc::new(NoRebuild))
        });
        let session = supervisor.session()?;
        let standing = registry::read_own(&session, &engine.name).await?;
        let drains = standing.drain.and_then(|node| node.content.ok()).and_then(|order| order.uid);
        if drains.as_ref() == Some(&engine.uid) {
            self.memory.end(&engine.name, &End::code(0).with_reason("drained"));
            return Ok(());
        }
        let Some(permit) = standing.permit else { return Ok(()) };
        let broken = self.broken.lock().contains(&sizes);
        if permit.registration.is_some() || permit.uid() != Some(&engine.uid) || broken {
            return Ok(());
        }
        let live = Registration {
            address: "127.0.0.1:9".to_owned(),
            capacity: 10,
            config: String::new(),
            version: "0".to_owned(),
            uid: engine.uid.clone(),
            catalog: None,
            owner: None,
            keys: vec![KeyGeneration::FIRST],
            tls: None,
        };
        registry::register(&session, &permit, &live).await
    }
}
