//! Retiring: only an idle engine agrees, and then it opens no sessions for a while.

use std::sync::Arc;
use std::time::Duration;

use agent_api::RetireRequest;
use coordination::Lock;
use hs2::{ClientError, Session};
use model::error::{ENGINE_FULL, ErrorKind};

use crate::engines::RunningEngine;
use crate::fixture::{Fixture, ShiftedClock, WAIT, engine_name, eventually, permit, registered, slot};

/// How long a consent lasts.
const CONSENT: Duration = Duration::from_secs(30);

struct Bench {
    _lock: Lock,
    _fixture: Fixture,
    clock: Arc<ShiftedClock>,
    engine: RunningEngine,
    address: String,
}

impl Bench {
    async fn new() -> Self {
        let clock = Arc::new(ShiftedClock::default());
        let mut fixture = Fixture::new().await;
        let lock = fixture.master().await;
        fixture.clock = clock.clone();
        let engine = RunningEngine::start(&fixture, engine_name(1));
        permit(&lock, &slot("t_1", "rp_1", "uc_1"), &engine.name, Some(&engine.uid)).await;
        let node = registered(&lock, &engine.name).await;
        let address = node.ready().unwrap().content.clone().unwrap().address;
        Self { _lock: lock, _fixture: fixture, clock, engine, address }
    }

    async fn retire_as(&self, role: &str, uid: &str, idle: Duration) -> Result<bool, agent_api::ApiError> {
        let mut client = self.engine.try_connect(&self.address, role, "").await.unwrap();
        let request = RetireRequest { uid: uid.to_owned(), idle };
        agent_api::retire(&mut client, &request, WAIT).await
    }

    async fn retire(&self, idle: Duration) -> bool {
        self.retire_as(agent_api::SERVICE_MASTER, &self.engine.uid, idle).await.unwrap()
    }

    async fn idle(&self) -> Duration {
        self.engine.status(&self.address).await.idle.unwrap()
    }

    async fn try_open(&self) -> Result<Session, ClientError> {
        Session::open(self.engine.connect(&self.address, "ann").await, &[]).await
    }
}

fn retires(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(error)
        if error.kind == ErrorKind::EngineFull && error.error_code() == ENGINE_FULL)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_time_counts_while_no_session_is_open() {
    let bench = Bench::new().await;
    bench.clock.advance(Duration::from_mins(5));
    assert!(bench.idle().await >= Duration::from_mins(5), "since the agent started");
    assert_eq!(bench.engine.status(&bench.address).await.served, Some(0));
    let mut session = bench.engine.open(&bench.address, "ann").await;
    session.run("SELECT 1", WAIT).await.unwrap();
    bench.clock.advance(Duration::from_mins(5));
    assert_eq!(bench.idle().await, Duration::ZERO, "a session is open");
    session.close().await.unwrap();
    assert!(bench.idle().await < Duration::from_mins(5), "since it was closed");
    bench.clock.advance(Duration::from_mins(5));
    assert!(bench.idle().await >= Duration::from_mins(5));
    assert_eq!(bench.engine.status(&bench.address).await.served, Some(1), "one session was open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_with_a_session_and_another_instance_do_not_retire() {
    let bench = Bench::new().await;
    let session = bench.try_open().await.unwrap();
    assert!(!bench.retire(Duration::ZERO).await);
    session.close().await.unwrap();
    let as_master = agent_api::SERVICE_MASTER;
    assert!(!bench.retire_as(as_master, "another uid", Duration::ZERO).await.unwrap());
    let refused = bench.retire_as(agent_api::SERVICE_PROXY, &bench.engine.uid, Duration::ZERO).await;
    assert!(refused.unwrap_err().to_string().contains("only masters may call this method"));
    bench.try_open().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_between_decision_and_retire_prevents_it() {
    let bench = Bench::new().await;
    bench.clock.advance(Duration::from_mins(5));
    let idle = bench.idle().await;
    // The master decides; meanwhile a session is opened and closed.
    bench.try_open().await.unwrap().close().await.unwrap();
    assert!(!bench.retire(idle).await);
    bench.try_open().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retired_engine_opens_no_sessions_until_its_consent_is_over() {
    let bench = Bench::new().await;
    let idle = bench.idle().await;
    assert!(bench.retire(idle).await);
    let status = bench.engine.status(&bench.address).await;
    assert!(status.retiring && !status.draining && status.idle >= Some(idle));
    let refused = bench.try_open().await.err().unwrap();
    assert!(retires(&refused), "{refused}");
    assert!(bench.retire(idle).await, "a master that lost the answer repeats the call");
    bench.clock.advance(CONSENT);
    assert!(!bench.engine.status(&bench.address).await.retiring);
    let mut session = bench.try_open().await.unwrap();
    session.run("SELECT 1", WAIT).await.unwrap();
    assert!(bench.engine.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_with_its_connection_leaves_an_idle_engine() {
    let bench = Bench::new().await;
    let session = bench.try_open().await.unwrap();
    drop(session);
    eventually("an idle engine", async || bench.retire(Duration::ZERO).await.then_some(())).await;
}
