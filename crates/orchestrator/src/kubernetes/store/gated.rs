//! Pods behind their scheduling gate, and for how long they have been there.

use std::time::Duration;

use model::millis;
use model::shared::Shared;

use super::{Entry, Store};
use crate::ObservedInstance;
use crate::kubernetes::read::EnginePod;

/// How long a pod may stay behind its scheduling gate before it counts as ended. Measured on our own clock from the first
/// listing of the gated pod, because the API server's clock may differ; a new master starts the measurement again.
pub const GATE_DEADLINE: Duration = Duration::from_mins(2);

impl Entry {
    /// The engine as it is listed now.
    pub(super) fn as_gated(&mut self, engine: &EnginePod, now: Duration, now_ms: i64) -> Shared<ObservedInstance> {
        if !engine.observed.incomplete {
            self.gated_since = None;
            return engine.listed(None);
        }
        let gated_for = now.saturating_sub(*self.gated_since.get_or_insert(now));
        let overdue = gated_for.checked_sub(GATE_DEADLINE);
        engine.listed(overdue.map(|overdue| now_ms.saturating_sub(millis::from_duration(overdue))))
    }
}

impl Store {
    /// A pod that was read singly, as a listing shows it.
    pub(in crate::kubernetes) fn listed(
        &self,
        engine: &EnginePod,
        now: Duration,
        now_ms: i64,
    ) -> Shared<ObservedInstance> {
        let mut inner = self.lock();
        let key = (engine.observed.name.to_string(), engine.namespace.clone());
        let entry = inner.entries.get_mut(&key);
        let observed = match entry.filter(|entry| entry.has_uid(&engine.observed.uid)) {
            Some(entry) => entry.as_gated(engine, now, now_ms),
            None => engine.listed(None),
        };
        inner.executors.by_engine().complete(observed, &engine.namespace)
    }
}
