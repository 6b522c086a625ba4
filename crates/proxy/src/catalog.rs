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
    /// One refresh at a time: those who come meanwhile take its result.
    refreshing: tokio::sync::Mutex<()>,
}

impl CatalogView {
    pub(crate) fn new(agents: Agents, clock: SharedClock) -> Self {
        Self { agents, clock, reading: watch::Sender::default(), refreshing: tokio::sync::Mutex::default() }
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

    /// Reads again, unless somebody did since `asked_at`; `false` when no metadata agent answered.
    pub async fn refresh(&self) -> bool {
        let asked_at = self.clock.boottime();
        let _one_at_a_time = self.refreshing.lock().await;
        if self.reading().read_at.is_some_and(|read_at| read_at > asked_at) {
            return true;
        }
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
