//! The plan for engines that no slot wants any more, and for what they leave behind.

use model::engine_state::Phase;
use model::labels::NAMESPACE;

use crate::census::Engine;
use crate::decision::{Action, Decision, Stage};
use crate::desired::Desired;
use crate::draft::{Draft, decide};
use crate::limits::{DELETE_AFTER_GRACE_MS, DELETE_GRACE_MS};
use crate::observed::{Fact, Observed, Pod};
use crate::standing::Sentence;

/// A condemned engine that runs: its drain fact, then, when its time is over, its end.
pub(crate) fn condemned(draft: &mut Draft<'_>, engine: &Engine<'_>, sentence: &Sentence) {
    let Some(pod) = engine.alive() else { return };
    end_pod(draft, engine, pod, sentence, true);
}

/// Pods that bear the name of an engine and are not it, one after the other: they are not registered, so whoever is comes
/// first.
pub(crate) fn strays(draft: &mut Draft<'_>, engine: &Engine<'_>) {
    let sentence = Sentence {
        because: "it bears the name of an engine of another uid".to_owned(),
        grace_ms: draft.desired.limits.grace_ms(None),
        newer: None,
    };
    for pod in &engine.strays {
        if pod.is_alive() {
            let owns_permit = engine.permit.is_some_and(|permit| permit.uid.as_deref() == Some(&pod.uid));
            end_pod(draft, engine, pod, &sentence, owns_permit);
        } else {
            draft.push(Stage::Clear, clear_pod(engine, pod).into_iter().collect());
        }
    }
}

fn end_pod(draft: &mut Draft<'_>, engine: &Engine<'_>, pod: &Pod, sentence: &Sentence, withdraw: bool) {
    let Some(fact) = engine.fact else {
        let action = Action::Drain {
            uid: pod.uid.clone(),
            grace_ms: sentence.grace_ms,
            withdraw,
            newer: sentence.newer.clone(),
            namespace: pod.labels.get(NAMESPACE).cloned(),
        };
        draft.undone(engine, format!("engine {} is to drain: {}", engine.name, sentence.because));
        if !draft.drain(engine, action, &sentence.because) {
            return wait_for_another(draft, engine);
        }
        draft.reasons.entry(engine.name.clone()).or_insert_with(|| sentence.because.clone());
        return;
    };
    if fact.uid.as_deref() != Some(&pod.uid) {
        draft.undone(engine, format!("engine {} is to drain: {}", engine.name, sentence.because));
        return wait_for_another(draft, engine);
    }
    if withdraw {
        // In a chain of its own: what the engine left below its permit may keep that there, and must not keep it alive.
        draft.push(Stage::Clear, delete_permit(engine, "its engine drains").into_iter().collect());
    }
    if fact.age_ms >= fact.grace_ms.saturating_add(DELETE_AFTER_GRACE_MS) {
        let action = Action::DeleteEngine { uid: pod.uid.clone(), grace_ms: DELETE_GRACE_MS };
        draft.push(Stage::Clear, vec![decide(engine, action, "its grace is over and it still runs")]);
    } else {
        draft.reasons.entry(engine.name.clone()).or_insert_with(|| fact.reason.clone());
    }
}

/// A name has one drain fact: its pods are told one after the other.
fn wait_for_another(draft: &mut Draft<'_>, engine: &Engine<'_>) {
    draft.wait(engine, "waits for the drain fact of another engine of its name to go".to_owned(), None);
}

/// No slot's present engine, and nothing of it runs: what is left of it goes.
pub(crate) fn over(draft: &mut Draft<'_>, engine: &Engine<'_>) {
    let mut chain = Vec::new();
    match engine.pod {
        Some(pod) => {
            if pod.phase == Phase::Ended {
                chain.extend(record_end(engine, pod));
            }
            chain.extend(clear_pod(engine, pod));
            chain.extend(delete_permit(engine, "its engine is no more"));
            draft.reasons.insert(engine.name.clone(), how_it_ended(pod));
        }
        None => match engine.record.and_then(|record| record.uid.as_deref()) {
            Some(uid) if !draft.vanished(engine, uid) => {
                draft.wait(engine, "is not in the list of engines and not known to have vanished".to_owned(), None);
            }
            recorded => {
                chain.extend(record_absence(engine, recorded.is_some()));
                chain.extend(withdraw_dead(engine));
            }
        },
    }
    draft.push(Stage::Clear, chain);
}

/// A registration whose uid no pod has had for longer than a dead session's could stand. Where a pod of the name is told
/// to drain by the same plan, the registration goes with that pod's permit.
pub(crate) fn unclaimed_live(draft: &mut Draft<'_>, engine: &Engine<'_>) {
    let Some(live) = engine.live else { return };
    let claimed = engine.pods().any(|pod| live.uid.as_deref() == Some(&pod.uid));
    if claimed || live.unclaimed_ms < draft.desired.limits.session_timeout_ms || !draft.observed.registry_settled {
        return;
    }
    let because = "it is registered and no pod or process of its uid exists";
    match &live.uid {
        Some(uid) if engine.fact.is_none() => {
            let grace_ms = draft.desired.limits.grace_ms(engine.record.and_then(|it| it.end_grace_ms));
            let (uid, newer, namespace) = (uid.clone(), None, None);
            draft.drain(engine, Action::Drain { uid, grace_ms, withdraw: true, newer, namespace }, because);
        }
        _ if draft.is_told(engine) => {}
        // Unreadable, or under a fact that stands already: nothing can be said to it but that its permit is gone.
        _ => draft.push(Stage::Drain, vec![decide(engine, Action::DeletePermit, because)]),
    }
}

/// The drain fact of an engine that is gone, or that nobody can read.
pub(crate) fn settled_fact(draft: &mut Draft<'_>, engine: &Engine<'_>) {
    let Some(fact) = engine.fact else { return };
    let because = match &fact.uid {
        None => "it can't be read",
        Some(uid) => {
            let there = engine.pods().any(|pod| pod.uid == *uid);
            let registered = engine.live.is_some_and(|live| live.uid.as_ref() == Some(uid));
            let quiet = is_quiet(draft.desired, draft.observed, fact);
            if there || registered || !quiet || !draft.vanished(engine, uid) {
                return;
            }
            "its engine is gone"
        }
    };
    draft.push(Stage::Clear, vec![decide(engine, Action::RemoveFact, because)]);
}

/// Whether nothing of the fact's engine has been seen for longer than a dead session's registration could stand.
pub(crate) fn is_quiet(desired: &Desired, observed: &Observed, fact: &Fact) -> bool {
    observed.registry_settled && fact.quiet_ms >= desired.limits.session_timeout_ms
}

/// Records the end of a pod that ended, unless that is recorded or nobody issued its name.
pub(crate) fn record_end(engine: &Engine<'_>, pod: &Pod) -> Option<Decision> {
    engine.record.filter(|record| record.ended_at_ms.is_none())?;
    let reason = how_it_ended(pod);
    let because = format!("it {}: {reason}", if pod.phase == Phase::Ended { "ended" } else { "is no engine any more" });
    Some(decide(engine, Action::RecordEnd { reason, log_tail: pod.log_tail.clone() }, because))
}

fn record_absence(engine: &Engine<'_>, had_uid: bool) -> Option<Decision> {
    engine.record.filter(|record| record.ended_at_ms.is_none())?;
    let (reason, because) = if had_uid {
        ("ended", "no pod or process of its uid exists")
    } else {
        ("superseded before it was created", "it was never created and is not wanted any more")
    };
    Some(decide(engine, Action::RecordEnd { reason: reason.to_owned(), log_tail: None }, because))
}

/// Deletes a pod that ended; one that is being deleted is left to its own grace.
pub(crate) fn clear_pod(engine: &Engine<'_>, pod: &Pod) -> Option<Decision> {
    let action = Action::DeleteEngine { uid: pod.uid.clone(), grace_ms: 0 };
    (pod.phase == Phase::Ended).then(|| decide(engine, action, "it ended"))
}

/// Deletes the permit of an engine that does not run, with what a dead session left below it.
pub(crate) fn delete_permit(engine: &Engine<'_>, because: &str) -> Option<Decision> {
    engine.permit.map(|_| decide(engine, Action::DeletePermit, because))
}

/// Deletes the permit of an engine without a pod, unless somebody is registered below it: that one may live where the
/// orchestrator does not see it, and is told to drain once that is sure.
pub(crate) fn withdraw_dead(engine: &Engine<'_>) -> Option<Decision> {
    if engine.live.is_some() {
        return None;
    }
    delete_permit(engine, "its engine is no more")
}

/// How a pod that is no engine any more came to its end.
pub(crate) fn how_it_ended(pod: &Pod) -> String {
    match (&pod.reason, pod.phase) {
        (Some(reason), Phase::Ended) => reason.clone(),
        (None, Phase::Ended) => "no reason is known".to_owned(),
        (Some(reason), _) => format!("somebody deletes it: {reason}"),
        (None, _) => "somebody deletes it".to_owned(),
    }
}
