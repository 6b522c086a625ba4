//! A proxy's cached view of the registry: the registered engines, which of them drain, and the metadata agents.
//!
//! It is refreshed by watches and at an interval, and keeps its last state during an outage of ZooKeeper, so that the proxy
//! continues to serve. After our own session was replaced, entries that are missing are kept for a grace period
//! (`missing_grace`): engines and metadata agents may have lost their sessions in the same outage and register again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::EngineName;
use model::clock::SharedClock;
use model::pace::Pace;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::agents::{self, Agent};
use crate::drains;
use crate::error::Error;
use crate::permits::{self, Permit, PermitCache};
use crate::registration::Registration;
use crate::session::{Session, SessionState};
use crate::wakeups::{Scope, Wakeups};

/// The interval between two reads of many, which bounds the cost of an engine whose registration flaps.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// How long a process with a new session may take to notice that the node of the old one is gone, and to register: the
/// supervisor's pause, the half second that a metadata agent waits, and the calls.
const REREGISTRATION: Duration = Duration::from_secs(2);

/// How long missing entries are kept after our own session was replaced. Nodes of expired sessions remain for one session timeout
/// after the servers are back, rounded up to a tick, which is at most half the shortest session timeout. No process can
/// register in place of such a node before it is gone.
fn missing_grace(session_timeout: Duration) -> Duration {
    session_timeout * 3 / 2 + REREGISTRATION
}

/// The registry as it was last read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegistrySnapshot {
    /// The engines that are registered below a permit with their own uid.
    pub engines: BTreeMap<EngineName, RegisteredEngine>,
    /// The metadata agents by id, including missing ones within their grace period: a caller that fails to connect tries the
    /// next one.
    pub agents: Vec<Agent>,
    /// When it was last read, by the boot clock; `None` before the first read.
    pub read_at: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredEngine {
    pub permit: Permit,
    pub registration: Registration,
    /// The session that owns the registration.
    pub session: i64,
    /// Whether it has a drain order.
    pub draining: bool,
    /// False for a missing engine within its grace period.
    pub confirmed: bool,
}

/// The handle of the view. Dropping it stops the refresh.
#[derive(Debug)]
pub struct View {
    changes: watch::Receiver<Arc<RegistrySnapshot>>,
    task: JoinHandle<()>,
}

impl Drop for View {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl View {
    /// Starts reading on the current session (`Supervisor::sessions`), at least every `reread`.
    pub fn start(sessions: watch::Receiver<Option<Session>>, reread: Duration, clock: SharedClock) -> Self {
        let (sender, changes) = watch::channel(Arc::new(RegistrySnapshot::default()));
        let task = tokio::spawn(Reader { sessions, reread, clock, sender, grace_for: None, grace_until: None }.run());
        Self { changes, task }
    }

    pub fn snapshot(&self) -> Arc<RegistrySnapshot> {
        Arc::clone(&self.changes.borrow())
    }

    pub fn changes(&self) -> watch::Receiver<Arc<RegistrySnapshot>> {
        self.changes.clone()
    }
}

struct Reader {
    sessions: watch::Receiver<Option<Session>>,
    reread: Duration,
    clock: SharedClock,
    sender: watch::Sender<Arc<RegistrySnapshot>>,
    /// The grace period that starts with the next read.
    grace_for: Option<Duration>,
    /// When the grace period ends, by the boot clock.
    grace_until: Option<Duration>,
}

impl Reader {
    async fn run(mut self) {
        loop {
            // An error means that the supervisor has stopped.
            let session = match self.sessions.wait_for(Option::is_some).await {
                Ok(session) => session.clone(),
                Err(_) => return,
            };
            let Some(session) = session else { continue };
            if self.sender.borrow().read_at.is_some() {
                self.grace_for = Some(missing_grace(session.timeout()));
            }
            self.follow(&session).await;
        }
    }

    /// Reads on one session until it has ended.
    async fn follow(&mut self, session: &Session) {
        let wakeups = Wakeups::with_scope(session, Scope::Registry);
        let permits = PermitCache::default();
        let (begun, mut pace) = (Instant::now(), Pace::new(MIN_PAUSE));
        while session.state() != SessionState::Expired {
            let since = begun.elapsed();
            match read(session, &permits, self.clock.boottime()).await {
                Ok(read) => self.publish(read),
                Err(error) => tracing::debug!(%error, "could not read the registry"),
            }
            tokio::select! {
                () = wakeups.next() => {}
                () = sleep(self.reread) => {}
                () = session.ended() => return,
                changed = self.sessions.changed() => {
                    if changed.is_err() || self.sessions.borrow().as_ref().is_none_or(|current| current.id() != session.id()) {
                        return;
                    }
                }
            }
            sleep(pace.wait(since, begun.elapsed())).await;
        }
    }

    fn publish(&mut self, Reading { registered: mut read, ordered, unread }: Reading) {
        let now = self.clock.boottime();
        // It starts with the first read, not with the session: engines may reconnect as late as this process does.
        if let Some(grace) = self.grace_for.take() {
            self.grace_until = Some(now + grace);
        }
        if self.grace_until.is_some_and(|until| now >= until) {
            self.grace_until = None;
        }
        if self.grace_until.is_some() {
            let last = Arc::clone(&self.sender.borrow());
            keep_missing(&mut read, &last, &ordered);
        }
        if !unread.is_empty() {
            // Entries that were not read may still exist: keep their last state.
            let mut last = RegistrySnapshot::clone(&self.sender.borrow());
            last.engines.retain(|name, _| unread.contains(name));
            last.agents.clear();
            keep_missing(&mut read, &last, &ordered);
        }
        self.sender.send_if_modified(|last| {
            let changed = last.engines != read.engines || last.agents != read.agents || last.read_at.is_none();
            *last = Arc::new(read);
            changed
        });
    }
}

/// Adds the engines and metadata agents of the last state that are missing now, except engines with a drain order.
fn keep_missing(read: &mut RegistrySnapshot, last: &RegistrySnapshot, ordered: &[EngineName]) {
    for (name, engine) in &last.engines {
        if !read.engines.contains_key(name) && !ordered.contains(name) {
            read.engines.insert(name.clone(), RegisteredEngine { confirmed: false, ..engine.clone() });
        }
    }
    let gone = |agent: &&Agent| read.agents.iter().all(|other| other.id != agent.id);
    let kept: Vec<Agent> = last.agents.iter().filter(gone).cloned().collect();
    read.agents.extend(kept);
    read.agents.sort_by(|one, other| one.id.cmp(&other.id));
}

struct Reading {
    registered: RegistrySnapshot,
    /// The engines with a drain order.
    ordered: Vec<EngineName>,
    /// The engines whose permits were not read, because there are too many.
    unread: BTreeSet<EngineName>,
}

async fn read(session: &Session, cache: &PermitCache, now: Duration) -> Result<Reading, Error> {
    session.sync().await?;
    let (agents, (permits, unread), ordered) =
        tokio::try_join!(agents::list(session), permits::list_in_part(session, cache), drains::names(session))?;
    let mut engines = BTreeMap::new();
    for node in permits {
        let Some(registration) = node.ready().cloned() else { continue };
        let (Ok(permit), Ok(content)) = (&node.content, registration.content) else { continue };
        let draining = ordered.contains(&node.engine);
        let engine = RegisteredEngine {
            permit: permit.clone(),
            registration: content,
            session: registration.session,
            draining,
            confirmed: true,
        };
        engines.insert(node.engine.clone(), engine);
    }
    Ok(Reading { registered: RegistrySnapshot { engines, agents, read_at: Some(now) }, ordered, unread })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use model::clock::ManualClock;
    use model::{PoolName, TenantName, UnitName};

    fn reading(registered: RegistrySnapshot) -> Reading {
        Reading { registered, ordered: Vec::new(), unread: BTreeSet::new() }
    }

    #[test]
    fn the_grace_period_starts_with_the_first_read_of_a_new_session() {
        let clock = ManualClock::at(0);
        let engine = RegisteredEngine {
            permit: Permit {
                tenant: TenantName::new("t_1").unwrap(),
                pool: PoolName::new("rp_1").unwrap(),
                unit: UnitName::new("uc_1").unwrap(),
                uid: Some("uid-1".to_owned()),
                sessions: None,
                owner: None,
            },
            registration: Registration {
                address: "127.0.0.1:1".to_owned(),
                capacity: 1,
                config: String::new(),
                version: String::new(),
                uid: "uid-1".to_owned(),
                catalog: None,
                owner: None,
                keys: Vec::new(),
                tls: None,
            },
            session: 1,
            draining: false,
            confirmed: true,
        };
        let name = EngineName::new("e-1").unwrap();
        let agent = |id: &str| Agent {
            id: id.to_owned(),
            address: "127.0.0.1:2".to_owned(),
            keys: Vec::new(),
            tls: None,
            session: 1,
        };
        let (sender, states) = watch::channel(Arc::new(RegistrySnapshot::default()));
        let (_sessions, sessions) = watch::channel(None);
        let mut reader = Reader {
            sessions,
            reread: Duration::from_secs(1),
            clock: clock.clone(),
            sender,
            grace_for: None,
            grace_until: None,
        };
        let timeout = Duration::from_secs(10);
        let with = RegistrySnapshot {
            engines: [(name.clone(), engine)].into(),
            agents: vec![agent("a-2")],
            read_at: Some(Duration::ZERO),
        };
        let without = || {
            let agents = vec![agent("a-1"), agent("a-3")];
            reading(RegistrySnapshot { agents, read_at: Some(Duration::ZERO), ..RegistrySnapshot::default() })
        };
        let ids = || states.borrow().agents.iter().map(|agent| agent.id.clone()).collect::<Vec<_>>();
        reader.publish(reading(with));
        // A new session on which no read succeeds for longer than its timeout.
        reader.grace_for = Some(timeout);
        clock.advance(timeout * 2);
        reader.publish(without());
        assert!(!states.borrow().engines[&name].confirmed, "it may register again");
        assert_eq!(ids(), ["a-1", "a-2", "a-3"], "an agent may register again, too");
        clock.advance(timeout);
        reader.publish(without());
        assert!(states.borrow().engines.is_empty());
        assert_eq!(ids(), ["a-1", "a-3"]);
    }
}
