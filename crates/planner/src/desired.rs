//! What should run: one snapshot of the database with what the installation's configuration adds to it.

use model::catalog::PoolSpec;
use model::configuration::{Configuration, Defaults};
use model::slot::SlotKey;
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
        Configuration::from_slot(&self.snapshot.catalog, key, &self.defaults)
    }

    /// The slot's pool.
    pub fn pool(&self, key: &SlotKey) -> Option<&PoolSpec> {
        self.snapshot.catalog.pool(&key.pool)
    }

    /// Why no engine can be made in the slot's pool; `None` where one can.
    pub fn lacks_nodes(&self, key: &SlotKey) -> Option<&'static str> {
        self.pool(key)?.lacks_nodes(self.defaults.needs_nodes)
    }
}
