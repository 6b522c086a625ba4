//! What should run: one snapshot of the database with what the installation's configuration adds to it.

use std::collections::BTreeMap;

use model::configuration::{Configuration, Defaults};
use model::slot::{Slot, SlotKey};
use model::snapshot::Snapshot;

use crate::limits::Limits;

/// The desired state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired {
    /// One consistent reading of the database.
    pub snapshot: Snapshot,
    /// The installation's name: label `enginehouse.io/cluster`.
    pub cluster: String,
    /// What holds where the catalog says nothing.
    pub defaults: Defaults,
    /// The limits of plans.
    pub limits: Limits,
}

impl Desired {
    /// The effective configuration of the slot's engine; `None` if the catalog lacks its unit or pool.
    pub fn configuration(&self, key: &SlotKey) -> Option<Configuration> {
        Configuration::of_slot(&self.snapshot.catalog, key, &self.defaults)
    }

    /// The nodes of the slot's pool; `None` is any.
    pub fn nodes(&self, key: &SlotKey) -> Option<&[String]> {
        self.snapshot.catalog.pool(&key.pool)?.nodes.as_deref()
    }

    pub(crate) fn slots(&self) -> BTreeMap<&SlotKey, &Slot> {
        self.snapshot.slots.iter().map(|slot| (&slot.key, slot)).collect()
    }
}
