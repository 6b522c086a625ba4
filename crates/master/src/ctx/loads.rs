//! The load poller: polls registered engines for their load, over cached connections.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use agent_api::{Caller, EngineEndpoint, RetireRequest, engine_status, retire};
use coordination::{Observation as Coordination, Registration};
use futures::stream::{self, Stream, StreamExt};
use hs2::Client;
use model::engine_name::EngineName;
use model::shared::Shared;
use parking_lot::Mutex;
use planner::{EngineLoad, EngineUse, Instance};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::Failure;
use crate::settings::Settings;

/// The most engines polled in one round; the others follow in the next ones.
const MAX_POLLED: usize = 2_000;
/// Engines polled at the same time: one that does not answer occupies a slot for a status deadline.
const POLLED_AT_ONCE: usize = 64;
/// The most engines that a tick polls because sessions wait for one.
const MAX_POLLED_FOR_DEMAND: usize = 1_000;
/// How long a tick waits for the load of an engine while sessions wait for one.
const DEMAND_DEADLINE: Duration = Duration::from_millis(200);
/// How long answers are collected before they are published, so that many cause one wake-up of the master.
const COLLECTED: Duration = Duration::from_millis(250);
/// The pause between two rounds: many engines may register one after the other.
const ROUND_PAUSE: Duration = Duration::from_millis(250);

/// The last known loads, shared by poller and context.
#[derive(Debug, Default, Clone)]
pub(crate) struct Loads {
    known: Arc<Mutex<Shared<BTreeMap<EngineName, EngineLoad>>>>,
    changed: Arc<Notify>,
}

impl Loads {
    /// The known loads; engines that did not answer are missing.
    pub fn get(&self) -> Shared<BTreeMap<EngineName, EngineLoad>> {
        self.known.lock().clone()
    }

    /// Replaces the known loads, and notifies if they differ.
    fn set(&self, loads: Shared<BTreeMap<EngineName, EngineLoad>>) {
        let mut known = self.known.lock();
        if *known != loads {
            *known = loads;
            self.changed.notify_one();
        }
    }

    /// Waits until the loads have changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// Polls in the background until it is dropped.
pub(crate) struct LoadPoller {
    loads: Loads,
    targets: watch::Sender<BTreeMap<EngineName, EngineEndpoint>>,
    /// By uid, where an engine was registered: a draining one is no longer registered and can still be polled.
    endpoints: Mutex<HashMap<String, EngineEndpoint>>,
    _task: AbortOnDropHandle<()>,
}

impl LoadPoller {
    pub fn start<A, F>(settings: &Settings, loads: Loads, ask: A) -> Self
    where
        A: Fn(EngineName, EngineEndpoint) -> F + Send + Sync + 'static,
        F: Future<Output = Result<EngineLoad, Failure>> + Send + 'static,
    {
        let (targets, watched) = watch::channel(BTreeMap::new());
        let task = tokio::spawn(poll(ask, settings.clone(), watched, loads.clone()));
        Self { loads, targets, endpoints: Mutex::default(), _task: AbortOnDropHandle::new(task) }
    }

    pub fn loads(&self) -> Shared<BTreeMap<EngineName, EngineLoad>> {
        self.loads.get()
    }

    pub async fn changed(&self) {
        self.loads.changed().await;
    }

    /// Polls these engines now, and waits for their answers. Beyond [`MAX_POLLED_FOR_DEMAND`] the others keep their last load.
    pub async fn poll_now<F>(
        &self,
        targets: Vec<(EngineName, EngineEndpoint)>,
        ask: impl Fn(EngineName, EngineEndpoint) -> F,
    ) where
        F: Future<Output = (EngineName, Option<EngineLoad>)>,
    {
        let asked: Vec<F> = targets.into_iter().take(MAX_POLLED_FOR_DEMAND).map(|(name, at)| ask(name, at)).collect();
        let answers: Vec<_> = stream::iter(asked).buffer_unordered(POLLED_AT_ONCE).collect().await;
        let mut known = self.loads.get();
        for (engine, answer) in answers {
            match answer {
                Some(load) => drop(known.insert(engine, load)),
                None => drop(known.remove(&engine)),
            }
        }
        self.loads.set(known);
    }

    /// Polls the running engines whose address is known.
    pub fn retarget(&self, coordination: &Coordination, instances: &[Shared<Instance>]) {
        let mut endpoints = self.endpoints.lock();
        let registrations = coordination.permits.iter().filter_map(|permit| permit.registration.as_ref());
        for registration in registrations.filter_map(|node| node.content.as_ref().ok()) {
            if !registration.address.is_empty() {
                let endpoint = endpoint(registration);
                if endpoints.get(&endpoint.uid) != Some(&endpoint) {
                    endpoints.insert(endpoint.uid.clone(), endpoint);
                }
            }
        }
        let alive = || instances.iter().filter(|instance| instance.is_alive());
        let uids: HashSet<&str> = alive().map(|instance| instance.uid.as_str()).collect();
        endpoints.retain(|uid, _| uids.contains(uid.as_str()));
        let targets: BTreeMap<EngineName, EngineEndpoint> = alive()
            .filter_map(|instance| Some((instance.name.clone(), endpoints.get(&instance.uid)?.clone())))
            .collect();
        self.set_targets(targets);
    }

    pub fn set_targets(&self, targets: BTreeMap<EngineName, EngineEndpoint>) {
        self.targets.send_if_modified(|known| {
            let changed = *known != targets;
            *known = targets;
            changed
        });
    }
}

/// Polls all engines every `status_poll`, and one that is new or has another address at once. Publishes answers while
/// others are awaited; the load of an engine that does not answer in time is unknown.
async fn poll<A, F>(
    ask: A,
    settings: Settings,
    mut targets: watch::Receiver<BTreeMap<EngineName, EngineEndpoint>>,
    loads: Loads,
) where
    A: Fn(EngineName, EngineEndpoint) -> F,
    F: Future<Output = Result<EngineLoad, Failure>>,
{
    let (mut first, mut next_round) = (0_usize, Instant::now());
    let mut polled: BTreeMap<EngineName, EngineEndpoint> = BTreeMap::new();
    loop {
        let endpoints = targets.borrow_and_update().clone();
        let mut known = loads.get();
        known.retain(|engine, _| endpoints.contains_key(engine));
        loads.set(known);
        let is_new = |(engine, endpoint): &(&EngineName, &EngineEndpoint)| polled.get(*engine) != Some(*endpoint);
        let round: Vec<(&EngineName, &EngineEndpoint)> = if Instant::now() >= next_round {
            next_round = Instant::now() + settings.status_poll;
            let turn = endpoints.iter().cycle().skip(first).take(endpoints.len().min(MAX_POLLED)).collect();
            first = if endpoints.is_empty() { 0 } else { (first + MAX_POLLED) % endpoints.len() };
            turn
        } else {
            endpoints.iter().filter(is_new).take(MAX_POLLED).collect()
        };
        let polling = round.into_iter().map(|(engine, endpoint)| {
            let (engine, answer) = (engine.clone(), ask(engine.clone(), endpoint.clone()));
            async move { (engine, timeout(settings.status_deadline, answer).await.ok().and_then(Result::ok)) }
        });
        let polling: Vec<_> = polling.collect();
        publish(stream::iter(polling).buffer_unordered(POLLED_AT_ONCE), &loads).await;
        polled = endpoints;
        sleep(ROUND_PAUSE).await;
        if let Ok(Err(_)) = timeout_at(next_round, targets.changed()).await {
            return;
        }
    }
}

/// Publishes answers in groups, as they arrive.
async fn publish(answers: impl Stream<Item = (EngineName, Option<EngineLoad>)>, loads: &Loads) {
    let mut answers = std::pin::pin!(answers);
    let mut over = false;
    while !over {
        let mut group = Vec::new();
        let collecting = async {
            while let Some(answer) = answers.next().await {
                group.push(answer);
            }
        };
        over = timeout(COLLECTED, collecting).await.is_ok();
        let mut known = loads.get();
        for (engine, answer) in group {
            match answer {
                Some(load) => drop(known.insert(engine, load)),
                None => drop(known.remove(&engine)),
            }
        }
        loads.set(known);
    }
}

/// The maximum number of cached connections.
const MAX_KEPT: usize = 2_000;

/// A client of engine agents with cached connections, and the idle times that they reported.
pub(super) struct StatusClient {
    caller: Caller,
    deadline: Duration,
    kept: Mutex<BTreeMap<EngineName, (EngineEndpoint, Client)>>,
    /// The uses of the last polls. They change with every poll, so they are no part of the loads, a change of which wakes
    /// the master.
    uses: Mutex<BTreeMap<EngineName, Reported>>,
    /// How many sessions each agent has opened, when it last answered: kept until the end of its engine is recorded.
    served: Mutex<BTreeMap<EngineName, u64>>,
}

/// What an agent reported.
#[derive(Debug, Clone, Copy)]
struct Reported {
    seen: EngineUse,
    /// When its answer arrived: an idle engine has been idle for longer since, unless a session was opened.
    at: Instant,
}

impl StatusClient {
    pub(super) fn new(caller: Caller, deadline: Duration) -> Self {
        Self { caller, deadline, kept: Mutex::default(), uses: Mutex::default(), served: Mutex::default() }
    }

    /// Polls one engine agent.
    pub(super) async fn ask(&self, engine: &EngineName, endpoint: &EngineEndpoint) -> Result<EngineLoad, Failure> {
        self.uses.lock().remove(engine);
        let mut client = self.client(engine, endpoint).await?;
        let answer = engine_status(&mut client, self.deadline).await.map_err(|error| away(engine, &error))?;
        self.keep(engine, endpoint, client);
        if let Some(served) = answer.served {
            self.served.lock().insert(engine.clone(), served);
        }
        if let Some(idle_for) = answer.idle {
            let was_used = answer.served.is_some_and(|served| served > 0);
            let seen = EngineUse { idle_for, is_retiring: answer.retiring, was_used, stateful: answer.stateful };
            self.uses.lock().insert(engine.clone(), Reported { seen, at: Instant::now() });
        }
        Ok(EngineLoad { sessions: answer.sessions, running: answer.running })
    }

    /// Polls one engine agent for a tick in which sessions wait: it has less time than in a round.
    pub(super) async fn ask_within(
        &self,
        engine: EngineName,
        endpoint: EngineEndpoint,
    ) -> (EngineName, Option<EngineLoad>) {
        let answer = timeout(DEMAND_DEADLINE, self.ask(&engine, &endpoint)).await;
        (engine, answer.ok().and_then(Result::ok))
    }

    /// The use of each engine, if no session was opened or closed since it was last polled.
    pub(super) fn uses(&self) -> BTreeMap<EngineName, EngineUse> {
        let now = Instant::now();
        let longer = |reported: &Reported| {
            let EngineUse { idle_for, .. } = reported.seen;
            let since = if idle_for.is_zero() { Duration::ZERO } else { now.saturating_duration_since(reported.at) };
            EngineUse { idle_for: idle_for + since, ..reported.seen }
        };
        self.uses.lock().iter().map(|(engine, reported)| (engine.clone(), longer(reported))).collect()
    }

    /// For how long the engine had been idle when it was last polled; `None` if it did not answer or does not report it.
    pub(super) fn idle(&self, engine: &EngineName) -> Option<Duration> {
        self.uses.lock().get(engine).map(|reported| reported.seen.idle_for)
    }

    /// How many sessions the engine had opened when its agent last answered.
    pub(super) fn served(&self, engine: &EngineName) -> Option<(EngineName, u64)> {
        self.served.lock().get(engine).map(|served| (engine.clone(), *served))
    }

    /// Whether the agent agrees to retire.
    pub(super) async fn retire(
        &self,
        engine: &EngineName,
        endpoint: &EngineEndpoint,
        request: &RetireRequest,
    ) -> Result<bool, Failure> {
        let mut client = self.client(engine, endpoint).await?;
        let agreed = retire(&mut client, request, self.deadline).await.map_err(|error| away(engine, &error))?;
        self.keep(engine, endpoint, client);
        Ok(agreed)
    }

    /// A connection to an engine agent. One that failed once is not used again.
    async fn client(&self, engine: &EngineName, endpoint: &EngineEndpoint) -> Result<Client, Failure> {
        let kept = self.take(engine).filter(|(at, client)| at == endpoint && !client.is_broken());
        match kept {
            Some((_, client)) => Ok(client),
            None => self.connect(engine, endpoint).await.map_err(|error| away(engine, &error)),
        }
    }

    async fn connect(&self, engine: &EngineName, endpoint: &EngineEndpoint) -> Result<Client, hs2::ClientError> {
        let mut options = self.caller.engine(engine, endpoint, "")?;
        options.connect_deadline = self.deadline;
        options.call_deadline = self.deadline;
        Client::connect(&options).await
    }

    fn take(&self, engine: &EngineName) -> Option<(EngineEndpoint, Client)> {
        self.kept.lock().remove(engine)
    }

    fn keep(&self, engine: &EngineName, endpoint: &EngineEndpoint, client: Client) {
        let mut kept = self.kept.lock();
        if kept.len() < MAX_KEPT {
            kept.insert(engine.clone(), (endpoint.clone(), client));
        }
    }

    /// Closes the connections to other engines.
    pub(super) fn retain(&self, engines: impl Fn(&EngineName) -> bool) {
        self.kept.lock().retain(|engine, _| engines(engine));
        self.uses.lock().retain(|engine, _| engines(engine));
        self.served.lock().retain(|engine, _| engines(engine));
    }
}

/// Where the agent of a registered engine is.
pub(super) fn endpoint(registration: &Registration) -> EngineEndpoint {
    EngineEndpoint {
        uid: registration.uid.clone(),
        address: registration.address.clone(),
        keys: registration.keys.clone(),
        tls: registration.tls.clone(),
    }
}

fn away(engine: &EngineName, error: &dyn std::error::Error) -> Failure {
    Failure::Unavailable(format!("engine agent {engine}: {error}"))
}

#[cfg(test)]
mod tests;
