//! The engine's place in the registry: registers below its permit, follows its permit and its drain fact.
//!
//! The order to drain is the fact (with the agent's own uid) and nothing else; that the permit vanished is only when
//! it looks. Without permit and fact: an agent that was never registered asks for one start deadline and then goes;
//! one that was goes on serving, because ZooKeeper may have lost everything, and goes only when it is idle and has seen
//! for an hour that nobody wants it: while the registry can't be read, nothing is known. An agent that lost its session
//! and finds its permit registers again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coordination::registry::{self, OwnNodes, OwnWatch};
use coordination::{Registration, Session, Supervisor};
use model::clock::SharedClock;
use model::log_throttle::LogThrottle;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::drain::Drain;
use super::sessions::Sessions;
use super::settings::{LOOK_INTERVAL, Settings, UNWANTED_AFTER};
use crate::engine::failpoints;

/// What following the registry came to.
pub(super) enum Verdict {
    /// The order came, and nothing is left to finish.
    Drained,
    /// Nobody wants this engine.
    Unwanted(String),
}

pub(super) struct Membership {
    pub(super) settings: Arc<Settings>,
    pub(super) address: SocketAddr,
    pub(super) clock: SharedClock,
    pub(super) drain: Drain,
    pub(super) registered: Registered,
    pub(super) sessions: Arc<Sessions>,
}

/// Whether it was ever registered. A session that is lost later changes nothing: it serves on and registers again.
#[derive(Debug, Clone, Default)]
pub(super) struct Registered(Arc<AtomicBool>);

impl Registered {
    fn say(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one look at the registry says.
enum Look {
    /// The order to drain, with its grace.
    Order(Duration),
    /// Registered.
    Registered,
    /// Permitted, but not registered yet: a dead session's registration stands, or the uid is not written yet.
    NotYet(&'static str),
    /// Neither permit nor fact.
    Neither,
}

/// Since when every look has found neither permit nor fact.
#[derive(Default)]
struct Alone(Option<Duration>);

impl Alone {
    /// Found so again, now: for how long.
    fn still(&mut self, now: Duration) -> Duration {
        now.saturating_sub(*self.0.get_or_insert(now))
    }

    /// Something is there, or nothing could be read: the time begins anew.
    fn unsure(&mut self) {
        self.0 = None;
    }
}

/// What of the registry is there and can't be read.
#[derive(Default)]
struct Unreadable {
    permit: LogThrottle,
    fact: LogThrottle,
}

fn tell<T>(throttle: &mut LogThrottle, now: Duration, what: &'static str, content: Option<&Result<T, String>>) {
    if let Some(Err(reason)) = content {
        if let Some(times) = throttle.hit(now) {
            warn!(what, reason, times, "what the registry holds can't be read");
        }
    } else if let Some(times) = throttle.clear() {
        info!(what, times, "what the registry holds is no longer unreadable");
    }
}

impl Membership {
    /// Follows permit and fact until the engine has to go.
    pub(super) async fn follow(&self, supervisor: &Supervisor) -> Verdict {
        let (mut alone, mut unreadable) = (Alone::default(), Unreadable::default());
        let mut sessions = supervisor.sessions();
        let mut watch = None;
        loop {
            sessions.mark_unchanged();
            let looked = match supervisor.session() {
                Ok(session) => {
                    self.arm(&mut watch, &session).await;
                    self.look(&session, &mut unreadable).await
                }
                Err(error) => Err(error),
            };
            match looked {
                Ok(Look::Order(grace)) => {
                    self.drain.begin(Some(grace));
                    model::failpoint!(failpoints::DRAIN_BEGUN);
                    self.drain.finished(&self.sessions).await;
                    return Verdict::Drained;
                }
                Ok(Look::Registered) => {
                    self.registered.say();
                    alone.unsure();
                }
                Ok(Look::NotYet(why)) => {
                    debug!(why, "not registered yet");
                    alone.unsure();
                }
                Ok(Look::Neither) => {
                    let time = alone.still(self.clock.boottime());
                    if let Some(reason) = self.verdict(self.registered.is_said(), time) {
                        return Verdict::Unwanted(reason);
                    }
                }
                // ZooKeeper is away: nothing is known, so nothing changes.
                Err(error) => {
                    debug!(%error, "the registry can't be read");
                    alone.unsure();
                }
            }
            wait(&mut sessions, watch.as_mut()).await;
        }
    }

    /// Whether the engine has been without permit and fact for too long.
    fn verdict(&self, registered_before: bool, alone: Duration) -> Option<String> {
        if !registered_before {
            return (alone >= self.settings.start_deadline)
                .then(|| format!("no permit appeared within {}", model::span::print(self.settings.start_deadline)));
        }
        let idle = self.sessions.count() == 0;
        (idle && alone >= UNWANTED_AFTER)
            .then(|| format!("idle and without a permit for {}", model::span::print(UNWANTED_AFTER)))
    }

    /// Arms the watches of this session before anything is read, so that nothing is missed in between.
    async fn arm(&self, watch: &mut Option<(i64, OwnWatch)>, session: &Session) {
        if watch.as_ref().is_none_or(|(id, _)| *id != session.id()) {
            *watch = Some((session.id(), registry::watch_own(session, &self.settings.engine)));
        }
        let Some((_, own)) = watch else { return };
        if let Err(error) = own.arm().await {
            debug!(%error, "the registry can't be watched now, the timer looks instead");
        }
    }

    async fn look(&self, session: &Session, unreadable: &mut Unreadable) -> Result<Look, coordination::Error> {
        let OwnNodes { permit, drain } = registry::read_own(session, &self.settings.engine).await?;
        let now = self.clock.boottime();
        tell(&mut unreadable.fact, now, "drain fact", drain.as_ref().map(|it| &it.content));
        tell(&mut unreadable.permit, now, "permit", permit.as_ref().map(|it| &it.content));
        if let Some(fact) = drain {
            match &fact.content {
                // A fact without a uid was written for whatever had the name, and a name has one engine only.
                Ok(content) if content.uid.as_ref().is_none_or(|uid| *uid == self.settings.uid) => {
                    return Ok(Look::Order(Duration::from_millis(content.grace_ms.max(0).unsigned_abs())));
                }
                Ok(_) => debug!("a drain fact of another engine is ignored"),
                // Told above.
                Err(_) => {}
            }
        }
        let Some(permit) = permit else { return Ok(Look::Neither) };
        match &permit.content {
            Ok(content) if content.uid.as_ref() == Some(&self.settings.uid) => {}
            Ok(content) if content.uid.is_none() => return Ok(Look::NotYet("the permit has no uid yet")),
            Ok(_) | Err(_) => return Ok(Look::Neither),
        }
        if permit.registration.as_ref().is_some_and(|live| live.session == session.id()) {
            return Ok(Look::Registered);
        }
        model::failpoint!(failpoints::BEFORE_REGISTER);
        match registry::register(session, &permit, &self.live()).await {
            Ok(()) => {
                model::failpoint!(failpoints::REGISTERED);
                let session = format!("{:#x}", session.id());
                info!(engine = %self.settings.engine, address = self.advertised(), session, "registered");
                Ok(Look::Registered)
            }
            Err(coordination::Error::StillHeld { .. }) => {
                Ok(Look::NotYet("a dead session's registration still stands"))
            }
            // The permit moved meanwhile: look again.
            Err(error) if error.kind() == coordination::ZkErrorKind::Conflict => Ok(Look::NotYet("the permit changed")),
            Err(error) => Err(error),
        }
    }

    fn advertised(&self) -> String {
        match &self.settings.advertise_host {
            Some(host) => format!("{host}:{}", self.address.port()),
            None => self.address.to_string(),
        }
    }

    fn live(&self) -> Registration {
        Registration {
            address: self.advertised(),
            capacity: super::settings::MAX_SESSIONS as u32,
            config: self.settings.config.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uid: self.settings.uid.clone(),
            catalog: Some(self.settings.catalog),
        }
    }
}

/// Until the registry may have changed.
async fn wait(sessions: &mut watch::Receiver<Option<Session>>, own: Option<&mut (i64, OwnWatch)>) {
    let watched = async {
        match own {
            Some((_, own)) => own.next().await,
            None => std::future::pending().await,
        }
    };
    let changed = async {
        if sessions.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = watched => {}
        () = changed => {}
        () = tokio::time::sleep(LOOK_INTERVAL) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_permit_and_fact_counts_only_while_every_look_finds_neither() {
        let (mut alone, second) = (Alone::default(), Duration::from_secs(1));
        assert_eq!(alone.still(second), Duration::ZERO);
        assert_eq!(alone.still(second * 61), second * 60);
        // ZooKeeper is away for two hours, and lost everything: the master has made nothing anew yet.
        alone.unsure();
        assert_eq!(alone.still(second * 7_200), Duration::ZERO);
        assert_eq!(alone.still(second * 7_202), second * 2);
    }
}
