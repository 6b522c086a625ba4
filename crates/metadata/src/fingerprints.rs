//! Backfill: records which properties are secret for units that were written before schema version 6.
//!
//! It runs whenever a store is opened, because it needs a key, which a migration does not have. Units without
//! secrets are not changed. Running engines keep their labels, which still match (`Configuration::unmasked`); new engines have
//! labels of masked values. An ALTER of the unit by a metadata agent of an older version removes the record; the next store
//! that is opened writes it again.

use std::collections::BTreeSet;

use model::catalog::{Catalog, UnitSpec};
use model::change::Rules;
use model::name::UnitName;

use crate::backend::Mode;
use crate::error::Error;
use crate::failpoints::{MIGRATE_AFTER, MIGRATE_BEFORE};
use crate::read;
use crate::rows::to_json;
use crate::sql;
use crate::store::Store;
use crate::transaction::{CommitPoints, Done, Transaction, args};

const POINTS: CommitPoints = CommitPoints { before: MIGRATE_BEFORE, after: MIGRATE_AFTER };

/// The units with secret properties and without a record, with the record added.
fn missing(catalog: &Catalog, rules: &Rules) -> Vec<(UnitName, UnitSpec)> {
    let without = catalog.units.iter().filter(|(_, unit)| unit.spec.secrets.is_none());
    let with =
        without.map(|(name, unit)| (name.clone(), rules.with_fingerprint(name, Some(&unit.spec), unit.spec.clone())));
    with.filter(|(_, spec)| spec.secrets.is_some()).collect()
}

/// Writes the missing records.
pub(crate) async fn record(store: &Store) -> Result<(), Error> {
    if missing(&store.catalog().await?, store.rules()).is_empty() {
        return Ok(());
    }
    let mut tx = store.begin(Mode::Write).await?;
    let result = write(&mut tx, store.rules()).await;
    let recorded = tx.end(POINTS, result).await?;
    let units: Vec<&str> = recorded.iter().map(UnitName::as_str).collect();
    tracing::info!(units = units.join(", "), "secret properties of units recorded");
    Ok(())
}

async fn write(tx: &mut Transaction, rules: &Rules) -> Result<Done<BTreeSet<UnitName>>, Error> {
    let generation = tx.lock_catalog_and_draw().await?.last;
    let catalog = read::catalog(tx).await?;
    let mut recorded = BTreeSet::new();
    for (name, spec) in missing(&catalog, rules) {
        let before = catalog.units.get(&name).map(|unit| unit.generation).unwrap_or_default();
        tx.execute(sql::UNIT_UPDATE, args![to_json(&spec)?, generation, name.as_str(), before]).await?;
        recorded.insert(name);
    }
    Ok(if recorded.is_empty() { Done::Same(recorded) } else { Done::Write(recorded) })
}
