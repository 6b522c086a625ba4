//! Probes of stale instances: listed ones that may be gone although no watch event reported it.
//!
//! The list reflects watch events. A lost event is recovered only by the next full read, which may be minutes later; until
//! then an instance that is gone occupies its slot. Three cheap signs make an instance a suspect: it was registered and no
//! longer is, it is terminating, or it is starting and has not changed for a minute, so that it may have failed before it
//! could register. A suspect is looked up by name, like an expected instance that the list lacks.
//!
//! Being a suspect never ends an engine; only the direct lookup does. While the registry may be incomplete, nothing is
//! suspected because of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use model::engine_name::EngineName;
use model::engine_state::Phase;
use planner::{Instance, ObservedState, Probe};

/// The least time before the first question about a pod, and between two.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions of one tick, about the pods that have waited longest: whatever loses all registrations makes every engine
/// doubtful at once.
const MAX_QUESTIONS: usize = 32;

/// How long a pod that is to start may look the same before it is asked for, and between two questions: most starts are over
/// by then, and a pod that no node takes may wait for hours.
const UNHEARD: Duration = Duration::from_mins(1);
/// Questions about such pods in one tick: thousands may wait.
const MAX_UNHEARD: usize = 4;
/// The least time between two ticks with questions about such pods.
const UNHEARD_APART: Duration = Duration::from_secs(1);

/// The pods that are doubtful, each since when, or since it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct StalePodProbe {
    since: BTreeMap<(EngineName, String), Duration>,
    /// By uid, pods that are to start: how each looks, and since when, or since it was last asked for.
    starting: HashMap<String, (u64, Duration)>,
    /// When one of these was asked for last.
    starting_asked: Duration,
}

impl StalePodProbe {
    /// What is to be asked for now.
    pub fn probes(&mut self, now: Duration, session_timeout: Duration, observed: &ObservedState) -> Vec<Probe> {
        let known = std::mem::take(&mut self.since);
        if !observed.registry_complete {
            self.starting.clear();
            return Vec::new();
        }
        let registered: HashSet<&str> = observed.registrations.iter().filter_map(|live| live.uid.as_deref()).collect();
        let unheard = self.unheard(now, observed, &registered);
        for key in doubtful(observed, &registered) {
            let at = known.get(&key).copied().unwrap_or(now);
            self.since.insert(key, at);
        }
        let patience = session_timeout.max(PATIENCE);
        let mut due: Vec<_> = self.since.iter_mut().filter(|(_, at)| now.saturating_sub(**at) >= patience).collect();
        due.sort_by_key(|(_, at)| **at);
        due.truncate(MAX_QUESTIONS);
        let asked = due.into_iter().map(|((engine, uid), at)| {
            *at = now;
            Probe { engine: engine.clone(), uid: uid.clone(), namespace: None }
        });
        asked.chain(unheard).collect()
    }

    /// Which pods that are to start are to be asked for now.
    fn unheard(&mut self, now: Duration, observed: &ObservedState, registered: &HashSet<&str>) -> Vec<Probe> {
        let mut known = std::mem::take(&mut self.starting);
        let mut due: Vec<(Duration, &Instance)> = Vec::new();
        for instance in starting(observed, registered) {
            let looks = looks(instance);
            let before = known.remove_entry(instance.uid.as_str()).filter(|(_, (looked, _))| *looked == looks);
            let (uid, (_, since)) = before.unwrap_or_else(|| (instance.uid.clone(), (looks, now)));
            if now.saturating_sub(since) >= UNHEARD {
                due.push((since, instance));
            }
            self.starting.insert(uid, (looks, since));
        }
        if now.saturating_sub(self.starting_asked) < UNHEARD_APART {
            return Vec::new();
        }
        due.sort_by_key(|(since, _)| *since);
        due.truncate(MAX_UNHEARD);
        if !due.is_empty() {
            self.starting_asked = now;
        }
        let asked = due.into_iter().map(|(_, instance)| {
            self.starting.insert(instance.uid.clone(), (looks(instance), now));
            Probe { engine: instance.name.clone(), uid: instance.uid.clone(), namespace: None }
        });
        asked.collect()
    }
}

/// What is heard of a pod, in one number: news is when it is another one.
fn looks(instance: &Instance) -> u64 {
    let mut hasher = DefaultHasher::new();
    (instance.phase, &instance.reason, &instance.node, instance.started_at_ms).hash(&mut hasher);
    hasher.finish()
}

/// Pods that should register some time and never have.
fn starting<'a>(observed: &'a ObservedState, registered: &HashSet<&str>) -> Vec<&'a Instance> {
    let mut instances: Vec<&Instance> = observed
        .instances
        .iter()
        .filter(|instance| instance.is_alive() && !registered.contains(instance.uid.as_str()))
        .collect();
    if !instances.is_empty() {
        let answered = observed.permits.iter().filter(|permit| permit.answered);
        let answered: HashSet<&str> = answered.filter_map(|permit| permit.uid.as_deref()).collect();
        instances.retain(|instance| !answered.contains(instance.uid.as_str()));
    }
    instances
}

/// Pods of which something should be registered, or soon be over, and is not. Where nothing is lost this costs a look at
/// each registration, permit and pod.
fn doubtful(observed: &ObservedState, registered: &HashSet<&str>) -> impl Iterator<Item = (EngineName, String)> {
    let answered = observed.permits.iter().filter(|permit| permit.answered).filter_map(|permit| permit.uid.as_deref());
    let lost: HashSet<&str> = answered.filter(|uid| !registered.contains(uid)).collect();
    let is_doubtful = move |instance: &&Instance| match instance.phase {
        Phase::Ended => false,
        Phase::Terminating => !registered.contains(instance.uid.as_str()),
        _ => !lost.is_empty() && lost.contains(instance.uid.as_str()),
    };
    observed.instances.iter().filter(is_doubtful).map(|instance| (instance.name.clone(), instance.uid.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use planner::{Permit, Registration};

    use super::*;

    const SESSION: Duration = Duration::from_secs(8);

    fn instance(name: &str, phase: Phase) -> Instance {
        Instance {
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
            details: Arc::default(),
        }
    }

    fn permit(instance: &Instance, answered: bool) -> Permit {
        Permit { engine: instance.name.clone(), uid: Some(instance.uid.clone()), readable: true, answered }
    }

    fn names(probes: &[Probe]) -> Vec<&str> {
        probes.iter().map(|it| it.engine.as_str()).collect()
    }

    #[test]
    fn who_was_registered_or_is_on_its_way_out_is_asked_for_after_a_while_and_not_all_the_time() {
        let instances = ["lost", "ended", "new", "going", "serves"];
        let phases = [Phase::Running, Phase::Ended, Phase::Starting, Phase::Terminating, Phase::Running];
        let instances: Vec<Instance> =
            instances.iter().zip(phases).map(|(name, phase)| instance(name, phase)).collect();
        let live = Registration {
            engine: instances[4].name.clone(),
            uid: Some(instances[4].uid.clone()),
            address: String::new(),
            config: String::new(),
            catalog: None,
            unclaimed_ms: 0,
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
            registrations: vec![live],
            registry_complete: true,
            ..ObservedState::default()
        };
        let mut probe = StalePodProbe::default();
        let mut asked = |seconds: u64, observed: &ObservedState| {
            names(&probe.probes(Duration::from_secs(seconds), SESSION, observed)).join(" ")
        };
        assert_eq!(asked(100, &observed), "");
        assert_eq!(asked(107, &observed), "");
        assert_eq!(asked(108, &observed), "going lost");
        assert_eq!(asked(109, &observed), "", "it was asked for a moment ago");
        assert_eq!(asked(116, &observed), "going lost");
        // What is said of registrations is not believed, and what was doubted before is doubted anew.
        observed.registry_complete = false;
        assert_eq!(asked(200, &observed), "");
        observed.registry_complete = true;
        assert_eq!(asked(201, &observed), "");
        assert_eq!(asked(209, &observed), "going lost");
    }

    #[test]
    fn a_pod_that_is_to_start_is_asked_for_when_nothing_new_is_heard_of_it_for_a_while() {
        let phases = [Phase::Pending, Phase::Starting, Phase::Running, Phase::Ended];
        let instances: Vec<Instance> = ["pending", "starting", "running", "ended"]
            .iter()
            .zip(phases)
            .map(|(name, it)| instance(name, it))
            .collect();
        let permits = instances.iter().map(|instance| permit(instance, false)).collect();
        let mut observed = ObservedState { instances, permits, registry_complete: true, ..ObservedState::default() };
        let mut probe = StalePodProbe::default();
        let mut asked = |seconds: u64, observed: &ObservedState| {
            let mut probes = probe.probes(Duration::from_secs(seconds), SESSION, observed);
            probes.sort_by(|one, other| one.engine.cmp(&other.engine));
            names(&probes).join(" ")
        };
        assert_eq!(asked(100, &observed), "");
        assert_eq!(asked(159, &observed), "");
        observed.instances[1].reason = Some("the image is being pulled".to_owned());
        assert_eq!(asked(160, &observed), "pending running");
        assert_eq!(asked(219, &observed), "", "the news of one was at 160, and the others were asked for then");
        assert_eq!(asked(220, &observed), "pending running starting");
        // Who has registered once is another matter, and so is what is not believed.
        observed.permits[0].answered = true;
        observed.permits[2].answered = true;
        observed.registry_complete = false;
        assert_eq!(asked(300, &observed), "");
        observed.registry_complete = true;
        assert_eq!(asked(301, &observed), "");
        assert_eq!(asked(309, &observed), "pending running", "they have lost their registration");
        assert_eq!(asked(361, &observed), "pending running starting");
    }

    #[test]
    fn of_very_many_pods_that_wait_few_are_asked_for_at_once_and_each_in_its_turn() {
        let instances: Vec<Instance> =
            (0..100).map(|at| instance(&format!("engine-{at:03}"), Phase::Pending)).collect();
        let observed = ObservedState { instances, registry_complete: true, ..ObservedState::default() };
        let mut probe = StalePodProbe::default();
        let mut ask = |ms: u64| probe.probes(Duration::from_millis(ms), SESSION, &observed);
        assert!(ask(1_000).is_empty());
        let mut asked = BTreeSet::new();
        for second in 0..25 {
            let probes = ask(61_000 + second * 1_000);
            assert_eq!(probes.len(), MAX_UNHEARD);
            asked.extend(probes.into_iter().map(|it| it.engine));
            assert!(ask(61_500 + second * 1_000).is_empty(), "not twice within a second");
        }
        assert_eq!(asked.len(), 100, "each once");
    }

    #[test]
    fn when_all_are_doubtful_they_are_asked_for_in_turns() {
        let instances: Vec<Instance> =
            (0..100).map(|at| instance(&format!("engine-{at:03}"), Phase::Running)).collect();
        let permits = instances.iter().map(|instance| permit(instance, true)).collect();
        let observed = ObservedState { instances, permits, registry_complete: true, ..ObservedState::default() };
        let mut probe = StalePodProbe::default();
        assert!(probe.probes(Duration::ZERO, SESSION, &observed).is_empty());
        let mut asked = BTreeSet::new();
        for _ in 0..4 {
            let probes = probe.probes(SESSION, SESSION, &observed);
            assert!(probes.len() <= MAX_QUESTIONS);
            asked.extend(probes.into_iter().map(|it| it.engine));
        }
        assert_eq!(asked.len(), 100, "each once");
    }
}
