//! The progress of alterations.
//!
//! *Converged* never waits for readiness: one image that cannot be pulled must not block all other statements, and must not
//! terminate an engine that works.

use model::alteration::{AlterationProgress, AlterationRecord, ObjectKind, ObjectRef};
use model::millis;
use model::number::Generation;
use model::slot::SlotKey;
use model::snapshot::Snapshot;

use crate::builder::{PendingWork, PlanBuilder};
use crate::decision::{Action, Decision, Stage, Transition};

/// Plans every transition that is due; returns what the first other alteration waits for.
pub(crate) fn plan(builder: &mut PlanBuilder<'_>) -> Option<String> {
    let snapshot = &builder.desired.snapshot;
    let mut waits_for = None;
    for alteration in &snapshot.alterations {
        if alteration.generation > snapshot.catalog.generation {
            continue;
        }
        let missing = alteration.object.as_ref().and_then(|object| missing(builder, alteration, object));
        let (transition, reason) = match (alteration.progress, missing) {
            (Some(AlterationProgress::Converging | AlterationProgress::Stalled), _)
                if is_superseded(snapshot, alteration) =>
            {
                (Transition::Superseded, "a newer alteration of the same object was committed".to_owned())
            }
            (Some(AlterationProgress::Converging | AlterationProgress::Stalled), None) => {
                (Transition::Converged, "all affected engines are current".to_owned())
            }
            (Some(AlterationProgress::Converging), Some(reason)) => {
                let age = millis::to_duration(snapshot.now_ms - alteration.decided_at_ms);
                if age < builder.desired.limits.alter_deadline {
                    waits_for.get_or_insert(format!("alteration {}: {reason}", alteration.id));
                    continue;
                }
                (Transition::Stalled, reason)
            }
            _ => continue,
        };
        let action = Action::Finish { id: alteration.id.clone(), transition };
        builder.push(Stage::Finish, vec![Decision { engine: None, slot: None, reason, action }]);
    }
    waits_for
}

/// What the alteration still waits for: the current engine of an affected slot that was not created and does not wait for
/// its turn, or an engine without its drain order. An engine that was issued later belongs to another alteration; a
/// condemned one that was issued earlier is waited for, even if its slot has been created again since.
fn missing(builder: &PlanBuilder<'_>, alteration: &AlterationRecord, object: &ObjectRef) -> Option<String> {
    let older = |work: &&PendingWork| {
        work.incarnation.is_none_or(|incarnation| Generation(incarnation.get()) <= alteration.generation)
    };
    let waits_for = builder.pending.iter().filter(|work| affects(object, &work.slot)).find(older);
    waits_for.map(|work| format!("{}: {}", work.slot, work.what))
}

/// Whether slots and engines with this key belong to the object.
fn affects(object: &ObjectRef, key: &SlotKey) -> bool {
    let name = match object.kind {
        ObjectKind::Tenant => key.tenant.as_str(),
        ObjectKind::ResourcePool => key.pool.as_str(),
        ObjectKind::ResourceUnit => key.unit.as_str(),
        // A quota changes no slot.
        ObjectKind::ResourceQuota => return false,
    };
    name == object.name
}

/// Whether a newer committed alteration has changed the object.
fn is_superseded(snapshot: &Snapshot, alteration: &AlterationRecord) -> bool {
    let Some(object) = &alteration.object else { return false };
    let listed = snapshot
        .alterations
        .iter()
        .any(|other| other.object.as_ref() == Some(object) && other.generation > alteration.generation);
    let catalog = &snapshot.catalog;
    let changed = match object.kind {
        ObjectKind::Tenant => generation_of(&catalog.tenants, &object.name),
        ObjectKind::ResourcePool => generation_of(&catalog.pools, &object.name),
        ObjectKind::ResourceUnit => generation_of(&catalog.units, &object.name),
        ObjectKind::ResourceQuota => generation_of(&catalog.quotas, &object.name),
    };
    listed || changed.is_some_and(|generation| generation > alteration.generation)
}

fn generation_of<N: AsRef<str>, T>(
    objects: &std::collections::BTreeMap<N, model::catalog::Versioned<T>>,
    name: &str,
) -> Option<Generation> {
    objects.iter().find(|(known, _)| known.as_ref() == name).map(|(_, object)| object.generation)
}
