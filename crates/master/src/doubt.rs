//! Doubts: pods that are in the list and may be gone, though nobody said so.
//!
//! A list is what watches have told. News that was lost on the way is told again only when everything is read anew, which
//! may be minutes later, and until then a pod that is gone holds its slot. Three signs cost nothing to see: an engine that was
//! registered and is not any more, a pod that is on its way out, and one that is to start and of which nothing new is heard for
//! a minute: it may have failed before it could register. Such a pod is asked for by its name, as what is missing in the
//! list is.
//!
//! A doubt decides nothing, only its answer does: that an engine is not registered is no reason to end it. Doubts of a
//! registry that may be incomplete are none.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use model::engine_name::EngineName;
use model::engine_state::Phase;
use planner::{Observed, Pod, Question};

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
pub(crate) struct Doubts {
    since: BTreeMap<(EngineName, String), Duration>,
    /// By uid, pods that are to start: how each looks, and since when, or since it was last asked for.
    starting: HashMap<String, (u64, Duration)>,
    /// When one of these was asked for last.
    starting_asked: Duration,
}

impl Doubts {
    /// What is to be asked for now.
    pub fn questions(&mut self, now: Duration, session_timeout: Duration, observed: &Observed) -> Vec<Question> {
        let known = std::mem::take(&mut self.since);
        if !observed.registry_settled {
            self.starting.clear();
            return Vec::new();
        }
        let registered: HashSet<&str> = observed.lives.iter().filter_map(|live| live.uid.as_deref()).collect();
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
            Question { engine: engine.clone(), uid: uid.clone(), namespace: None }
        });
        asked.chain(unheard).collect()
    }

    /// Which pods that are to start are to be asked for now.
    fn unheard(&mut self, now: Duration, observed: &Observed, registered: &HashSet<&str>) -> Vec<Question> {
        let mut known = std::mem::take(&mut self.starting);
        let mut due: Vec<(Duration, &Pod)> = Vec::new();
        for pod in starting(observed, registered) {
            let looks = looks(pod);
            let before = known.remove_entry(pod.uid.as_str()).filter(|(_, (looked, _))| *looked == looks);
            let (uid, (_, since)) = before.unwrap_or_else(|| (pod.uid.clone(), (looks, now)));
            if now.saturating_sub(since) >= UNHEARD {
                due.push((since, pod));
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
        let asked = due.into_iter().map(|(_, pod)| {
            self.starting.insert(pod.uid.clone(), (looks(pod), now));
            Question { engine: pod.name.clone(), uid: pod.uid.clone(), namespace: None }
        });
        asked.collect()
    }
}

/// What is heard of a pod, in one number: news is when it is another one.
fn looks(pod: &Pod) -> u64 {
    let mut hasher = DefaultHasher::new();
    (pod.phase, &pod.reason, &pod.node, pod.started_at_ms).hash(&mut hasher);
    hasher.finish()
}

/// Pods that should register some time and never have.
fn starting<'a>(observed: &'a Observed, registered: &HashSet<&str>) -> Vec<&'a Pod> {
    let mut pods: Vec<&Pod> =
        observed.pods.iter().filter(|pod| pod.is_alive() && !registered.contains(pod.uid.as_str())).collect();
    if !pods.is_empty() {
        let answered = observed.permits.iter().filter(|permit| permit.answered);
        let answered: HashSet<&str> = answered.filter_map(|permit| permit.uid.as_deref()).collect();
        pods.retain(|pod| !answered.contains(pod.uid.as_str()));
    }
    pods
}

/// Pods of which something should be registered, or soon be over, and is not. Where nothing is lost this costs a look at
/// each registration, permit and pod.
fn doubtful(observed: &Observed, registered: &HashSet<&str>) -> impl Iterator<Item = (EngineName, String)> {
    let answered = observed.permits.iter().filter(|permit| permit.answered).filter_map(|permit| permit.uid.as_deref());
    let lost: HashSet<&str> = answered.filter(|uid| !registered.contains(uid)).collect();
    let is_doubtful = move |pod: &&Pod| match pod.phase {
        Phase::Ended => false,
        Phase::Terminating => !registered.contains(pod.uid.as_str()),
        _ => !lost.is_empty() && lost.contains(pod.uid.as_str()),
    };
    observed.pods.iter().filter(is_doubtful).map(|pod| (pod.name.clone(), pod.uid.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use planner::{Live, Permit};

    use super::*;

    const SESSION: Duration = Duration::from_secs(8);

    fn pod(name: &str, phase: Phase) -> Pod {
        Pod {
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

    fn permit(pod: &Pod, answered: bool) -> Permit {
        Permit { engine: pod.name.clone(), uid: Some(pod.uid.clone()), readable: true, answered }
    }

    fn names(questions: &[Question]) -> Vec<&str> {
        questions.iter().map(|it| it.engine.as_str()).collect()
    }

    #[test]
    fn who_was_registered_or_is_on_its_way_out_is_asked_for_after_a_while_and_not_all_the_time() {
        let pods = ["lost", "ended", "new", "going", "serves"];
        let phases = [Phase::Running, Phase::Ended, Phase::Starting, Phase::Terminating, Phase::Running];
        let pods: Vec<Pod> = pods.iter().zip(phases).map(|(name, phase)| pod(name, phase)).collect();
        let live = Live {
            engine: pods[4].name.clone(),
            uid: Some(pods[4].uid.clone()),
            address: String::new(),
            config: String::new(),
            catalog: None,
            unclaimed_ms: 0,
        };
        let permits =
            vec![permit(&pods[0], true), permit(&pods[1], true), permit(&pods[2], false), permit(&pods[4], true)];
        let mut observed = Observed { pods, permits, lives: vec![live], registry_settled: true, ..Observed::default() };
        let mut doubts = Doubts::default();
        let mut asked = |seconds: u64, observed: &Observed| {
            names(&doubts.questions(Duration::from_secs(seconds), SESSION, observed)).join(" ")
        };
        assert_eq!(asked(100, &observed), "");
        assert_eq!(asked(107, &observed), "");
        assert_eq!(asked(108, &observed), "going lost");
        assert_eq!(asked(109, &observed), "", "it was asked for a moment ago");
        assert_eq!(asked(116, &observed), "going lost");
        // What is said of registrations is not believed, and what was doubted before is doubted anew.
        observed.registry_settled = false;
        assert_eq!(asked(200, &observed), "");
        observed.registry_settled = true;
        assert_eq!(asked(201, &observed), "");
        assert_eq!(asked(209, &observed), "going lost");
    }

    #[test]
    fn a_pod_that_is_to_start_is_asked_for_when_nothing_new_is_heard_of_it_for_a_while() {
        let phases = [Phase::Pending, Phase::Starting, Phase::Running, Phase::Ended];
        let pods: Vec<Pod> =
            ["pending", "starting", "running", "ended"].iter().zip(phases).map(|(name, it)| pod(name, it)).collect();
        let permits = pods.iter().map(|pod| permit(pod, false)).collect();
        let mut observed = Observed { pods, permits, registry_settled: true, ..Observed::default() };
        let mut doubts = Doubts::default();
        let mut asked = |seconds: u64, observed: &Observed| {
            let mut questions = doubts.questions(Duration::from_secs(seconds), SESSION, observed);
            questions.sort_by(|one, other| one.engine.cmp(&other.engine));
            names(&questions).join(" ")
        };
        assert_eq!(asked(100, &observed), "");
        assert_eq!(asked(159, &observed), "");
        observed.pods[1].reason = Some("the image is being pulled".to_owned());
        assert_eq!(asked(160, &observed), "pending running");
        assert_eq!(asked(219, &observed), "", "the news of one was at 160, and the others were asked for then");
        assert_eq!(asked(220, &observed), "pending running starting");
        // Who has registered once is another matter, and so is what is not believed.
        observed.permits[0].answered = true;
        observed.permits[2].answered = true;
        observed.registry_settled = false;
        assert_eq!(asked(300, &observed), "");
        observed.registry_settled = true;
        assert_eq!(asked(301, &observed), "");
        assert_eq!(asked(309, &observed), "pending running", "they have lost their registration");
        assert_eq!(asked(361, &observed), "pending running starting");
    }

    #[test]
    fn of_very_many_pods_that_wait_few_are_asked_for_at_once_and_each_in_its_turn() {
        let pods: Vec<Pod> = (0..100).map(|at| pod(&format!("engine-{at:03}"), Phase::Pending)).collect();
        let observed = Observed { pods, registry_settled: true, ..Observed::default() };
        let mut doubts = Doubts::default();
        let mut ask = |ms: u64| doubts.questions(Duration::from_millis(ms), SESSION, &observed);
        assert!(ask(1_000).is_empty());
        let mut asked = BTreeSet::new();
        for second in 0..25 {
            let questions = ask(61_000 + second * 1_000);
            assert_eq!(questions.len(), MAX_UNHEARD);
            asked.extend(questions.into_iter().map(|it| it.engine));
            assert!(ask(61_500 + second * 1_000).is_empty(), "not twice within a second");
        }
        assert_eq!(asked.len(), 100, "each once");
    }

    #[test]
    fn when_all_are_doubtful_they_are_asked_for_in_turns() {
        let pods: Vec<Pod> = (0..100).map(|at| pod(&format!("engine-{at:03}"), Phase::Running)).collect();
        let permits = pods.iter().map(|pod| permit(pod, true)).collect();
        let observed = Observed { pods, permits, registry_settled: true, ..Observed::default() };
        let mut doubts = Doubts::default();
        assert!(doubts.questions(Duration::ZERO, SESSION, &observed).is_empty());
        let mut asked = BTreeSet::new();
        for _ in 0..4 {
            let questions = doubts.questions(SESSION, SESSION, &observed);
            assert!(questions.len() <= MAX_QUESTIONS);
            asked.extend(questions.into_iter().map(|it| it.engine));
        }
        assert_eq!(asked.len(), 100, "each once");
    }
}
