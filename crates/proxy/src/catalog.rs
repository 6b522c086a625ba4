//! The catalog cache: tenants, users, units, desired slots and observed engines, as the proxy last read them.
//!
//! It is refreshed every `snapshot_poll`, and once more before a session is refused. While no metadata agent responds it
//! stays as it is (static stability); its age is known.

use std::sync::Arc;
use std::time::Duration;

use model::clock::SharedClock;
use model::engine_name::EngineName;
use model::snapshot::ProxySnapshot;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::agents::Agents;

#[derive(Debug, Clone, Default)]
pub(crate) struct Reading {
    pub(crate) snapshot: Arc<ProxySnapshot>,
    /// The time of the reading, by the clock that counts suspension; `None` before the first one.
    pub(crate) read_at: Option<Duration>,
}

pub(crate) struct CatalogView {
    agents: Agents,
    clock: SharedClock,
    reading: watch::Sender<Reading>,
    refreshing: SharedAttempts,
}

/// Coalesces concurrent attempts. A caller that arrived before an attempt began shares its outcome; a later caller needs
/// another one, because the change that it looks for may have happened meanwhile. Each caller therefore waits for at
/// most two attempts, however many callers there are.
#[derive(Default)]
struct SharedAttempts(tokio::sync::Mutex<Option<Attempt>>);

#[derive(Clone, Copy)]
struct Attempt {
    began: Duration,
    succeeded: bool,
}

impl SharedAttempts {
    async fn run(&self, clock: &SharedClock, attempt: impl Future<Output = bool>) -> bool {
        let arrived = clock.boottime();
        let mut last = self.0.lock().await;
        if let Some(shared) = last.filter(|attempt| attempt.began >= arrived) {
            return shared.succeeded;
        }
        let began = clock.boottime();
        let succeeded = attempt.await;
        *last = Some(Attempt { began, succeeded });
        succeeded
    }
}

impl CatalogView {
    pub(crate) fn new(agents: Agents, clock: SharedClock) -> Self {
        Self { agents, clock, reading: watch::Sender::default(), refreshing: SharedAttempts::default() }
    }

    /// The newest reading.
    pub(crate) fn reading(&self) -> Reading {
        self.reading.borrow().clone()
    }

    /// The age of the newest reading.
    pub(crate) fn age(&self) -> Option<Duration> {
        Some(self.clock.boottime().saturating_sub(self.reading().read_at?))
    }

    /// Waits for the first reading; `false` if there is none in time.
    pub(crate) async fn first(&self, deadline: Duration) -> bool {
        let mut reading = self.reading.subscribe();
        let read = reading.wait_for(|reading| reading.read_at.is_some());
        tokio::time::timeout(deadline, read).await.is_ok_and(|waited| waited.is_ok())
    }

    /// The reason with what the master last published of the engine, if anything.
    pub(crate) fn with_engine_reason(&self, engine: &EngineName, reason: &str) -> String {
        let snapshot = self.reading().snapshot;
        let observed = snapshot.observed.iter().find(|observed| observed.name == *engine);
        match observed.and_then(|observed| observed.reason.as_deref()) {
            Some(published) => format!("{reason}; {published}"),
            None => reason.to_owned(),
        }
    }

    /// Reads again, or shares a reading that another caller began since; `false` if no metadata agent responded.
    pub(crate) async fn refresh(&self) -> bool {
        self.refreshing.run(&self.clock, self.read()).await
    }

    async fn read(&self) -> bool {
        match self.agents.snapshot().await {
            Ok(snapshot) => {
                let read_at = Some(self.clock.boottime());
                self.reading.send_replace(Reading { snapshot: Arc::new(snapshot), read_at });
                true
            }
            Err(error) => {
                debug!(%error, "could not read the catalog");
                false
            }
        }
    }
}

/// Reads the catalog every `interval` until stopped.
pub(crate) async fn poll(view: Arc<CatalogView>, interval: Duration, stop: CancellationToken) {
    let mut reachable = true;
    loop {
        let read = view.refresh().await;
        match (reachable, read) {
            (true, false) if view.age().is_some() => {
                warn!("no metadata agent responds; using the last catalog");
                reachable = false;
            }
            (false, true) => {
                info!("a metadata agent responds again");
                reachable = true;
            }
            _ => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(if view.age().is_none() { interval.min(FIRST_INTERVAL) } else { interval }) => {}
        }
    }
}

/// The interval until the first reading: a proxy often starts before its agents are registered.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use model::clock::SystemClock;

    use super::*;

    const ONE: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn each_of_many_callers_waits_for_at_most_two_attempts() {
        let (shared, clock, attempts) = (SharedAttempts::default(), SystemClock::shared(), AtomicUsize::new(0));
        let (end, ended) = watch::channel(false);
        let attempt = || async {
            attempts.fetch_add(1, Ordering::SeqCst);
            let _ = ended.clone().wait_for(|ended| *ended).await;
            false
        };
        // Polled in this order: the first attempt runs until all others have arrived.
        let first = shared.run(&clock, attempt());
        let others = futures::future::join_all((0..100).map(|_| shared.run(&clock, attempt())));
        let ending = async { end.send_replace(true) };
        let (first, others, _) = futures::future::join3(first, others, ending).await;
        assert!(!first && others.iter().all(|succeeded| !succeeded));
        assert_eq!(attempts.load(Ordering::SeqCst), 2, "one, and one for all callers that arrived during it");
    }

    #[tokio::test]
    async fn the_outcome_of_a_cancelled_attempt_is_not_shared() {
        let (shared, clock) = (SharedAttempts::default(), SystemClock::shared());
        assert!(tokio::time::timeout(ONE, shared.run(&clock, std::future::pending())).await.is_err());
        assert!(shared.run(&clock, async { true }).await);
    }
}
