//! The plan for a slot's current engine: create it, keep it, or draw a new incarnation for the slot.

use model::charge::Charge;
use model::configuration::Configuration;
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::labels::CONFIG;
use model::millis;
use model::slot::Slot;
use model::snapshot::EngineRecord;

use crate::admission;
use crate::backoff;
use crate::builder::{Candidate, PlanBuilder, decide};
use crate::decision::{Action, Decision, DesiredEngine, Stage};
use crate::inventory::Engine;
use crate::limits::BACK_OFF_MOST;
use crate::observed::Instance;
use crate::reservations;
use crate::teardown;
use crate::unregistered;

/// The slot's context in the plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotContext<'a> {
    /// The engine that serves until the current one is registered.
    pub stand_in: Option<&'a EngineName>,
    /// Whether other slots of the (tenant, pool, unit) are replaced first.
    pub waits_for_turn: bool,
}

pub(crate) fn plan<'a>(builder: &mut PlanBuilder<'a>, engine: &Engine<'_>, slot: &'a Slot, context: SlotContext<'_>) {
    if let Some(reason) = condemned(engine) {
        builder.add_pending(engine, format!("engine {} was condemned", engine.name));
        return renew(builder, engine, slot, slot.failures, reason);
    }
    let record = engine.record;
    if let Some((record, ended_at_ms)) = record.and_then(|record| Some((record, record.ended_at_ms?))) {
        return after_end(builder, engine, slot, record, ended_at_ms);
    }
    match (engine.instance, record.and_then(|record| record.uid.as_deref())) {
        (None, None) => create(builder, engine, slot, context),
        (None, Some(uid)) => missing(builder, engine, uid),
        (Some(instance), _) if instance.is_alive() => keep_or_renew(builder, engine, slot, instance, context),
        (Some(instance), recorded) => ended(builder, engine, instance, recorded.is_some()),
    }
}

/// Why the slot's current engine is terminating although the slot wants it.
fn condemned(engine: &Engine<'_>) -> Option<String> {
    if let Some(reason) = engine.record.and_then(|record| record.end_reason.as_ref()) {
        return Some(format!("the current engine was condemned: {reason}"));
    }
    // Without a known uid, a drain order with the name can only be for this engine.
    let drain = match engine.uid() {
        Some(uid) => engine.drain_of(uid),
        None => engine.drain.filter(|drain| drain.uid.is_some()),
    };
    drain.map(|drain| format!("the current engine was condemned: {}", drain.reason))
}

fn renew(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>, slot: &Slot, failures: u32, reason: String) {
    builder.reasons.insert(engine.name.clone(), reason.clone());
    let action = Action::DrawIncarnation { observed: slot.incarnation, failures };
    builder.push(Stage::Renew, vec![decide(engine, action, reason)]);
}

/// Creates permit and instance and records the uid, for a slot without an engine or one with an interrupted create. Without a
/// reservation the engine is a candidate: the chain follows if its reservation is granted.
fn create(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>, slot: &Slot, context: SlotContext<'_>) {
    if engine.instance.is_none()
        && let Some(reason) = reservations::used_up(builder, engine)
    {
        builder.add_pending(engine, reason.clone());
        return renew(builder, engine, slot, slot.failures, reason);
    }
    if context.waits_for_turn {
        let reason = format!(
            "waits for its turn: engines of unit \"{}\" are replaced {} at a time",
            slot.key.unit, builder.desired.limits.surge
        );
        return builder.wait(engine, reason, None);
    }
    let Some(configuration) = builder.desired.configuration(&slot.key) else {
        return builder.wait_for_create(engine, "the catalog has no such unit or pool".to_owned(), None);
    };
    if let Some(why) = builder.desired.lacks_nodes(&slot.key) {
        // No alteration waits for it: only another alteration can give the pool nodes.
        return builder.wait(engine, format!("resource pool \"{}\" has no nodes: {why}", slot.key.pool), None);
    }
    let failure = builder.observed.create_failures.get(&engine.name);
    let (state, until_ms) = match failure {
        Some(failure) => {
            let due_ms = builder.desired.snapshot.now_ms.saturating_add(millis::ceil(failure.retry_in));
            let state = format!("could not be created, failure {}: {}", failure.failures, failure.reason);
            (state, earliest(Some(due_ms), reservations::deadline_ms(engine)))
        }
        None => ("is being created".to_owned(), None),
    };
    if failure.is_some_and(|failure| !failure.retry_in.is_zero()) {
        return builder.wait_for_create(engine, state, until_ms);
    }
    let chain = create_chain(builder, engine, slot, context, configuration);
    if engine.charged().is_some() {
        builder.wait_for_create(engine, state, until_ms);
        return builder.push(Stage::Create, chain);
    }
    if engine.instances().next().is_some() {
        // It exists, so it is adopted, not admitted.
        return builder.wait_for_create(engine, "waits until its reservation is adopted".to_owned(), None);
    }
    let Some(request) = admission::request(builder.desired, slot) else {
        return builder.queue(engine, "cannot start: it is larger than any reservation".to_owned(), None);
    };
    builder.candidates.push(Candidate { engine: engine.name.clone(), request, chain, state, until_ms });
}

/// The decisions that create the engine.
fn create_chain(
    builder: &PlanBuilder<'_>,
    engine: &Engine<'_>,
    slot: &Slot,
    context: SlotContext<'_>,
    configuration: Configuration,
) -> Vec<Decision> {
    let because = match context.stand_in {
        _ if engine.instance.is_some() => "its creation was interrupted".to_owned(),
        Some(stand_in) => format!("replaces {stand_in}"),
        None if slot.failures > 0 => format!("the slot has no engine after failure {}", slot.failures),
        None => "the slot has no engine".to_owned(),
    };
    let pool = builder.desired.pool(&slot.key);
    let nodes = pool.and_then(|pool| pool.nodes.clone());
    let node_selector = pool.map(|pool| pool.node_selector.clone()).unwrap_or_default();
    let labels = EngineLabels::new(&builder.desired.cluster, &slot.key, slot.incarnation, &configuration);
    let config = labels.config.clone();
    let mut chain = Vec::new();
    if engine.permit.is_none() {
        chain.push(decide(engine, Action::CreatePermit { uid: None }, because.clone()));
    }
    let charge = Charge::new(&configuration, builder.desired.defaults.instances);
    let desired = Action::CreateEngine(Box::new(DesiredEngine { labels, configuration, charge, nodes, node_selector }));
    chain.push(decide(engine, desired, because));
    let recorded = engine.record.and_then(|record| record.uid.as_ref());
    if recorded.is_none() {
        chain.push(decide(engine, Action::RecordUid { uid: None, config }, "it was created"));
    }
    if recorded.is_none() || engine.permit.is_none_or(|permit| permit.uid.as_ref() != recorded) {
        chain.push(decide(engine, Action::WritePermitUid { uid: None }, "allows it to register"));
    }
    chain
}

/// The earlier of two times of which each may be missing.
fn earliest(one_ms: Option<i64>, other_ms: Option<i64>) -> Option<i64> {
    one_ms.into_iter().chain(other_ms).min()
}

/// The uid is recorded, and no list has it.
fn missing(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>, uid: &str) {
    if !builder.has_vanished(engine, uid) {
        return builder.wait(
            engine,
            "is not listed by the orchestrator and not known to have vanished".to_owned(),
            None,
        );
    }
    let reason = "it vanished: the orchestrator no longer has it";
    builder.reasons.insert(engine.name.clone(), reason.to_owned());
    let end = Action::RecordEnd { reason: reason.to_owned(), log_tail: None };
    let mut chain = vec![decide(engine, end, "no instance with its uid exists")];
    chain.extend(teardown::delete_unregistered_permit(engine));
    builder.push(Stage::Clear, chain);
}

/// It ended, or is being deleted.
fn ended(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>, instance: &Instance, recorded: bool) {
    let mut chain = Vec::new();
    if !recorded {
        chain.push(record_uid(engine, instance, "it ended before its uid was recorded"));
    }
    chain.extend(teardown::record_end(engine, instance));
    chain.extend(teardown::clear_instance(engine, instance));
    chain.extend(teardown::delete_permit(engine, "its engine no longer exists"));
    builder.reasons.insert(engine.name.clone(), teardown::end_reason(instance));
    builder.push(Stage::Clear, chain);
}

/// Removes the leftovers of an engine whose end is recorded; after the back-off the slot gets another.
fn after_end(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>, slot: &Slot, record: &EngineRecord, ended_at_ms: i64) {
    let mut chain = Vec::new();
    match engine.instance {
        Some(instance) if !instance.is_alive() => {
            chain.extend(teardown::clear_instance(engine, instance));
            chain.extend(teardown::delete_permit(engine, "its engine no longer exists"));
        }
        Some(_) => {}
        None => chain.extend(teardown::delete_unregistered_permit(engine)),
    }
    builder.push(Stage::Clear, chain);
    let how = record.ended_reason.as_deref().unwrap_or("unknown reason");
    let back_off = backoff::after_end(slot, record, ended_at_ms);
    if builder.desired.snapshot.now_ms >= back_off.until_ms {
        return renew(builder, engine, slot, back_off.failures, format!("the current engine ended: {how}"));
    }
    // A clock that was set back must not block a slot for longer than the longest back-off.
    if millis::to_duration(back_off.until_ms - builder.desired.snapshot.now_ms) > BACK_OFF_MOST {
        return renew(builder, engine, slot, back_off.failures, format!("the current engine ended: {how}"));
    }
    let count = back_off.failures.max(1);
    let reason = format!("starts again {} s after failure {count}: {how}", back_off.delay.as_secs());
    builder.wait(engine, reason, Some(back_off.until_ms));
}

fn keep_or_renew<'a>(
    builder: &mut PlanBuilder<'a>,
    engine: &Engine<'_>,
    slot: &'a Slot,
    instance: &Instance,
    context: SlotContext<'_>,
) {
    let mut chain = keep(engine, instance);
    if engine.record.is_none_or(|record| record.uid.is_none()) {
        builder.add_pending(engine, format!("the uid of engine {} is not recorded", engine.name));
    }
    if let Some(reason) = replaced_because(builder, engine, slot, instance) {
        builder.reasons.insert(engine.name.clone(), reason.clone());
        builder.add_pending(engine, reason.clone());
        chain.retain(|decision| matches!(decision.action, Action::RecordUid { .. }));
        let action = Action::DrawIncarnation { observed: slot.incarnation, failures: slot.failures };
        chain.push(decide(engine, action, reason));
        return builder.push(Stage::Renew, chain);
    }
    if let Some(reason) = reservations::unregistered_too_long(builder, engine, instance) {
        builder.reasons.insert(engine.name.clone(), reason.clone());
        chain.retain(|decision| matches!(decision.action, Action::RecordUid { .. }));
        let failures = slot.failures.saturating_add(1);
        chain.push(decide(engine, Action::DrawIncarnation { observed: slot.incarnation, failures }, reason));
        return builder.push(Stage::Renew, chain);
    }
    if instance.incomplete {
        return create(builder, engine, slot, context);
    }
    let unregistered = unregistered::assess(builder, engine, slot, instance);
    if let Some(reason) = unregistered.as_ref().and_then(|assessment| assessment.replace_because.as_ref()) {
        let failures = unregistered.as_ref().map_or(slot.failures, |assessment| assessment.failures);
        chain.retain(|decision| matches!(decision.action, Action::RecordUid { .. }));
        let action = Action::DrawIncarnation { observed: slot.incarnation, failures };
        chain.push(decide(engine, action, reason.clone()));
        builder.reasons.insert(engine.name.clone(), reason.clone());
        return builder.push(Stage::Renew, chain);
    }
    builder.push(Stage::Keep, chain);
    if !engine.is_ready() {
        let (state, until_ms) = unregistered.map_or((None, None), |assessment| (assessment.shown, assessment.until_ms));
        let reason = match (&instance.reason, instance.phase, state) {
            (Some(reason), _, Some(state)) => format!("{state}: {reason}"),
            (None, _, Some(state)) => state,
            (Some(reason), ..) => reason.clone(),
            (None, Phase::Pending, _) => "waits to be scheduled".to_owned(),
            (None, ..) => "is not registered yet".to_owned(),
        };
        let until_ms = earliest(until_ms, reservations::deadline_ms(engine));
        builder.wait(engine, after_failures(reason, engine, slot), until_ms);
    }
}

/// Appends the number of the slot's attempt and how the previous one failed.
fn after_failures(reason: String, engine: &Engine<'_>, slot: &Slot) -> String {
    let failures = slot.failures;
    if failures == 0 {
        return reason;
    }
    let before = engine.record.and_then(|record| record.failure_before.as_deref());
    let before = before.map(|how| format!("; failure {failures}: {how}")).unwrap_or_default();
    format!("{reason}, attempt {}{before}", failures.saturating_add(1))
}

/// Why a running current engine must be replaced.
fn replaced_because<'a>(
    builder: &mut PlanBuilder<'a>,
    engine: &Engine<'_>,
    slot: &'a Slot,
    instance: &Instance,
) -> Option<String> {
    let group = builder.group(slot);
    let agrees = group.labels.as_ref()?.matches(&instance.labels, &engine.name, &slot.key, slot.incarnation);
    let nodes = group.nodes.clone();
    if !agrees {
        return Some(match EngineLabels::decode(&instance.labels) {
            Err(error) => format!("outdated: {error}"),
            Ok(_) => "outdated: its labels differ from those of its slot".to_owned(),
        });
    }
    let node = instance.node.as_ref()?;
    let is_left = nodes?.has_lost(node, builder.observed);
    is_left.then(|| format!("node \"{node}\" left resource pool \"{}\"", slot.key.pool))
}

/// Completes an engine that is kept: a recorded uid, and a permit with it.
pub(crate) fn keep(engine: &Engine<'_>, instance: &Instance) -> Vec<Decision> {
    let mut chain = Vec::new();
    if engine.record.is_none_or(|record| record.uid.is_none()) {
        chain.push(record_uid(
            engine,
            instance,
            "adopted: it runs under a name that was issued and no uid is recorded",
        ));
    }
    let uid = || Some(instance.uid.clone());
    match engine.permit {
        None => {
            chain.push(decide(engine, Action::CreatePermit { uid: uid() }, "an engine that stays has a permit"));
        }
        Some(permit) if !permit.readable => {
            // Also deletes a registration below it: proxies ignore that one, and its agent registers again.
            chain.push(decide(engine, Action::DeletePermit, "its permit cannot be read and is created again"));
        }
        Some(permit) if permit.uid.as_ref() != Some(&instance.uid) => {
            chain.push(decide(engine, Action::WritePermitUid { uid: uid() }, "allows it to register"));
        }
        Some(_) => {}
    }
    chain
}

fn record_uid(engine: &Engine<'_>, instance: &Instance, because: &str) -> Decision {
    let config = instance.labels.get(CONFIG).cloned().unwrap_or_default();
    decide(engine, Action::RecordUid { uid: Some(instance.uid.clone()), config }, because)
}
