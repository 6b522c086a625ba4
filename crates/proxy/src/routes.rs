//! The routing table: chooses the engine of a session among the registered ones that do not drain, by least load.
//!
//! The registry may be old: an engine that drains refuses before it executes anything, one that ended cannot be connected
//! to. Both are marked here and skipped. Marks expire: an engine that still drains refuses again, which costs a round
//! trip, and one that was marked by mistake is used again.

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
use model::slot::Link;
use model::table_catalog::TableCatalog;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::settings::{CALL_DEADLINE, CONNECT_DEADLINE, MAX_BUFFERED_REPLY_BYTES, Settings};

/// How long an unreachable engine is skipped.
const UNREACHABLE_FOR: Duration = Duration::from_secs(3);
/// How long an engine that refused because it drains is skipped.
const DRAINING_FOR: Duration = Duration::from_mins(1);
/// The most engines whose load is requested before one is chosen.
const MAX_LOAD_REQUESTS: usize = 16;
/// The number of cached loads beyond which those of unregistered engines are dropped.
const MAX_LOADS: usize = 10_000;

/// Selects the engines that a session may use; `None` for any pool or unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EngineSelector {
    pub(crate) tenant: TenantName,
    pub(crate) pool: Option<PoolName>,
    pub(crate) unit: Option<UnitName>,
}

impl EngineSelector {
    pub(crate) fn matches(&self, link: &Link) -> bool {
        self.matches_parts(&link.tenant, &link.pool, &link.unit)
    }

    fn matches_parts(&self, tenant: &TenantName, pool: &PoolName, unit: &UnitName) -> bool {
        self.tenant == *tenant
            && self.pool.as_ref().is_none_or(|selected| selected == pool)
            && self.unit.as_ref().is_none_or(|selected| selected == unit)
    }
}

/// The way to one engine.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) engine: EngineName,
    /// The unit that the engine was created from.
    pub(crate) unit: UnitName,
    /// Distinguishes instances of one name, so that a mark never hits another instance.
    pub(crate) uid: String,
    /// `host:port` of the agent.
    pub(crate) address: String,
    /// Whether its tables are its own. An engine of a version that does not state it counts as one with its own.
    pub(crate) catalog: TableCatalog,
}

/// Marks and loads of engines.
#[derive(Default)]
struct EngineMarks {
    /// Sessions of this proxy by engine.
    sessions: HashMap<EngineName, usize>,
    /// Engines that drain, by uid, with the time when the mark expires.
    draining: HashMap<String, Duration>,
    /// Engines that could not be reached, by uid, with the time when the mark expires.
    unreachable: HashMap<String, Duration>,
    /// Loads by uid, with the time of the request; `None`: the agent did not reply in time.
    loads: HashMap<String, (Duration, Option<u64>)>,
}

impl EngineMarks {
    /// The order of choice, lowest first: an engine whose agent did not reply comes after all that did; the proxy's own
    /// count breaks ties.
    fn rank(&self, engine: &EngineName, uid: &str) -> (bool, u64) {
        let own = self.sessions.get(engine).copied().unwrap_or(0) as u64;
        match self.loads.get(uid) {
            Some((_, Some(load))) => (false, own.max(*load)),
            Some((_, None)) => (true, own),
            None => (false, own),
        }
    }
}

pub(crate) struct Routes {
    view: View,
    secret: ClusterSecret,
    load_cache: Duration,
    status_deadline: Duration,
    clock: SharedClock,
    marks: Arc<Mutex<EngineMarks>>,
}

/// The seat of one session of this proxy at an engine; counted until it is dropped.
pub(crate) struct Seat {
    engine: EngineName,
    marks: Arc<Mutex<EngineMarks>>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut marks = self.marks.lock();
        if let Some(count) = marks.sessions.get_mut(&self.engine) {
            *count -= 1;
            if *count == 0 {
                marks.sessions.remove(&self.engine);
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
            marks: Arc::default(),
        }
    }

    /// Notifies of every change of the registry.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<RegistrySnapshot>> {
        self.view.changes()
    }

    /// Chooses the engine of a new session and takes a seat there; `None` if no engine is ready. Connects to every
    /// candidate whose load is not cached.
    pub(crate) async fn choose(&self, selector: &EngineSelector) -> Option<(Route, Seat)> {
        let candidates = self.candidates(selector);
        if candidates.len() > 1 {
            self.refresh_loads(&candidates).await;
        }
        let mut marks = self.marks.lock();
        let rank = |route: &&Route| (marks.rank(&route.engine, &route.uid), route.engine.clone());
        let route = candidates.iter().min_by_key(rank)?.clone();
        *marks.sessions.entry(route.engine.clone()).or_default() += 1;
        // The cached load is about to be one too low.
        if let Some((_, Some(load))) = marks.loads.get_mut(&route.uid) {
            *load += 1;
        }
        let seat = Seat { engine: route.engine.clone(), marks: Arc::clone(&self.marks) };
        Some((route, seat))
    }

    /// Whether a selected engine is ready.
    pub(crate) fn has_ready(&self, selector: &EngineSelector) -> bool {
        !self.candidates(selector).is_empty()
    }

    fn candidates(&self, selector: &EngineSelector) -> Vec<Route> {
        let registered = self.view.snapshot();
        let now = self.clock.boottime();
        let mut marks = self.marks.lock();
        prune(&mut marks, &registered, now);
        let is_candidate = |engine: &RegisteredEngine| {
            let (permit, uid) = (&engine.permit, &engine.registration.uid);
            !engine.draining
                && selector.matches_parts(&permit.tenant, &permit.pool, &permit.unit)
                && !marks.draining.contains_key(uid)
                && !marks.unreachable.contains_key(uid)
        };
        let engines = registered.engines.iter().filter(|(_, engine)| is_candidate(engine));
        engines
            .map(|(name, engine)| Route {
                engine: name.clone(),
                unit: engine.permit.unit.clone(),
                uid: engine.registration.uid.clone(),
                address: engine.registration.address.clone(),
                catalog: engine.registration.catalog.unwrap_or(TableCatalog::Own),
            })
            .collect()
    }

    /// Requests the loads that are unknown or outdated, concurrently, each on a new connection and within its deadline.
    async fn refresh_loads(&self, candidates: &[Route]) {
        let now = self.clock.boottime();
        let stale: Vec<&Route> = {
            let marks = self.marks.lock();
            let is_stale = |route: &&Route| {
                marks.loads.get(&route.uid).is_none_or(|(at, _)| now.saturating_sub(*at) > self.load_cache)
            };
            candidates.iter().filter(is_stale).take(MAX_LOAD_REQUESTS).collect()
        };
        let answers = futures::future::join_all(stale.iter().map(|route| async {
            (
                route.uid.clone(),
                tokio::time::timeout(self.status_deadline, self.status(route, self.status_deadline)).await,
            )
        }));
        for (uid, answer) in answers.await {
            let mut marks = self.marks.lock();
            match answer {
                Ok(Ok(status)) => {
                    let load = u64::from(status.sessions) + u64::from(status.running);
                    marks.loads.insert(uid.clone(), (now, Some(load)));
                    if status.draining {
                        marks.draining.insert(uid, now + DRAINING_FOR);
                    }
                }
                // Others are chosen first, and the load is not requested again until the entry is outdated.
                Ok(Err(_)) | Err(_) => {
                    marks.loads.insert(uid, (now, None));
                }
            }
        }
    }

    /// The status that the engine's agent reports, requested on a new connection, which has a deadline of its own.
    pub(crate) async fn status(&self, route: &Route, deadline: Duration) -> Result<EngineStatus, agent_api::ApiError> {
        let options = self.options(route, "");
        let mut client =
            Client::connect(&options).await.map_err(|error| agent_api::ApiError::Unavailable(error.into()))?;
        agent_api::engine_status(&mut client, deadline).await
    }

    /// Whether this instance is registered, by the proxy's reading of the registry.
    pub(crate) fn is_registered(&self, route: &Route) -> bool {
        self.view.snapshot().engines.get(&route.engine).is_some_and(|engine| engine.registration.uid == route.uid)
    }

    fn options(&self, route: &Route, user: &str) -> ClientOptions {
        let key = self.secret.derive(&Purpose::Engine(&route.engine));
        let mut options = ClientOptions::new(route.address.clone(), Auth::service(agent_api::SERVICE_PROXY, key, user));
        options.connect_deadline = CONNECT_DEADLINE;
        options.call_deadline = CALL_DEADLINE;
        options.limits.buffered_reply_bytes = MAX_BUFFERED_REPLY_BYTES;
        options
    }

    /// Connects to the engine's agent on behalf of the user.
    pub(crate) async fn connect(&self, route: &Route, user: &str) -> Result<Client, ClientError> {
        Client::connect(&self.options(route, user)).await
    }

    /// Whether the engine drains, by the registry or a mark: it refuses statements of sessions that are not pinned.
    pub(crate) fn is_draining(&self, route: &Route) -> bool {
        let registered = self.view.snapshot();
        self.marks.lock().draining.get(&route.uid).is_some_and(|until| self.clock.boottime() < *until)
            || registered
                .engines
                .get(&route.engine)
                .is_some_and(|engine| engine.draining && engine.registration.uid == route.uid)
    }

    /// The engine refused because it drains.
    pub(crate) fn mark_draining(&self, route: &Route) {
        let until = self.clock.boottime() + DRAINING_FOR;
        self.marks.lock().draining.insert(route.uid.clone(), until);
    }

    /// The engine could not be reached, or its connection broke.
    pub(crate) fn mark_unreachable(&self, route: &Route) {
        let until = self.clock.boottime() + UNREACHABLE_FOR;
        self.marks.lock().unreachable.insert(route.uid.clone(), until);
    }
}

fn prune(marks: &mut EngineMarks, registered: &RegistrySnapshot, now: Duration) {
    marks.unreachable.retain(|_, until| *until > now);
    marks.draining.retain(|_, until| *until > now);
    if marks.loads.len() > MAX_LOADS {
        let registered: std::collections::HashSet<&str> =
            registered.engines.values().map(|engine| engine.registration.uid.as_str()).collect();
        marks.loads.retain(|uid, _| registered.contains(uid.as_str()));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn an_engine_without_a_status_is_chosen_last() {
        let name = |text: &str| EngineName::new(text).unwrap();
        let (silent, busy, idle, new) = (name("e-1"), name("e-2"), name("e-3"), name("e-4"));
        let mut marks = EngineMarks::default();
        marks.sessions.insert(idle.clone(), 1);
        let now = Duration::ZERO;
        marks.loads.extend([
            ("silent".to_owned(), (now, None)),
            ("busy".to_owned(), (now, Some(7))),
            ("idle".to_owned(), (now, Some(0))),
        ]);
        let mut engines = [(silent, "silent"), (busy, "busy"), (idle, "idle"), (new, "new")];
        engines.sort_by_key(|(engine, uid)| marks.rank(engine, uid));
        assert_eq!(engines.map(|(_, uid)| uid), ["new", "idle", "busy", "silent"]);
    }
}
