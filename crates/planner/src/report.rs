//! What SHOW is to know: one row for each engine that is seen or wished for.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::observation::{
    MAX_DETAIL_BYTES, MAX_DETAILS, MAX_LOG_TAIL_BYTES, MAX_REASON_BYTES, ObservedEngine, cut, tail,
};
use model::table_catalog::{self, TableCatalog};

use crate::census::{Census, Engine};
use crate::observed::{Live, Pod};
use crate::standing::{self, Standing};

/// The rows, in the order of names. Names whose slot nobody knows, neither the table nor labels, have none.
pub(crate) fn rows(
    census: &Census<'_>,
    standings: &[Standing<'_>],
    reasons: &BTreeMap<EngineName, String>,
) -> Vec<Arc<ObservedEngine>> {
    let of_slots = census.engines.iter().zip(standings).filter(|(engine, _)| engine.slot.is_some());
    let reported = of_slots.filter_map(|(engine, standing)| {
        let is_present = matches!(standing, Standing::Present(_));
        let pod = engine.pod.or(engine.strays.first().copied().filter(|_| !is_present));
        (is_present || pod.is_some()).then(|| Arc::new(row(engine, pod, reasons.get(&engine.name))))
    });
    reported.collect()
}

fn row(engine: &Engine<'_>, pod: Option<&Pod>, reason: Option<&String>) -> ObservedEngine {
    let uid = pod.map(|pod| pod.uid.clone());
    let live = engine.live.filter(|live| live.uid.is_some() && live.uid == uid);
    let draining = uid.as_ref().is_some_and(|uid| engine.fact_of(uid).is_some());
    let status = engine.status.filter(|_| pod.is_some_and(Pod::is_alive));
    ObservedEngine {
        name: engine.name.clone(),
        phase: pod.map_or(Phase::Pending, |pod| pod.phase),
        reason: reason.map(|reason| cut(reason, MAX_REASON_BYTES).to_owned()),
        node: pod.and_then(|pod| pod.node.clone()),
        address: live.map(|live| live.address.clone()),
        registered: live.is_some(),
        answered: !standing::never_answered(engine),
        draining,
        sessions: status.map(|status| status.sessions),
        running: status.map(|status| status.running),
        started_at_ms: pod.and_then(|pod| pod.started_at_ms),
        log_tail: pod.and_then(|pod| pod.log_tail.as_ref()).map(|log| tail(log, MAX_LOG_TAIL_BYTES).to_owned()),
        labels: pod.map(|pod| Arc::clone(&pod.labels)).unwrap_or_default(),
        details: pod.map(|pod| details(pod, live)).unwrap_or_default(),
        uid,
    }
}

/// Further facts that the orchestrator knows, within the limits of a row, and that an engine's tables are its own, if it states
/// that.
fn details(pod: &Pod, live: Option<&Live>) -> Arc<BTreeMap<String, String>> {
    if live.is_some_and(|live| live.catalog == Some(TableCatalog::Own)) {
        let mut own = Arc::unwrap_or_clone(cut_details(pod));
        own.insert(table_catalog::DETAIL.to_owned(), table_catalog::OWN_DETAIL.to_owned());
        return Arc::new(own);
    }
    cut_details(pod)
}

fn cut_details(pod: &Pod) -> Arc<BTreeMap<String, String>> {
    let fits = |text: &String| text.len() <= MAX_DETAIL_BYTES;
    if pod.details.len() <= MAX_DETAILS && pod.details.iter().all(|(key, value)| fits(key) && fits(value)) {
        return Arc::clone(&pod.details);
    }
    let cut_both = |(key, value): (&String, &String)| {
        (cut(key, MAX_DETAIL_BYTES).to_owned(), cut(value, MAX_DETAIL_BYTES).to_owned())
    };
    Arc::new(pod.details.iter().take(MAX_DETAILS).map(cut_both).collect())
}
