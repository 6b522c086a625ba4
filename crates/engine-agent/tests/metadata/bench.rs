//! One agent, ready to be spoken to.

use engine_agent::metadata::{MetadataAgent, Settings};
use hs2::Session;
use metadata::Store;
use model::failpoint::fail;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio_util::sync::CancellationToken;

use crate::agents::{self, ManualMaster, run};
use crate::fixture::{Fixture, eventually};

/// Failpoints are global to the process: a test that sets one runs alone.
static FAILPOINTS: RwLock<()> = RwLock::const_new(());

pub async fn among_others() -> RwLockReadGuard<'static, ()> {
    FAILPOINTS.read().await
}

pub async fn alone() -> RwLockWriteGuard<'static, ()> {
    FAILPOINTS.write().await
}

/// A failpoint at which every task stops, until it is dropped.
pub struct Stop(&'static str);

impl Stop {
    pub fn at(name: &'static str) -> Self {
        fail::cfg(name, "pause").unwrap();
        Self(name)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        fail::remove(self.0);
    }
}

/// A failpoint that reports when it is passed, until it is dropped. It holds no task.
pub struct Reached(&'static str, CancellationToken);

impl Reached {
    pub fn at(name: &'static str) -> Self {
        let reached = CancellationToken::new();
        let tells = reached.clone();
        fail::cfg_callback(name, move || tells.cancel()).unwrap();
        Self(name, reached)
    }

    pub async fn reached(&self) {
        self.1.cancelled().await;
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        fail::remove(self.0);
    }
}

pub struct Bench {
    pub fixture: Fixture,
    pub store: Store,
    pub master: ManualMaster,
    pub agent: MetadataAgent,
}

impl Bench {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let fixture = Fixture::new().await;
        let store = agents::store(&fixture).await;
        let lock = fixture.master().await;
        let mut settings = agents::settings(&fixture);
        change(&mut settings);
        let agent = agents::agent(&fixture, &lock, &store, settings).await;
        let master = ManualMaster::new(lock, store.clone()).await;
        Self { fixture, store, master, agent }
    }

    pub async fn session(&self, user: &str) -> Session {
        agents::session(&self.fixture, &self.agent, user).await
    }

    /// Waits until the last alteration has lost its node.
    pub async fn settled(&self) {
        eventually("the end of the last alteration", async || {
            let node = coordination::alter_node::read(self.master.lock.session()).await.unwrap();
            node.is_none().then_some(())
        })
        .await;
    }

    /// Unit `uc_1` in pool `rp_1` in tenant `t_1` of ann.
    pub async fn objects(&self) -> Session {
        let mut admin = self.session("admin").await;
        let settling = self.master.keep_settling();
        run(&mut admin, "CREATE RESOURCE UNIT uc_1 DRIVER_MEMORY '1G', MAX_ENGINES 2").await;
        run(&mut admin, "CREATE RESOURCE POOL rp_1 UNIT_LIST ('uc_1')").await;
        run(&mut admin, "CREATE TENANT t_1 RESOURCE_POOL_LIST ('rp_1'), USER_LIST ('ann')").await;
        self.settled().await;
        drop(settling);
        admin
    }

    /// Unit `uc_2` in pool `rp_2`, which no tenant uses.
    pub async fn unused_pool(&self, admin: &mut Session) {
        let _settling = self.master.keep_settling();
        run(admin, "CREATE RESOURCE UNIT uc_2").await;
        run(admin, "CREATE RESOURCE POOL rp_2 UNIT_LIST ('uc_2')").await;
    }
}
