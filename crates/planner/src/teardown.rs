//! Teardown: the plan for engines that no slot wants, and for their leftovers.

use std::time::Duration;

use model::engine_state::Phase;
use model::labels::NAMESPACE;

use crate::builder::{PlanBuilder, decide};
use crate::decision::{Action, Decision, Stage};
use crate::desired::DesiredState;
use crate::end_class;
use crate::inventory::Engine;
use crate::limits::{DELETE_AFTER_GRACE, DELETE_GRACE};
use crate::observed::{DrainOrder, Instance, ObservedState};
use crate::role::Termination;

/// Drains a condemned engine, and deletes it when its grace is over, or at once if it is incomplete.
pub(crate) fn condemned(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>, termination: &Termination) {
    let Some(instance) = engine.alive() else { return };
    end_instance(builder, engine, instance, termination, true);
}

/// Drains other instances with the name of an engine, one at a time. They are not registered, so the engine itself comes
/// first.
pub(crate) fn strays(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>) {
    let termination = Termination {
        reason: "its name belongs to an engine with another uid".to_owned(),
        grace: builder.desired.limits.grace(None),
        successor: None,
    };
    for instance in &engine.strays {
        if instance.is_alive() {
            let owns_permit = engine.permit.is_some_and(|permit| permit.uid.as_deref() == Some(&instance.uid));
            end_instance(builder, engine, instance, &termination, owns_permit);
        } else {
            builder.push(Stage::Clear, clear_instance(engine, instance).into_iter().collect());
        }
    }
}

fn end_instance(
    builder: &mut PlanBuilder<'_>,
    engine: &Engine<'_>,
    instance: &Instance,
    termination: &Termination,
    withdraw: bool,
) {
    let Some(drain) = engine.drain else {
        let action = Action::Drain {
            uid: instance.uid.clone(),
            grace: termination.grace,
            withdraw,
            successor: termination.successor.clone(),
            namespace: instance.labels.get(NAMESPACE).cloned(),
        };
        builder.add_pending(engine, format!("engine {} is to drain: {}", engine.name, termination.reason));
        if !builder.drain(engine, action, &termination.reason) {
            return wait_for_other_drain(builder, engine);
        }
        builder.reasons.entry(engine.name.clone()).or_insert_with(|| termination.reason.clone());
        return;
    };
    if drain.uid.as_deref() != Some(&instance.uid) {
        builder.add_pending(engine, format!("engine {} is to drain: {}", engine.name, termination.reason));
        return wait_for_other_drain(builder, engine);
    }
    if withdraw {
        // In its own chain: leftovers below the permit may prevent its deletion, but not that of the engine.
        builder.push(Stage::Clear, delete_permit(engine, "its engine is draining").into_iter().collect());
    }
    if instance.incomplete {
        // Nothing of it runs, so nothing would follow the order; a deposed master may have made it late.
        let action = Action::DeleteEngine { uid: instance.uid.clone(), grace: Duration::ZERO };
        builder.push(Stage::Clear, vec![decide(engine, action, "it was never completed")]);
    } else if drain.age >= drain.grace.saturating_add(DELETE_AFTER_GRACE) {
        let action = Action::DeleteEngine { uid: instance.uid.clone(), grace: DELETE_GRACE };
        builder.push(Stage::Clear, vec![decide(engine, action, "its grace is over and it still runs")]);
    } else {
        builder.reasons.entry(engine.name.clone()).or_insert_with(|| drain.reason.clone());
    }
}

/// A name has one drain order, so its instances drain one at a time.
fn wait_for_other_drain(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>) {
    builder.wait(engine, "waits until the drain order of another engine with its name is removed".to_owned(), None);
}

/// Removes the leftovers of an engine that is no slot's current one and does not run.
pub(crate) fn gone(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>) {
    let mut chain = Vec::new();
    match engine.instance {
        Some(instance) => {
            if instance.phase == Phase::Ended {
                chain.extend(record_end(engine, instance));
            }
            chain.extend(clear_instance(engine, instance));
            chain.extend(delete_permit(engine, "its engine no longer exists"));
            builder.reasons.insert(engine.name.clone(), end_reason(instance));
        }
        None => match engine.record.and_then(|record| record.uid.as_deref()) {
            Some(uid) if !builder.has_vanished(engine, uid) => {
                builder.wait(
                    engine,
                    "is not listed by the orchestrator and not known to have vanished".to_owned(),
                    None,
                );
            }
            recorded => {
                chain.extend(record_absence(engine, recorded.is_some()));
                chain.extend(delete_unregistered_permit(engine));
            }
        },
    }
    builder.push(Stage::Clear, chain);
}

/// Removes a registration whose uid has had no instance for longer than a dead session's registration lasts. If this plan
/// drains an instance with the name, the registration is removed together with the permit.
pub(crate) fn orphaned_registration(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>) {
    let Some(registration) = engine.registration else { return };
    let claimed = engine.instances().any(|instance| registration.uid.as_deref() == Some(&instance.uid));
    if claimed || registration.unclaimed < builder.desired.limits.session_timeout || !builder.observed.registry_complete
    {
        return;
    }
    let reason = "it is registered and no instance with its uid exists";
    match &registration.uid {
        Some(uid) if engine.drain.is_none() => {
            let grace = builder.desired.limits.grace(engine.record.and_then(|record| record.end_grace_ms));
            let (uid, successor, namespace) = (uid.clone(), None, None);
            builder.drain(engine, Action::Drain { uid, grace, withdraw: true, successor, namespace }, reason);
        }
        _ if builder.is_draining(engine) => {}
        // Unreadable, or already under a drain order: all that can be done is to delete its permit.
        _ => builder.push(Stage::Drain, vec![decide(engine, Action::DeletePermit, reason)]),
    }
}

/// Removes a drain order that is unreadable or whose engine is gone.
pub(crate) fn obsolete_drain(builder: &mut PlanBuilder<'_>, engine: &Engine<'_>) {
    let Some(drain) = engine.drain else { return };
    let reason = match &drain.uid {
        None => "it cannot be read",
        Some(uid) => {
            let there = engine.instances().any(|instance| instance.uid == *uid);
            let registered = engine.registration.is_some_and(|registration| registration.uid.as_ref() == Some(uid));
            let quiet = is_quiet(builder.desired, builder.observed, drain);
            if there || registered || !quiet || !builder.has_vanished(engine, uid) {
                return;
            }
            "its engine is gone"
        }
    };
    builder.push(Stage::Clear, vec![decide(engine, Action::RemoveDrainOrder, reason)]);
}

/// Whether the order's engine has not been seen for longer than a dead session's registration lasts.
pub(crate) fn is_quiet(desired: &DesiredState, observed: &ObservedState, drain: &DrainOrder) -> bool {
    observed.registry_complete && drain.quiet >= desired.limits.session_timeout
}

/// Records the end of an ended instance, unless that is recorded or its name was never issued.
pub(crate) fn record_end(engine: &Engine<'_>, instance: &Instance) -> Option<Decision> {
    engine.record.filter(|record| record.ended_at_ms.is_none())?;
    let reason = end_reason(instance);
    let verb = if instance.phase == Phase::Ended { "ended" } else { "is being deleted" };
    let because = format!("it {verb}: {reason}");
    let (class, log_tail) = (end_class::class(engine, Some(instance)), instance.log_tail.clone());
    let reason = match (end_class::order(engine, class, &instance.uid), instance.fault) {
        (Some(order), Some(_)) => format!("{order}; {reason}"),
        (Some(order), None) => order.to_owned(),
        (None, _) => reason,
    };
    Some(decide(engine, Action::RecordEnd { reason, class, log_tail }, because))
}

fn record_absence(engine: &Engine<'_>, had_uid: bool) -> Option<Decision> {
    let record = engine.record.filter(|record| record.ended_at_ms.is_none())?;
    let (reason, because) = if had_uid {
        ("ended", "no instance with its uid exists")
    } else {
        ("superseded before it was created", "it was never created and is no longer desired")
    };
    let class = end_class::class(engine, None);
    let order = record.uid.as_ref().and_then(|uid| end_class::order(engine, class, uid));
    let reason = order.unwrap_or(reason).to_owned();
    Some(decide(engine, Action::RecordEnd { reason, class, log_tail: None }, because))
}

/// Deletes an ended instance; one that is already being deleted has its own grace.
pub(crate) fn clear_instance(engine: &Engine<'_>, instance: &Instance) -> Option<Decision> {
    let action = Action::DeleteEngine { uid: instance.uid.clone(), grace: Duration::ZERO };
    (instance.phase == Phase::Ended).then(|| decide(engine, action, "it ended"))
}

/// Deletes the permit of an engine that does not run, with what a dead session left below it.
pub(crate) fn delete_permit(engine: &Engine<'_>, because: &str) -> Option<Decision> {
    engine.permit.map(|_| decide(engine, Action::DeletePermit, because))
}

/// Deletes the permit of an engine without an instance, unless an engine is registered below it: that one may run where
/// the orchestrator cannot see it, and is drained once that is certain.
pub(crate) fn delete_unregistered_permit(engine: &Engine<'_>) -> Option<Decision> {
    if engine.registration.is_some() {
        return None;
    }
    delete_permit(engine, "its engine no longer exists")
}

/// How an instance that no longer serves ended.
pub(crate) fn end_reason(instance: &Instance) -> String {
    match (&instance.reason, instance.phase) {
        (Some(reason), Phase::Ended) => reason.clone(),
        (None, Phase::Ended) => "unknown reason".to_owned(),
        (Some(reason), _) => format!("it was deleted externally: {reason}"),
        (None, _) => "it was deleted externally".to_owned(),
    }
}
