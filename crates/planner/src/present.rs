//! The plan for a slot's present engine: make it, keep it, or see that the slot needs another.

use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::labels::{CONFIG, EngineLabels};
use model::slot::Slot;
use model::snapshot::EngineRecord;

use crate::backoff;
use crate::census::Engine;
use crate::decision::{Action, Decision, Launch, Stage};
use crate::draft::{Draft, decide};
use crate::ending;
use crate::limits::BACK_OFF_MOST_MS;
use crate::observed::Pod;
use crate::unregistered;

/// What is known of the slot beside its present engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around<'a> {
    /// The engine that serves until the present one is registered.
    pub stand_in: Option<&'a EngineName>,
    /// Whether other slots of the (tenant, pool, unit) are replaced first.
    pub waits_for_turn: bool,
}

pub(crate) fn plan<'a>(draft: &mut Draft<'a>, engine: &Engine<'_>, slot: &'a Slot, around: Around<'_>) {
    if let Some(reason) = condemned(engine) {
        draft.undone(engine, format!("engine {} was condemned", engine.name));
        return renew(draft, engine, slot, slot.failures, reason);
    }
    let record = engine.record;
    if let Some((record, ended_at_ms)) = record.and_then(|it| Some((it, it.ended_at_ms?))) {
        return after_end(draft, engine, slot, record, ended_at_ms);
    }
    match (engine.pod, record.and_then(|it| it.uid.as_deref())) {
        (None, None) => create(draft, engine, slot, around),
        (None, Some(uid)) => missing(draft, engine, uid),
        (Some(pod), _) if pod.is_alive() => keep_or_renew(draft, engine, slot, pod, around),
        (Some(pod), recorded) => ended(draft, engine, pod, recorded.is_some()),
    }
}

/// Why the slot's present engine is on its way out although the slot wants it.
fn condemned(engine: &Engine<'_>) -> Option<String> {
    if let Some(reason) = engine.record.and_then(|record| record.end_reason.as_ref()) {
        return Some(format!("the present engine was condemned: {reason}"));
    }
    // With no uid known, a fact of the name can be about nobody else.
    let fact = match engine.uid() {
        Some(uid) => engine.fact_of(uid),
        None => engine.fact.filter(|fact| fact.uid.is_some()),
    };
    fact.map(|fact| format!("the present engine was condemned: {}", fact.reason))
}

fn renew(draft: &mut Draft<'_>, engine: &Engine<'_>, slot: &Slot, failures: u32, because: String) {
    draft.reasons.insert(engine.name.clone(), because.clone());
    let action = Action::DrawIncarnation { observed: slot.incarnation, failures };
    draft.push(Stage::Renew, vec![decide(engine, action, because)]);
}

/// No engine and no uid, or one whose making was cut off: permit, pod, uid.
fn create(draft: &mut Draft<'_>, engine: &Engine<'_>, slot: &Slot, around: Around<'_>) {
    if around.waits_for_turn {
        let reason = format!(
            "waits for its turn: {} at a time of unit \"{}\" may be replaced",
            draft.desired.limits.surge, slot.key.unit
        );
        return draft.wait(engine, reason, None);
    }
    let refused = |draft: &mut Draft<'_>, reason: String, until_ms| {
        draft.undone(engine, reason.clone());
        draft.wait(engine, reason, until_ms);
    };
    let Some(configuration) = draft.desired.configuration(&slot.key) else {
        return refused(draft, "the catalog lacks the unit or the pool of the slot".to_owned(), None);
    };
    if let Some(why) = draft.desired.lacks_nodes(&slot.key) {
        // No alteration waits for it: only another one can give the pool nodes.
        return draft.wait(engine, format!("resource pool \"{}\" has no nodes: {why}", slot.key.pool), None);
    }
    let pool = draft.desired.pool(&slot.key);
    let nodes = pool.and_then(|pool| pool.nodes.clone());
    let node_selector = pool.map(|pool| pool.node_selector.clone()).unwrap_or_default();
    let trouble = draft.observed.troubles.get(&engine.name);
    if let Some(trouble) = trouble {
        let delay_ms = backoff::back_off_ms(trouble.failures.saturating_sub(1));
        let reason = format!("could not be created, failure {}: {}", trouble.failures, trouble.reason);
        refused(draft, reason, Some(draft.desired.snapshot.now_ms + delay_ms - trouble.age_ms));
        if trouble.age_ms < delay_ms {
            return;
        }
    } else {
        refused(draft, "is being created".to_owned(), None);
    }
    let because = match around.stand_in {
        _ if engine.pod.is_some() => "its making was cut off".to_owned(),
        Some(stand_in) => format!("replaces {stand_in}"),
        None if slot.failures > 0 => format!("the slot has no engine, failure {} came before", slot.failures),
        None => "the slot has no engine".to_owned(),
    };
    let labels = EngineLabels::new(&draft.desired.cluster, &slot.key, slot.incarnation, &configuration);
    let config = labels.config.clone();
    let mut chain = Vec::new();
    if engine.permit.is_none() {
        chain.push(decide(engine, Action::CreatePermit { uid: None }, because.clone()));
    }
    let launch = Action::CreateEngine(Box::new(Launch { labels, configuration, nodes, node_selector }));
    chain.push(decide(engine, launch, because));
    let recorded = engine.record.and_then(|record| record.uid.as_ref());
    if recorded.is_none() {
        chain.push(decide(engine, Action::RecordUid { uid: None, config }, "it was created"));
    }
    if recorded.is_none() || engine.permit.is_none_or(|permit| permit.uid.as_ref() != recorded) {
        chain.push(decide(engine, Action::WritePermitUid { uid: None }, "it may register from now on"));
    }
    draft.push(Stage::Create, chain);
}

/// The uid is recorded and no list has it.
fn missing(draft: &mut Draft<'_>, engine: &Engine<'_>, uid: &str) {
    if !draft.vanished(engine, uid) {
        return draft.wait(engine, "is not in the list of engines and not known to have vanished".to_owned(), None);
    }
    let reason = "it vanished: the orchestrator has no such engine any more";
    draft.reasons.insert(engine.name.clone(), reason.to_owned());
    let end = Action::RecordEnd { reason: reason.to_owned(), log_tail: None };
    let mut chain = vec![decide(engine, end, "no pod or process of its uid exists")];
    chain.extend(ending::withdraw_dead(engine));
    draft.push(Stage::Clear, chain);
}

/// It ended, or somebody deletes it.
fn ended(draft: &mut Draft<'_>, engine: &Engine<'_>, pod: &Pod, recorded: bool) {
    let mut chain = Vec::new();
    if !recorded {
        chain.push(record_uid(engine, pod, "it ended before its uid was recorded"));
    }
    chain.extend(ending::record_end(engine, pod));
    chain.extend(ending::clear_pod(engine, pod));
    chain.extend(ending::delete_permit(engine, "its engine is no more"));
    draft.reasons.insert(engine.name.clone(), ending::how_it_ended(pod));
    draft.push(Stage::Clear, chain);
}

/// Its end is recorded: what is left of it goes, and after the back-off the slot gets another.
fn after_end(draft: &mut Draft<'_>, engine: &Engine<'_>, slot: &Slot, record: &EngineRecord, ended_at_ms: i64) {
    let mut chain = Vec::new();
    match engine.pod {
        Some(pod) if !pod.is_alive() => {
            chain.extend(ending::clear_pod(engine, pod));
            chain.extend(ending::delete_permit(engine, "its engine is no more"));
        }
        Some(_) => {}
        None => chain.extend(ending::withdraw_dead(engine)),
    }
    draft.push(Stage::Clear, chain);
    let how = record.ended_reason.as_deref().unwrap_or("no reason is known");
    let back_off = backoff::after_end(slot, record, ended_at_ms);
    if draft.desired.snapshot.now_ms >= back_off.until_ms {
        return renew(draft, engine, slot, back_off.failures, format!("the present engine ended: {how}"));
    }
    // A clock that was set back must not hold a slot for longer than the longest back-off.
    if back_off.until_ms - draft.desired.snapshot.now_ms > BACK_OFF_MOST_MS {
        return renew(draft, engine, slot, back_off.failures, format!("the present engine ended: {how}"));
    }
    let count = back_off.failures.max(1);
    let reason = format!("starts again {} s after failure {count}: {how}", back_off.delay_ms / 1_000);
    draft.wait(engine, reason, Some(back_off.until_ms));
}

fn keep_or_renew<'a>(draft: &mut Draft<'a>, engine: &Engine<'_>, slot: &'a Slot, pod: &Pod, around: Around<'_>) {
    let mut chain = keep(engine, pod);
    if engine.record.is_none_or(|record| record.uid.is_none()) {
        draft.undone(engine, format!("the uid of engine {} is not recorded", engine.name));
    }
    if let Some(reason) = replaced_because(draft, engine, slot, pod) {
        draft.reasons.insert(engine.name.clone(), reason.clone());
        draft.undone(engine, reason.clone());
        chain.retain(|decision| matches!(decision.action, Action::RecordUid { .. }));
        let action = Action::DrawIncarnation { observed: slot.incarnation, failures: slot.failures };
        chain.push(decide(engine, action, reason));
        return draft.push(Stage::Renew, chain);
    }
    if pod.incomplete {
        return create(draft, engine, slot, around);
    }
    let unregistered = unregistered::of(draft, engine, slot, pod);
    if let Some(reason) = unregistered.as_ref().and_then(|it| it.replace_because.as_ref()) {
        let failures = unregistered.as_ref().map_or(slot.failures, |it| it.failures);
        chain.retain(|decision| matches!(decision.action, Action::RecordUid { .. }));
        let action = Action::DrawIncarnation { observed: slot.incarnation, failures };
        chain.push(decide(engine, action, reason.clone()));
        draft.reasons.insert(engine.name.clone(), reason.clone());
        return draft.push(Stage::Renew, chain);
    }
    draft.push(Stage::Keep, chain);
    if !engine.is_ready() {
        let (state, until_ms) = unregistered.map_or((None, None), |it| (it.shown, it.until_ms));
        let reason = match (&pod.reason, pod.phase, state) {
            (Some(reason), _, Some(state)) => format!("{state}: {reason}"),
            (None, _, Some(state)) => state,
            (Some(reason), ..) => reason.clone(),
            (None, Phase::Pending, _) => "waits for a place to run".to_owned(),
            (None, ..) => "is not registered yet".to_owned(),
        };
        draft.wait(engine, after_failures(reason, engine, slot), until_ms);
    }
}

/// The reason, with which attempt of its slot the engine is and how the one before it failed.
fn after_failures(reason: String, engine: &Engine<'_>, slot: &Slot) -> String {
    let failures = slot.failures;
    if failures == 0 {
        return reason;
    }
    let before = engine.record.and_then(|record| record.failure_before.as_deref());
    let before = before.map(|how| format!("; failure {failures}: {how}")).unwrap_or_default();
    format!("{reason}, attempt {}{before}", failures.saturating_add(1))
}

/// Why an engine that runs is not the one that the slot wants, although it is the present one.
fn replaced_because<'a>(draft: &mut Draft<'a>, engine: &Engine<'_>, slot: &'a Slot, pod: &Pod) -> Option<String> {
    let linked = draft.linked(slot);
    let agrees = linked.labels.as_ref()?.matches(&pod.labels, &engine.name, &slot.key, slot.incarnation);
    let place = linked.place.clone();
    if !agrees {
        return Some(match EngineLabels::decode(&pod.labels) {
            Err(error) => format!("outdated: {error}"),
            Ok(_) => "outdated: its labels are not what its slot says".to_owned(),
        });
    }
    let node = pod.node.as_ref()?;
    let is_left = place?.is_left_by(node, draft.observed);
    is_left.then(|| format!("node \"{node}\" left resource pool \"{}\"", slot.key.pool))
}

/// What an engine that is kept needs: its uid recorded, and a permit with it.
pub(crate) fn keep(engine: &Engine<'_>, pod: &Pod) -> Vec<Decision> {
    let mut chain = Vec::new();
    if engine.record.is_none_or(|record| record.uid.is_none()) {
        chain.push(record_uid(engine, pod, "adopted: it runs under a name that was issued and no uid is recorded"));
    }
    let uid = || Some(pod.uid.clone());
    match engine.permit {
        None => {
            chain.push(decide(engine, Action::CreatePermit { uid: uid() }, "an engine that stays has a permit"));
        }
        Some(permit) if !permit.readable => {
            // A registration below it goes along: no proxy takes it for one, and its agent registers again.
            chain.push(decide(engine, Action::DeletePermit, "its permit can't be read and is made anew"));
        }
        Some(permit) if permit.uid.as_ref() != Some(&pod.uid) => {
            chain.push(decide(engine, Action::WritePermitUid { uid: uid() }, "it may register from now on"));
        }
        Some(_) => {}
    }
    chain
}

fn record_uid(engine: &Engine<'_>, pod: &Pod, because: &str) -> Decision {
    let config = pod.labels.get(CONFIG).cloned().unwrap_or_default();
    decide(engine, Action::RecordUid { uid: Some(pod.uid.clone()), config }, because)
}
