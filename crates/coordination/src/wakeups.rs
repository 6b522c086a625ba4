//! Wake-ups without payload: *something may have changed, read everything again*.
//!
//! A task in the background keeps one-shot watches armed and arms a fired one again before it wakes a waiter, so a
//! reading that follows a wake-up misses nothing. An event that comes at least `APART` after the last arming is delivered
//! at once; all events that come sooner are one wake-up. Every [`REFRESH`] all watches are armed again, because the server
//! forgets one whose event it has sent, even if the event never arrived.

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

/// How often all watches are armed anew.
pub const REFRESH: Duration = Duration::from_secs(30);
/// From one arming to the next, at least. Where a thousand permits are made one after the other, each of them fires the
/// watch of all, and arming that one again reads the names of all.
const APART: Duration = Duration::from_millis(50);
/// How long to wait after watches could not be armed.
const RETRY: Duration = Duration::from_secs(1);

/// Whose wake-ups they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Alter node, bell, agents, permits, registrations, drains.
    Master,
    /// Agents, permits, registrations, drains.
    Registry,
}

/// A stream of wake-ups. Dropping it ends it.
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
    /// Everything that a master watches: alter node, bell, agents, permits, registrations, drains.
    pub fn start(session: &Session) -> Self {
        Self::of(session, Scope::Master)
    }

    pub(crate) fn of(session: &Session, scope: Scope) -> Self {
        let ring = Arc::new(Notify::new());
        let task = tokio::spawn(keep_armed(session.clone(), scope, Arc::clone(&ring)));
        Self { ring, task }
    }

    /// Waits until something may have changed since the last call. Wake-ups that come together are one; none is lost
    /// when the future is dropped. With watch events suppressed it waits for ever, so it is always used beside a
    /// timer.
    pub async fn next(&self) {
        self.ring.notified().await;
    }
}

/// The set of watches, and the engines whose registrations belong to it.
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
                // The owner finds out by itself; a wake-up makes it look.
                ring.notify_one();
                return;
            }
            tracing::debug!(%error, "watches can't be armed now");
            sleep(RETRY).await;
            continue;
        }
        if armed.watches.enabled() {
            ring.notify_one();
        }
        tokio::select! {
            () = armed.watches.next() => {
                sleep_until(armed_at + APART).await;
                // Whatever arrived meanwhile belongs to the same wake-up.
                armed.watches.take_ready();
            }
            () = sleep_until(refresh_at) => {
                // The new ones are armed before the old ones are dropped.
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
    // By its name, there or not: whoever watches children is told the names of all of them, and below a permit an engine
    // may make as many as it likes.
    let engines = armed.engines.iter().filter_map(|name| EngineName::new(name.clone()).ok());
    let targets = engines.map(|engine| Target::Node(layout.registration(&engine))).collect();
    armed.watches.arm(targets).await.map(drop)
}
