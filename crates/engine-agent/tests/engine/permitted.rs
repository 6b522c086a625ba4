//! An engine that has registered below a permit of the test.

use coordination::{Lock, Permit, Registration, permits};
use hs2::{ClientError, Session};
use model::error::UserError;
use model::owner::Owner;

use crate::engines::RunningEngine;
use crate::fixture::{Fixture, engine_name, permit_of, registered, slot};

pub struct PermittedEngine {
    pub lock: Lock,
    _fixture: Fixture,
    pub engine: RunningEngine,
    pub registration: Registration,
}

impl PermittedEngine {
    /// The permit allows so many sessions, of that owner.
    pub async fn new(sessions: Option<u32>, owner: Option<Owner>) -> Self {
        let fixture = Fixture::new().await;
        let lock = fixture.master().await;
        let engine = RunningEngine::start(&fixture, engine_name(1));
        let slot = slot("t_1", "rp_1", "uc_1");
        let (tenant, pool, unit, uid) = (slot.tenant, slot.pool, slot.unit, Some(engine.uid.clone()));
        permits::create(&lock, &engine.name, &Permit { tenant, pool, unit, uid, sessions, owner }).await.unwrap();
        let registration = registered(&lock, &engine.name).await.ready().unwrap().content.clone().unwrap();
        Self { lock, _fixture: fixture, engine, registration }
    }

    /// Opens a session of the user as a proxy does.
    pub async fn open(&self, user: &str, settings: &[(String, String)]) -> Result<Session, ClientError> {
        Session::open(self.engine.connect(&self.registration.address, user).await, settings).await
    }

    pub async fn status(&self) -> agent_api::EngineStatus {
        self.engine.status(&self.registration.address).await
    }

    /// Rewrites the number of sessions in the permit.
    pub async fn permit_sessions(&self, sessions: Option<u32>) {
        let seen = permit_of(&self.lock, &self.engine.name).await.unwrap();
        permits::set_sessions(&self.lock, &seen, sessions).await.unwrap();
    }
}

/// The refusal of a session.
pub fn refusal(opened: Result<Session, ClientError>) -> UserError {
    match opened.err() {
        Some(ClientError::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}
