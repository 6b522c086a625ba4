//! The rows that SHOW reads, as a master has published them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use foldhash::fast::RandomState;
use model::demand_report::UnmetDemand;
use model::engine_name::EngineName;
use model::observation::{ObservedEngine, Publication};

use crate::mutant::Mutant;

/// The rows that SHOW reads.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    pub engines: HashMap<EngineName, ObservedEngine, RandomState>,
    pub unmet: Vec<UnmetDemand>,
    /// Since when SHOW has had no reason for a session that waits.
    pub unexplained: BTreeMap<u64, Duration>,
}

impl Shown {
    /// Writes a publication, as its transaction does.
    pub fn publish(&mut self, publication: &Publication, mutant: Option<Mutant>) {
        if publication.complete {
            self.engines.retain(|name, _| publication.kept.contains(name));
        }
        for row in &publication.engines {
            self.engines.insert(row.name.clone(), row.clone());
        }
        for name in &publication.gone {
            self.engines.remove(name);
        }
        if let Some(unmet) = publication.unmet.as_ref().filter(|_| mutant != Some(Mutant::ReasonsNotShown)) {
            self.unmet.clone_from(unmet);
        }
    }

    /// Whether the row of an engine shows why it is not ready, or that it starts.
    pub fn explains(&self, engine: &EngineName) -> bool {
        let row = self.engines.get(engine);
        row.is_some_and(|row| {
            row.registered || row.uid.is_some() || row.reason.as_ref().is_some_and(|why| !why.is_empty())
        })
    }
}
