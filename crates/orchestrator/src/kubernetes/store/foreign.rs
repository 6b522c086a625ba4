//! Foreign pods: our labels without our signature. Kept for display, up to a limit.

use std::collections::BTreeMap;

use model::labels::LabelMap;

use super::Key;
use crate::ForeignObject;
use crate::observed::has_labels;

/// The limit of foreign pods that are kept.
pub const MAX_FOREIGN: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct ForeignPods(BTreeMap<Key, (ForeignObject, LabelMap)>);

impl ForeignPods {
    /// Returns whether a listing changed. Above the limit, new ones are dropped.
    pub(super) fn insert(&mut self, key: Key, foreign: ForeignObject, labels: LabelMap) -> bool {
        let known = self.0.get(&key);
        if known.is_none() && self.0.len() >= MAX_FOREIGN {
            return false;
        }
        let changed = known.is_none_or(|(known, before)| *known != foreign || *before != labels);
        self.0.insert(key, (foreign, labels));
        changed
    }

    /// Removes the pod with this uid.
    pub(super) fn remove(&mut self, key: &Key, uid: &str) {
        if self.has(key, uid) {
            self.0.remove(key);
        }
    }

    /// Whether it has the pod with this uid.
    pub(super) fn has(&self, key: &Key, uid: &str) -> bool {
        self.0.get(key).is_some_and(|(foreign, _)| foreign.uid == uid)
    }

    /// Removes the pod, whatever its uid.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    pub(super) fn retain(&mut self, stays: impl Fn(&Key) -> bool) {
        self.0.retain(|key, _| stays(key));
    }

    /// The ones with the selector's labels.
    pub(super) fn list(&self, selector: &LabelMap) -> impl Iterator<Item = ForeignObject> {
        let selected = self.0.values().filter(|(_, labels)| has_labels(labels, selector));
        selected.map(|(foreign, _)| foreign.clone())
    }
}
