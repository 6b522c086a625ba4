//! The history of engines: rows of table `engine` that have ended, newest first, until they are
//! [deleted](crate::ENGINE_KEEP).

use model::history::EndedRecord;
use model::name::{PoolName, TenantName, UnitName};
use model::owner::Owner;
use model::slot::Origin;
use sqlx::any::AnyRow;

use crate::backend::Mode;
use crate::error::Error;
use crate::rows;
use crate::sql;
use crate::store::Store;
use crate::transaction::{Transaction, args};

/// The maximum number of rows that [`Store::engine_history`] returns.
pub const MAX_HISTORY: u32 = 10_000;

/// Which engines to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryFilter {
    pub tenant: TenantName,
    pub pool: Option<PoolName>,
    pub unit: Option<UnitName>,
    /// At most [`MAX_HISTORY`].
    pub limit: u32,
}

impl Store {
    /// The engines that ended last, newest first.
    pub async fn engine_history(&self, filter: &HistoryFilter) -> Result<Vec<EndedRecord>, Error> {
        let mut tx = self.begin(Mode::Snapshot).await?;
        let records = read(&mut tx, filter).await;
        tx.leave(records).await
    }
}

async fn read(tx: &mut Transaction, filter: &HistoryFilter) -> Result<Vec<EndedRecord>, Error> {
    let HistoryFilter { tenant, pool, unit, limit } = filter;
    let (mut text, mut values) = (sql::ENGINES_ENDED_OF.to_owned(), args![tenant.as_str()]);
    if let Some(pool) = pool {
        text.push_str(" AND pool = ?");
        values.push(pool.as_str().into());
    }
    if let Some(unit) = unit {
        text.push_str(" AND unit = ?");
        values.push(unit.as_str().into());
    }
    text.push_str(" ORDER BY ended_at_ms DESC, incarnation DESC LIMIT ?");
    values.push((*limit).min(MAX_HISTORY).into());
    tx.rows_once(text, values).await?.iter().map(decode).collect()
}

fn decode(row: &AnyRow) -> Result<EndedRecord, Error> {
    let (cpu, memory) = (rows::int_or_none(row, "charge_cpu")?, rows::int_or_none(row, "charge_memory")?);
    Ok(EndedRecord {
        name: rows::engine_name(row)?,
        slot: rows::slot_key(row)?,
        origin: Origin::from_word(&rows::text(row, "origin")?),
        owner: Owner::from_parts(&rows::text(row, "owner_kind")?, rows::text(row, "owner")?),
        wanted_at_ms: rows::int(row, "issued_at_ms")?,
        reserved_at_ms: rows::int_or_none(row, "reserved_at_ms")?,
        created_at_ms: rows::int_or_none(row, "started_at_ms")?,
        registered_at_ms: rows::int_or_none(row, "registered_at_ms")?,
        ended_at_ms: rows::int(row, "ended_at_ms")?,
        word: rows::end_word(row)?,
        retryable: rows::int_or_none(row, "retryable")?.map(|retryable| retryable != 0),
        reason: rows::text_or_none(row, "ended_reason")?,
        ordered: rows::text_or_none(row, "end_reason")?,
        sessions_served: rows::int_or_none(row, "sessions_served")?,
        charge: cpu.zip(memory),
    })
}
