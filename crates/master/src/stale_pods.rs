//! Probes of stale instances: listed ones that may be gone although no watch event reported it.
//!
//! The list reflects watch events. A lost event is recovered only by the next full read, which may be minutes later; until
//! then an instance that is gone occupies its slot. Three cheap signs make an instance a suspect: it was registered and no
//! longer is, it is terminating, or it is starting and has not changed for a minute, so that it may have failed before it
//! could register. A suspect is looked up by name, like an expected instance that the list lacks.
//!
//! Being a suspect never ends an engine; only the direct lookup does. While the registry may be incomplete, nothing is
//! suspected because of it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use foldhash::fast::RandomState;
use futures::stream::{self, StreamExt};
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::log_throttle::KeyedLogThrottle;
use model::shared::Shared;
use model::snapshot::EngineRecord;
use planner::{Delta, DesiredState, Instance, ObservedState, Probe, Registration};
use tokio::time::sleep;

use crate::ctx::ControllerCtx;
use crate::settings::Settings;

/// The deadline of all lookups of one tick, in effect deadlines.
const PROBE_DEADLINES: u32 = 2;
/// The minimum time before the first probe of an instance, and between two.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// The most suspects of one tick, oldest first: an event that deletes all registrations makes every engine a suspect.
const MAX_SUSPECTS: usize = 32;
/// How long a starting instance may remain unchanged before it is probed, and the time between two probes: most starts are
/// over by then, and an instance that fits on no node may wait for hours.
const UNCHANGED: Duration = Duration::from_mins(1);
/// The most starting instances probed in one tick: thousands may wait.
const MAX_UNCHANGED: usize = 4;
/// The minimum time between two ticks that probe starting instances.
const UNCHANGED_INTERVAL: Duration = Duration::from_secs(1);

/// The suspects, each with the time since when or of its last probe.
#[derive(Debug, Default)]
pub(crate) struct StalePodProbe {
    since: BTreeMap<(EngineName, String), Duration>,
    /// Starting instances by uid: a hash of their state, and since when or the time of the last probe.
    starting: HashMap<String, (u64, Duration), RandomState>,
    /// The last probe of a starting instance.
    starting_probed: Duration,
    throttle: KeyedLogThrottle<EngineName>,
}

/// The answers to probes; lookups that failed have none.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    found: BTreeMap<String, Instance>,
    vanished: BTreeSet<(EngineName, String)>,
}

impl Answers {
    pub fn is_empty(&self) -> bool {
        self.found.is_empty() && self.vanished.is_empty()
    }

    /// Replaces what the list has of these instances: it is older than the answers.
    pub fn update(self, observed: &mut ObservedState) {
        let Self { found, vanished } = self;
        let is_older = |instance: &Shared<Instance>| {
            found.contains_key(&instance.uid) || vanished.contains(&(instance.name.clone(), instance.uid.clone()))
        };
        observed.instances.retain(|instance| !is_older(instance));
        observed.instances.extend(found.into_values().map(Shared::from));
        observed.vanished = vanished;
    }
}

impl StalePodProbe {
    /// Looks up by name what should exist and is in no list, and the suspects. What is not answered in time has not vanished.
    pub async fn probe(&mut self, ctx: &dyn ControllerCtx, settings: &Settings, delta: &Delta) -> Answers {
        let mut probes = delta.probes();
        probes.extend(self.suspects(ctx.clock(), settings.limits.session_timeout, delta.observed()));
        if probes.is_empty() {
            return Answers::default();
        }
        let namespaces = EngineNamespaces::new(delta.desired());
        let lookups: Vec<_> = probes
            .into_iter()
            .map(|probe| {
                let namespace = probe.namespace.clone().or_else(|| namespaces.get(&probe.engine));
                let probe = Probe { namespace, ..probe };
                async move { (ctx.probe(&probe).await, probe) }
            })
            .collect();
        let lookups = stream::iter(lookups).buffer_unordered(settings.parallelism.max(1));
        let in_time = lookups.take_until(sleep(settings.effect_deadline * PROBE_DEADLINES));
        let results: Vec<_> = in_time.collect().await;
        let mut answers = Answers::default();
        for (answer, probe) in results {
            match answer {
                Ok(answer) => {
                    if let Some(times) = self.throttle.clear(&probe.engine) {
                        tracing::info!(engine = %probe.engine, times, "an engine can be looked up again");
                    }
                    match answer.filter(|instance| instance.uid == probe.uid) {
                        Some(instance) => drop(answers.found.insert(probe.uid, instance)),
                        None => drop(answers.vanished.insert((probe.engine, probe.uid))),
                    }
                }
                Err(failure) => {
                    if let Some(times) = self.throttle.hit(probe.engine.clone(), ctx.clock()) {
                        tracing::info!(engine = %probe.engine, %failure, times, "could not look up an engine");
                    }
                }
            }
        }
        answers
    }

    /// The listed instances to probe now.
    fn suspects(&mut self, now: Duration, session_timeout: Duration, observed: &ObservedState) -> Vec<Probe> {
        let known = std::mem::take(&mut self.since);
        if !observed.registry_complete {
            self.starting.clear();
            return Vec::new();
        }
        let instances = observed.instances.iter().map(|instance| (&instance.name, instance.uid.as_str(), &**instance));
        let unregistered_instances = unregistered(instances, &observed.registrations);
        let permits = observed.permits.iter().filter(|permit| permit.answered);
        let permits =
            permits.filter_map(|permit| Some((&permit.engine, permit.uid.as_deref()?, permit.uid.as_deref()?)));
        let lost = unregistered(permits, &observed.registrations).into_iter().collect();
        let unchanged = self.unchanged(now, observed, &unregistered_instances);
        for key in suspects(&unregistered_instances, &lost) {
            let at = known.get(&key).copied().unwrap_or(now);
            self.since.insert(key, at);
        }
        let interval = session_timeout.max(PROBE_INTERVAL);
        let mut due: Vec<_> = self.since.iter_mut().filter(|(_, at)| now.saturating_sub(**at) >= interval).collect();
        due.sort_by_key(|(_, at)| **at);
        due.truncate(MAX_SUSPECTS);
        let probes = due.into_iter().map(|((engine, uid), at)| {
            *at = now;
            Probe { engine: engine.clone(), uid: uid.clone(), namespace: None }
        });
        probes.chain(unchanged).collect()
    }

    /// The starting instances to probe now.
    fn unchanged(&mut self, now: Duration, observed: &ObservedState, unregistered: &[&Instance]) -> Vec<Probe> {
        let mut known = std::mem::take(&mut self.starting);
        let mut due: Vec<(Duration, &Instance)> = Vec::new();
        for instance in starting(observed, unregistered) {
            let state = state_hash(instance);
            let before = known.remove_entry(instance.uid.as_str()).filter(|(_, (before, _))| *before == state);
            let (uid, (_, since)) = before.unwrap_or_else(|| (instance.uid.clone(), (state, now)));
            if now.saturating_sub(since) >= UNCHANGED {
                due.push((since, instance));
            }
            self.starting.insert(uid, (state, since));
        }
        if now.saturating_sub(self.starting_probed) < UNCHANGED_INTERVAL {
            return Vec::new();
        }
        due.sort_by_key(|(since, _)| *since);
        due.truncate(MAX_UNCHANGED);
        if !due.is_empty() {
            self.starting_probed = now;
        }
        let probes = due.into_iter().map(|(_, instance)| {
            self.starting.insert(instance.uid.clone(), (state_hash(instance), now));
            Probe { engine: instance.name.clone(), uid: instance.uid.clone(), namespace: None }
        });
        probes.collect()
    }
}

/// The namespaces in which engines were created, derived from the database.
///
/// The row of an engine has the hash of its configuration, which includes the namespace. While the slot's configuration has
/// this hash, its namespace is the engine's. After a change of the pool or the unit the namespace is unknown, and the
/// orchestrator searches all namespaces.
#[derive(Debug)]
struct EngineNamespaces<'a> {
    desired: &'a DesiredState,
    records: HashMap<&'a EngineName, &'a EngineRecord, RandomState>,
}

impl<'a> EngineNamespaces<'a> {
    fn new(desired: &'a DesiredState) -> Self {
        Self { desired, records: desired.snapshot.engines.iter().map(|record| (&record.name, &**record)).collect() }
    }

    fn get(&self, engine: &EngineName) -> Option<String> {
        let record = self.records.get(engine)?;
        let configuration = self.desired.configuration(&record.slot)?;
        configuration.has_hash(&record.config).then_some(configuration.namespace)
    }
}

/// A hash of the reported state: it changes with each event.
fn state_hash(instance: &Instance) -> u64 {
    let mut hasher = DefaultHasher::new();
    (instance.phase, &instance.reason, &instance.node, instance.started_at_ms).hash(&mut hasher);
    hasher.finish()
}

/// Of instances or permits with their uids those whose uid is not registered. Nearly each has the registration of its name, and
/// both lists are in the order of names: only uids that are found elsewhere are looked up.
fn unregistered<'a, T>(
    all: impl Iterator<Item = (&'a EngineName, &'a str, T)>,
    registrations: &'a [Shared<Registration>],
) -> Vec<T> {
    let mut left = registrations.iter().peekable();
    let mut elsewhere: HashSet<&str, RandomState> = HashSet::default();
    let mut found = Vec::new();
    for (name, uid, item) in all {
        while let Some(before) = left.next_if(|registration| registration.engine < *name) {
            elsewhere.extend(before.uid.as_deref());
        }
        if left.next_if(|it| it.engine == *name && it.uid.as_deref() == Some(uid)).is_none() {
            found.push((uid, item));
        }
    }
    elsewhere.extend(left.filter_map(|registration| registration.uid.as_deref()));
    found.into_iter().filter(|(uid, _)| !elsewhere.contains(uid)).map(|(_, item)| item).collect()
}

/// Instances that should register and never have.
fn starting<'a>(observed: &ObservedState, unregistered: &[&'a Instance]) -> Vec<&'a Instance> {
    let mut instances: Vec<&Instance> = unregistered.iter().copied().filter(|instance| instance.is_alive()).collect();
    if !instances.is_empty() {
        let answered = observed.permits.iter().filter(|permit| permit.answered);
        let answered: HashSet<&str, RandomState> = answered.filter_map(|permit| permit.uid.as_deref()).collect();
        instances.retain(|instance| !answered.contains(instance.uid.as_str()));
    }
    instances
}

/// Instances that should be registered, or should be gone soon: `lost` are the uids that have been registered and are not.
fn suspects(
    unregistered: &[&Instance],
    lost: &HashSet<&str, RandomState>,
) -> impl Iterator<Item = (EngineName, String)> {
    let is_suspect = |instance: &&&Instance| match instance.phase {
        Phase::Ended => false,
        Phase::Terminating => true,
        _ => lost.contains(instance.uid.as_str()),
    };
    unregistered.iter().filter(is_suspect).map(|instance| (instance.name.clone(), instance.uid.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use planner::Permit;

    use super::*;

    const SESSION: Duration = Duration::from_secs(8);

    fn instance(name: &str, phase: Phase) -> Shared<Instance> {
        let instance = Instance {
            name: EngineName::new(name).unwrap(),
            uid: format!("uid of {name}"),
            labels: Arc::default(),
            phase,
            incomplete: false,
            generation: None,
            node: None,
            reason: None,
            started_at_ms: None,
            log_tail: None,
            fault: None,
            pods: None,
            details: Arc::default(),
        };
        instance.into()
    }

    fn permit(instance: &Instance, answered: bool) -> Shared<Permit> {
        let permit = Permit {
            engine: instance.name.clone(),
            uid: Some(instance.uid.clone()),
            readable: true,
            answered,
            sessions: None,
            owner: None,
        };
        permit.into()
    }

    fn names(probes: &[Probe]) -> Vec<&str> {
        probes.iter().map(|probe| probe.engine.as_str()).collect()
    }

    #[test]
    fn unregistered_and_terminating_instances_are_probed_after_a_while() {
        let instances = ["lost", "ended", "new", "going", "serves"];
        let phases = [Phase::Running, Phase::Ended, Phase::Starting, Phase::Terminating, Phase::Running];
        let instances: Vec<Shared<Instance>> =
            instances.iter().zip(phases).map(|(name, phase)| instance(name, phase)).collect();
        let live = Registration {
            engine: instances[4].name.clone(),
            uid: Some(instances[4].uid.clone()),
            address: String::new(),
            config: String::new(),
            catalog: None,
            unclaimed: Duration::ZERO,
        };
        let permits = vec![
            permit(&instances[0], true),
            permit(&instances[1], true),
            permit(&instances[2], false),
            permit(&instances[4], true),
        ];
        let mut observed = ObservedState {
            instances,
            permits,
            registrations: vec![live.into()],
            registry_complete: true,
            ..ObservedState::default()
        };
        let mut probe = StalePodProbe::default();
        let mut probed = |seconds: u64, observed: &ObservedState| {
            names(&probe.suspects(Duration::from_secs(seconds), SESSION, observed)).join(" ")
        };
        assert_eq!(probed(100, &observed), "");
        assert_eq!(probed(107, &observed), "");
        assert_eq!(probed(108, &observed), "going lost");
        assert_eq!(probed(109, &observed), "", "it was just probed");
        assert_eq!(probed(116, &observed), "going lost");
        // While the registry may be incomplete nothing is suspected, and the time starts again.
        observed.registry_complete = false;
        assert_eq!(probed(200, &observed), "");
        observed.registry_complete = true;
        assert_eq!(probed(201, &observed), "");
        assert_eq!(probed(209, &observed), "going lost");
    }

    #[test]
    fn an_unchanged_starting_instance_is_probed_after_a_while() {
        let phases = [Phase::Pending, Phase::Starting, Phase::Running, Phase::Ended];
        let instances: Vec<Shared<Instance>> = ["pending", "starting", "running", "ended"]
            .iter()
            .zip(phases)
            .map(|(name, phase)| instance(name, phase))
            .collect();
        let permits = instances.iter().map(|instance| permit(instance, false)).collect();
        let mut observed = ObservedState { instances, permits, registry_complete: true, ..ObservedState::default() };
        let mut probe = StalePodProbe::default();
        let mut probed = |seconds: u64, observed: &ObservedState| {
            let mut probes = probe.suspects(Duration::from_secs(seconds), SESSION, observed);
            probes.sort_by(|one, other| one.engine.cmp(&other.engine));
            names(&probes).join(" ")
        };
        assert_eq!(probed(100, &observed), "");
        assert_eq!(probed(159, &observed), "");
        observed.instances[1].reason = Some("the image is being pulled".to_owned());
        assert_eq!(probed(160, &observed), "pending running");
        assert_eq!(probed(219, &observed), "", "one changed at 160, and the others were probed then");
        assert_eq!(probed(220, &observed), "pending running starting");
        // Registered instances, and an incomplete registry.
        observed.permits[0].answered = true;
        observed.permits[2].answered = true;
        observed.registry_complete = false;
        assert_eq!(probed(300, &observed), "");
        observed.registry_complete = true;
        assert_eq!(probed(301, &observed), "");
        assert_eq!(probed(309, &observed), "pending running", "they have lost their registration");
        assert_eq!(probed(361, &observed), "pending running starting");
    }

    #[test]
    fn of_many_waiting_instances_a_few_are_probed_at_a_time_in_turns() {
        let instances: Vec<Shared<Instance>> =
            (0..100).map(|at| instance(&format!("engine-{at:03}"), Phase::Pending)).collect();
        let observed = ObservedState { instances, registry_complete: true, ..ObservedState::default() };
        let mut probe = StalePodProbe::default();
        let mut ask = |ms: u64| probe.suspects(Duration::from_millis(ms), SESSION, &observed);
        assert!(ask(1_000).is_empty());
        let mut probed = BTreeSet::new();
        for second in 0..25 {
            let probes = ask(61_000 + second * 1_000);
            assert_eq!(probes.len(), MAX_UNCHANGED);
            probed.extend(probes.into_iter().map(|probe| probe.engine));
            assert!(ask(61_500 + second * 1_000).is_empty(), "not twice within a second");
        }
        assert_eq!(probed.len(), 100, "each once");
    }

    #[test]
    fn when_all_are_suspects_they_are_probed_in_turns() {
        let instances: Vec<Shared<Instance>> =
            (0..100).map(|at| instance(&format!("engine-{at:03}"), Phase::Running)).collect();
        let permits = instances.iter().map(|instance| permit(instance, true)).collect();
        let observed = ObservedState { instances, permits, registry_complete: true, ..ObservedState::default() };
        let mut probe = StalePodProbe::default();
        assert!(probe.suspects(Duration::ZERO, SESSION, &observed).is_empty());
        let mut probed = BTreeSet::new();
        for _ in 0..4 {
            let probes = probe.suspects(SESSION, SESSION, &observed);
            assert!(probes.len() <= MAX_SUSPECTS);
            probed.extend(probes.into_iter().map(|probe| probe.engine));
        }
        assert_eq!(probed.len(), 100, "each once");
    }
}
