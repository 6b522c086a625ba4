//! Which engine a session is bound to: registered, not draining, of its tenant, least loaded.
//!
//! What is known comes from the registry and may be old: an engine that drains refuses before it executes anything,
//! one that is gone can't be connected to, and both are marked here and passed over. No mark is for ever: an engine
//! that still drains refuses again, which costs a round trip, and one that was only thought to is found again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agent_api::EngineStatus;
use coordination::{RegisteredEngine, RegistrySnapshot, View};
use hs2::{Auth, Client, ClientError, ClientOptions};
use model::clock::SharedClock;
use model::credential::{ClusterSecret, Purpose};
use model::engine_name::EngineName;
use model::name::{PoolName, TenantName, UnitName};
use model::table_catalog::TableCatalog;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::settings::{CALL_DEADLINE, CONNECT_DEADLINE, MAX_HELD_REPLY_BYTES, Settings};

/// How long an engine that could not be reached is passed over.
const UNREACHABLE_FOR: Duration = Duration::from_secs(3);
/// How long an engine that refused because it drains is passed over.
const DRAINING_FOR: Duration = Duration::from_mins(1);
/// Engines that are asked for their load before one is chosen.
const MAX_ASKED: usize = 16;
/// Marks that are remembered; beyond that those of engines that are no longer registered go.
const MAX_MARKS: usize = 10_000;

/// What a session asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Whose engine.
    pub tenant: TenantName,
    /// Of which pool, if named.
    pub pool: Option<PoolName>,
    /// Of which unit, if named.
    pub unit: Option<UnitName>,
}

/// An engine that was chosen.
#[derive(Debug, Clone)]
pub struct Route {
    /// Its name.
    pub engine: EngineName,
    /// The unit that it was made from.
    pub unit: UnitName,
    /// Which one of that name: a mark never hits another.
    pub uid: String,
    /// `host:port` of its agent.
    pub address: String,
    /// Whether its tables are its own; an engine of a version that does not state it may have its own.
    pub catalog: TableCatalog,
}

#[derive(Default)]
struct Known {
    /// Sessions of this proxy by engine.
    sessions: HashMap<EngineName, usize>,
    /// Engines that drain, by uid, and until when that is believed.
    draining: HashMap<String, Duration>,
    /// Engines that could not be reached, and until when that is believed.
    unreachable: HashMap<String, Duration>,
    /// What agents said of their load, and when; nothing said one that did not answer in time.
    load: HashMap<String, (Duration, Option<u64>)>,
}

impl Known {
    /// The lower the better: an engine whose agent did not answer comes after all that did, and among equals the
    /// proxy's own count decides.
    fn rank(&self, engine: &EngineName, uid: &str) -> (bool, u64) {
        let own = self.sessions.get(engine).copied().unwrap_or(0) as u64;
        match self.load.get(uid) {
            Some((_, Some(told))) => (false, own.max(*told)),
            Some((_, None)) => (true, own),
            None => (false, own),
        }
    }
}

/// The registered engines and what the proxy knows of them.
pub struct Routes {
    view: View,
    secret: ClusterSecret,
    load_cache: Duration,
    status_deadline: Duration,
    clock: SharedClock,
    known: Arc<Mutex<Known>>,
}

/// Counts one session of this proxy on an engine for as long as it lives.
pub struct Seat {
    engine: EngineName,
    known: Arc<Mutex<Known>>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut known = self.known.lock();
        if let Some(count) = known.sessions.get_mut(&self.engine) {
            *count -= 1;
            if *count == 0 {
                known.sessions.remove(&self.engine);
            }
        }
    }
}

impl Routes {
    pub(crate) fn new(view: View, settings: &Settings, clock: SharedClock) -> Self {
        Self {
            view,
            secret: settings.secret.clone(),
            load_cache: settings.load_cache,
            status_deadline: settings.limits.status_deadline,
            clock,
            known: Arc::default(),
        }
    }

    /// Wakes up whenever the registry changes.
    pub fn changes(&self) -> watch::Receiver<Arc<RegistrySnapshot>> {
        self.view.changes()
    }

    /// The engine for a new session, with its seat taken; `None` when none fits now.
    pub async fn choose(&self, wanted: &Wanted) -> Option<(Route, Seat)> {
        let candidates = self.candidates(wanted);
        if candidates.len() > 1 {
            self.ask_for_load(&candidates).await;
        }
        let mut known = self.known.lock();
        let rank = |route: &&Route| (known.rank(&route.engine, &route.uid), route.engine.clone());
        let route = candidates.iter().min_by_key(rank)?.clone();
        *known.sessions.entry(route.engine.clone()).or_default() += 1;
        // What the agent told is about to be one too low.
        if let Some((_, Some(told))) = known.load.get_mut(&route.uid) {
            *told += 1;
        }
        let seat = Seat { engine: route.engine.clone(), known: Arc::clone(&self.known) };
        Some((route, seat))
    }

    /// Whether an engine that fits is ready.
    pub(crate) fn has_ready(&self, wanted: &Wanted) -> bool {
        !self.candidates(wanted).is_empty()
    }

    fn candidates(&self, wanted: &Wanted) -> Vec<Route> {
        let registered = self.view.snapshot();
        let now = self.clock.boottime();
        let mut known = self.known.lock();
        forget(&mut known, &registered, now);
        let fits = |it: &RegisteredEngine| {
            !it.draining
                && it.permit.tenant == wanted.tenant
                && wanted.pool.as_ref().is_none_or(|pool| it.permit.pool == *pool)
                && wanted.unit.as_ref().is_none_or(|unit| it.permit.unit == *unit)
                && !known.draining.contains_key(&it.registration.uid)
                && !known.unreachable.contains_key(&it.registration.uid)
        };
        let engines = registered.engines.iter().filter(|(_, it)| fits(it));
        engines
            .map(|(name, it)| Route {
                engine: name.clone(),
                unit: it.permit.unit.clone(),
                uid: it.registration.uid.clone(),
                address: it.registration.address.clone(),
                catalog: it.registration.catalog.unwrap_or(TableCatalog::Own),
            })
            .collect()
    }

    /// Asks those whose load is not known or too old, all at once, each within its deadline.
    async fn ask_for_load(&self, candidates: &[Route]) {
        let now = self.clock.boottime();
        let stale: Vec<&Route> = {
            let known = self.known.lock();
            let is_stale = |route: &&Route| {
                known.load.get(&route.uid).is_none_or(|(at, _)| now.saturating_sub(*at) > self.load_cache)
            };
            candidates.iter().filter(is_stale).take(MAX_ASKED).collect()
        };
        let answers = futures::future::join_all(stale.iter().map(|route| async {
            (
                route.uid.clone(),
                tokio::time::timeout(self.status_deadline, self.status(route, self.status_deadline)).await,
            )
        }));
        for (uid, answer) in answers.await {
            let mut known = self.known.lock();
            match answer {
                Ok(Ok(status)) => {
                    let load = u64::from(status.sessions) + u64::from(status.running);
                    known.load.insert(uid.clone(), (now, Some(load)));
                    if status.draining {
                        known.draining.insert(uid, now + DRAINING_FOR);
                    }
                }
                // Silent: others are taken first, and it is not asked again for one cache time.
                Ok(Err(_)) | Err(_) => {
                    known.load.insert(uid, (now, None));
                }
            }
        }
    }

    /// The load that the engine's agent reports, requested on a connection of its own. The connection has a deadline too.
    pub(crate) async fn status(&self, route: &Route, deadline: Duration) -> Result<EngineStatus, agent_api::ApiError> {
        let options = self.options(route, "");
        let mut client =
            Client::connect(&options).await.map_err(|error| agent_api::ApiError::Unavailable(error.to_string()))?;
        agent_api::engine_status(&mut client, deadline).await
    }

    /// Whether this very engine is registered, as far as this proxy knows.
    pub(crate) fn is_registered(&self, route: &Route) -> bool {
        self.view.snapshot().engines.get(&route.engine).is_some_and(|it| it.registration.uid == route.uid)
    }

    fn options(&self, route: &Route, user: &str) -> ClientOptions {
        let key = self.secret.derive(&Purpose::Engine(&route.engine));
        let mut options = ClientOptions::new(route.address.clone(), Auth::service(agent_api::SERVICE_PROXY, key, user));
        options.connect_deadline = CONNECT_DEADLINE;
        options.call_deadline = CALL_DEADLINE;
        options.limits.held_reply_bytes = MAX_HELD_REPLY_BYTES;
        options
    }

    /// Connects to the engine's agent, speaking for the user.
    pub async fn connect(&self, route: &Route, user: &str) -> Result<Client, ClientError> {
        Client::connect(&self.options(route, user)).await
    }

    /// Whether the engine is known to drain: it takes nothing new from a session without state of its own.
    pub fn is_draining(&self, route: &Route) -> bool {
        let registered = self.view.snapshot();
        self.known.lock().draining.get(&route.uid).is_some_and(|until| self.clock.boottime() < *until)
            || registered.engines.get(&route.engine).is_some_and(|it| it.draining && it.registration.uid == route.uid)
    }

    /// The engine refused because it drains.
    pub fn mark_draining(&self, route: &Route) {
        let until = self.clock.boottime() + DRAINING_FOR;
        self.known.lock().draining.insert(route.uid.clone(), until);
    }

    /// The engine could not be reached, or its connection broke.
    pub fn mark_unreachable(&self, route: &Route) {
        let until = self.clock.boottime() + UNREACHABLE_FOR;
        self.known.lock().unreachable.insert(route.uid.clone(), until);
    }
}

fn forget(known: &mut Known, registered: &RegistrySnapshot, now: Duration) {
    known.unreachable.retain(|_, until| *until > now);
    known.draining.retain(|_, until| *until > now);
    if known.load.len() > MAX_MARKS {
        let there: std::collections::HashSet<&str> =
            registered.engines.values().map(|it| it.registration.uid.as_str()).collect();
        known.load.retain(|uid, _| there.contains(uid.as_str()));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn an_engine_that_does_not_answer_comes_after_all_that_do() {
        let name = |text: &str| EngineName::new(text).unwrap();
        let (silent, busy, idle, new) = (name("e-1"), name("e-2"), name("e-3"), name("e-4"));
        let mut known = Known::default();
        known.sessions.insert(idle.clone(), 1);
        let now = Duration::ZERO;
        known.load.extend([
            ("silent".to_owned(), (now, None)),
            ("busy".to_owned(), (now, Some(7))),
            ("idle".to_owned(), (now, Some(0))),
        ]);
        let mut engines = [(silent, "silent"), (busy, "busy"), (idle, "idle"), (new, "new")];
        engines.sort_by_key(|(engine, uid)| known.rank(engine, uid));
        assert_eq!(engines.map(|(_, uid)| uid), ["new", "idle", "busy", "silent"]);
    }
}
