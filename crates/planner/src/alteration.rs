//! How far alterations have come.
//!
//! *Converged* never waits for readiness: one image that can't be pulled must not block everybody's statements, and
//! must not end an engine that works.

use model::alteration::{AlterationProgress as Stored, AlterationRecord, ObjectKind, ObjectRef};
use model::number::Generation;
use model::slot::SlotKey;
use model::snapshot::Snapshot;

use crate::decision::{Action, Decision, Progress, Stage};
use crate::draft::{Draft, Undone};

/// Plans the end of each alteration that is due, and says what the first of the others waits for.
pub(crate) fn plan(draft: &mut Draft<'_>) -> Option<String> {
    let snapshot = &draft.desired.snapshot;
    let mut waits_for = None;
    for alteration in &snapshot.alterations {
        if alteration.generation > snapshot.catalog.generation {
            continue;
        }
        let missing = alteration.object.as_ref().and_then(|object| missing(draft, alteration, object));
        let (progress, because) = match (alteration.progress, missing) {
            (Some(Stored::Converging | Stored::Stalled), _) if is_superseded(snapshot, alteration) => {
                (Progress::Superseded, "a newer alteration of the same object took over".to_owned())
            }
            (Some(Stored::Converging | Stored::Stalled), None) => {
                (Progress::Converged, "every engine that it reaches follows it".to_owned())
            }
            (Some(Stored::Converging), Some(reason)) => {
                let age_ms = snapshot.now_ms - alteration.decided_at_ms;
                if age_ms < draft.desired.limits.alter_deadline_ms {
                    waits_for.get_or_insert(format!("alteration {}: {reason}", alteration.id));
                    continue;
                }
                (Progress::Stalled, reason)
            }
            _ => continue,
        };
        let action = Action::Finish { id: alteration.id.clone(), progress };
        draft.push(Stage::Finish, vec![Decision { engine: None, slot: None, because, action }]);
    }
    waits_for
}

/// What the alteration still waits for: a present engine of a slot that it reaches which was not created and does not
/// wait for its turn, or an engine that is still to be told to drain. An engine that was issued after it belongs to
/// somebody else; one that was issued before and is condemned is waited for, even where a row was made at the same
/// place since.
fn missing(draft: &Draft<'_>, alteration: &AlterationRecord, object: &ObjectRef) -> Option<String> {
    let older = |it: &&Undone| it.incarnation.is_none_or(|it| Generation(it.get()) <= alteration.generation);
    let waits_for = draft.undone.iter().filter(|it| reaches(object, &it.slot)).find(older);
    waits_for.map(|it| format!("{}: {}", it.slot, it.what))
}

/// Whether slots and engines of the key are the object's.
fn reaches(object: &ObjectRef, key: &SlotKey) -> bool {
    let name = match object.kind {
        ObjectKind::Tenant => key.tenant.as_str(),
        ObjectKind::ResourcePool => key.pool.as_str(),
        ObjectKind::ResourceUnit => key.unit.as_str(),
    };
    name == object.name
}

/// Whether the object was changed by a newer committed alteration.
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
    };
    listed || changed.is_some_and(|generation| generation > alteration.generation)
}

fn generation_of<N: AsRef<str>, T>(
    objects: &std::collections::BTreeMap<N, model::catalog::Versioned<T>>,
    name: &str,
) -> Option<Generation> {
    objects.iter().find(|(it, _)| it.as_ref() == name).map(|(_, object)| object.generation)
}
