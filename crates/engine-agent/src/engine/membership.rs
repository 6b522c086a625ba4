//! The membership of the engine in the registry: registers below the permit, and follows permit and drain order.
//!
//! Only a drain order with the agent's own uid starts a drain; a missing permit does not. Without both nodes, an agent that
//! was never registered exits after the start deadline. One that was registered continues to serve, because ZooKeeper may
//! have lost all data; it exits when it is idle and has found neither node for an hour. Time in which the registry cannot
//! be read does not count. An agent that lost its session registers again if the permit exists.
//!
//! Each reading applies the number of sessions in the permit; without a permit the last one stays. The owner is that of the
//! first permit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coordination::drains::DrainOrderNode;
use coordination::registry::{self, OwnNodes, OwnWatch};
use coordination::{Registration, Session, Supervisor};
use model::clock::SharedClock;
use model::engine_name::EngineName;
use model::log_throttle::LogThrottle;
use model::millis;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::drain::Drain;
use super::sessions::Sessions;
use super::settings::{READ_INTERVAL, Settings, UNWANTED_AFTER};
use crate::engine::failpoints;

/// Why following the registry ended.
pub(super) enum Verdict {
    /// A drain order, and no work is left.
    Drained,
    /// The engine is no longer desired; with the reason.
    Unwanted(String),
}

pub(super) struct Membership {
    pub(super) settings: Arc<Settings>,
    pub(super) address: SocketAddr,
    pub(super) clock: SharedClock,
    pub(super) drain: Drain,
    pub(super) registered: RegisteredFlag,
    pub(super) sessions: Arc<Sessions>,
}

/// Whether the engine was ever registered. Losing the session later does not reset it.
#[derive(Debug, Clone, Default)]
pub(super) struct RegisteredFlag(Arc<AtomicBool>);

impl RegisteredFlag {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The result of one reading of the registry.
enum Reading {
    /// A drain order, with its grace.
    Drain(Duration),
    Registered,
    /// Permitted but not registered yet: an expired session's registration exists, or the uid is not written yet.
    NotYet(&'static str),
    /// Neither permit nor drain order.
    Neither,
}

/// The time since when every reading has found neither permit nor drain order.
#[derive(Default)]
struct UnwantedSince(Option<Duration>);

impl UnwantedSince {
    /// Records that neither was found; returns for how long that has been so.
    fn extend(&mut self, now: Duration) -> Duration {
        now.saturating_sub(*self.0.get_or_insert(now))
    }

    /// A node was found, or the registry could not be read.
    fn reset(&mut self) {
        self.0 = None;
    }
}

/// Log throttles of nodes that cannot be decoded.
#[derive(Default)]
struct Unreadable {
    permit: LogThrottle,
    drain_order: LogThrottle,
}

fn log_unreadable<T>(
    throttle: &mut LogThrottle,
    now: Duration,
    what: &'static str,
    content: Option<&Result<T, String>>,
) {
    if let Some(Err(reason)) = content {
        if let Some(times) = throttle.hit(now) {
            warn!(what, reason, times, "could not decode a node of the registry");
        }
    } else if let Some(times) = throttle.clear() {
        info!(what, times, "node of the registry can be decoded again");
    }
}

/// Waits for a drain order of an engine that is starting. Nothing else in the registry concerns it yet, and it may never start.
pub(super) async fn ordered_to_drain(settings: &Settings, supervisor: &Supervisor) {
    let mut sessions = supervisor.sessions();
    let mut watch = None;
    loop {
        sessions.mark_unchanged();
        if let Ok(session) = supervisor.session() {
            arm(&mut watch, &session, &settings.engine).await;
            match registry::read_own(&session, &settings.engine).await {
                Ok(own) if own.drain.as_ref().and_then(|order| grace_of(order, &settings.uid)).is_some() => return,
                Ok(_) => {}
                Err(error) => debug!(%error, "could not read the registry"),
            }
        }
        wait(&mut sessions, watch.as_mut()).await;
    }
}

/// The grace of a drain order for the engine with this uid. An order without a uid is for the engine of this name, and a name has
/// only one engine.
fn grace_of(order: &DrainOrderNode, uid: &str) -> Option<Duration> {
    let content = order.content.as_ref().ok()?;
    content.uid.as_ref().is_none_or(|of| of == uid).then(|| millis::to_duration(content.grace_ms))
}

/// Arms the watches of this session before reading, so that no change is missed.
async fn arm(watch: &mut Option<(i64, OwnWatch)>, session: &Session, engine: &EngineName) {
    if watch.as_ref().is_none_or(|(id, _)| *id != session.id()) {
        *watch = Some((session.id(), registry::watch_own(session, engine)));
    }
    let Some((_, own)) = watch else { return };
    if let Err(error) = own.arm().await {
        debug!(%error, "could not watch the registry; polling instead");
    }
}

impl Membership {
    /// Follows permit and drain order until the agent must exit.
    pub(super) async fn follow(&self, supervisor: &Supervisor) -> Verdict {
        let (mut unwanted, mut unreadable) = (UnwantedSince::default(), Unreadable::default());
        let mut sessions = supervisor.sessions();
        let mut watch = None;
        loop {
            sessions.mark_unchanged();
            let reading = match supervisor.session() {
                Ok(session) => {
                    arm(&mut watch, &session, &self.settings.engine).await;
                    self.read(&session, &mut unreadable).await
                }
                Err(error) => Err(error),
            };
            match reading {
                Ok(Reading::Drain(grace)) => {
                    self.drain.begin(Some(grace));
                    model::failpoint!(failpoints::DRAIN_BEGUN);
                    self.drain.finished(&self.sessions).await;
                    return Verdict::Drained;
                }
                Ok(Reading::Registered) => {
                    self.registered.set();
                    unwanted.reset();
                }
                Ok(Reading::NotYet(why)) => {
                    debug!(why, "not registered yet");
                    unwanted.reset();
                }
                Ok(Reading::Neither) => {
                    let time = unwanted.extend(self.clock.boottime());
                    if let Some(reason) = self.exit_reason(self.registered.is_set(), time) {
                        return Verdict::Unwanted(reason);
                    }
                }
                // ZooKeeper is unavailable: keep the current state.
                Err(error) => {
                    debug!(%error, "could not read the registry");
                    unwanted.reset();
                }
            }
            wait(&mut sessions, watch.as_mut()).await;
        }
    }

    /// The reason to exit, if permit and drain order have been missing for too long.
    fn exit_reason(&self, registered_before: bool, missing: Duration) -> Option<String> {
        if !registered_before {
            return (missing >= self.settings.start_deadline)
                .then(|| format!("no permit appeared within {}", model::span::print(self.settings.start_deadline)));
        }
        let idle = self.sessions.count() == 0;
        (idle && missing >= UNWANTED_AFTER)
            .then(|| format!("idle and without a permit for {}", model::span::print(UNWANTED_AFTER)))
    }

    async fn read(&self, session: &Session, unreadable: &mut Unreadable) -> Result<Reading, coordination::Error> {
        let OwnNodes { permit, drain } = registry::read_own(session, &self.settings.engine).await?;
        let now = self.clock.boottime();
        log_unreadable(&mut unreadable.drain_order, now, "drain order", drain.as_ref().map(|order| &order.content));
        log_unreadable(&mut unreadable.permit, now, "permit", permit.as_ref().map(|permit| &permit.content));
        if let Some(order) = drain {
            if let Some(grace) = grace_of(&order, &self.settings.uid) {
                return Ok(Reading::Drain(grace));
            }
            // One that cannot be read is logged above.
            debug!("ignoring a drain order that is not for this instance");
        }
        let Some(permit) = permit else { return Ok(Reading::Neither) };
        match &permit.content {
            // Before the registration, so that the first session is counted already.
            Ok(content) if content.uid.as_ref() == Some(&self.settings.uid) => {
                self.sessions.apply_permit(content.sessions, content.owner.as_ref());
            }
            Ok(content) if content.uid.is_none() => return Ok(Reading::NotYet("the permit has no uid yet")),
            Ok(_) | Err(_) => return Ok(Reading::Neither),
        }
        if permit.registration.as_ref().is_some_and(|registration| registration.session == session.id()) {
            return Ok(Reading::Registered);
        }
        model::failpoint!(failpoints::BEFORE_REGISTER);
        match registry::register(session, &permit, &self.registration()).await {
            Ok(()) => {
                model::failpoint!(failpoints::REGISTERED);
                let session = format!("{:#x}", session.id());
                info!(engine = %self.settings.engine, address = self.advertised(), session, "registered");
                Ok(Reading::Registered)
            }
            Err(coordination::Error::StillHeld { .. }) => {
                Ok(Reading::NotYet("the registration of an expired session still exists"))
            }
            // The permit changed meanwhile: read again.
            Err(error) if error.kind() == coordination::ZkErrorKind::Conflict => {
                Ok(Reading::NotYet("the permit changed"))
            }
            Err(error) => Err(error),
        }
    }

    fn advertised(&self) -> String {
        match &self.settings.advertise_host {
            Some(host) => format!("{host}:{}", self.address.port()),
            None => self.address.to_string(),
        }
    }

    fn registration(&self) -> Registration {
        Registration {
            address: self.advertised(),
            capacity: super::settings::MAX_SESSIONS as u32,
            config: self.settings.config.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uid: self.settings.uid.clone(),
            catalog: Some(self.settings.catalog),
            owner: self.sessions.owner(),
            keys: self.settings.callers.accepted_from(self.settings.keys),
            tls: self.settings.tls.as_ref().map(|tls| tls.key.signed.clone()),
        }
    }
}

/// Waits until the registry may have changed.
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
        () = tokio::time::sleep(READ_INTERVAL) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_permit_counts_only_while_every_reading_finds_none() {
        let (mut unwanted, second) = (UnwantedSince::default(), Duration::from_secs(1));
        assert_eq!(unwanted.extend(second), Duration::ZERO);
        assert_eq!(unwanted.extend(second * 61), second * 60);
        // ZooKeeper was unavailable for two hours and lost all data: the master has not written the nodes again yet.
        unwanted.reset();
        assert_eq!(unwanted.extend(second * 7_200), Duration::ZERO);
        assert_eq!(unwanted.extend(second * 7_202), second * 2);
    }
}
