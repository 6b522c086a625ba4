//! The degraded plan: for a master whose orchestrator does not return a list of engines.
//!
//! It creates and terminates nothing, because it cannot see what exists. Only alterations make progress: one that affects
//! no slot and no engine converges, and one that is past its deadline stalls, so that an unavailable orchestrator blocks
//! the next statement no longer than that. What stalls here converges in a later plan that sees engines. A stale snapshot
//! does no harm: the database compares the plan's generation and its own clock.

use std::collections::HashSet;

use model::engine_name::EngineName;
use model::shared::Shared;
use model::snapshot::EngineRecord;

use crate::alteration;
use crate::builder::{PendingWork, PlanBuilder};
use crate::desired::DesiredState;
use crate::inventory::Inventory;
use crate::link_cache::LabelCache;
use crate::observed::ObservedState;
use crate::plan::Plan;
use crate::report;
use crate::role;

/// The plan while the list of engines is unavailable for this reason. It has rows only for engines without a recorded uid:
/// nothing new is known about the others.
pub fn plan_without_engines(desired: &DesiredState, reason: &str) -> Plan {
    let observed = ObservedState::default();
    let mut labels = LabelCache::default();
    let mut builder = PlanBuilder::new(desired, &observed, &mut labels);
    let snapshot = &desired.snapshot;
    // Whatever an alteration affects may be what it waits for.
    let running = snapshot.engines.iter().filter(|engine| engine.ended_at_ms.is_none());
    let running = running.map(|engine| (&engine.slot, engine.incarnation));
    let affected = snapshot.slots.iter().map(|slot| (&slot.key, slot.incarnation)).chain(running);
    builder.pending.extend(affected.map(|(slot, incarnation)| {
        let what = reason.to_owned();
        PendingWork { slot: slot.clone(), incarnation: Some(incarnation), what }
    }));
    let waits_for = alteration::plan(&mut builder);
    let inventory = Inventory::join(desired, &observed, None);
    let current = inventory.slots.iter().map(|(_, at)| inventory.engines[*at].name.clone());
    builder.reasons.extend(current.map(|name| (name, reason.to_owned())));
    let roles = role::classify_all(desired, &inventory);
    let mut rows = report::rows(&inventory, &roles, &builder.reasons);
    let was_created = |record: &&Shared<EngineRecord>| record.uid.is_some() || record.ended_at_ms.is_some();
    let created: HashSet<&EngineName> =
        snapshot.engines.iter().filter(was_created).map(|record| &record.name).collect();
    rows.retain(|row| !created.contains(&row.name));
    Plan {
        generation: snapshot.catalog.generation,
        chains: builder.chains,
        waits: Vec::new(),
        rows,
        waits_for,
        suspended: None,
        queued: None,
        ..Plan::default()
    }
}
