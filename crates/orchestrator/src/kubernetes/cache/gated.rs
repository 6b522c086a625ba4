//! Pods behind their scheduling gate, and for how long they have been there.

use std::time::Duration;

use super::{Cache, Entry};
use crate::Observed;
use crate::kubernetes::read::Seen;

/// How long a pod may stand behind its gate before it counts as ended. It is counted on our own clock from when this cache
/// first listed the pod so, because the API server's clock may be another; a new master counts again.
pub const GATE_PATIENCE: Duration = Duration::from_mins(2);

impl Entry {
    /// The engine as it is listed now.
    pub(super) fn listed(&mut self, seen: &Seen, now: Duration, now_ms: i64) -> Observed {
        if !seen.observed.incomplete {
            self.gated_since = None;
            return seen.listed(None);
        }
        let gated_for = now.saturating_sub(*self.gated_since.get_or_insert(now));
        let too_long = gated_for.checked_sub(GATE_PATIENCE);
        seen.listed(too_long.map(|past| now_ms.saturating_sub(i64::try_from(past.as_millis()).unwrap_or(i64::MAX))))
    }
}

impl Cache {
    /// What was read of a single pod, as a listing shows it.
    pub(in crate::kubernetes) fn listed(&self, seen: &Seen, now: Duration, now_ms: i64) -> Observed {
        let mut inner = self.lock();
        let key = (seen.observed.name.to_string(), seen.namespace.clone());
        let entry = inner.entries.get_mut(&key);
        match entry.filter(|it| it.pod.metadata.uid.as_deref() == Some(&seen.observed.uid)) {
            Some(entry) => entry.listed(seen, now, now_ms),
            None => seen.listed(None),
        }
    }
}
