//! The rows for SHOW: one for each desired or observed engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::observation::{MAX_DETAIL_BYTES, MAX_DETAILS, MAX_LOG_TAIL_BYTES, MAX_REASON_BYTES, ObservedEngine};
use model::table_catalog::{self, TableCatalog};
use model::text::{cut, tail};

use crate::inventory::{Engine, Inventory};
use crate::observed::{Instance, Registration};
use crate::role::{self, Role};

/// The rows, in the order of names. Engines whose slot is unknown (neither in the table nor in their labels) get no row.
pub(crate) fn rows(
    inventory: &Inventory<'_>,
    roles: &[Role<'_>],
    reasons: &BTreeMap<EngineName, String>,
) -> Vec<Arc<ObservedEngine>> {
    let of_slots = inventory.engines.iter().zip(roles).filter(|(engine, _)| engine.slot.is_some());
    let reported = of_slots.filter_map(|(engine, role)| {
        let is_current = matches!(role, Role::Current(_));
        let instance = engine.instance.or(engine.strays.first().copied().filter(|_| !is_current));
        (is_current || instance.is_some()).then(|| Arc::new(row(engine, instance, reasons.get(&engine.name))))
    });
    reported.collect()
}

fn row(engine: &Engine<'_>, instance: Option<&Instance>, reason: Option<&String>) -> ObservedEngine {
    let uid = instance.map(|instance| instance.uid.clone());
    let registration = engine.registration.filter(|registration| registration.uid.is_some() && registration.uid == uid);
    let draining = uid.as_ref().is_some_and(|uid| engine.drain_of(uid).is_some());
    let load = engine.load.filter(|_| instance.is_some_and(Instance::is_alive));
    ObservedEngine {
        name: engine.name.clone(),
        phase: instance.map_or(Phase::Pending, |instance| instance.phase),
        reason: reason.map(|reason| cut(reason, MAX_REASON_BYTES).to_owned()),
        node: instance.and_then(|instance| instance.node.clone()),
        address: registration.map(|registration| registration.address.clone()),
        registered: registration.is_some(),
        answered: !role::never_registered(engine),
        draining,
        sessions: load.map(|load| load.sessions),
        running: load.map(|load| load.running),
        // The publisher adds both: they change with time.
        idle_since_ms: None,
        stateful: None,
        started_at_ms: instance.and_then(|instance| instance.started_at_ms),
        log_tail: instance
            .and_then(|instance| instance.log_tail.as_ref())
            .map(|log| tail(log, MAX_LOG_TAIL_BYTES).to_owned()),
        labels: instance.map(|instance| Arc::clone(&instance.labels)).unwrap_or_default(),
        details: instance.map(|instance| details(instance, registration)).unwrap_or_default(),
        uid,
    }
}

/// The orchestrator's details within the limits of a row, with one for an engine that states that its tables are its own.
fn details(instance: &Instance, registration: Option<&Registration>) -> Arc<BTreeMap<String, String>> {
    if registration.is_some_and(|registration| registration.catalog == Some(TableCatalog::Own)) {
        let mut own = Arc::unwrap_or_clone(cut_details(instance));
        own.insert(table_catalog::DETAIL.to_owned(), table_catalog::OWN_DETAIL.to_owned());
        return Arc::new(own);
    }
    cut_details(instance)
}

fn cut_details(instance: &Instance) -> Arc<BTreeMap<String, String>> {
    let fits = |text: &String| text.len() <= MAX_DETAIL_BYTES;
    if instance.details.len() <= MAX_DETAILS && instance.details.iter().all(|(key, value)| fits(key) && fits(value)) {
        return Arc::clone(&instance.details);
    }
    let cut_both = |(key, value): (&String, &String)| {
        (cut(key, MAX_DETAIL_BYTES).to_owned(), cut(value, MAX_DETAIL_BYTES).to_owned())
    };
    Arc::new(instance.details.iter().take(MAX_DETAILS).map(cut_both).collect())
}
