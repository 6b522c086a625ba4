//! How secret properties are stored, for a diagnosis: it needs no key and reads no value.

use std::collections::{BTreeMap, BTreeSet};

use model::catalog::UnitSpec;
use model::key_generation::KeyGeneration;
use model::name::UnitName;
use model::sealed::SealedValue;
use model::sealing::has_clear;

use crate::backend::Mode;
use crate::error::Error;
use crate::read;
use crate::store::Store;

/// The units with secret properties, by how their values are stored. A unit may be in several sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredSecrets {
    /// Those with a value in clear.
    pub in_clear: BTreeSet<UnitName>,
    /// Those with a value that is sealed with the generation.
    pub sealed: BTreeMap<KeyGeneration, BTreeSet<UnitName>>,
}

impl StoredSecrets {
    /// Adds a unit as its row has it.
    pub(crate) fn add(&mut self, name: &UnitName, stored: &UnitSpec) {
        if has_clear(stored) {
            self.in_clear.insert(name.clone());
        }
        for sealed in stored.properties.values().filter_map(|value| SealedValue::parse(value)) {
            self.sealed.entry(sealed.generation).or_default().insert(name.clone());
        }
    }
}

impl Store {
    /// How the secret properties of all units are stored.
    pub async fn stored_secrets(&self) -> Result<StoredSecrets, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let catalog = read::catalog(&mut tx).await;
        let mut found = StoredSecrets::default();
        for (name, unit) in &tx.leave(catalog).await?.units {
            found.add(name, &unit.spec);
        }
        Ok(found)
    }
}
