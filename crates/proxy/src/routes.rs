//! The routing table: chooses the engine of a session among the registered ones that do not drain, by load.
//!
//! The least loaded engine is chosen. If the number of sessions of an engine is limited and the unit's number of engines can
//! change, the one with the most sessions and a free seat is chosen instead, so that others become idle and are released.
//!
//! The registry may be old: an engine that drains, is full or is dedicated to another owner refuses before it executes anything, one that ended cannot be
//! connected to. All are marked here and skipped. Marks expire: an engine that still drains refuses again, which costs a round
//! trip, and one that was marked by mistake is used again. A [full] engine is marked until its next status.

mod full;
mod selector;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use agent_api::{Caller, EngineEndpoint, EngineStatus};
use coordination::{RegisteredEngine, RegistrySnapshot, View};
use hs2::{Client, ClientError, ClientOptions};
use model::clock::SharedClock;
use model::engine_name::EngineName;
use model::name::UnitName;
use model::owner::Owner;
use model::table_catalog::TableCatalog;
use parking_lot::Mutex;
use tokio::sync::watch;

use full::FullMarks;

pub(crate) use full::FullEngines;
pub(crate) use selector::{EngineSelector, SessionLabels};

use crate::settings::{CALL_DEADLINE, CONNECT_DEADLINE, MAX_BUFFERED_REPLY_BYTES, Settings};

/// How long an unreachable engine is skipped.
const UNREACHABLE_FOR: Duration = Duration::from_secs(3);
/// How long an engine that refused because it drains is skipped.
const DRAINING_FOR: Duration = Duration::from_mins(1);
/// The most engines whose load is requested before one is chosen.
const MAX_LOAD_REQUESTS: usize = 16;
/// The number of cached loads, or of full engines, beyond which those of unregistered engines are dropped.
const MAX_LOADS: usize = 10_000;

/// The way to one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) engine: EngineName,
    /// The unit that the engine was created from.
    pub(crate) unit: UnitName,
    /// Its agent. The uid distinguishes instances of one name, so that a mark never hits another instance.
    pub(crate) endpoint: EngineEndpoint,
    /// Whether its tables are its own. An engine of a version that does not state it counts as one with its own.
    pub(crate) catalog: TableCatalog,
    /// Whose sessions it serves; `None`: the tenant's.
    pub(crate) owner: Option<Owner>,
    /// Whether its permit limits its sessions.
    limits_sessions: bool,
}

/// The last status of an engine, and the sessions that it was given since.
#[derive(Debug, Clone, Copy)]
struct Load {
    sessions: u32,
    running: u32,
    /// `None`: an agent of an earlier version.
    seats: Option<u32>,
}

/// Marks and loads of engines.
#[derive(Default)]
struct EngineMarks {
    /// Sessions of this proxy by engine.
    sessions: HashMap<EngineName, usize>,
    /// The routes of these sessions by uid: the sessions of an instance share one.
    routes: HashMap<String, Weak<Route>>,
    /// Engines that drain, by uid, with the time when the mark expires.
    draining: HashMap<String, Duration>,
    /// Engines that could not be reached, by uid, with the time when the mark expires.
    unreachable: HashMap<String, Duration>,
    /// Engines that open no session now.
    full: FullMarks,
    /// Loads by uid, with the time of the request; `None`: the agent did not reply in time.
    loads: HashMap<String, (Duration, Option<Load>)>,
}

impl EngineMarks {
    /// The order of choice, lowest first: an engine whose agent did not reply comes after all that did; of the others the
    /// least loaded one, or with `fill` the one with the most sessions. The proxy's own count is the least that they have.
    fn rank(&self, engine: &EngineName, uid: &str, fill: bool) -> (bool, u64) {
        let own = self.sessions.get(engine).copied().unwrap_or(0) as u64;
        let (silent, load) = match self.loads.get(uid) {
            Some((_, Some(load))) => (false, *load),
            Some((_, None)) => (true, Load { sessions: 0, running: 0, seats: None }),
            None => (false, Load { sessions: 0, running: 0, seats: None }),
        };
        let sessions = u64::from(load.sessions);
        (silent, if fill { u64::MAX - own.max(sessions) } else { own.max(sessions + u64::from(load.running)) })
    }

    /// The same route as other sessions have.
    fn shared(&mut self, route: Route) -> Arc<Route> {
        if let Some(shared) = self.routes.get(&route.endpoint.uid).and_then(Weak::upgrade).filter(|it| **it == route) {
            return shared;
        }
        self.routes.retain(|_, route| route.strong_count() > 0);
        let shared = Arc::new(route);
        self.routes.insert(shared.endpoint.uid.clone(), Arc::downgrade(&shared));
        shared
    }

    /// Counts a session that is about to be opened, of which no status knows yet.
    fn take_seat(&mut self, route: &Route) {
        *self.sessions.entry(route.engine.clone()).or_default() += 1;
        let Some((at, Some(load))) = self.loads.get_mut(&route.endpoint.uid) else { return };
        load.sessions += 1;
        if let Some(seats) = load.seats.filter(|seats| load.sessions >= *seats) {
            self.full.filled(&route.endpoint.uid, load.sessions, seats, *at);
        }
    }
}

pub(crate) struct Routes {
    view: View,
    caller: Caller,
    load_cache: Duration,
    status_deadline: Duration,
    clock: SharedClock,
    marks: Arc<Mutex<EngineMarks>>,
}

/// The seat of one session of this proxy at an engine; counted until it is dropped.
pub(crate) struct Seat {
    route: Arc<Route>,
    marks: Arc<Mutex<EngineMarks>>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut marks = self.marks.lock();
        marks.full.freed(&self.route.endpoint.uid);
        if let Some(count) = marks.sessions.get_mut(&self.route.engine) {
            *count -= 1;
            if *count == 0 {
                marks.sessions.remove(&self.route.engine);
            }
        }
    }
}

impl Routes {
    pub(crate) fn new(view: View, settings: &Settings, clock: SharedClock) -> Self {
        Self {
            view,
            caller: Caller::new(settings.keys.clone(), settings.cluster_tls),
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
    /// candidate whose load is not cached, and to full engines that may have a free seat again. `previous` is the uid of an
    /// engine that is taken if it is ready; `fills` is whether the number of engines of a unit can change.
    pub(crate) async fn choose(
        &self,
        selector: &EngineSelector,
        previous: Option<&str>,
        fills: impl Fn(&UnitName) -> bool,
    ) -> Option<(Arc<Route>, Seat)> {
        let outdated = self.outdated(selector);
        if !outdated.is_empty() {
            self.refresh_loads(&outdated).await;
        }
        let candidates = self.candidates(selector);
        let mut marks = self.marks.lock();
        let fill = candidates.iter().all(|route| route.limits_sessions && fills(&route.unit));
        let rank = |route: &&Route| (marks.rank(&route.engine, &route.endpoint.uid, fill), route.engine.clone());
        let before = candidates.iter().find(|route| Some(route.endpoint.uid.as_str()) == previous);
        let route = before.or_else(|| candidates.iter().min_by_key(rank))?.clone();
        marks.take_seat(&route);
        let route = marks.shared(route);
        let seat = Seat { route: Arc::clone(&route), marks: Arc::clone(&self.marks) };
        Some((route, seat))
    }

    /// Whether a selected engine is ready.
    pub(crate) fn has_ready(&self, selector: &EngineSelector) -> bool {
        !self.candidates(selector).is_empty()
    }

    /// The selected engines that are registered and full.
    pub(crate) fn full(&self, selector: &EngineSelector) -> FullEngines {
        let selected = self.selected(selector);
        let marks = self.marks.lock();
        let full =
            selected.into_iter().filter_map(|route| Some((route.engine, marks.full.taken(&route.endpoint.uid)?)));
        FullEngines(full.collect())
    }

    /// The selected engines that can be given a session.
    fn candidates(&self, selector: &EngineSelector) -> Vec<Route> {
        let mut selected = self.selected(selector);
        let marks = self.marks.lock();
        selected.retain(|route| !marks.full.contains(&route.endpoint.uid));
        selected
    }

    /// The selected engines that are registered, do not drain and can be reached. An engine whose agent has not registered the
    /// owner in its permit is of a version that does not enforce it.
    fn selected(&self, selector: &EngineSelector) -> Vec<Route> {
        let registered = self.view.snapshot();
        let now = self.clock.boottime();
        let mut marks = self.marks.lock();
        prune(&mut marks, &registered, now);
        let is_selected = |engine: &RegisteredEngine| {
            let (permit, uid) = (&engine.permit, &engine.registration.uid);
            !engine.draining
                && selector.matches_parts(&permit.tenant, &permit.pool, &permit.unit)
                && permit.owner == engine.registration.owner
                && selector.may_share(&permit.unit, permit.owner.as_ref())
                && !marks.draining.contains_key(uid)
                && !marks.unreachable.contains_key(uid)
        };
        let engines = registered.engines.iter().filter(|(_, engine)| is_selected(engine));
        engines
            .map(|(name, engine)| Route {
                engine: name.clone(),
                unit: engine.permit.unit.clone(),
                endpoint: EngineEndpoint {
                    uid: engine.registration.uid.clone(),
                    address: engine.registration.address.clone(),
                    keys: engine.registration.keys.clone(),
                    tls: engine.registration.tls.clone(),
                },
                catalog: engine.registration.catalog.unwrap_or(TableCatalog::Own),
                owner: engine.permit.owner.clone(),
                limits_sessions: engine.permit.sessions.is_some(),
            })
            .collect()
    }

    /// The selected engines whose status is to be requested before one is chosen: full ones that are due, and candidates with
    /// an unknown or outdated load if there is a choice.
    fn outdated(&self, selector: &EngineSelector) -> Vec<Route> {
        let selected = self.selected(selector);
        let now = self.clock.boottime();
        let mut marks = self.marks.lock();
        let (full, candidates): (Vec<Route>, Vec<Route>) =
            selected.into_iter().partition(|route| marks.full.contains(&route.endpoint.uid));
        let has_choice = candidates.len() > 1;
        let due: Vec<Route> = full
            .into_iter()
            .filter(|route| marks.full.is_due(&route.endpoint.uid, now))
            .take(MAX_LOAD_REQUESTS)
            .collect();
        let is_outdated = |route: &Route| {
            has_choice
                && marks.loads.get(&route.endpoint.uid).is_none_or(|(at, _)| now.saturating_sub(*at) > self.load_cache)
        };
        due.into_iter().chain(candidates.into_iter().filter(is_outdated).take(MAX_LOAD_REQUESTS)).collect()
    }

    /// Requests the status of these engines, concurrently, each on a new connection and within its deadline.
    async fn refresh_loads(&self, engines: &[Route]) {
        let now = self.clock.boottime();
        let answers = futures::future::join_all(engines.iter().map(|route| async {
            (
                route.endpoint.uid.clone(),
                tokio::time::timeout(self.status_deadline, self.status(route, self.status_deadline)).await,
            )
        }));
        for (uid, answer) in answers.await {
            let mut marks = self.marks.lock();
            match answer {
                Ok(Ok(status)) => {
                    let load = Load { sessions: status.sessions, running: status.running, seats: status.seats };
                    marks.full.reported(&uid, &status, now);
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
        let connected = self.connect(route, "").await;
        let mut client = connected.map_err(|error| agent_api::ApiError::Unavailable(error.into()))?;
        agent_api::engine_status(&mut client, deadline).await
    }

    /// Whether this instance is registered, by the proxy's reading of the registry.
    pub(crate) fn is_registered(&self, route: &Route) -> bool {
        self.view
            .snapshot()
            .engines
            .get(&route.engine)
            .is_some_and(|engine| engine.registration.uid == route.endpoint.uid)
    }

    fn options(&self, route: &Route, user: &str) -> Result<ClientOptions, ClientError> {
        let mut options = self.caller.engine(&route.engine, &route.endpoint, user)?;
        options.connect_deadline = CONNECT_DEADLINE;
        options.call_deadline = CALL_DEADLINE;
        options.limits.buffered_reply_bytes = MAX_BUFFERED_REPLY_BYTES;
        Ok(options)
    }

    /// Connects to the engine's agent on behalf of the user.
    pub(crate) async fn connect(&self, route: &Route, user: &str) -> Result<Client, ClientError> {
        Client::connect(&self.options(route, user)?).await
    }

    /// Whether the engine drains, by the registry or a mark: it refuses statements of sessions that are not pinned.
    pub(crate) fn is_draining(&self, route: &Route) -> bool {
        let registered = self.view.snapshot();
        self.marks.lock().draining.get(&route.endpoint.uid).is_some_and(|until| self.clock.boottime() < *until)
            || registered
                .engines
                .get(&route.engine)
                .is_some_and(|engine| engine.draining && engine.registration.uid == route.endpoint.uid)
    }

    /// The engine refused because it drains.
    pub(crate) fn mark_draining(&self, route: &Route) {
        let until = self.clock.boottime() + DRAINING_FOR;
        self.marks.lock().draining.insert(route.endpoint.uid.clone(), until);
    }

    /// The engine refused a session because it is full.
    pub(crate) fn mark_full(&self, route: &Route) {
        self.marks.lock().full.refused(&route.endpoint.uid);
    }

    /// The engine could not be reached, or its connection broke.
    pub(crate) fn mark_unreachable(&self, route: &Route) {
        let until = self.clock.boottime() + UNREACHABLE_FOR;
        self.marks.lock().unreachable.insert(route.endpoint.uid.clone(), until);
    }
}

fn prune(marks: &mut EngineMarks, registered: &RegistrySnapshot, now: Duration) {
    marks.unreachable.retain(|_, until| *until > now);
    marks.draining.retain(|_, until| *until > now);
    if marks.loads.len() > MAX_LOADS || marks.full.len() > MAX_LOADS {
        let registered: HashSet<&str> =
            registered.engines.values().map(|engine| engine.registration.uid.as_str()).collect();
        marks.full.retain(&registered);
        marks.loads.retain(|uid, _| registered.contains(uid.as_str()));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    const fn load(sessions: u32, seats: Option<u32>) -> Load {
        Load { sessions, running: 0, seats }
    }

    fn name(text: &str) -> EngineName {
        EngineName::new(text).unwrap()
    }

    #[test]
    fn an_engine_without_a_status_is_chosen_last() {
        let (silent, busy, idle, new) = (name("e-1"), name("e-2"), name("e-3"), name("e-4"));
        let mut marks = EngineMarks::default();
        marks.sessions.insert(idle.clone(), 1);
        let now = Duration::ZERO;
        marks.loads.extend([
            ("silent".to_owned(), (now, None)),
            ("busy".to_owned(), (now, Some(load(7, None)))),
            ("idle".to_owned(), (now, Some(load(0, None)))),
        ]);
        let mut engines = [(silent, "silent"), (busy, "busy"), (idle, "idle"), (new, "new")];
        engines.sort_by_key(|(engine, uid)| marks.rank(engine, uid, false));
        assert_eq!(engines.clone().map(|(_, uid)| uid), ["new", "idle", "busy", "silent"]);
        engines.sort_by_key(|(engine, uid)| marks.rank(engine, uid, true));
        assert_eq!(engines.map(|(_, uid)| uid), ["busy", "idle", "new", "silent"], "to fill engines");
    }

    #[test]
    fn the_session_that_takes_the_last_reported_seat_makes_its_engine_full() {
        let route = Route {
            engine: name("e-1"),
            unit: UnitName::new("uc_1").unwrap(),
            endpoint: EngineEndpoint { uid: "u".to_owned(), address: String::new(), keys: Vec::new(), tls: None },
            catalog: TableCatalog::Shared,
            owner: None,
            limits_sessions: true,
        };
        let mut marks = EngineMarks::default();
        marks.take_seat(&route);
        marks.loads.insert("u".to_owned(), (Duration::ZERO, Some(load(1, Some(3)))));
        marks.take_seat(&route);
        assert!(!marks.full.contains("u"));
        marks.take_seat(&route);
        assert!(marks.full.contains("u"), "others do not try in vain");
    }
}
