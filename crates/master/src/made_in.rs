//! In which namespace an engine was made, where what is stored tells it.
//!
//! The record of an engine has the hash of the configuration that it was made from, and the namespace is part of that. While
//! the slot's configuration still has that hash, its namespace is the engine's. After a change of the pool or the unit nothing is
//! known here any more, and the orchestrator looks wherever engines can be.

use std::collections::HashMap;

use model::engine_name::EngineName;
use model::snapshot::EngineRecord;
use planner::DesiredState;

/// The engines of one snapshot.
#[derive(Debug)]
pub(crate) struct MadeIn<'a> {
    desired: &'a DesiredState,
    records: HashMap<&'a EngineName, &'a EngineRecord>,
}

impl<'a> MadeIn<'a> {
    pub fn new(desired: &'a DesiredState) -> Self {
        Self { desired, records: desired.snapshot.engines.iter().map(|record| (&record.name, record)).collect() }
    }

    pub fn of(&self, engine: &EngineName) -> Option<String> {
        let record = self.records.get(engine)?;
        let configuration = self.desired.configuration(&record.slot)?;
        configuration.has_hash(&record.config).then_some(configuration.namespace)
    }
}
