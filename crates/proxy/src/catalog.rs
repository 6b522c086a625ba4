//! The catalog as the proxy last read it: tenants, users, units, wished-for slots, observed engines.
//!
//! Read again every `snapshot_poll`, and once more before somebody is refused. While no metadata agent answers it
//! stays as it was (static stability); its age is known.

use std::sync::Arc;
use std::time::Duration;

use model::clock::SharedClock;
use model::snapshot::ProxySnapshot;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::agents::Agents;

/// A reading with its time.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// What was read.
    pub snapshot: Arc<ProxySnapshot>,
    /// When, by the clock that counts suspension; `None` before the first reading.
    pub read_at: Option<Duration>,
}

/// The newest reading.
pub struct CatalogView {
    agents: Agents,
    clock: SharedClock,
    reading: watch::Sender<Reading>,
    refreshing: Turns,
}

/// One attempt at a time. Whoever asked before it began takes its outcome, good or bad; whoever asked later needs
/// another, because what he wants to see may have happened meanwhile. So nobody waits for more than two, however many
/// ask while no metadata agent answers.
#[derive(Default)]
struct Turns(tokio::sync::Mutex<Option<Attempt>>);

#[derive(Clone, Copy)]
struct Attempt {
    began: Duration,
    succeeded: bool,
}

impl Turns {
    async fn take(&self, clock: &SharedClock, attempt: impl Future<Output = bool>) -> bool {
        let asked = clock.boottime();
        let mut last = self.0.lock().await;
        if let Some(shared) = last.filter(|it| it.began >= asked) {
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
        Self { agents, clock, reading: watch::Sender::default(), refreshing: Turns::default() }
    }

    /// The newest reading.
    pub fn reading(&self) -> Reading {
        self.reading.borrow().clone()
    }

    /// The age of the newest reading.
    pub fn age(&self) -> Option<Duration> {
        Some(self.clock.boottime().saturating_sub(self.reading().read_at?))
    }

    /// Waits for the first reading; `false` if there is none within `patience`.
    pub(crate) async fn first(&self, patience: Duration) -> bool {
        let mut reading = self.reading.subscribe();
        let read = reading.wait_for(|it| it.read_at.is_some());
        tokio::time::timeout(patience, read).await.is_ok_and(|it| it.is_ok())
    }

    /// Reads again, or takes what a reading says that somebody else began since; `false` when no metadata agent
    /// answered.
    pub async fn refresh(&self) -> bool {
        self.refreshing.take(&self.clock, self.read()).await
    }

    async fn read(&self) -> bool {
        match self.agents.snapshot().await {
            Ok(snapshot) => {
                let read_at = Some(self.clock.boottime());
                self.reading.send_replace(Reading { snapshot: Arc::new(snapshot), read_at });
                true
            }
            Err(error) => {
                debug!(%error, "the catalog could not be read");
                false
            }
        }
    }
}

/// Reads the catalog every `interval` until told to stop.
pub(crate) async fn poll(view: Arc<CatalogView>, interval: Duration, stop: CancellationToken) {
    let mut known = true;
    loop {
        let read = view.refresh().await;
        match (known, read) {
            (true, false) if view.age().is_some() => {
                warn!("no metadata agent answers, the proxy goes on with the catalog that it last read");
                known = false;
            }
            (false, true) => {
                info!("a metadata agent answers again");
                known = true;
            }
            _ => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(if view.age().is_none() { interval.min(FIRST_INTERVAL) } else { interval }) => {}
        }
    }
}

/// How soon the first reading is tried again: a proxy often starts before its agents are registered.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use model::clock::SystemClock;

    use super::*;

    const ONE: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn however_many_ask_while_nobody_answers_each_waits_for_two_attempts_at_most() {
        let (turns, clock, attempts) = (Turns::default(), SystemClock::shared(), AtomicUsize::new(0));
        let (end, ended) = watch::channel(false);
        let attempt = || async {
            attempts.fetch_add(1, Ordering::SeqCst);
            let _ = ended.clone().wait_for(|it| *it).await;
            false
        };
        // Polled in this order: the first attempt runs until all others have asked.
        let first = turns.take(&clock, attempt());
        let others = futures::future::join_all((0..100).map(|_| turns.take(&clock, attempt())));
        let ending = async { end.send_replace(true) };
        let (first, others, _) = futures::future::join3(first, others, ending).await;
        assert!(!first && others.iter().all(|it| !it));
        assert_eq!(attempts.load(Ordering::SeqCst), 2, "one, and one for all who asked while it was made");
    }

    #[tokio::test]
    async fn an_attempt_that_was_given_up_is_nobodys_outcome() {
        let (turns, clock) = (Turns::default(), SystemClock::shared());
        assert!(tokio::time::timeout(ONE, turns.take(&clock, std::future::pending())).await.is_err());
        assert!(turns.take(&clock, async { true }).await);
    }
}
