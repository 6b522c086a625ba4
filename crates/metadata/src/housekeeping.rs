//! Housekeeping: deletes old requests, finished alterations, engines and reservations that ended long ago, scopes that are closed
//! and hold nothing, demand whose lease has ended, and old rows of the audit.
//!
//! Ids are kept longer than any deadline, so a late repeat always finds its row. The name of a deleted engine is never issued
//! again, because the counter that it is derived from never goes back.

use std::time::Duration;

use model::millis;

use crate::backend::Mode;
use crate::demand;
use crate::error::Error;
use crate::failpoints;
use crate::ledger_sql;
use crate::rows;
use crate::sql;
use crate::store::Store;
use crate::transaction::{CommitPoints, Done, Transaction, args};

/// The retention of requests, alterations and ended reservations: 8 days.
pub const REQUEST_KEEP: Duration = Duration::from_hours(8 * 24);
/// The retention of ended engines: 30 days.
pub const ENGINE_KEEP: Duration = Duration::from_hours(30 * 24);
/// How long rows of demand are kept after their lease: longer than a report can be late.
pub const DEMAND_KEEP: Duration = Duration::from_hours(1);
/// The maximum number of rows of each table that a transaction deletes, because it holds the catalog lock.
pub const MAX_DELETED: usize = 500;
/// The maximum number of transactions of a run; the next run deletes the rest.
pub const MAX_ROUNDS: usize = 1_000;

const POINTS: CommitPoints =
    CommitPoints { before: failpoints::HOUSEKEEPING_BEFORE, after: failpoints::HOUSEKEEPING_AFTER };

/// The number of deleted rows of each table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeletedRows {
    pub requests: usize,
    pub alterations: usize,
    pub engines: usize,
    pub reservations: usize,
    pub scopes: usize,
    pub audit: usize,
    pub demand: usize,
}

impl Store {
    /// Deletes all old rows, in transactions of at most [`MAX_DELETED`] rows of each table, between which other transactions can
    /// take the catalog lock. Rows of the audit are deleted once they are older than `audit_keep`; zero keeps them for ever. Each
    /// metadata agent calls it about once an hour.
    pub async fn housekeep(&self, audit_keep: Duration, reservation_keep: Duration) -> Result<DeletedRows, Error> {
        let mut all = DeletedRows::default();
        for _ in 0..MAX_ROUNDS {
            let mut tx = self.begin(Mode::Write).await?;
            let result = delete(&mut tx, audit_keep, reservation_keep).await;
            let DeletedRows { requests, alterations, engines, reservations, scopes, audit, demand } =
                tx.end(POINTS, result).await?;
            all.requests += requests;
            all.alterations += alterations;
            all.engines += engines;
            all.reservations += reservations;
            all.scopes += scopes;
            all.audit += audit;
            all.demand += demand;
            let most = [requests, alterations, engines, reservations, scopes, audit, demand].into_iter().max();
            if most < Some(MAX_DELETED) {
                break;
            }
        }
        Ok(all)
    }
}

async fn delete(
    tx: &mut Transaction,
    audit_keep: Duration,
    reservation_keep: Duration,
) -> Result<Done<DeletedRows>, Error> {
    // Commits write rows of `engine`, too: in the same order, under the same lock.
    tx.lock_catalog().await?;
    let now_ms = tx.now_ms().await?;
    let before_ms = |keep| now_ms - millis::from_duration(keep);
    let requests = delete_old(tx, sql::REQUESTS_OLD, sql::REQUESTS_DELETE, "id", before_ms(REQUEST_KEEP)).await?;
    let alterations =
        delete_old(tx, sql::ALTERATIONS_OLD, sql::ALTERATIONS_DELETE, "id", before_ms(REQUEST_KEEP)).await?;
    let engines = delete_old(tx, sql::ENGINES_OLD, sql::ENGINES_DELETE, "name", before_ms(ENGINE_KEEP)).await?;
    let audit = if audit_keep.is_zero() { 0 } else { delete_old_audit(tx, before_ms(audit_keep)).await? };
    let scopes = delete_scopes(tx).await?;
    let reservations = delete_old(
        tx,
        ledger_sql::RESERVATIONS_OLD,
        ledger_sql::RESERVATIONS_DELETE,
        "id",
        before_ms(reservation_keep),
    )
    .await?;
    let demand = delete_ended_demand(tx, before_ms(DEMAND_KEEP)).await?;
    let deleted = DeletedRows { requests, alterations, engines, reservations, scopes, audit, demand };
    Ok(if deleted == DeletedRows::default() { Done::Same(deleted) } else { Done::Write(deleted) })
}

async fn delete_old(
    tx: &mut Transaction,
    find: &'static str,
    delete: &'static str,
    key: &str,
    before_ms: i64,
) -> Result<usize, Error> {
    let rows = tx.rows(find, args![before_ms, MAX_DELETED as i64]).await?;
    let mut keys = Vec::new();
    for row in &rows {
        keys.push(rows::text(row, key)?.into());
    }
    tx.execute_in(delete, &[], keys).await?;
    Ok(rows.len())
}

/// Deletes the demand of proxies that have stopped, with their numbers.
async fn delete_ended_demand(tx: &mut Transaction, before_ms: i64) -> Result<usize, Error> {
    let rows = tx.rows(demand::ENDED, args![before_ms, MAX_DELETED as i64]).await?;
    let mut keys = Vec::new();
    for row in &rows {
        keys.push(args![rows::text(row, "proxy")?, rows::text(row, "digest")?]);
    }
    tx.execute_in_tuples(demand::DELETE_ENDED, keys).await?;
    Ok(rows.len())
}

/// Deletes scopes in lock order. Under the catalog lock none of them is opened again.
async fn delete_scopes(tx: &mut Transaction) -> Result<usize, Error> {
    let rows = tx.rows(ledger_sql::SCOPES_GONE, args![MAX_DELETED as i64]).await?;
    for row in &rows {
        tx.execute(ledger_sql::SCOPE_DELETE, args![rows::int(row, "kind")?, rows::text(row, "name")?]).await?;
    }
    Ok(rows.len())
}

async fn delete_old_audit(tx: &mut Transaction, before_ms: i64) -> Result<usize, Error> {
    let rows = tx.rows(sql::AUDIT_OLD, args![before_ms, MAX_DELETED as i64]).await?;
    let mut keys = Vec::new();
    for row in &rows {
        keys.push(args![rows::text(row, "request")?, rows::int(row, "part")?]);
    }
    tx.execute_in_tuples(sql::AUDIT_DELETE, keys).await?;
    Ok(rows.len())
}
