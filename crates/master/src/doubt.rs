//! Doubts: pods that are in the list and may be gone, though nobody said so.
//!
//! A list is what watches have told. News that was lost on the way is told again only when everything is read anew, which
//! may be minutes later, and until then a pod that is gone holds its slot. Two signs cost nothing to see: an engine that was
//! registered and is not any more, and a pod that is on its way out. Such a pod is asked for by its name, as what is
//! missing in the list is.
//!
//! A doubt decides nothing, only its answer does: that an engine is not registered is no reason to end it. Doubts of a
//! registry that may be incomplete are none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::engine_name::EngineName;
use model::engine_state::Phase;
use planner::{Observed, Pod, Question};

/// The least time before the first question about a pod, and between two.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions of one tick, about the pods that have waited longest: whatever loses all registrations makes every engine
/// doubtful at once.
const MAX_QUESTIONS: usize = 32;

/// The pods that are doubtful, each since when, or since it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    since: BTreeMap<(EngineName, String), Duration>,
}

impl Doubts {
    /// What is to be asked for now.
    pub fn questions(&mut self, now: Duration, session_timeout: Duration, observed: &Observed) -> Vec<Question> {
        let known = std::mem::take(&mut self.since);
        if !observed.registry_settled {
            return Vec::new();
        }
        for key in doubtful(observed) {
            let at = known.get(&key).copied().unwrap_or(now);
            self.since.insert(key, at);
        }
        let patience = session_timeout.max(PATIENCE);
        let mut due: Vec<_> = self.since.iter_mut().filter(|(_, at)| now.saturating_sub(**at) >= patience).collect();
        due.sort_by_key(|(_, at)| **at);
        due.truncate(MAX_QUESTIONS);
        let asked = due.into_iter().map(|((engine, uid), at)| {
            *at = now;
            Question { engine: engine.clone(), uid: uid.clone() }
        });
        asked.collect()
    }
}

/// Pods of which something should be registered, or soon be over, and is not.
fn doubtful(observed: &Observed) -> impl Iterator<Item = (EngineName, String)> {
    let registered: BTreeSet<&str> = observed.lives.iter().filter_map(|live| live.uid.as_deref()).collect();
    let permits = observed.permits.iter().filter(|permit| permit.answered);
    let answered: BTreeSet<&str> = permits.filter_map(|permit| permit.uid.as_deref()).collect();
    let is_doubtful = move |pod: &&Pod| match pod.phase {
        Phase::Ended => false,
        Phase::Terminating => !registered.contains(pod.uid.as_str()),
        _ => answered.contains(pod.uid.as_str()) && !registered.contains(pod.uid.as_str()),
    };
    observed.pods.iter().filter(is_doubtful).map(|pod| (pod.name.clone(), pod.uid.clone()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::labels::LabelMap;
    use planner::{Live, Permit};

    use super::*;

    const SESSION: Duration = Duration::from_secs(8);

    fn pod(name: &str, phase: Phase) -> Pod {
        Pod {
            name: EngineName::new(name).unwrap(),
            uid: format!("uid of {name}"),
            labels: LabelMap::new(),
            phase,
            generation: None,
            node: None,
            reason: None,
            started_at_ms: None,
            log_tail: None,
            details: BTreeMap::new(),
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
