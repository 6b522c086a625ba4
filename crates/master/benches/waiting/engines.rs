//! The engines of the bench: entries of the orchestrator's fake. Those at rest are registered through one session, because
//! 10,000 sessions need more file descriptors than a process has. No agent answers for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use coordination::{Observation, PermitNode, Registration, Session, observe, registry};
use futures::future::join_all;
use model::labels::LabelMap;
use model::observation::ObservedNode;
use model::shared::Shared;
use model::{EngineName, Epoch};
use orchestrator::memory::Memory;
use orchestrator::{Deleted, Ensured, Error, Listing, ObservedInstance, Orchestrator, Spec, WakeUps};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::fixture::Fixture;

/// Registrations that are made at once.
const AT_ONCE: usize = 64;
/// Create calls that are kept until they are received.
const CREATES: usize = 16;
/// The pause between two looks for permits of engines that are not registered.
const LOOK: Duration = Duration::from_millis(200);

/// The orchestrator's fake, which says when it created what.
#[derive(Debug)]
pub struct Observed {
    pub memory: Memory,
    pub created: mpsc::Sender<(EngineName, Instant)>,
}

#[async_trait]
impl Orchestrator for Observed {
    async fn list(&self, selector: &LabelMap) -> Result<Listing, Error> {
        self.memory.list(selector).await
    }

    async fn get(&self, name: &EngineName, locality: Option<&str>) -> Result<Option<ObservedInstance>, Error> {
        self.memory.get(name, locality).await
    }

    async fn ensure(&self, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
        let called = Instant::now();
        let ensured = self.memory.ensure(spec, epoch).await?;
        if ensured.created {
            // Nothing receives those of the engines at rest.
            let _ = self.created.try_send((spec.name.clone(), called));
            // It keeps all calls until they are cleared, up to a limit.
            self.memory.clear_calls();
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

/// Registers the engines at rest, those of tenants whose names begin with `rest`, until all are; then keeps them so.
pub async fn register_those_at_rest(
    settings: coordination::SessionSettings,
    clock: model::clock::SharedClock,
    number: usize,
    registered: watch::Sender<usize>,
) {
    let session = loop {
        match Session::connect(&settings, &clock).await {
            Ok(session) => break session,
            Err(_) => sleep(LOOK).await,
        }
    };
    let mut done = BTreeSet::new();
    while done.len() < number {
        if let Ok(seen) = observe(&session).await {
            done.extend(register(&session, seen).await);
            registered.send_replace(done.len());
        }
        sleep(LOOK).await;
    }
    // Registrations end with their session.
    std::future::pending::<()>().await;
}

/// Registers what may be; returns all engines at rest that are registered.
async fn register(session: &Session, seen: Observation) -> Vec<EngineName> {
    let is_at_rest = |permit: &Shared<PermitNode>| {
        permit.content.as_ref().is_ok_and(|permit| permit.tenant.as_str().starts_with("rest") && permit.uid.is_some())
    };
    let at_rest: Vec<Shared<PermitNode>> = seen.permits.into_iter().filter(is_at_rest).collect();
    let mut registered = Vec::new();
    for some in at_rest.chunks(AT_ONCE) {
        let done = join_all(some.iter().map(|permit| register_one(session, permit))).await;
        registered.extend(done.into_iter().flatten());
    }
    registered
}

/// `None` if its permit has changed.
async fn register_one(session: &Session, permit: &PermitNode) -> Option<EngineName> {
    if permit.registration.is_none() {
        let registration = Registration {
            address: "127.0.0.1:9".to_owned(),
            capacity: 10,
            config: String::new(),
            version: "0".to_owned(),
            uid: permit.uid()?.to_owned(),
            catalog: None,
            owner: None,
            keys: vec![keys::KeyGeneration::FIRST],
            tls: None,
        };
        registry::register(session, permit, &registration).await.ok()?;
    }
    Some(permit.engine.clone())
}

/// The identity that may register engines without the key of each.
pub fn identity(fixture: &Fixture) -> coordination::SessionSettings {
    fixture.coordination(master::identity(&fixture.keys.master))
}

pub fn observed(memory: &Memory) -> (Arc<Observed>, mpsc::Receiver<(EngineName, Instant)>) {
    let (created, receiver) = mpsc::channel(CREATES);
    (Arc::new(Observed { memory: memory.clone(), created }), receiver)
}
