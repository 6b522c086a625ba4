//! The desired state: one snapshot of the database plus the installation's configuration.

use model::catalog::PoolSpec;
use model::configuration::{Configuration, Defaults};
use model::slot::SlotKey;
use model::snapshot::Snapshot;

use crate::limits::Limits;

/// The desired state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DesiredState {
    /// One consistent read of the database.
    pub snapshot: Snapshot,
    /// The installation's name: label `enginehouse.io/cluster`.
    pub cluster: String,
    /// Values for what the catalog does not set.
    pub defaults: Defaults,
    pub limits: Limits,
}

impl DesiredState {
    /// The effective configuration of the slot's engine; `None` if the catalog has no such unit or pool.
    pub fn configuration(&self, key: &SlotKey) -> Option<Configuration> {
        Configuration::from_slot(&self.snapshot.catalog, key, &self.defaults)
    }

    /// The sessions that the slot's engine may have; `None`: as many as its agent accepts.
    pub fn sessions(&self, key: &SlotKey) -> Option<u32> {
        self.snapshot.catalog.unit(&key.unit)?.sessions_per_engine
    }

    /// The slot's pool.
    pub fn pool(&self, key: &SlotKey) -> Option<&PoolSpec> {
        self.snapshot.catalog.pool(&key.pool)
    }

    /// Why no engine can be created in the slot's pool; `None` if one can.
    pub fn lacks_nodes(&self, key: &SlotKey) -> Option<&'static str> {
        self.pool(key)?.lacks_nodes(self.defaults.instances.needs_nodes())
    }
}
