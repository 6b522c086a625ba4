//! Tombstones: the uids of deleted pods, so that a late event does not restore one.

use std::collections::{HashMap, VecDeque};

/// The limit of tombstones; the oldest are dropped first.
const MAX_TOMBSTONES: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Tombstones {
    /// With the resource version of the delete event; `None` if the server itself reported that the uid does not exist.
    by_uid: HashMap<String, Option<u64>>,
    in_order: VecDeque<String>,
}

impl Tombstones {
    pub(super) fn add(&mut self, uid: &str, version: Option<u64>) {
        if self.by_uid.insert(uid.to_owned(), version).is_none() {
            self.in_order.push_back(uid.to_owned());
            if self.in_order.len() > MAX_TOMBSTONES
                && let Some(oldest) = self.in_order.pop_front()
            {
                self.by_uid.remove(&oldest);
            }
        }
    }

    /// Whether this version of the pod is from before its deletion. A newer version than that of a delete event is not: the
    /// pod had only left the watch's selector.
    pub(super) fn cover(&self, uid: &str, version: Option<u64>) -> bool {
        match (self.by_uid.get(uid), version) {
            (None, _) => false,
            (Some(Some(deleted_at)), Some(version)) => version <= *deleted_at,
            (Some(_), _) => true,
        }
    }
}
