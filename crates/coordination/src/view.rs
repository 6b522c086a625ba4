//! A proxy's view of the registry: which engines can be reached, which drain, which metadata agents there are.
//!
//! It keeps itself up to date by watches and by reading again, and it keeps its last state while ZooKeeper is away: a
//! proxy goes on serving what it knows. A registry that shrank while our own session was built anew is not believed
//! for a while (`doubt`): engines and metadata agents may have lost their sessions in the same outage and register again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::EngineName;
use model::clock::SharedClock;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::agents::{self, Agent};
use crate::drains;
use crate::error::Error;
use crate::permits::{self, Permit};
use crate::registration::Registration;
use crate::session::{Session, SessionState};
use crate::wakeups::{Scope, Wakeups};

/// Between two readings, at least: an engine that comes and goes all the time costs everybody no more than that.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// How long somebody who has a new session may take to see that the node of the old one has gone, and to register: the
/// supervisor's pause, the half second for which a metadata agent waits by itself, and the calls.
const REGISTERS_AGAIN: Duration = Duration::from_secs(2);

/// How long a registry that shrank is not believed after our own session was built anew. Nodes of dead sessions stand
/// for one session timeout after the servers are back, rounded up to a tick, which is half the shortest session timeout
/// at most; nobody can register in the place of such a node before it goes.
fn doubt(session_timeout: Duration) -> Duration {
    session_timeout * 3 / 2 + REGISTERS_AGAIN
}

/// What a proxy knows of the registry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegistrySnapshot {
    /// The engines that are registered below a permit of their own uid.
    pub engines: BTreeMap<EngineName, RegisteredEngine>,
    /// The metadata agents, by id; those too that are not in the registry any more, kept because our own session was
    /// built anew just now: a caller who connects to one that is gone takes the next one.
    pub agents: Vec<Agent>,
    /// When all of it was last read, by the boot clock; `None` before the first time.
    pub read_at: Option<Duration>,
}

/// One registered engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredEngine {
    /// Whose engine it is.
    pub permit: Permit,
    /// How to reach it.
    pub registration: Registration,
    /// The session that owns the registration.
    pub session: i64,
    /// Whether it has been told to drain.
    pub draining: bool,
    /// False for one that is not in the registry any more, kept because our own session was built anew just now.
    pub confirmed: bool,
}

/// The view. Dropping it ends it.
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
    /// Begins to read on the newest session there is, `Supervisor::sessions`; reads again at least every `reread`.
    pub fn start(sessions: watch::Receiver<Option<Session>>, reread: Duration, clock: SharedClock) -> Self {
        let (sender, changes) = watch::channel(Arc::new(RegistrySnapshot::default()));
        let task = tokio::spawn(Reader { sessions, reread, clock, sender, doubt_for: None, doubt_until: None }.run());
        Self { changes, task }
    }

    /// The last state.
    pub fn snapshot(&self) -> Arc<RegistrySnapshot> {
        Arc::clone(&self.changes.borrow())
    }

    /// The states, as they change.
    pub fn changes(&self) -> watch::Receiver<Arc<RegistrySnapshot>> {
        self.changes.clone()
    }
}

struct Reader {
    sessions: watch::Receiver<Option<Session>>,
    reread: Duration,
    clock: SharedClock,
    sender: watch::Sender<Arc<RegistrySnapshot>>,
    /// How long a registry that shrank is not to be believed, from the next reading on.
    doubt_for: Option<Duration>,
    /// Until when it is not believed, by the boot clock.
    doubt_until: Option<Duration>,
}

impl Reader {
    async fn run(mut self) {
        loop {
            // An error means that the supervisor is gone, and with it the reason to go on.
            let session = match self.sessions.wait_for(Option::is_some).await {
                Ok(session) => session.clone(),
                Err(_) => return,
            };
            let Some(session) = session else { continue };
            if self.sender.borrow().read_at.is_some() {
                self.doubt_for = Some(doubt(session.timeout()));
            }
            self.follow(&session).await;
        }
    }

    /// Reads on one session until it has ended.
    async fn follow(&mut self, session: &Session) {
        let wakeups = Wakeups::of(session, Scope::Registry);
        while session.state() != SessionState::Expired {
            let next = Instant::now() + MIN_PAUSE;
            match read(session, self.clock.boottime()).await {
                Ok(read) => self.publish(read),
                Err(error) => tracing::debug!(%error, "the registry can't be read now"),
            }
            tokio::select! {
                () = wakeups.next() => {}
                () = sleep(self.reread) => {}
                () = session.ended() => return,
                changed = self.sessions.changed() => {
                    if changed.is_err() || self.sessions.borrow().as_ref().is_none_or(|it| it.id() != session.id()) {
                        return;
                    }
                }
            }
            sleep_until(next).await;
        }
    }

    fn publish(&mut self, Reading { registered: mut read, ordered, unread }: Reading) {
        let now = self.clock.boottime();
        // Not from when the session was built: the engines may be heard of as late as we hear of anything.
        if let Some(doubt) = self.doubt_for.take() {
            self.doubt_until = Some(now + doubt);
        }
        if self.doubt_until.is_some_and(|until| now >= until) {
            self.doubt_until = None;
        }
        if self.doubt_until.is_some() {
            let last = Arc::clone(&self.sender.borrow());
            keep_missing(&mut read, &last, &ordered);
        }
        if !unread.is_empty() {
            // What was not read may still be there: it is kept as it was known.
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

/// Adds the engines and metadata agents that were there before and are missing now, except the engines that have been
/// told to drain.
fn keep_missing(read: &mut RegistrySnapshot, last: &RegistrySnapshot, ordered: &[EngineName]) {
    for (name, engine) in &last.engines {
        if !read.engines.contains_key(name) && !ordered.contains(name) {
            read.engines.insert(name.clone(), RegisteredEngine { confirmed: false, ..engine.clone() });
        }
    }
    let gone = |agent: &&Agent| read.agents.iter().all(|it| it.id != agent.id);
    let kept: Vec<Agent> = last.agents.iter().filter(gone).cloned().collect();
    read.agents.extend(kept);
    read.agents.sort_by(|one, other| one.id.cmp(&other.id));
}

/// The registry as it is.
struct Reading {
    registered: RegistrySnapshot,
    /// The engines with an order to drain.
    ordered: Vec<EngineName>,
    /// The engines whose permits were not read, because there are too many.
    unread: BTreeSet<EngineName>,
}

async fn read(session: &Session, now: Duration) -> Result<Reading, Error> {
    session.sync().await?;
    let (agents, (permits, unread), ordered) =
        tokio::try_join!(agents::list(session), permits::list_in_part(session), drains::names(session))?;
    let mut engines = BTreeMap::new();
    for node in permits {
        let Some(registration) = node.ready().cloned() else { continue };
        let (Ok(permit), Ok(content)) = (node.content, registration.content) else { continue };
        let draining = ordered.contains(&node.engine);
        let engine = RegisteredEngine {
            permit,
            registration: content,
            session: registration.session,
            draining,
            confirmed: true,
        };
        engines.insert(node.engine, engine);
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
    fn the_doubt_counts_from_the_first_reading_of_a_new_session() {
        let clock = ManualClock::at(0);
        let engine = RegisteredEngine {
            permit: Permit {
                tenant: TenantName::new("t_1").unwrap(),
                pool: PoolName::new("rp_1").unwrap(),
                unit: UnitName::new("uc_1").unwrap(),
                uid: Some("uid-1".to_owned()),
            },
            registration: Registration {
                address: "127.0.0.1:1".to_owned(),
                capacity: 1,
                config: String::new(),
                version: String::new(),
                uid: "uid-1".to_owned(),
                catalog: None,
            },
            session: 1,
            draining: false,
            confirmed: true,
        };
        let name = EngineName::new("e-1").unwrap();
        let agent = |id: &str| Agent { id: id.to_owned(), address: "127.0.0.1:2".to_owned(), session: 1 };
        let (sender, states) = watch::channel(Arc::new(RegistrySnapshot::default()));
        let (_sessions, sessions) = watch::channel(None);
        let mut reader = Reader {
            sessions,
            reread: Duration::from_secs(1),
            clock: clock.clone(),
            sender,
            doubt_for: None,
            doubt_until: None,
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
        let ids = || states.borrow().agents.iter().map(|it| it.id.clone()).collect::<Vec<_>>();
        reader.publish(reading(with));
        // A new session, on which nothing can be read for longer than its timeout.
        reader.doubt_for = Some(timeout);
        clock.advance(timeout * 2);
        reader.publish(without());
        assert!(!states.borrow().engines[&name].confirmed, "it may be about to register again");
        assert_eq!(ids(), ["a-1", "a-2", "a-3"], "so may an agent");
        clock.advance(timeout);
        reader.publish(without());
        assert!(states.borrow().engines.is_empty());
        assert_eq!(ids(), ["a-1", "a-3"]);
    }
}
