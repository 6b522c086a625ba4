//! Seats: how many sessions an engine may have, as its permit says.

use hs2::{ClientError, Session};
use model::error::{ENGINE_FULL, ErrorKind, UserError};

use crate::fixture::{WAIT, eventually};
use crate::permitted::{PermittedEngine, refusal};

struct Bench(PermittedEngine);

impl Bench {
    async fn new(sessions: Option<u32>) -> Self {
        Self(PermittedEngine::new(sessions, None).await)
    }

    async fn try_open(&self) -> Result<Session, ClientError> {
        self.0.open("ann", &[]).await
    }

    async fn refused(&self) -> UserError {
        refusal(self.try_open().await)
    }

    async fn seats(&self) -> Option<u32> {
        self.0.status().await.seats
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_never_has_more_sessions_than_its_permit_allows() {
    let bench = Bench::new(Some(3)).await;
    let all = futures::future::join_all((0..12).map(|_| bench.try_open())).await;
    let (open, refused): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
    assert_eq!(open.len(), 3, "opened at the same time");
    for refused in refused {
        let Err(ClientError::Refused(error)) = refused else { panic!("it must be refused") };
        assert_eq!((error.kind, error.error_code(), error.sqlstate()), (ErrorKind::EngineFull, ENGINE_FULL, "08S01"));
        assert!(error.message.ends_with("has no free seat"), "{}", error.text());
    }
    assert_eq!(bench.0.engine.datafusion.load().0, 3, "nothing was opened for the others");
    let status = bench.0.status().await;
    assert_eq!((status.sessions, status.seats, status.is_full()), (3, Some(3), true));
    open.into_iter().next().unwrap().unwrap().close().await.unwrap();
    let mut next = bench.try_open().await.unwrap();
    next.run("SELECT 1", WAIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seats_follow_a_rewritten_permit_and_end_no_session() {
    let bench = Bench::new(Some(1)).await;
    let mut first = bench.try_open().await.unwrap();
    assert_eq!(bench.refused().await.detail.as_deref(), Some("1 of 1 are taken."));
    bench.0.permit_sessions(Some(2)).await;
    let mut second = eventually("a second seat", async || bench.try_open().await.ok()).await;
    bench.0.permit_sessions(Some(1)).await;
    eventually("one seat", async || (bench.seats().await == Some(1)).then_some(())).await;
    for session in [&mut first, &mut second] {
        session.run("SELECT 1", WAIT).await.unwrap();
    }
    first.close().await.unwrap();
    assert_eq!(bench.refused().await.detail.as_deref(), Some("1 of 1 are taken."));
    second.close().await.unwrap();
    bench.try_open().await.unwrap();
    bench.0.permit_sessions(None).await;
    eventually("the agent's own limit", async || bench.seats().await.filter(|seats| *seats > 1)).await;
    assert!(bench.0.engine.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_counts_stateful_sessions() {
    let bench = Bench::new(None).await;
    let (mut stateful, mut stateless) = (bench.try_open().await.unwrap(), bench.try_open().await.unwrap());
    stateless.run("SELECT 1", WAIT).await.unwrap();
    stateful.run("CREATE TEMPORARY VIEW mine AS SELECT 42 AS answer", WAIT).await.unwrap();
    let status = bench.0.status().await;
    assert_eq!((status.sessions, status.stateful, status.is_full()), (2, Some(1), false));
    stateful.close().await.unwrap();
    assert_eq!(bench.0.status().await.stateful, Some(0));
}
