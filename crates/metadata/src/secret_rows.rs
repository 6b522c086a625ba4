//! Backfill: records which properties of the stored units are secret, and seals their values.
//!
//! It runs whenever a store is opened, because it needs keys, which a migration does not have, and after that whenever keys are
//! replaced and once a minute ([`Store::seal_secrets`]): a metadata agent that has an older key file, or is of an earlier version, may
//! still write values in clear or seal them with a generation that is to be retired. Running again changes nothing.
//!
//! - Units that were written before schema version 6, or by an agent of such a version, have no record of their secret properties.
//!   Running engines keep their labels, which still match (`Configuration::unmasked`); new engines have labels of masked
//!   values. The unit's generation is raised.
//! - Values in clear, and those that were sealed with a generation before the one in use, are sealed with the generation in use.
//!   That changes no configuration, so the unit's generation stays, and a statement that alters the unit meanwhile does not fail.
//!
//! Values that cannot be opened stay as they are and are reported.

use std::collections::BTreeSet;

use model::catalog::{Catalog, UnitSpec};
use model::change::Rules;
use model::name::UnitName;
use model::sealing::{ClosedProperty, has_clear};

use crate::backend::{Backend, Mode};
use crate::error::Error;
use crate::failpoints::{MIGRATE_AFTER, MIGRATE_BEFORE};
use crate::read;
use crate::rows::to_json;
use crate::sql;
use crate::store::Store;
use crate::transaction::{CommitPoints, Done, Transaction, args};

const POINTS: CommitPoints = CommitPoints { before: MIGRATE_BEFORE, after: MIGRATE_AFTER };

/// What a run has done, and what it could not do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SealedSecrets {
    /// The units whose secret properties were recorded.
    pub recorded: BTreeSet<UnitName>,
    /// The units whose values were sealed.
    pub sealed: BTreeSet<UnitName>,
    /// The values that cannot be opened with the keys of this agent.
    pub closed: Vec<ClosedProperty>,
    /// Whether one of the sealed values was in clear.
    in_clear: bool,
}

/// What is to be done for one unit.
struct Due {
    unit: UnitName,
    /// With the values in clear.
    spec: UnitSpec,
    records: bool,
    seals: bool,
    in_clear: bool,
}

/// What is to be done for the units of a catalog as it is stored.
fn due(stored: &Catalog, rules: &Rules) -> (Vec<Due>, Vec<ClosedProperty>) {
    let (mut due, mut closed) = (Vec::new(), Vec::new());
    for (name, unit) in &stored.units {
        let mut spec = unit.spec.clone();
        closed.extend(rules.sealing.open(name, &mut spec));
        let records = spec.secrets.is_none();
        if records {
            spec = rules.with_fingerprint(name, Some(&unit.spec), spec);
        }
        let records = records && spec.secrets.is_some();
        let as_stored = UnitSpec { secrets: spec.secrets.clone(), ..unit.spec.clone() };
        let seals = rules.sealing.is_due(&as_stored);
        let in_clear = seals && has_clear(&as_stored);
        if records || seals {
            due.push(Due { unit: name.clone(), spec, records, seals, in_clear });
        }
    }
    (due, closed)
}

impl Store {
    /// Records and seals the secret properties of all units.
    pub async fn seal_secrets(&self) -> Result<SealedSecrets, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let stored = read::catalog(&mut tx).await;
        let (all, closed) = due(&tx.leave(stored).await?, self.rules());
        if all.is_empty() {
            return Ok(SealedSecrets { closed, ..SealedSecrets::default() });
        }
        let mut tx = self.begin(Mode::Write).await?;
        let result = write(&mut tx, self.rules()).await;
        let done = tx.end(POINTS, result).await?;
        let names = |units: &BTreeSet<UnitName>| units.iter().map(UnitName::as_str).collect::<Vec<_>>().join(", ");
        if !done.recorded.is_empty() {
            tracing::info!(units = names(&done.recorded), "secret properties of units recorded");
        }
        if !done.sealed.is_empty() {
            let generation = self.rules().sealing.in_use().map(|generation| generation.0);
            tracing::info!(units = names(&done.sealed), generation, "secret properties of units sealed");
        }
        if done.in_clear && self.backend() == Backend::Sqlite {
            // The file is what is copied for a backup, and its free pages have the values as they were.
            if let Err(error) = self.rewrite_file().await {
                tracing::warn!(%error, "the database file could not be rewritten; its free pages may have secret properties in clear");
            }
        }
        Ok(done)
    }
}

async fn write(tx: &mut Transaction, rules: &Rules) -> Result<Done<SealedSecrets>, Error> {
    tx.lock_catalog().await?;
    let stored = read::catalog(tx).await?;
    let (all, closed) = due(&stored, rules);
    let mut done = SealedSecrets { closed, ..SealedSecrets::default() };
    let recorded = all.iter().any(|due| due.records);
    let drawn = if recorded { Some(tx.lock_catalog_and_draw().await?.last) } else { None };
    for Due { unit, spec, records, seals, in_clear } in all {
        let before = stored.units.get(&unit).map(|unit| unit.generation).unwrap_or_default();
        let after = drawn.filter(|_| records).unwrap_or(before);
        let row = to_json(&rules.sealing.seal(&unit, &spec).map_err(Error::Refused)?)?;
        tx.execute(sql::UNIT_UPDATE, args![row, after, unit.as_str(), before]).await?;
        done.in_clear |= in_clear;
        if records {
            done.recorded.insert(unit.clone());
        }
        if seals {
            done.sealed.insert(unit);
        }
    }
    Ok(if done.recorded.is_empty() && done.sealed.is_empty() { Done::Same(done) } else { Done::Write(done) })
}
