//! Level-triggered wake-ups without payload: something may have changed, so read everything again.
//!
//! A background task keeps one-shot watches armed. It arms a fired watch again before it wakes the waiter, so a read after a
//! wake-up misses no change. Events are coalesced: one that arrives at least `MIN_INTERVAL` after the last arming is delivered
//! at once, all earlier ones are one wake-up. All watches are armed again every [`REFRESH`], because the server drops a watch
//! whose event it has sent even if that event was lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::EngineName;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::layout::Layout;
use crate::session::{Session, SessionState};
use crate::watches::{Target, Watches};

/// The interval at which all watches are armed again.
pub const REFRESH: Duration = Duration::from_secs(30);
/// The minimum interval between two armings. When a thousand permits are created one after the other, each fires the watch of
/// their parent, and arming that watch again lists all of them.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// The pause after watches could not be armed.
const RETRY: Duration = Duration::from_secs(1);

/// The nodes that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Alter node, bell, agents, permits, registrations and drain orders.
    Master,
    /// Agents, permits, registrations and drain orders.
    Registry,
}

/// A stream of wake-ups. Dropping it stops the background task.
#[derive(Debug)]
pub struct Wakeups {
    ring: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Wakeups {
    /// Wake-ups for the master.
    pub fn start(session: &Session) -> Self {
        Self::with_scope(session, Scope::Master)
    }

    pub(crate) fn with_scope(session: &Session, scope: Scope) -> Self {
        let ring = Arc::new(Notify::new());
        let task = tokio::spawn(keep_armed(session.clone(), scope, Arc::clone(&ring)));
        Self { ring, task }
    }

    /// Waits until something may have changed since the last call. Cancel-safe. It never returns if watch events are disabled, so
    /// callers also need a timer.
    pub async fn next(&self) {
        self.ring.notified().await;
    }
}

/// The armed watches, and the engines whose registrations they include.
struct Armed {
    watches: Watches,
    engines: BTreeSet<String>,
}

async fn keep_armed(session: Session, scope: Scope, ring: Arc<Notify>) {
    let mut armed = Armed { watches: Watches::new(&session), engines: BTreeSet::new() };
    let mut refresh_at = Instant::now() + REFRESH;
    loop {
        let armed_at = Instant::now();
        if let Err(error) = arm(&mut armed, session.layout(), scope).await {
            if session.state() == SessionState::Expired {
                // Wakes the owner, which then notices the expired session.
                ring.notify_one();
                return;
            }
            tracing::debug!(%error, "could not arm watches");
            sleep(RETRY).await;
            continue;
        }
        if armed.watches.enabled() {
            ring.notify_one();
        }
        tokio::select! {
            () = armed.watches.next() => {
                sleep_until(armed_at + MIN_INTERVAL).await;
                // Coalesces all events that arrived meanwhile.
                armed.watches.take_ready();
            }
            () = sleep_until(refresh_at) => {
                // Arm the new watches before dropping the old ones.
                let mut fresh = Armed { watches: Watches::new(&session), engines: BTreeSet::new() };
                if arm(&mut fresh, session.layout(), scope).await.is_ok() {
                    armed = fresh;
                }
                refresh_at = Instant::now() + REFRESH;
            }
        }
    }
}

async fn arm(armed: &mut Armed, layout: &Layout, scope: Scope) -> Result<(), crate::Error> {
    let mut targets =
        vec![Target::Children(layout.agents()), Target::Children(layout.engines()), Target::Children(layout.drains())];
    if scope == Scope::Master {
        targets.extend([Target::Node(layout.alter()), Target::Node(layout.bell())]);
    }
    for (path, names) in armed.watches.arm(targets).await? {
        if path == layout.engines() {
            armed.engines = names.into_iter().collect();
        }
    }
    // Watched by path, whether it exists or not: a watch of children would return all their names, and an engine may create any
    // number of children below its permit.
    let engines = armed.engines.iter().filter_map(|name| EngineName::new(name.clone()).ok());
    let targets = engines.map(|engine| Target::Node(layout.registration(&engine))).collect();
    armed.watches.arm(targets).await.map(drop)
}
