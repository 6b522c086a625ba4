//! The plan for a slot's current engine: create it, keep it, or draw a new incarnation for the slot.

use model::end::{EndClass, EndWord};
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::labels::{CONFIG, OWNER};
use model::millis;
use model::owner::Owner;
use model::slot::{Replacement, Slot};
use model::snapshot::EngineRecord;

use crate::admission;
use crate::backoff;
use crate::builder::{Candidate, Granted, PlanBuilder, decide};
use crate::creation;
use crate::decision::{Action, Decision, Stage};
use crate::end_class;
use crate::inventory::Engine;
use crate::limits::BACK_OFF_MOST;
use crate::observed::{Instance, Permit};
use crate::reservations;
use crate::teardown;
use crate::turns;
use crate::unreachable::OnFailedNode;
use crate::unregistered;

/// Why an engine can never be created whose charge no reservation can have.
const TOO_LARGE: &str = "cannot start: it is larger than any reservation";

/// `stand_in` is the older engine that serves until the current one is registered, or until the slot's turn IN PLACE.
pub(crate) fn plan<'a>(
    builder: &mut PlanBuilder<'a>,
    engine: &Engine<'_>,
    slot: &'a Slot,
    stand_in: Option<&Engine<'_>>,
) {
    if let Some(reason) = condemned(engine) {
        builder.add_pending(engine, format!("engine {} was condemned", engine.name));
        return renew(builder, engine, slot, slot.failures, reason);
    }
    let record = engine.record;
    if let Some((record, ended_at_ms)) = record.and_then(|record| Some((record, record.ended_at_ms?))) {
        return after_end(builder, engine, slot, record, ended_at_ms);
    }
    match (engine.instance, record.and_then(|record| record.uid.as_deref())) {
        (None, None) => create(builder, engine, slot, stand_in),
        (None, Some(uid)) => missing(builder, engine, uid),
        (Some(instance), _) if instance.is_alive() => keep_or_renew(builder, engine, slot, instance, stand_in),
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
    renew_after(builder, engine, draw(engine, slot, failures), reason);
}

fn renew_after(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>, draw: Action, reason: String) {
    builder.reasons.insert(engine.name.clone(), reason.clone());
    builder.push(Stage::Renew, vec![decide(engine, draw, reason)]);
}

fn draw(engine: &Engine<'_>, slot: &Slot, failures: u32) -> Action {
    draw_after(engine, slot, failures, None)
}

/// `ends`: how the current engine ends, unless it is superseded or has ended.
fn draw_after(engine: &Engine<'_>, slot: &Slot, failures: u32, ends: Option<EndClass>) -> Action {
    let replacement = slot.next_replacement(engine.has_registered());
    Action::DrawIncarnation { observed: slot.incarnation, failures, replacement, ends }
}

/// Creates permit and instance and records the uid, for a slot without an engine or one with an interrupted create. Without a
/// reservation the engine is a candidate: the chain follows if its reservation is granted.
fn create(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>, slot: &Slot, stand_in: Option<&Engine<'_>>) {
    if engine.instance.is_none()
        && let Some((word, reason)) = reservations::used_up(builder, engine)
    {
        builder.add_pending(engine, reason.clone());
        let draw = draw_after(engine, slot, slot.failures, Some(EndClass::of_start(word, None)));
        return renew_after(builder, engine, draw, reason);
    }
    if builder.turns.is_waiting(&slot.key) {
        return builder.wait(engine, turns::reason(builder.desired, &slot.key), None);
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
    if slot.replacement == Replacement::InPlace && engine.instances().next().is_none() {
        let left = builder.successions.get(&slot.key).and_then(|succession| succession.left.clone());
        if let Some(left) = left {
            let served = stand_in.filter(|stand_in| !builder.failed_nodes.is_unreachable(stand_in));
            return wait_for_older(builder, engine, slot, served, &left);
        }
    }
    let stand_in = stand_in.map(|stand_in| stand_in.name.clone());
    if engine.charged().is_some() {
        let chain = creation::chain(builder, engine, slot, stand_in.as_ref(), configuration);
        builder.wait_for_create(engine, state, until_ms);
        return builder.push(Stage::Create, chain);
    }
    if engine.instances().next().is_some() {
        // It exists, so it is adopted, not admitted.
        return builder.wait_for_create(engine, "waits until its reservation is adopted".to_owned(), None);
    }
    let succession = builder.successions.get(&slot.key).filter(|succession| succession.left.is_none());
    let predecessor = succession.and_then(|succession| succession.predecessor);
    let Some(request) = admission::request(builder.desired, slot, &engine.name, predecessor) else {
        return builder.queue(engine, TOO_LARGE.to_owned(), None);
    };
    let granted = Granted::Create { stand_in };
    builder.candidates.push(Candidate { engine: engine.name.clone(), request, granted, state, until_ms });
}

/// IN PLACE: the engine is created when nothing is left of the older ones. An older one that serves is drained in the slot's
/// turn, and only if all that the engine needs in addition would be granted now.
fn wait_for_older(
    builder: &mut PlanBuilder<'_>,
    engine: &Engine<'_>,
    slot: &Slot,
    stand_in: Option<&Engine<'_>>,
    left: &EngineName,
) {
    let state = format!("waits until engine {left}, which it replaces in place, is gone");
    if stand_in.is_some() && !builder.observed.registry_complete {
        // A drain order may have been lost with ZooKeeper's data: then the first to take their turn are engines that are not
        // registered.
        let reason = "waits for its turn: it is not known yet which engines are registered";
        return builder.wait(engine, reason.to_owned(), None);
    }
    if engine.charged().is_some() {
        if stand_in.is_some() {
            builder.taking_turn.insert(slot.key.clone());
        }
        return builder.wait(engine, state, None);
    }
    let succession = builder.successions.get(&slot.key);
    let Some(request) = admission::request_of_successor(builder.desired, slot, &engine.name, succession) else {
        return builder.queue(engine, TOO_LARGE.to_owned(), None);
    };
    let granted = match stand_in {
        Some(stand_in) => Granted::Turn { is_served: stand_in.is_registered() },
        None => Granted::Keep,
    };
    builder.candidates.push(Candidate { engine: engine.name.clone(), request, granted, state, until_ms: None });
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
    let class = end_class::class(engine, None);
    let end = Action::RecordEnd { reason: reason.to_owned(), class, log_tail: None };
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
    stand_in: Option<&Engine<'_>>,
) {
    let chain = keep(engine, instance, slot, builder.desired.sessions(&slot.key));
    if engine.record.is_none_or(|record| record.uid.is_none()) {
        builder.add_pending(engine, format!("the uid of engine {} is not recorded", engine.name));
    }
    let on_failed_node = builder.failed_nodes.assess(engine);
    if let Some(reason) = on_failed_node.filter(OnFailedNode::is_unreachable).map(|on| on.reason()) {
        // It is no failure of the engine. IN PLACE would wait for the end of its instance.
        let (failures, replacement) = (slot.failures, Replacement::StandIn);
        let word = EndWord::NodeLost;
        let ends = Some(if engine.has_registered() { EndClass::of(word) } else { EndClass::of_start(word, None) });
        let action = Action::DrawIncarnation { observed: slot.incarnation, failures, replacement, ends };
        return replace(builder, engine, chain, action, reason);
    }
    if let Some(reason) = replaced_because(builder, engine, slot, instance) {
        builder.add_pending(engine, reason.clone());
        return replace(builder, engine, chain, draw(engine, slot, slot.failures), reason);
    }
    if let Some(reason) = reservations::unregistered_too_long(builder, engine, instance) {
        let failures = slot.failures.saturating_add(1);
        let ends = EndClass::of_start(EndWord::StartTimeout, instance.fault);
        return replace(builder, engine, chain, draw_after(engine, slot, failures, Some(ends)), reason);
    }
    if instance.incomplete {
        return create(builder, engine, slot, stand_in);
    }
    let unregistered = unregistered::assess(builder, engine, slot, instance);
    if let Some(reason) = unregistered.as_ref().and_then(|assessment| assessment.replace_because.as_ref()) {
        let failures = unregistered.as_ref().map_or(slot.failures, |assessment| assessment.failures);
        let ends = end_class::unregistered(engine, instance);
        return replace(builder, engine, chain, draw_after(engine, slot, failures, Some(ends)), reason.clone());
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
        let reason = on_failed_node.map_or(reason.clone(), |on| format!("{}; {reason}", on.shown()));
        let left = on_failed_node.and_then(|on| on.left);
        let unreachable_ms = left.map(|left| builder.desired.snapshot.now_ms.saturating_add(millis::ceil(left)));
        let until_ms = earliest(earliest(until_ms, unreachable_ms), reservations::deadline_ms(engine));
        builder.wait(engine, after_failures(reason, engine, slot), until_ms);
    }
}

/// Gives the slot of a running engine another one. Of what would complete this one, only its uid is still recorded.
fn replace(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>, mut chain: Vec<Decision>, draw: Action, reason: String) {
    builder.reasons.insert(engine.name.clone(), reason.clone());
    chain.retain(|decision| matches!(decision.action, Action::RecordUid { .. }));
    chain.push(decide(engine, draw, reason));
    builder.push(Stage::Renew, chain);
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
    let labels = group.labels.as_ref()?;
    let owner = slot.owner.as_ref();
    let agrees = labels.matches(&instance.labels, &engine.name, &slot.key, slot.incarnation, owner);
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

/// A running engine has an owner that is not known any more.
struct UnknownOwner;

/// The owner of a running engine of the slot, by its label. A stand-in may have the one that the slot had before.
fn owner_of(instance: &Instance, slot: &Slot) -> Result<Option<Owner>, UnknownOwner> {
    let Some(label) = instance.labels.get(OWNER) else { return Ok(None) };
    let user = slot.started_for.as_ref().map(|started_for| Owner::User(started_for.user.clone()));
    let owner = slot.owner.clone().into_iter().chain(user).find(|owner| owner.label() == *label);
    owner.map(Some).ok_or(UnknownOwner)
}

/// Completes an engine that is kept: a recorded uid, and a permit with it, with its owner and with the number of sessions.
pub(crate) fn keep(engine: &Engine<'_>, instance: &Instance, slot: &Slot, sessions: Option<u32>) -> Vec<Decision> {
    let mut chain = Vec::new();
    if engine.record.is_none_or(|record| record.uid.is_none()) {
        chain.push(record_uid(
            engine,
            instance,
            "adopted: it runs under a name that was issued and no uid is recorded",
        ));
    }
    let (uid, owner) = (Some(instance.uid.clone()), owner_of(instance, slot).ok());
    match engine.permit {
        // Without a permit it ends by itself. With another owner's it would serve sessions of that one.
        None => chain.extend(owner.map(|owner| {
            let permit = Action::CreatePermit { uid, sessions, owner };
            decide(engine, permit, "an engine that stays has a permit")
        })),
        Some(permit) if !permit.readable => {
            // Also deletes a registration below it: proxies ignore that one, and its agent registers again.
            chain.push(decide(engine, Action::DeletePermit, "its permit cannot be read and is created again"));
        }
        Some(Permit { owner: Some(written), .. }) if owner.as_ref().is_some_and(|owner| owner != written) => {
            chain.push(decide(engine, Action::DeletePermit, "its permit names another owner and is created again"));
        }
        Some(permit) if permit.uid != uid => {
            let owner = permit.owner.clone().or(owner).flatten();
            chain.push(decide(engine, Action::WritePermitUid { uid, sessions, owner }, "allows it to register"));
        }
        Some(permit) if permit.sessions.is_some_and(|written| written != sessions) => {
            let because = "SESSIONS_PER_ENGINE has changed";
            chain.push(decide(engine, Action::WritePermitSessions { sessions }, because));
        }
        Some(_) => {}
    }
    chain
}

fn record_uid(engine: &Engine<'_>, instance: &Instance, because: &str) -> Decision {
    let config = instance.labels.get(CONFIG).cloned().unwrap_or_default();
    decide(engine, Action::RecordUid { uid: Some(instance.uid.clone()), config }, because)
}
