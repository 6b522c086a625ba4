//! What the tests of both agents and of the proxy stand on: an embedded ZooKeeper, one secret, a folder, the hand of a
//! master. Everything else is the real thing.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, missing_docs)]

pub mod wire;

use std::time::Duration;

use coordination::{Election, Identity, Layout, Lock, Permit, PermitNode, permits};
use model::clock::{SharedClock, SystemClock};
use model::credential::ClusterSecret;
use model::engine_name::EngineName;
use model::name::{PoolName, TenantName, UnitName};
use model::number::Incarnation;
use model::slot::SlotKey;

/// The longest that anything is waited for.
pub const WAIT: Duration = Duration::from_secs(30);
/// Between two looks at something that can't be awaited.
const LOOK: Duration = Duration::from_millis(20);

pub struct Ground {
    pub zookeeper: embedded_zookeeper::Server,
    pub secret: ClusterSecret,
    pub folder: tempfile::TempDir,
    pub clock: SharedClock,
}

impl Ground {
    pub async fn new() -> Self {
        Self {
            zookeeper: embedded_zookeeper::Server::start(embedded_zookeeper::Config::default()).await.unwrap(),
            secret: ClusterSecret::new("a secret of the tests only").unwrap(),
            folder: tempfile::tempdir().unwrap(),
            clock: SystemClock::shared(),
        }
    }

    pub fn coordination(&self, identity: Identity) -> coordination::SessionSettings {
        coordination::SessionSettings::new(self.zookeeper.addr().to_string(), Layout::default(), identity)
    }

    /// The lock of a master, won at once.
    pub async fn master(&self) -> Lock {
        let settings = self.coordination(Identity::Master(self.secret.clone()));
        let election = Election::new(settings, self.clock.clone(), "the test");
        within("the election", election.win()).await.unwrap()
    }

    /// The session that owns a path, as the server sees it.
    pub fn owner_of(&self, path_end: &str) -> Option<i64> {
        let sessions = self.zookeeper.faults().sessions();
        sessions.into_iter().find(|it| it.ephemerals.iter().any(|path| path.ends_with(path_end))).map(|it| it.id)
    }
}

pub fn slot(tenant: &str, pool: &str, unit: &str) -> SlotKey {
    SlotKey {
        tenant: TenantName::new(tenant).unwrap(),
        pool: PoolName::new(pool).unwrap(),
        unit: UnitName::new(unit).unwrap(),
        ordinal: 1,
    }
}

pub fn engine_name(incarnation: u64) -> EngineName {
    slot("t_1", "rp_1", "uc_1").engine(Incarnation(incarnation.try_into().unwrap()))
}

/// What a master does before and after it made an engine.
pub async fn permit(lock: &Lock, slot: &SlotKey, engine: &EngineName, uid: Option<&str>) {
    let (tenant, pool, unit) = (slot.tenant.clone(), slot.pool.clone(), slot.unit.clone());
    permits::create(lock, engine, &Permit { tenant, pool, unit, uid: None }).await.unwrap();
    if let Some(uid) = uid {
        permits::record_uid(lock, engine, uid).await.unwrap();
    }
}

pub async fn permit_of(lock: &Lock, engine: &EngineName) -> Option<PermitNode> {
    permits::read(lock.session(), engine).await.unwrap()
}

/// The permit with the engine's registration below it.
pub async fn registered(lock: &Lock, engine: &EngineName) -> PermitNode {
    eventually("the registration", async || permit_of(lock, engine).await.filter(|it| it.ready().is_some())).await
}

/// What a master does to end an engine.
pub async fn drain(lock: &Lock, engine: &EngineName, uid: &str, grace: Duration) {
    let seen = permit_of(lock, engine).await;
    let grace_ms = i64::try_from(grace.as_millis()).unwrap();
    let fact = coordination::DrainOrder {
        uid: Some(uid.to_owned()),
        grace_ms,
        reason: "the test says so".to_owned(),
        namespace: None,
    };
    coordination::drains::drain(lock, engine, seen.as_ref(), None, &fact).await.unwrap();
}

pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let Ok(done) = tokio::time::timeout(WAIT, work).await else { panic!("{what} took longer than {WAIT:?}") };
    done
}

/// Looks again and again, until there is something.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    within(what, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(LOOK).await;
        }
    })
    .await
}
