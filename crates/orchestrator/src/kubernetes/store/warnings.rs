//! The warnings of the pods in the store, by uid.

use std::collections::{HashMap, HashSet};

use crate::kubernetes::read::{Warning, Warnings};

#[derive(Debug, Default)]
pub(super) struct WarningTable(HashMap<String, Warnings>);

impl WarningTable {
    /// Returns whether it is new.
    pub(super) fn add(&mut self, uid: &str, warning: Warning) -> bool {
        self.0.entry(uid.to_owned()).or_default().add(warning)
    }

    pub(super) fn get(&self, uid: &str) -> &[Warning] {
        self.0.get(uid).map(Warnings::all).unwrap_or_default()
    }

    pub(super) fn remove(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Drops the warnings of all other pods.
    pub(super) fn retain(&mut self, uids: &HashSet<&str>) {
        self.0.retain(|uid, _| uids.contains(uid.as_str()));
    }
}
