//! Reads within a transaction.

use std::collections::{HashMap, HashSet};

use model::alteration::{AlterationRecord, RequestId};
use model::catalog::Catalog;
use model::change::Rules;
use model::engine_name::EngineName;
use model::name::{PoolName, QuotaName, TenantName, UnitName};
use model::number::{Epoch, Generation, Incarnation};
use model::observation::ObservedNode;
use model::slot::{Link, Slot, SlotKey};
use model::snapshot::{EngineRecord, MasterRecord};

use crate::error::Error;
use crate::rows::{self, ObservedRow};
use crate::sql;
use crate::transaction::{Transaction, args};

/// The maximum number of slots for which a snapshot reads how the previous engine ended.
const MAX_FAILURES_BEFORE: u32 = 1_000;

/// The database's clock, and the epoch of the acting master.
pub(crate) async fn now_and_epoch(tx: &mut Transaction) -> Result<(i64, Epoch), Error> {
    let row = tx.row_with_clock(sql::EPOCH_TOO).await?;
    let row = row.ok_or_else(|| Error::Broken("table master has no row".into()))?;
    Ok((rows::int(&row, "now_ms")?, Epoch(rows::int(&row, "epoch")?)))
}

/// All objects, and the counter of the catalog. Secret values are as stored: sealed, or in clear.
pub(crate) async fn catalog(tx: &mut Transaction) -> Result<Catalog, Error> {
    let (mut catalog, mut generation) = (Catalog::default(), None);
    for row in tx.rows(sql::CATALOG_WITH_OBJECTS, args![]).await? {
        match rows::text(&row, "kind")?.as_str() {
            "unit" => catalog.units.extend([rows::object(&row, UnitName::try_from)?]),
            "pool" => catalog.pools.extend([rows::object(&row, PoolName::try_from)?]),
            "tenant" => catalog.tenants.extend([rows::object(&row, TenantName::try_from)?]),
            "quota" => catalog.quotas.extend([rows::object(&row, QuotaName::try_from)?]),
            _ => generation = Some(Generation(rows::int(&row, "generation")?)),
        }
    }
    catalog.generation = generation.ok_or_else(|| Error::Broken("table catalog has no row".into()))?;
    Ok(catalog)
}

/// The same, with the secret values in clear that can be opened.
pub(crate) async fn opened_catalog(tx: &mut Transaction, rules: &Rules) -> Result<Catalog, Error> {
    let mut catalog = catalog(tx).await?;
    rules.sealing.open_all(&mut catalog);
    Ok(catalog)
}

/// All slots, by key. There may be thousands: they are sorted here, because a database compares names by its collation.
pub(crate) async fn slots(tx: &mut Transaction) -> Result<Vec<Slot>, Error> {
    let mut slots = tx.rows(sql::SLOTS, args![]).await?.iter().map(rows::slot).collect::<Result<Vec<_>, _>>()?;
    slots.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    Ok(slots)
}

pub(crate) async fn slots_count(tx: &mut Transaction) -> Result<usize, Error> {
    let row = tx.row(sql::SLOTS_COUNT, args![]).await?;
    let count = row.map(|row| rows::int(&row, "slots")).transpose()?.unwrap_or_default();
    usize::try_from(count).map_err(|error| Error::Broken(error.into()))
}

/// The slots of a (tenant, pool, unit), by ordinal.
pub(crate) async fn slots_of(tx: &mut Transaction, link: &Link) -> Result<Vec<Slot>, Error> {
    let args = args![link.tenant.as_str(), link.pool.as_str(), link.unit.as_str()];
    tx.rows(sql::SLOTS_OF_LINK, args).await?.iter().map(rows::slot).collect()
}

/// The engine with that name; `None` if it was never issued.
pub(crate) async fn engine(tx: &mut Transaction, name: &EngineName) -> Result<Option<EngineRecord>, Error> {
    tx.row(sql::ENGINE, args![name.as_str()]).await?.as_ref().map(rows::engine_with_log).transpose()
}

/// Every engine that has not ended, and the ended ones that are the current engine of one of these slots; all without their logs,
/// by incarnation.
pub(crate) async fn engines(tx: &mut Transaction, slots: &[Slot]) -> Result<Vec<EngineRecord>, Error> {
    let mut engines = tx.rows(sql::ENGINES, args![]).await?.iter().map(rows::engine).collect::<Result<Vec<_>, _>>()?;
    if !have_all_current(&engines, slots) {
        for row in tx.rows(sql::CURRENT_ENGINES_ENDED, args![]).await? {
            engines.push(rows::engine(&row)?);
        }
    }
    engines.sort_unstable_by_key(|engine| engine.incarnation);
    Ok(engines)
}

/// Whether the current engine of every slot is among these, none of which has ended.
fn have_all_current(engines: &[EngineRecord], slots: &[Slot]) -> bool {
    let living: HashSet<Incarnation> = engines.iter().map(|engine| engine.incarnation).collect();
    slots.iter().all(|slot| living.contains(&slot.incarnation))
}

/// Adds to the current engines how the previous engine of their slot ended, for at most [`MAX_FAILURES_BEFORE`] slots with
/// repeated failures.
pub(crate) async fn failures_before(
    tx: &mut Transaction,
    slots: &[Slot],
    engines: &mut [EngineRecord],
) -> Result<(), Error> {
    if slots.iter().all(|slot| slot.failures == 0) {
        return Ok(());
    }
    let mut reasons = HashMap::new();
    for row in tx.rows(sql::FAILURES_BEFORE, args![MAX_FAILURES_BEFORE]).await? {
        reasons.insert(rows::slot_key(&row)?, rows::text(&row, "ended_reason")?);
    }
    let current: HashMap<&SlotKey, Incarnation> = slots.iter().map(|slot| (&slot.key, slot.incarnation)).collect();
    for engine in engines {
        if current.get(&engine.slot) == Some(&engine.incarnation) {
            engine.failure_before = reasons.remove(&engine.slot);
        }
    }
    Ok(())
}

/// The row of the alteration; `None` while it is in doubt.
pub(crate) async fn alteration(tx: &mut Transaction, id: &RequestId) -> Result<Option<AlterationRecord>, Error> {
    tx.row(sql::ALTERATION, args![id.as_str()]).await?.as_ref().map(rows::alteration).transpose()
}

/// The alterations that are converging or stalled.
pub(crate) async fn open_alterations(tx: &mut Transaction) -> Result<Vec<AlterationRecord>, Error> {
    tx.rows(sql::ALTERATIONS_OPEN, args![]).await?.iter().map(rows::alteration).collect()
}

pub(crate) async fn master(tx: &mut Transaction) -> Result<MasterRecord, Error> {
    let row = tx.row(sql::MASTER, args![]).await?;
    rows::master(&row.ok_or_else(|| Error::Broken("table master has no row".into()))?)
}

/// The engines as the master last observed them.
pub(crate) async fn observed(tx: &mut Transaction) -> Result<Vec<ObservedRow>, Error> {
    tx.rows(sql::OBSERVED, args![]).await?.iter().map(rows::observed).collect()
}

/// The nodes as the master last observed them.
pub(crate) async fn nodes(tx: &mut Transaction) -> Result<Vec<ObservedNode>, Error> {
    tx.rows(sql::NODES_OBSERVED, args![]).await?.iter().map(rows::node).collect()
}

/// The recorded namespaces, each with the time at which it was retired.
pub(crate) async fn namespaces(tx: &mut Transaction) -> Result<Vec<(String, Option<i64>)>, Error> {
    let rows = tx.rows(sql::NAMESPACES, args![]).await?;
    rows.iter().map(|row| Ok((rows::text(row, "name")?, rows::int_or_none(row, "retired_at_ms")?))).collect()
}
